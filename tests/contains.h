// A matcher for texts that hold another one, under the name that it has in Catch2 v2.
#pragma once

#include <string>

#include "tests/catch.h"

namespace sluice::test {

#ifdef SLUICE_CATCH2_V3
inline auto Contains(const std::string& text) {
  return Catch::Matchers::ContainsSubstring(text);
}
#else
using Catch::Matchers::Contains;
#endif

}  // namespace sluice::test
