// Ctrl-C and SIGTERM, taken at a safe place.
//
// While an InterruptGuard lives, the first SIGINT or SIGTERM is only noted, so that the program can
// finish what it is writing; the second has its usual effect and ends the program at once. A signal
// that was ignored when the program started (nohup) stays ignored.
#pragma once

#include <csignal>
#include <exception>

namespace sluice::cli {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Forgets a SIGINT that came: the next signal is again the first. A SIGTERM is never forgotten,
  // also one that comes at this moment.
  void rearm();

 private:
  void install() const;

  struct sigaction interrupt_before_ {};
  struct sigaction terminate_before_ {};
};

// The signal that came since the guard was set up, or 0.
int interrupt_signal();

// The exit status of a program that a signal ended, as shells report it: 130 after Ctrl-C.
inline int exit_status_of_signal(int signal) {
  return 128 + signal;
}

// Unwinds a command whose half-done work is of no use.
struct Interrupted : std::exception {
  explicit Interrupted(int number) : signal(number) {}
  const char* what() const noexcept override { return "interrupted"; }
  int signal;
};

// Throws Interrupted when a signal came.
void throw_if_interrupted();

}  // namespace sluice::cli
