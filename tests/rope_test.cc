// The angles of rotary position embeddings against closed forms, in long double where the platform
// has more of it, at positions up to a million.
#include "core/model/rope.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.h"

namespace {

using sluice::model::Rope;
using sluice::model::RopeParameters;
using sluice::model::RopeScaling;

constexpr std::size_t positions[] = {0, 1, 2, 17, 1000, 8191, 131072, 999999, 1000000};

RopeParameters parameters(std::uint32_t dimensions, float base) {
  RopeParameters p;
  p.dimensions = dimensions;
  p.base = base;
  return p;
}

// Expects the pairs to turn by `frequencies` radians a position, stretched by `magnitude`.
void check_angles(const Rope& rope, const std::vector<long double>& frequencies,
                  long double magnitude) {
  REQUIRE(rope.pairs() == frequencies.size());
  std::vector<float> cosines(rope.pairs()), sines(rope.pairs());
  for (const std::size_t position : positions) {
    rope.angles(position, cosines.data(), sines.data());
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      INFO("position " << position << ", pair " << i);
      const long double angle = static_cast<long double>(position) * frequencies[i];
      // Half a unit in the last place of the float, and a few of the double that held the angle.
      const long double tolerance =
          magnitude * (std::numeric_limits<float>::epsilon() / 2 +
                       8 * (1 + angle) * std::numeric_limits<double>::epsilon());
      CHECK(std::abs(cosines[i] - magnitude * std::cos(angle)) <= tolerance);
      CHECK(std::abs(sines[i] - magnitude * std::sin(angle)) <= tolerance);
    }
  }
}

// base^(-2 i / dimensions) for all pairs.
std::vector<long double> unscaled(std::uint32_t dimensions, long double base) {
  std::vector<long double> out;
  for (std::uint32_t i = 0; i < dimensions / 2; ++i) {
    out.push_back(1 / std::pow(base, 2.0L * i / dimensions));
  }
  return out;
}

// As Llama 2 would be stretched from 4096 positions: low and high of the ramp are pairs 20 and 46,
// for 128 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 20.9 and 128 ln(4096 / (2 pi)) / ... = 45.03.
RopeParameters yarn() {
  RopeParameters p = parameters(128, 10000);
  p.scaling = RopeScaling::yarn;
  p.factor = 16;
  p.original_context = 4096;
  return p;
}
constexpr std::size_t ramp_begin = 20, ramp_end = 46;

std::vector<long double> yarn_frequencies() {
  std::vector<long double> out = unscaled(128, 10000);
  for (std::size_t i = ramp_begin; i < out.size(); ++i) {
    const long double kept = i >= ramp_end ? 0 : static_cast<long double>(ramp_end - i) / 26;
    out[i] *= kept + (1 - kept) / 16;
  }
  return out;
}

const long double yarn_magnitude = 1 + 0.1L * std::log(16.0L);

}  // namespace

TEST_CASE("rope: without scaling, pair i turns by base^(-2 i / dimensions) a position") {
  check_angles(Rope(parameters(8, 10000), {}), {1, 0.1L, 0.01L, 0.001L}, 1);
  check_angles(Rope(parameters(2, 77), {}), {1}, 1);
  check_angles(Rope(parameters(6, 1), {}), {1, 1, 1}, 1);
  check_angles(Rope(parameters(128, 500000), {}), unscaled(128, 500000), 1);
}

TEST_CASE("rope: linear scaling divides all angles, and none leaves them alone") {
  RopeParameters p = parameters(8, 10000);
  p.factor = 4;
  check_angles(Rope(p, {}), {1, 0.1L, 0.01L, 0.001L}, 1);
  p.scaling = RopeScaling::linear;
  check_angles(Rope(p, {}), {0.25L, 0.025L, 0.0025L, 0.00025L}, 1);
  p.attention_factor = 1.5f;
  check_angles(Rope(p, {}), {0.25L, 0.025L, 0.0025L, 0.00025L}, 1.5L);
}

TEST_CASE("rope: factors divide the frequency of their pair") {
  const std::vector<float> factors = {1, 8, 0.5f, 1e30f};
  RopeParameters p = parameters(8, 10000);
  check_angles(Rope(p, factors), {1, 0.0125L, 0.02L, 1e-33L}, 1);
  p.scaling = RopeScaling::linear;
  p.factor = 2;
  check_angles(Rope(p, factors), {0.5L, 0.00625L, 0.01L, 5e-34L}, 1);
}

TEST_CASE("rope: YaRN keeps fast pairs, divides slow ones and blends in between") {
  check_angles(Rope(yarn(), {}), yarn_frequencies(), yarn_magnitude);

  // What the formulas above come to, spelled out for a pair of each kind.
  const std::vector<long double> plain = unscaled(128, 10000), scaled = yarn_frequencies();
  CHECK(scaled[0] == plain[0]);
  CHECK(scaled[ramp_begin] == plain[ramp_begin]);
  CHECK(static_cast<double>(scaled[33] / plain[33]) == Approx(0.5 + 0.5 / 16));
  CHECK(scaled[ramp_end] == plain[ramp_end] / 16);
  CHECK(scaled[63] == plain[63] / 16);
}

TEST_CASE("rope: YaRN blends between frequencies that are already divided by factors") {
  std::vector<float> factors(64);
  std::vector<long double> expected = yarn_frequencies();
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i] = 1 + 0.125f * static_cast<float>(i);
    expected[i] /= factors[i];
  }
  check_angles(Rope(yarn(), factors), expected, yarn_magnitude);
}

TEST_CASE("rope: YaRN's ramp ends within the head") {
  RopeParameters p = parameters(8, 100);
  p.scaling = RopeScaling::yarn;
  p.factor = 3;
  p.original_context = 1000000;
  p.yarn_beta_fast = 1e9f;  // no pair turns that often: the ramp begins at pair 0
  // 8 ln(1e6 / (2 pi)) / (2 ln 100) = 10.4, beyond the last dimension: the ramp ends at 7.
  std::vector<long double> expected = unscaled(8, 100);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const long double divided = static_cast<long double>(i) / 7;
    expected[i] *= 1 - divided + divided / 3;
  }
  check_angles(Rope(p, {}), expected, 1 + 0.1L * std::log(3.0L));
}

TEST_CASE("rope: YaRN's extremes, all pairs kept and all divided") {
  RopeParameters p = parameters(8, 10000);
  p.scaling = RopeScaling::yarn;
  p.factor = 4;
  p.original_context = 1u << 28;
  p.yarn_beta_fast = p.yarn_beta_slow = 1;  // 7.6: from 7 to 7, beyond the last pair
  check_angles(Rope(p, {}), {1, 0.1L, 0.01L, 0.001L}, 1 + 0.1L * std::log(4.0L));

  // Nothing turns once within so short a context. The ramp has no width, and begins after pair 0.
  p.original_context = 4;
  check_angles(Rope(p, {}), {1, 0.025L, 0.0025L, 0.00025L}, 1 + 0.1L * std::log(4.0L));

  p = yarn();
  p.yarn_extrapolation = 0;
  std::vector<long double> expected = unscaled(128, 10000);
  for (long double& frequency : expected) frequency /= 16;
  check_angles(Rope(p, {}), expected, yarn_magnitude);
}

TEST_CASE("rope: YaRN's magnitude multiplies the given one, unless it is left to the model") {
  RopeParameters p = yarn();
  p.attention_factor = 0.5f;
  check_angles(Rope(p, {}), yarn_frequencies(), 0.5L * yarn_magnitude);
  p.yarn_log_multiplier = 1;
  check_angles(Rope(p, {}), yarn_frequencies(), 0.5L);
  p.attention_factor = 1;
  check_angles(Rope(p, {}), yarn_frequencies(), 1);
}
