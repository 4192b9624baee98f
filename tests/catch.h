// Catch2 v2 and v3 under one include, and what the tests share: where fixtures lie, and a skip that
// is seen. Fixtures are test data that is not part of the repository; a test that needs one calls
// `fixture("models/x.gguf")`, and skips by name where it is absent.
#pragma once

#ifdef SLUICE_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/paths.h"

// Ends the test case and has CTest report it as skipped. Must stand in the test case itself.
#define SLUICE_SKIP(reason)                                    \
  do {                                                         \
    std::printf("SKIPPED: %s\n", std::string(reason).c_str()); \
    SUCCEED();                                                 \
    return;                                                    \
  } while (false)

namespace sluice::test {

// The folder of fixtures: $SLUICE_FIXTURES, else ../shared/fixtures beside the project.
inline std::filesystem::path fixture_root() {
  if (const char* root = std::getenv("SLUICE_FIXTURES")) return root;
  return std::filesystem::path(source_folder).parent_path() / "shared" / "fixtures";
}

// The path of a fixture, or nothing when it is not there.
inline std::optional<std::filesystem::path> fixture(const std::string& name) {
  std::filesystem::path path = fixture_root() / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

}  // namespace sluice::test
