// Rows of cached keys and values: the transform against the definition of a Hadamard matrix, the
// rounding against its promises. That tiers agree is checked by checkkernels.
#include "kernels/kv_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

const kernels::KvRowKernels& kernels_in_use() {
  return kernels::kernel_table().kv_rows;
}

TEST_CASE("a block of the transform is the largest power of two that divides the row") {
  for (std::size_t size = 1; size <= 600; ++size) {
    const std::size_t block = kernels::hadamard_block(size);
    CHECK(std::has_single_bit(block));
    CHECK(size % block == 0);
    CHECK((block == kernels::hadamard_block_max || size % (2 * block) != 0));
  }
}

// Element (i, j) of the matrix is -1 to the number of bits that i and j have in common.
TEST_CASE("the transform is the orthonormal Hadamard matrix, block by block") {
  Rng rng(61);
  for (const std::size_t size : {1, 2, 4, 6, 8, 16, 20, 32, 64, 80, 96, 128, 192, 256, 512, 513}) {
    Guarded<float> x(random_floats(size, Data::normal, rng), 3);
    const std::vector<float> before(x.data(), x.data() + size);
    kernels_in_use().hadamard(x.data(), size);
    CHECK(x.intact());
    const std::size_t block = kernels::hadamard_block(size);
    std::vector<double> expected(size), tolerance(size);
    for (std::size_t i = 0; i < size; ++i) {
      double magnitude = 0;
      for (std::size_t j = 0; j < block; ++j) {
        const double term = before[i / block * block + j];
        expected[i] += std::popcount((i % block) & j) % 2 == 0 ? term : -term;
        magnitude += std::abs(term);
      }
      const double norm = std::sqrt(static_cast<double>(block));
      expected[i] /= norm;
      // One rounding a pass, and two for the norm.
      tolerance[i] = epsilon * (std::log2(static_cast<double>(block)) + 2) * magnitude / norm;
    }
    INFO("size " << size);
    CHECK(beyond(x.data(), expected, tolerance).value_or("") == "");
    kernels_in_use().hadamard(x.data(), size);  // its own inverse
    const double norm =
        std::sqrt(std::inner_product(before.begin(), before.end(), before.begin(), 0.0));
    const std::vector<double> original(before.begin(), before.end());
    CHECK(beyond(x.data(), original, std::vector<double>(size, 20 * epsilon * norm)).value_or("") ==
          "");
  }
}

// The least difference between two numbers that element i can stand for.
double step_of(std::size_t size, std::size_t i, const std::uint16_t* scales) {
  if (size > kernels::short_row_max) {
    return kernels::half_to_float(scales[i < kernels::first_half(size) ? 0 : 1]);
  }
  return std::ldexp(kernels::half_to_float(scales[0]), -static_cast<int>(kernels::fine_bits(size)));
}

TEST_CASE("an element is off by half a step at most") {
  Rng rng(62);
  for (const Data data : {Data::normal, Data::zeros, Data::signed_zeros, Data::tiny}) {
    for (const std::size_t size : odd_sizes()) {
      const std::vector<float> x = random_floats(size, data, rng);
      Guarded<std::int8_t> q(size, 1);
      Guarded<std::uint16_t> scales(2, 1);
      kernels_in_use().quantise(x.data(), size, q.data(), kernels::contiguous_place(size),
                                scales.data(), 1);
      CHECK(q.intact());
      CHECK(scales.intact());
      Guarded<float> back(size, 1);
      kernels::dequantise_row(q.data(), kernels::contiguous_place(size), size, scales.data(), 1,
                              back.data());
      CHECK(back.intact());
      std::vector<double> expected(x.begin(), x.end()), tolerance(size);
      for (std::size_t i = 0; i < size; ++i) {
        tolerance[i] = step_of(size, i, scales.data()) * 0.5 + 2 * epsilon * std::abs(x[i]);
      }
      INFO(data_name(data) << ", size " << size);
      CHECK(beyond(back.data(), expected, tolerance).value_or("") == "");
    }
  }
}

TEST_CASE("a scale is the least half float that does not clip") {
  Rng rng(63);
  for (const std::size_t size : odd_sizes()) {
    const std::vector<float> x = random_floats(size, Data::normal, rng);
    std::vector<std::int8_t> q(size);
    std::uint16_t scales[2] = {};
    kernels_in_use().quantise(x.data(), size, q.data(), kernels::contiguous_place(size), scales, 1);
    const bool is_short = size <= kernels::short_row_max;
    const std::size_t half = is_short ? size : kernels::first_half(size);
    for (const auto& [begin, end, bits] :
         {std::tuple(std::size_t{0}, half, scales[0]), std::tuple(half, size, scales[1])}) {
      if (begin == end) continue;
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) largest = std::max<double>(largest, std::abs(x[i]));
      INFO("size " << size << ", from " << begin);
      CHECK(127.0 * kernels::half_to_float(bits) >= largest);
      CHECK(127.0 * kernels::half_to_float(static_cast<std::uint16_t>(bits - 1)) < largest);
    }
  }
}

TEST_CASE("the halves of a row have borders between vectors and cover it") {
  for (std::size_t size = 1; size <= 600; ++size) {
    const std::size_t half = kernels::first_half(size);
    CHECK((half % 16 == 0 || half == size));
    CHECK(half >= std::min<std::size_t>(size, 16));
    CHECK(half <= size);
    CHECK(2 * half >= size);
  }
}

TEST_CASE("the rows of a page have places of their own, without a gap") {
  for (std::size_t size = 1; size <= 300; ++size) {
    for (const bool are_keys : {true, false}) {
      const auto place_of = are_keys ? kernels::key_place : kernels::value_place;
      const std::size_t bytes =
          are_keys ? kernels::key_page_bytes(size) : kernels::value_page_bytes(size);
      std::vector<int> taken(bytes);
      for (std::size_t p = 0; p < kernels::kv_page_positions; ++p) {
        for (std::size_t i = 0; i < size; ++i) ++taken.at(place_of(size, p).at(i));
      }
      INFO("size " << size << (are_keys ? ", keys" : ", values"));
      CHECK(std::ranges::count(taken, 1) == std::ptrdiff_t(size * kernels::kv_page_positions));
      const std::size_t padding =
          are_keys && size > kernels::short_row_max ? (4 - size % 4) % 4 : 0;
      CHECK(bytes == (size + padding) * kernels::kv_page_positions);
    }
  }
}

TEST_CASE("a row that holds an infinity, a NaN or too much does not look like a sound one") {
  for (const float bad : {infinity, -infinity, not_a_number, 1e8f}) {
    std::vector<float> x(64, 1.0f);
    x[40] = bad;
    std::vector<std::int8_t> q(64);
    std::uint16_t scales[2] = {};
    kernels_in_use().quantise(x.data(), 64, q.data(), kernels::contiguous_place(64), scales, 1);
    CHECK(kernels::half_to_float(scales[0]) == Approx(1 / 127.0).epsilon(0.001));
    CHECK_FALSE(std::isfinite(kernels::half_to_float(scales[1])));
  }
}

}  // namespace
}  // namespace sluice::test
