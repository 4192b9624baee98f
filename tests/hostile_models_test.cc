// Random changes of tiny models of every architecture: each is refused, or gives its tokens.
//
// SLUICE_HOSTILE_MODELS=N tries N of them (scripts/stress-models).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/catch.h"
#include "tests/fuzz/hostile_model.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"

using namespace sluice;

namespace {

std::size_t models_wanted() {
  const char* const given = std::getenv("SLUICE_HOSTILE_MODELS");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return test::is_sanitized ? 100 : 1000;
}

std::string random_choices(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Each change takes some; where there are few of them, more models can be evaluated.
  std::string choices(1 + random() % (std::size_t{4} << random() % 5), '\0');
  for (char& one : choices) one = static_cast<char>(random() % 256);
  return choices;
}

}  // namespace

TEST_CASE("changed models are refused, or give their tokens") {
  const std::uint64_t first = test::random_seed();
  const std::size_t wanted = models_wanted();
  std::size_t evaluated = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    INFO("SLUICE_TEST_SEED=" << first + i);
    const std::string choices = random_choices(first + i);
    evaluated += fuzz::try_hostile_model(fuzz::Choices(choices)) == fuzz::ModelOutcome::evaluated;
  }
  std::printf("%12zu models\n%12zu gave tokens\n", wanted, evaluated);
  CHECK(evaluated != 0);
  CHECK(evaluated != wanted);
}
