// Ctrl-C, SIGTERM and SIGHUP (the terminal is gone), handled at a safe point.
//
// While an InterruptGuard lives, the first of these signals is only recorded, so that the program
// can finish what it is writing and remove what is unfinished; the second has its usual effect and
// ends the program at once. SIGHUP never does that, since a terminal that goes away sends it more
// than once, nor does Ctrl-C where it only stops an answer. A signal that was ignored when the
// program started (nohup) stays ignored.
#pragma once

#include <array>
#include <csignal>
#include <exception>

namespace sluice::cli {

class InterruptGuard {
 public:
  enum class SecondCtrlC { ends_program, is_recorded };

  explicit InterruptGuard(SecondCtrlC second = SecondCtrlC::ends_program);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Forgets a SIGINT: the next signal counts as the first again. The others are never forgotten,
  // not even one that arrives during the call.
  void rearm();

  static constexpr std::array<int, 3> signals = {SIGINT, SIGTERM, SIGHUP};

 private:
  void install() const;

  std::array<struct sigaction, signals.size()> before_{};  // of each of the signals
};

// The signal that arrived since the guard was made, or 0.
int interrupt_signal();

// The exit status of a program that was ended by a signal, as shells report it: 130 after Ctrl-C.
inline int exit_status_of_signal(int signal) {
  return 128 + signal;
}

// Unwinds a command whose unfinished work is useless.
struct Interrupted : std::exception {
  explicit Interrupted(int number) : signal(number) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal;
};

// Throws Interrupted if a signal has arrived.
void throw_if_interrupted();

}  // namespace sluice::cli
