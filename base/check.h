// Invariants that are checked in every build.
//
// They guard memory and accounting: pages, places, slots, sums of a plan. When one of them is
// broken, the program has a bug, and going on would write where something else lies, or hold more
// than was promised. So the process prints one line and ends (SIGABRT). Bad input is never a
// reason: it is reported by an exception long before.
//
// Both sides of a border check what passes it: a pool what it gives out and what comes back, a
// holder what it gets. A check is one comparison. It stands beside work on a page, a segment or a
// column, never inside of a loop over elements.
#pragma once

namespace sluice::base {

// Prints "sluice: internal error: WHAT (FILE:LINE); ..." to standard error and aborts.
[[noreturn]] void fail_check(const char* what, const char* file, unsigned line) noexcept;

// `what` says what is wrong when `holds` is false: "a page was given back that nobody holds".
constexpr void check(bool holds, const char* what, const char* file = __builtin_FILE(),
                     unsigned line = __builtin_LINE()) noexcept {
  if (!holds) [[unlikely]] {
    fail_check(what, file, line);
  }
}

}  // namespace sluice::base
