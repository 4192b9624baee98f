// The seed of a test that draws at random: another one in each run, printed so that a failure can
// be repeated with SLUICE_TEST_SEED=... in the environment.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace sluice::test {

inline std::uint64_t random_seed() {
  const char* given = std::getenv("SLUICE_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::uint64_t{std::random_device{}()};
  std::printf("SLUICE_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace sluice::test
