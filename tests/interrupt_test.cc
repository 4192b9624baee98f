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

TEST_CASE("a SIGTERM that comes just before the guard is set up again is not forgotten") {
  InterruptGuard guard;
  std::raise(SIGTERM);
  guard.rearm();
  CHECK(interrupt_signal() == SIGTERM);
}
