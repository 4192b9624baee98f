// Activations as integers: every tier against the definition in kernels/quantise.h, written out.
#include "kernels/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/matmul.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

// Columns that lie apart, as those of a tile do.
constexpr std::size_t stride = 3;

struct A256 {
  explicit A256(std::size_t size)
      : q(size), d(size / 256), sums(size / 32), sums_of_16(size / 16), minus_32(size / 16) {}
  // What a tier makes of x.
  A256(const kernels::QuantiseKernels& table, const float* x, std::size_t size) : A256(size) {
    std::vector<kernels::BlockA256> blocks(size / 256 * stride);
    table.a256(x, size, {blocks.data(), stride});
    for (std::size_t i = 0; i < size / 256; ++i) {
      const kernels::BlockA256& block = blocks[i * stride];
      std::copy_n(block.q, 256, &q[i * 256]);
      std::copy_n(block.sums_of_32, 8, &sums[i * 8]);
      std::copy_n(block.sums_of_16, 16, &sums_of_16[i * 16]);
      std::copy_n(block.minus_32_sums_of_16, 16, &minus_32[i * 16]);
      d[i] = block.d;
    }
  }
  std::vector<std::int8_t> q;
  std::vector<float> d;
  std::vector<std::int16_t> sums, sums_of_16;
  std::vector<std::int32_t> minus_32;
};

struct A32 {
  explicit A32(std::size_t size)
      : q(size),
        d(size / 32),
        d_sums(size / 32),
        minus_8(size / 32),
        minus_16(size / 32),
        minus_128(size / 32) {}
  A32(const kernels::QuantiseKernels& table, const float* x, std::size_t size) : A32(size) {
    std::vector<kernels::BlockA32> blocks((size + 255) / 256 * stride);
    table.a32(x, size, {blocks.data(), stride});
    for (std::size_t g = 0; g < size / 32; ++g) {
      const kernels::BlockA32& block = blocks[g / 8 * stride];
      std::copy_n(block.q + g % 8 * 32, 32, &q[g * 32]);
      d[g] = block.d[g % 8];
      d_sums[g] = block.d_sums[g % 8];
      minus_8[g] = block.minus_8_sums[g % 8];
      minus_16[g] = block.minus_16_sums[g % 8];
      minus_128[g] = block.minus_128_sums[g % 8];
    }
  }
  std::vector<std::int8_t> q;
  std::vector<float> d, d_sums;
  std::vector<std::int32_t> minus_8, minus_16, minus_128;
};

template <typename T>
std::string vector_difference(const std::vector<T>& found, const std::vector<T>& expected) {
  return difference(found.data(), expected.data(), expected.size()).value_or("");
}

// Sums as the lanes add them: one for each of 16, and then halves onto halves.
float sum_of_lanes(std::array<float, 16> sums) {
  for (std::size_t half = 8; half != 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// The scale and integers of one finite group.
float quantise_group(const float* x, std::size_t group, std::int8_t* q) {
  float top = 0;
  for (std::size_t i = 0; i < group; ++i) top = std::max(top, std::abs(x[i]));
  std::fill_n(q, group, std::int8_t{0});
  if (top < 0x1p-120f) return 0;
  float d = 0, most = 0;
  for (const float steps : kernels::steps_of_largest) {
    const float factor = steps / top;
    std::array<float, 16> products = {}, squares = {};
    for (std::size_t i = 0; i < group; ++i) {
      const float scaled = x[i] * factor, rounded = std::nearbyint(scaled);
      products[i % 16] = std::fma(scaled, rounded, products[i % 16]);
      squares[i % 16] = std::fma(rounded, rounded, squares[i % 16]);
    }
    const float product = sum_of_lanes(products), square = sum_of_lanes(squares);
    const float reproduced = product * product / (square * steps * steps);
    if (reproduced <= most) continue;
    most = reproduced;
    d = top / steps * (product / square);
    for (std::size_t i = 0; i < group; ++i) {
      q[i] = static_cast<std::int8_t>(std::clamp(std::nearbyint(x[i] * factor), -127.0f, 127.0f));
    }
  }
  return d;
}

int sum_of(const std::int8_t* q, std::size_t count) {
  int sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += q[i];
  return sum;
}

A256 expected_a256(const float* x, std::size_t size) {
  constexpr std::size_t order[] = {0, 2, 1, 3, 4, 6, 5, 7};
  A256 out(size);
  for (std::size_t g = 0; g < size / 256; ++g) {
    std::int8_t* q = out.q.data() + 256 * g;
    out.d[g] = quantise_group(x + 256 * g, 256, q);
    for (std::size_t place = 0; place < 8; ++place) {
      out.sums[8 * g + place] = static_cast<std::int16_t>(sum_of(q + 32 * order[place], 32));
    }
    for (std::size_t place = 0; place < 16; ++place) {
      const std::size_t s = place / 8 * 8 + order[place % 8];
      out.sums_of_16[16 * g + place] = static_cast<std::int16_t>(sum_of(q + 16 * s, 16));
    }
    for (std::size_t s = 0; s < 16; ++s) out.minus_32[16 * g + s] = -32 * sum_of(q + 16 * s, 16);
  }
  return out;
}

A32 expected_a32(const float* x, std::size_t size) {
  A32 out(size);
  for (std::size_t g = 0; g < size / 32; ++g) {
    std::int8_t* q = out.q.data() + 32 * g;
    out.d[g] = quantise_group(x + 32 * g, 32, q);
    const int sum = sum_of(q, 32);
    out.d_sums[g] = out.d[g] * static_cast<float>(sum);
    out.minus_8[g] = -8 * sum;
    out.minus_16[g] = -16 * sum;
    out.minus_128[g] = -128 * sum;
  }
  return out;
}

constexpr Data finite_data[] = {Data::normal, Data::huge, Data::tiny, Data::zeros,
                                Data::signed_zeros};

TEST_CASE("activations become integers as documented, in every tier") {
  Rng rng(21);
  for (const kernels::Isa isa : all_tiers()) {
    const kernels::QuantiseKernels& table = kernels::kernel_table(isa).quantise;
    for (const Data data : finite_data) {
      for (std::size_t groups = 1; groups <= 9; ++groups) {
        INFO(kernels::isa_name(isa) << ", " << data_name(data) << ", " << groups << " groups");
        const Guarded<float> x(random_floats(256 * groups, data, rng), 1);
        const A256 a256(table, x.data(), x.size());
        const A256 expected = expected_a256(x.data(), x.size());
        CHECK(vector_difference(a256.q, expected.q) == "");
        CHECK(vector_difference(a256.d, expected.d) == "");
        CHECK(vector_difference(a256.sums, expected.sums) == "");
        CHECK(vector_difference(a256.sums_of_16, expected.sums_of_16) == "");
        CHECK(vector_difference(a256.minus_32, expected.minus_32) == "");

        const std::size_t size = 32 * groups;
        const A32 a32(table, x.data(), size);
        const A32 expected_32 = expected_a32(x.data(), size);
        CHECK(vector_difference(a32.q, expected_32.q) == "");
        CHECK(vector_difference(a32.d, expected_32.d) == "");
        CHECK(vector_difference(a32.d_sums, expected_32.d_sums) == "");
        CHECK(vector_difference(a32.minus_8, expected_32.minus_8) == "");
        CHECK(vector_difference(a32.minus_16, expected_32.minus_16) == "");
        CHECK(vector_difference(a32.minus_128, expected_32.minus_128) == "");
      }
    }
  }
}

// What scaling the largest element of each group to 127 loses, and what `d` and `q` do.
template <typename Form>
std::pair<double, double> squared_errors(const Form& a, const std::vector<float>& x) {
  const std::size_t group = x.size() / a.d.size();
  double plain = 0, found = 0;
  for (std::size_t g = 0; g < a.d.size(); ++g) {
    double top = 0;
    for (std::size_t i = 0; i < group; ++i) top = std::max(top, std::abs(double{x[g * group + i]}));
    for (std::size_t i = g * group; i < (g + 1) * group; ++i) {
      const double step = top / 127;
      plain += std::pow(x[i] - step * std::nearbyint(x[i] / step), 2);
      found += std::pow(x[i] - double{a.d[g]} * a.q[i], 2);
    }
  }
  return {plain, found};
}

TEST_CASE("the scale of a group loses less than the plain one") {
  Rng rng(22);
  const std::vector<float> x = random_floats(256 * 200, Data::normal, rng);
  const auto [plain_256, found_256] =
      squared_errors(A256(kernels::kernel_table().quantise, x.data(), x.size()), x);
  CHECK(found_256 < 0.97 * plain_256);
  const auto [plain_32, found_32] =
      squared_errors(A32(kernels::kernel_table().quantise, x.data(), x.size()), x);
  CHECK(found_32 < 0.89 * plain_32);
}

TEST_CASE("integers up to 127 stay exact") {
  std::vector<float> x(256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 255) - 127;
  const A256 a(kernels::kernel_table().quantise, x.data(), x.size());
  CHECK(a.d[0] == 1);
  CHECK(std::equal(x.begin(), x.end(), a.q.begin()));
}

TEST_CASE("what is not finite shows in the scale of its group and in no other") {
  Rng rng(23);
  for (const kernels::Isa isa : all_tiers()) {
    for (const float bad : {infinity, -infinity, not_a_number}) {
      for (std::size_t at = 256; at < 512; at += 17) {
        std::vector<float> x = random_floats(768, Data::normal, rng);
        x[at] = bad;
        const auto quantised = [&x](kernels::Isa tier) {
          return A256(kernels::kernel_table(tier).quantise, x.data(), x.size());
        };
        const A256 a = quantised(isa), scalar = quantised(kernels::Isa::scalar);
        INFO(kernels::isa_name(isa) << ", " << bad << " at " << at);
        CHECK(std::isfinite(a.d[0]));
        CHECK_FALSE(std::isfinite(a.d[1]));
        CHECK(std::isfinite(a.d[2]));
        CHECK(std::all_of(a.q.begin(), a.q.end(), [](int q) { return q >= -127; }));
        CHECK(vector_difference(a.q, scalar.q) == "");
        CHECK(vector_difference(a.d, scalar.d) == "");
      }
    }
  }
}

TEST_CASE("what is left of the last tile has scales of zero") {
  constexpr std::size_t size = 320;  // a block and a quarter
  for (const std::size_t columns : {9u, 15u, 16u, 17u, 31u}) {
    const std::vector<float> x(size * columns, 1.0f);
    // As memory may be after other use: denormal numbers, which make a product slow.
    std::vector<kernels::BlockA32> buffer(
        kernels::Activations::buffer_bytes(size, columns) / sizeof(kernels::BlockA32) + 1);
    std::memset(static_cast<void*>(buffer.data()), 1, buffer.size() * sizeof buffer[0]);
    const kernels::Activations activations(x.data(), size, size, columns,
                                           reinterpret_cast<std::byte*>(buffer.data()));
    const kernels::QuantiseKernels& table = kernels::kernel_table().quantise;
    for (std::size_t c = 0; c < columns; ++c) {
      activations.quantise(table, kernels::ActivationForm::a32, c);
    }
    const kernels::ColumnA32 last = activations.a32(columns - 1);
    const std::size_t left =
        (kernels::activation_tile - columns % kernels::activation_tile) % kernels::activation_tile;
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t c = 1; c <= left; ++c) {
        const kernels::BlockA32& block = last.blocks[i * last.stride + c];
        INFO(columns << " columns, block " << i << ", " << c << " after the last");
        CHECK(std::all_of(block.d, block.d + 8, [](float d) { return d == 0; }));
        CHECK(std::all_of(block.d_sums, block.d_sums + 8, [](float d) { return d == 0; }));
      }
      CHECK(last.blocks[i * last.stride].d[0] > 0);
    }
  }
}

}  // namespace
}  // namespace sluice::test
