#include "core/cli/interrupt.h"

#include <atomic>

namespace sluice::cli {
namespace {

std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait");

void note(int number) {
  received = number;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
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

InterruptGuard::InterruptGuard() {
  ::sigaction(SIGINT, nullptr, &interrupt_before_);
  ::sigaction(SIGTERM, nullptr, &terminate_before_);
  received = 0;  // drops a signal of an earlier guard; from here on signals are recorded
  install();
}

void InterruptGuard::install() const {
  note_next(SIGINT, interrupt_before_);
  note_next(SIGTERM, terminate_before_);
}

void InterruptGuard::rearm() {
  int forgotten = SIGINT;
  received.compare_exchange_strong(forgotten, 0);
  install();
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &interrupt_before_, nullptr);
  ::sigaction(SIGTERM, &terminate_before_, nullptr);
}

int interrupt_signal() {
  return received;
}

void throw_if_interrupted() {
  if (const int number = interrupt_signal()) throw Interrupted(number);
}

}  // namespace sluice::cli
