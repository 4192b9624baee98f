// The operations of quantise.h on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/lanes_math.h"
#include "kernels/quantise.h"

namespace sluice::kernels {
namespace {

constexpr float q_max = 127;
// Below this, 127 / max is not a float; such a group counts as zeros.
constexpr float max_abs_min = 0x1p-120f;

// How one group is scaled to integers.
struct GroupScale {
  float d;           // value of one step
  float steps_of_1;  // what an element is multiplied with before it is rounded
};

template <std::size_t group>
inline GroupScale group_scale(const float* x) {
  F32x16 top = abs(load(x, lanes));
  for (std::size_t i = lanes; i < group; i += lanes) top = max_or_nan(abs(load(x + i, lanes)), top);
  const float max_abs = largest_or_nan(top);
  if (max_abs < max_abs_min) return {0, 0};
  if (!(max_abs < INFINITY)) return {max_abs / q_max, q_max / max_abs};

  // For each scale that is tried, with x measured in its steps: the sums of x times rounded x, and
  // of rounded x squared.
  constexpr std::size_t tried = std::size(steps_of_largest);
  static_assert(tried == 4);
  F32x16 scales[tried], products[tried], squares[tried];
  for (std::size_t t = 0; t < tried; ++t) {
    scales[t] = broadcast(steps_of_largest[t] / max_abs);
    products[t] = squares[t] = broadcast(0);
  }
  for (std::size_t i = 0; i < group; i += lanes) {
    const F32x16 part = load(x + i, lanes);
    for (std::size_t t = 0; t < tried; ++t) {
      const F32x16 steps = part * scales[t], rounded = to_float(round_to_int(steps));
      products[t] = fma(steps, rounded, products[t]);
      squares[t] = fma(rounded, rounded, squares[t]);
    }
  }
  float product[tried], square[tried];
  sum_four(products, product);
  sum_four(squares, square);

  std::size_t best = 0;
  float most = 0;
  for (std::size_t t = 0; t < tried; ++t) {
    // How much of the sum of squares of x the integers reproduce, in units of max_abs^2.
    const float steps = steps_of_largest[t];
    const float reproduced = product[t] * product[t] / (square[t] * steps * steps);
    if (reproduced > most) best = t;
    most = reproduced > most ? reproduced : most;
  }
  const float steps = steps_of_largest[best];
  return {max_abs / steps * (product[best] / square[best]), steps / max_abs};
}

// Quantises 16 elements and returns the sum of the integers.
inline std::int32_t quantise_16(const float* x, F32x16 scale, std::int8_t* q) {
  // max first: it turns NaN, which has no integer, into a number.
  const F32x16 steps = max(load(x, lanes) * scale, broadcast(-q_max));
  const I32x16 rounded = round_to_int(min(steps, broadcast(q_max)));
  store(rounded, q);
  return sum(rounded);
}

// Swaps the middle two of each four sums.
constexpr std::size_t place_of_sum(std::size_t i) {
  return i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
}

inline void quantise_a256(const float* x, std::size_t size, const ColumnA256& out) {
  constexpr std::size_t group = 256;
  for (std::size_t g = 0; g < size / group; ++g) {
    const GroupScale s = group_scale<group>(x + g * group);
    const F32x16 scale = broadcast(s.steps_of_1);
    BlockA256& block = out.blocks[g * out.stride];
    block.d = s.d;
    for (std::size_t k = 0; k < 8; ++k) {
      const float* of_32 = x + g * group + 32 * k;
      const std::int32_t first = quantise_16(of_32, scale, block.q + 32 * k);
      const std::int32_t second = quantise_16(of_32 + 16, scale, block.q + 32 * k + 16);
      block.sums_of_32[place_of_sum(k)] = static_cast<std::int16_t>(first + second);
      block.sums_of_16[place_of_sum(2 * k)] = static_cast<std::int16_t>(first);
      block.sums_of_16[place_of_sum(2 * k + 1)] = static_cast<std::int16_t>(second);
      block.minus_32_sums_of_16[2 * k] = -32 * first;
      block.minus_32_sums_of_16[2 * k + 1] = -32 * second;
    }
  }
}

inline void quantise_a32(const float* x, std::size_t size, const ColumnA32& out) {
  constexpr std::size_t group = 32;
  for (std::size_t g = 0; g < size / group; ++g) {
    const float* of_group = x + g * group;
    const GroupScale s = group_scale<group>(of_group);
    const F32x16 scale = broadcast(s.steps_of_1);
    BlockA32& block = out.blocks[g / 8 * out.stride];
    const std::size_t at = g % 8;
    const std::int32_t first = quantise_16(of_group, scale, block.q + at * group);
    const std::int32_t total = first + quantise_16(of_group + 16, scale, block.q + at * group + 16);
    block.d[at] = s.d;
    block.d_sums[at] = s.d * static_cast<float>(total);
    block.minus_8_sums[at] = -8 * total;
    block.minus_16_sums[at] = -16 * total;
    block.minus_128_sums[at] = -128 * total;
    block.minus_16_sums_of_first_16[at] = -16 * first;
  }
}

inline void fill(QuantiseKernels& table) {
  table.a256 = quantise_a256;
  table.a32 = quantise_a32;
}

}  // namespace
}  // namespace sluice::kernels
