// What the linker and the compiler have left in the program of a release build
// (docs/reliability.md, "Release builds"), as readelf shows it.
#include <string>

#include "tests/contains.h"
#include "tests/program.h"

using namespace sluice::test;

TEST_CASE("the program of a release build is hardened") {
  if (shell("command -v readelf").status != 0) SLUICE_SKIP("there is no readelf");
  if (*emulator != '\0') SLUICE_SKIP("the program is of another machine");
  const auto readelf = [](const std::string& what) {
    return shell("LC_ALL=C readelf -W " + what + " '" + program + "'").output;
  };
  CHECK_THAT(readelf("-h"), Contains("DYN ("));  // lies anywhere in memory
  const std::string segments = readelf("-l");
  CHECK_THAT(segments, Contains("GNU_RELRO"));
  CHECK_THAT(segments, !Contains("RWE"));  // neither the stack nor anything else is written and run
  CHECK_THAT(readelf("-d"), Contains("BIND_NOW"));
  const std::string symbols = readelf("-s");
  CHECK_THAT(symbols, Contains("__stack_chk_fail"));
  CHECK_THAT(symbols, Contains("__glibcxx_assert_fail"));
  CHECK_THAT(symbols, Contains("_chk@"));  // a function of _FORTIFY_SOURCE
#ifdef __x86_64__
  CHECK_THAT(readelf("-n"), Contains("SHSTK"));
#endif
}
