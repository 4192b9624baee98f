// The operations of kv_rows.h on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>

#include "kernels/dequantise.h"
#include "kernels/kv_rows.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

constexpr float largest_step = 127;
constexpr std::uint16_t half_of_one = 0x3c00;

// Transforms up to 16 elements, with butterflies in the usual order.
inline void transform_short(float* x, std::size_t size) {
  for (std::size_t stride = 1; stride < size; stride *= 2) {
    for (std::size_t i = 0; i < size; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
}

// Transforms 32 or more elements. Every pass is the same: sums of neighbours go to the lower half,
// differences to the upper half (Pease 1968). A pass moves the lowest bit of the index to the top,
// so after one pass for each bit all elements are back in their places.
inline void transform_long(float* x, std::size_t size) {
  float other[hadamard_block_max];
  float* from = x;
  float* to = other;
  for (std::size_t passes = size; passes > 1; passes /= 2) {
    for (std::size_t i = 0; i < size / 2; i += lanes) {
      const Pairs pairs = load_pairs(from + 2 * i);
      store(pairs.first + pairs.second, to + i, lanes);
      store(pairs.first - pairs.second, to + size / 2 + i, lanes);
    }
    float* const free = from;
    from = to;
    to = free;
  }
  if (from == x) return;
  for (std::size_t i = 0; i < size; i += lanes) store(load(from + i, lanes), x + i, lanes);
}

inline void hadamard(float* x, std::size_t size) {
  const std::size_t block = hadamard_block(size);
  if (block == 1) return;
  for (std::size_t i = 0; i < size; i += block) {
    if (block <= lanes) {
      transform_short(x + i, block);
    } else {
      transform_long(x + i, block);
    }
  }
  const F32x16 norm = broadcast(1 / ::sqrtf(static_cast<float>(block)));
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    store(load(x + i, count) * norm, x + i, count);
  });
}

// The bits of the smallest half float that is at least max_abs / 127.
inline std::uint16_t scale_for(float max_abs) {
  if (max_abs == 0) return half_of_one;
  const std::uint16_t nearest = float_to_half(max_abs / largest_step);
  const bool is_short = half_to_float(nearest) * largest_step < max_abs;  // the product is exact
  return static_cast<std::uint16_t>(nearest + (is_short ? 1 : 0));
}

inline std::uint16_t scale_of(const float* x, std::size_t size) {
  F32x16 top = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    top = max_or_nan(abs(load(x + i, count)), top);
  });
  return scale_for(largest_or_nan(top));
}

// Quantises a half of a long row to its places in a page. Returns the bits of its scale.
inline std::uint16_t quantise_part(const float* x, std::size_t size, std::int8_t* q,
                                   const RowPlace& place) {
  const std::uint16_t scale = scale_of(x, size);
  const F32x16 steps_of_1 = broadcast(1 / half_to_float(scale));
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    // max first: it turns NaN, which has no integer, into a number.
    const F32x16 steps = max(load(x + i, count) * steps_of_1, broadcast(-largest_step));
    std::int8_t copy[lanes];
    store(round_to_int(min(steps, broadcast(largest_step))), copy);
    for (std::size_t k = 0; k < count; ++k) {
      q[(i + k) / 4 * place.group_stride + k % 4 * place.element_stride] = copy[k];
    }
  });
  return scale;
}

// Quantises a short row, which is contiguous. Each element becomes one integer: its upper 8 bits go
// to the page, the lower ones to `fine`.
inline void quantise_short(const float* x, std::size_t size, std::int8_t* page,
                           const RowPlace& place, std::uint16_t& scale, std::uint16_t& fine) {
  const std::size_t bits = fine_bits(size);
  const int steps = 1 << bits;
  const float most = largest_step * static_cast<float>(steps);
  scale = scale_of(x, size);
  const float steps_of_1 = static_cast<float>(steps) / half_to_float(scale);
  unsigned all_fine = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const float wanted = x[i] * steps_of_1;
    const float above = wanted > -most ? wanted : -most;  // of NaN too
    const int value = static_cast<int>(::rintf(above < most ? above : most));
    page[place.offsets[0] + i] = static_cast<std::int8_t>(value >> bits);  // towards minus infinity
    all_fine |= static_cast<unsigned>(value & (steps - 1)) << (i * bits);
  }
  fine = static_cast<std::uint16_t>(all_fine);
}

inline void quantise_row(const float* x, std::size_t size, std::int8_t* page, const RowPlace& place,
                         std::uint16_t* scales, std::size_t scale_stride) {
  if (size <= short_row_max) {
    return quantise_short(x, size, page, place, scales[0], scales[scale_stride]);
  }
  const std::size_t half = place.first_half;
  scales[0] = quantise_part(x, half, page + place.offsets[0], place);
  scales[scale_stride] = quantise_part(x + half, size - half, page + place.offsets[1], place);
}

inline void fill(KvRowKernels& table) {
  table.hadamard = hadamard;
  table.quantise = quantise_row;
}

}  // namespace
}  // namespace sluice::kernels
