// Signals that are noted: none is lost between two of them.
#include "core/cli/interrupt.h"

#include <csignal>

#include "tests/catch.h"

using namespace sluice::cli;

TEST_CASE("an interrupt is noted once, and forgotten when the guard is set up again") {
  InterruptGuard guard;
  CHECK(interrupt_signal() == 0);
  for (int i = 0; i < 3; ++i) {
    std::raise(SIGINT);
    CHECK(interrupt_signal() == SIGINT);
    CHECK_THROWS_AS(throw_if_interrupted(), Interrupted);
    guard.rearm();
    CHECK(interrupt_signal() == 0);
  }
}

TEST_CASE(
    "what comes just before the guard is set up again is not forgotten, unless it is Ctrl-C") {
  for (const int signal : {SIGTERM, SIGHUP}) {
    InterruptGuard guard;
    std::raise(signal);
    guard.rearm();
    CHECK(interrupt_signal() == signal);
  }
}

TEST_CASE("a terminal that goes away may say so more than once, and beside Ctrl-C") {
  InterruptGuard guard;
  for (const int signal : {SIGINT, SIGHUP, SIGHUP}) {
    std::raise(signal);
    CHECK(interrupt_signal() == signal);
  }
}

TEST_CASE("where Ctrl-C only stops an answer, each one is noted, and none is the first of two") {
  InterruptGuard guard(InterruptGuard::SecondCtrlC::is_recorded);
  for (int i = 0; i < 3; ++i) {
    std::raise(SIGINT);
    CHECK(interrupt_signal() == SIGINT);
  }
  std::raise(SIGTERM);
  guard.rearm();
  CHECK(interrupt_signal() == SIGTERM);
}

TEST_CASE("a signal that was ignored stays ignored, before and after another one") {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    InterruptGuard guard;
    std::raise(SIGHUP);
    CHECK(interrupt_signal() == 0);
    std::raise(SIGINT);
    std::raise(SIGHUP);
    CHECK(interrupt_signal() == SIGINT);
  }
  std::signal(SIGHUP, before);
}
