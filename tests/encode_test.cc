// The quantisers: never worse than plain rounding between the least and the largest value, close to
// what any scale can reach, and exact where a format can be.
#include "kernels/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t columns = 1024;

std::vector<float> encoded(BlockType type, const std::vector<float>& values,
                           const float* importance = nullptr) {
  std::vector<std::byte> blocks(row_bytes(type, values.size()));
  encode(type, values.data(), values.size(), importance, blocks.data());
  std::vector<float> out(values.size());
  dequantise(type, blocks.data(), out.size(), out.data());
  return out;
}

double weighted_error(const std::vector<float>& a, const std::vector<float>& b,
                      const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double rest = static_cast<double>(a[i]) - b[i];
    sum += weights[i] * rest * rest;
  }
  return sum;
}

double error_of(const std::vector<float>& a, const std::vector<float>& b) {
  return weighted_error(a, b, std::vector<float>(a.size(), 1.0f));
}

// What plain rounding loses: `levels` even steps between the least and the largest value of each
// `size` values, or where a format has no offset between the largest magnitude and its negative.
double plain_error(const std::vector<float>& values, std::size_t size, int levels,
                   bool has_offset) {
  double sum = 0;
  for (std::size_t at = 0; at < values.size(); at += size) {
    double low = values[at], high = values[at];
    for (std::size_t i = at; i < at + size; ++i) {
      low = std::min<double>(low, values[i]);
      high = std::max<double>(high, values[i]);
    }
    if (!has_offset) {
      high = std::max(high, -low);
      low = -high;
    }
    const double step = (high - low) / (levels - 1);
    for (std::size_t i = at; i < at + size; ++i) {
      const double rest = values[i] - (low + std::round((values[i] - low) / step) * step);
      sum += rest * rest;
    }
  }
  return sum;
}

// Gaussian, or with heavy tails: a normal over the root of a uniform.
std::vector<float> random_row(std::mt19937_64& random, bool heavy) {
  std::normal_distribution<float> normal(0, 0.02f);
  std::uniform_real_distribution<float> uniform(0.05f, 1);
  std::vector<float> values(columns);
  for (float& value : values) value = normal(random) / (heavy ? std::sqrt(uniform(random)) : 1);
  return values;
}

// What a tier makes of a row, between bytes that it must not touch.
std::vector<std::uint8_t> blocks_of(Isa isa, BlockType type, const std::vector<float>& values,
                                    const float* importance, std::size_t offset) {
  test::Guarded<std::uint8_t> blocks(row_bytes(type, values.size()), offset);
  kernel_table(isa).encode.blocks(type, values.data(), values.size(), importance,
                                  reinterpret_cast<std::byte*>(blocks.data()));
  REQUIRE(blocks.intact());
  return {blocks.data(), blocks.data() + blocks.size()};
}

// Rows that a search may stumble over; all within what a half float can scale.
std::vector<std::vector<float>> odd_rows(std::size_t size, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<std::vector<float>> rows(9, std::vector<float>(size));  // the first is of zeros
  for (std::size_t i = 0; i < size; ++i) {
    const float value = normal(random);
    rows[1][i] = value;
    rows[2][i] = 3 + value;
    rows[3][i] = std::abs(value);
    rows[4][i] = -std::abs(value);
    rows[5][i] = value * 1e-7f;   // scales are subnormal halves or 0
    rows[6][i] = value * 1e-40f;  // subnormal floats
    rows[7][i] = static_cast<float>(static_cast<int>(random() % 16) - 8) / 8;  // fits a grid
    rows[8][i] = i % 2 == 0 ? 65504.0f : -65504.0f;
  }
  rows.push_back(rows[0]);
  rows.back()[random() % size] = -1;  // one outlier among zeros
  rows.push_back(rows[1]);
  rows.back()[random() % size] = 6e4f;
  return rows;
}

// Whether all weights of a long block share one scale, and no more: then what counts little may be
// lost beside what counts much.
bool has_one_scale(BlockType type) {
  return type == BlockType::q1_0 || type == BlockType::q2_0 || type == BlockType::tq1_0 ||
         type == BlockType::tq2_0 || type == BlockType::pq2_0 || type == BlockType::ptq1_0;
}

struct Plain {
  BlockType type;
  std::size_t size;  // values that share a scale
  int levels;
  bool has_offset = false;
};

}  // namespace

TEST_CASE("a quantiser is no worse than plain rounding between least and largest") {
  std::mt19937_64 random(test::random_seed());
  for (const Plain& plain : {Plain{BlockType::q4_0, 32, 15},
                             {BlockType::q4_1, 32, 16, true},
                             {BlockType::q5_0, 32, 31},
                             {BlockType::q5_1, 32, 32, true},
                             {BlockType::q4_k, 32, 16, true},
                             {BlockType::q5_k, 32, 32, true},
                             {BlockType::q6_k, 16, 63},
                             {BlockType::iq4_nl, 32, 15},
                             {BlockType::iq4_xs, 32, 15}}) {
    for (const bool heavy : {false, true}) {
      INFO(traits(plain.type).name << (heavy ? ", heavy tails" : ", Gaussian"));
      const std::vector<float> values = random_row(random, heavy);
      CHECK(error_of(values, encoded(plain.type, values)) <
            1.02 * plain_error(values, plain.size, plain.levels, plain.has_offset));
    }
  }
}

TEST_CASE("no scale of a fine search is much better than the one found") {
  std::mt19937_64 random(test::random_seed());
  for (const bool heavy : {false, true}) {
    const std::vector<float> values = random_row(random, heavy);
    double best = 0;
    for (std::size_t at = 0; at < columns; at += 32) {
      const float* x = values.data() + at;
      float largest = 0;
      for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
      double least = 1e30;
      for (int step = -4000; step <= 4000; ++step) {
        const float d = half_to_float(float_to_half(largest * static_cast<float>(step) / 24000));
        if (d == 0) continue;
        double error = 0;
        for (int i = 0; i < 32; ++i) {
          const float code = std::clamp(std::round(x[i] / d), -8.0f, 7.0f);
          error += std::pow(static_cast<double>(x[i]) - d * code, 2);
        }
        least = std::min(least, error);
      }
      best += least;
    }
    CHECK(error_of(values, encoded(BlockType::q4_0, values)) < 1.02 * best);
  }
}

TEST_CASE("errors are at most those of llama.cpp's quantiser") {
  // Its sum of w (x - x')^2 over that of w x^2, for normal values: with w = 1, and with log-normal
  // importances that are given to it. Measured with llama.cpp 0.7.0.
  struct Figures {
    BlockType type;
    double plain, weighted;
  };
  std::mt19937_64 random(7);  // always the same values: some figures are near ours
  std::normal_distribution<float> normal(0, 1);
  constexpr std::size_t size = 256, rows = 128;
  std::vector<std::vector<float>> values(rows, std::vector<float>(size));
  std::vector<float> importance(size);
  for (std::vector<float>& row : values) {
    for (float& value : row) value = normal(random);
  }
  for (float& one : importance) one = std::exp(normal(random));
  for (const Figures& figures : {Figures{BlockType::q6_k, 3.140e-4, 2.630e-4},
                                 {BlockType::q5_k, 1.299e-3, 1.104e-3},
                                 {BlockType::q4_k, 5.086e-3, 4.280e-3},
                                 {BlockType::iq4_xs, 5.889e-3, 5.149e-3},
                                 {BlockType::nvfp4, 9.026e-3, 8.911e-3},
                                 {BlockType::q3_k, 2.273e-2, 1.821e-2},
                                 {BlockType::iq3_s, 2.753e-2, 1.445e-2},
                                 {BlockType::iq3_xxs, 3.282e-2, 2.339e-2},
                                 {BlockType::q2_k, 8.743e-2, 5.708e-2},
                                 {BlockType::iq2_s, 6.179e-2, 5.104e-2},
                                 {BlockType::iq2_xs, 8.997e-2, 6.761e-2},
                                 {BlockType::iq2_xxs, 1.175e-1, 8.785e-2},
                                 {BlockType::iq1_m, 2.035e-1, 1.531e-1},
                                 {BlockType::iq1_s, 2.352e-1, 1.967e-1},
                                 {BlockType::tq1_0, 6.569e-1, 6.542e-1},
                                 {BlockType::tq2_0, 6.569e-1, 6.542e-1},
                                 {BlockType::q2_0, 5.157e-1, 5.142e-1},
                                 {BlockType::q1_0, 3.604e-1, 3.614e-1}}) {
    INFO(traits(figures.type).name);
    const std::vector<float> zeros(size, 0.0f);
    double plain = 0, plain_energy = 0, weighted = 0, weighted_energy = 0;
    for (const std::vector<float>& row : values) {
      plain += error_of(row, encoded(figures.type, row));
      plain_energy += error_of(row, zeros);
      weighted += weighted_error(row, encoded(figures.type, row, importance.data()), importance);
      weighted_energy += weighted_error(row, zeros, importance);
    }
    CHECK(plain <= 1.02 * figures.plain * plain_energy);
    CHECK(weighted <= 1.02 * figures.weighted * weighted_energy);
  }
}

TEST_CASE("ternary and binary weights are kept as they are") {
  std::mt19937_64 random(test::random_seed());
  for (const BlockType type : {BlockType::tq1_0, BlockType::tq2_0, BlockType::q2_0, BlockType::q1_0,
                               BlockType::pq2_0, BlockType::ptq1_0}) {
    INFO(traits(type).name);
    std::vector<float> values(columns);
    for (float& value : values) {
      value = 0.0234375f * static_cast<float>(static_cast<int>(random() % 3) - 1);
      if (type == BlockType::q1_0 && value == 0) value = 0.0234375f;
    }
    CHECK(encoded(type, values) == values);
  }
}

TEST_CASE("every instruction set makes the same blocks") {
  std::mt19937_64 random(test::random_seed());
  std::uniform_real_distribution<float> uniform(0, 1);
  // As many blocks as one step of the search takes, and fewer or more. The sanitizers are slow.
  const std::vector<std::size_t> counts = test::is_sanitized
                                              ? std::vector<std::size_t>{3, 17}
                                              : std::vector<std::size_t>{1, 2, 3, 15, 16, 17, 33};
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode || type.elements_per_block == 1) continue;
    for (const std::size_t blocks : counts) {
      const std::size_t size = blocks * type.elements_per_block;
      std::vector<float> importance(size);
      for (float& one : importance) one = random() % 4 == 0 ? 0 : std::pow(uniform(random), 4.0f);
      // A block that no input reached.
      std::fill_n(importance.begin(), type.elements_per_block, 0.0f);
      std::vector<std::vector<float>> rows = odd_rows(size, random);
      if (type.type == BlockType::mxfp4) {
        for (const float factor : {1e38f, 1e-30f, 1e-36f}) {
          rows.push_back(rows[7]);
          for (float& value : rows.back()) value *= factor;
        }
      }
      for (std::size_t row = 0; row < rows.size(); ++row) {
        for (const float* weights : std::array<const float*, 2>{nullptr, importance.data()}) {
          INFO(type.name << ", " << blocks << " blocks, row " << row
                         << (weights != nullptr ? " with importance" : ""));
          const auto expected = blocks_of(Isa::scalar, type.type, rows[row], weights, 0);
          for (const Isa isa : test::tiers_above_scalar()) {
            INFO(isa_name(isa));
            REQUIRE(blocks_of(isa, type.type, rows[row], weights, row % 3) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("halves and magnitudes are the same for every instruction set") {
  std::mt19937_64 random(test::random_seed());
  for (const std::size_t size : test::odd_sizes()) {
    std::vector<std::uint16_t> halves(size);
    for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(random());
    for (const Isa isa : test::all_tiers()) {
      INFO(isa_name(isa) << ", " << size);
      const EncodeKernels& kernels = kernel_table(isa).encode;
      test::Guarded<float> values(size, 1);
      kernels.from_halves(halves.data(), size, values.data());
      REQUIRE(values.intact());
      float largest = 0;
      for (std::size_t i = 0; i < size; ++i) {
        REQUIRE(test::same(values.data()[i], half_to_float(halves[i])));
        if (!std::isnan(values.data()[i])) largest = std::max(largest, std::abs(values.data()[i]));
      }
      const bool has_nan = std::any_of(values.data(), values.data() + size,
                                       [](float value) { return std::isnan(value); });
      REQUIRE(test::same(kernels.largest_magnitude(values.data(), size),
                         has_nan ? test::not_a_number : largest));
    }
  }
}

TEST_CASE("a block does not depend on its neighbours") {
  std::mt19937_64 random(test::random_seed());
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode || type.elements_per_block == 1) continue;
    INFO(type.name);
    const std::vector<float> values = random_row(random, true);
    std::vector<float> one_by_one;
    for (std::size_t at = 0; at < columns; at += type.elements_per_block) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(at);
      const std::vector<float> back = encoded(type.type, {first, first + type.elements_per_block});
      one_by_one.insert(one_by_one.end(), back.begin(), back.end());
    }
    CHECK(encoded(type.type, values) == one_by_one);
  }
}

TEST_CASE("MXFP4 holds values from the least to the greatest float") {
  for (const float value : {3e38f, 1e19f, 1e-19f, 1e-36f}) {
    INFO(value);
    const std::vector<float> same(32, value);
    for (const float back : encoded(BlockType::mxfp4, same)) {
      CHECK(std::abs(back - value) <= 0.35f * value);
    }
  }
}

TEST_CASE("importance moves the error to columns that count less") {
  std::mt19937_64 random(test::random_seed());
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode || type.elements_per_block == 1) continue;
    if (type.type == BlockType::q8_0) continue;  // is rounded plainly
    INFO(type.name);
    const std::vector<float> values = random_row(random, false);
    std::vector<float> importance(columns);
    for (float& one : importance) one = std::pow(uniform(random), 4.0f);
    CHECK(weighted_error(values, encoded(type.type, values, importance.data()), importance) <=
          weighted_error(values, encoded(type.type, values), importance));
    // All alike is as none; and none at all is no reason for nonsense.
    const std::vector<float> ones(columns, 1.0f), zeros(columns, 0.0f);
    CHECK(encoded(type.type, values, ones.data()) == encoded(type.type, values));
    CHECK(encoded(type.type, values, zeros.data()) == encoded(type.type, values));
  }
}

TEST_CASE("only the ratios of importances matter, and what counts little keeps its values") {
  std::mt19937_64 random(test::random_seed());
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode || type.elements_per_block == 1) continue;
    INFO(type.name);
    const std::vector<float> values = random_row(random, false);
    std::vector<float> importance(columns);
    // Of 24 bits behind the point, so that every product with a power of two is exact.
    for (float& one : importance) one = std::ldexp(static_cast<float>(random() >> 40), -24);
    const std::vector<float> expected = encoded(type.type, values, importance.data());
    for (const int power : {-120, -60, 30, 110}) {
      std::vector<float> scaled = importance;
      for (float& one : scaled) one = std::ldexp(one, power);
      CHECK(encoded(type.type, values, scaled.data()) == expected);
    }
    // Columns that no input has reached, from single ones to whole blocks; and wild ratios.
    for (int round = 0; round < 20; ++round) {
      std::array<bool, columns / 16> counts{};
      for (std::size_t at = 0; at < columns; at += 16) {
        const float all[] = {0, 0, 1, 1e-30f, 1e-45f, 1e30f, 3e38f};
        const float one = all[random() % std::size(all)];
        counts[at / 16] = one > 1;
        for (std::size_t i = at; i < at + 16; ++i) importance[i] = one * uniform(random);
      }
      const std::vector<float> found = encoded(type.type, values, importance.data());
      for (const float value : found) REQUIRE(std::isfinite(value));
      if (has_one_scale(type.type)) continue;
      // A column that counts little beside one that counts much is changed for its sake.
      for (std::size_t at = 0; at < columns; at += 32) {
        if (counts[at / 16] || counts[at / 16 + 1]) continue;
        double error = 0, energy = 0;
        for (std::size_t i = at; i < at + 32; ++i) {
          error += std::pow(static_cast<double>(values[i]) - found[i], 2);
          energy += std::pow(static_cast<double>(values[i]), 2);
        }
        CHECK(error < 0.5 * energy);
      }
    }
  }
}

TEST_CASE("rows that every format can hold come back") {
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode) continue;
    INFO(type.name);
    const std::vector<float> zeros(columns, 0.0f);
    CHECK(encoded(type.type, zeros) == zeros);
    for (const float value : {0.5f, -0.5f, 1e-20f, 3e4f, -3e4f}) {
      if (type.type == BlockType::nvfp4 && std::abs(value) > largest_nvfp4) continue;
      INFO(value);
      const std::vector<float> same(columns, value);
      for (const float back : encoded(type.type, same)) {
        REQUIRE(std::isfinite(back));
        REQUIRE(std::abs(back - value) <= 0.35f * std::abs(value) + 1e-6f);
      }
    }
  }
}

TEST_CASE("what was quantised once is quantised again almost without loss") {
  std::mt19937_64 random(test::random_seed());
  for (const BlockTraits& type : all_block_types()) {
    if (!type.can_encode) continue;
    INFO(type.name);
    const std::vector<float> values = random_row(random, false);
    const std::vector<float> once = encoded(type.type, values);
    CHECK(error_of(once, encoded(type.type, once)) <= 0.25 * error_of(values, once));
  }
}

}  // namespace sluice::kernels
