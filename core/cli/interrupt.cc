#include "core/cli/interrupt.h"

#include <atomic>
#include <cstddef>

namespace sluice::cli {
namespace {

std::atomic<int> received = 0;
std::atomic<bool> records_every_ctrl_c = false;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait");

void note(int number) {
  received = number;
  if (number == SIGINT && records_every_ctrl_c) return;
  for (const int each : InterruptGuard::signals) {
    if (each == SIGHUP) continue;
    struct sigaction action {};
    ::sigaction(each, nullptr, &action);
    if (action.sa_handler == note) std::signal(each, SIG_DFL);  // and not if it is ignored
  }
}

void note_next(int number, const struct sigaction& before) {
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(SecondCtrlC second) {
  records_every_ctrl_c = second == SecondCtrlC::is_recorded;
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], nullptr, &before_[i]);
  received = 0;  // drops a signal of an earlier guard; from here on signals are recorded
  install();
}

void InterruptGuard::install() const {
  for (std::size_t i = 0; i < signals.size(); ++i) note_next(signals[i], before_[i]);
}

void InterruptGuard::rearm() {
  int forgotten = SIGINT;
  received.compare_exchange_strong(forgotten, 0);
  install();
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
}

int interrupt_signal() {
  return received;
}

void throw_if_interrupted() {
  if (const int number = interrupt_signal()) throw Interrupted(number);
}

}  // namespace sluice::cli
