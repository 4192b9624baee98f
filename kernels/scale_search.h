// Searches for the scales of blocks, on the lanes of one tier; included after its lanes_*.h.
// Sixteen blocks are searched at a time, one in each lane: no lane waits for another, and every
// sum has the same order in all tiers.
//
// A good scale makes the weighted squared error of a block's values small when each is rounded to a
// grid times the scale. For fixed codes the best scale (and offset) is a linear least-squares
// problem with a solution in closed form; for a fixed scale the best code of a value is the nearest
// one. A search starts from scales that put the largest value at, inside or beyond the end of the
// grid, and then alternates between these two steps, which never makes the error larger.
//
// Fused multiply-add is not used: without the instruction it would be a function call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>

#include "kernels/block_formats.h"
#include "kernels/formats/nibble_values.h"

namespace sluice::kernels {
namespace {

// Sixteen blocks of up to 32 values, side by side: value k of block b is x[k][b], with weight
// w[k][b].
struct Sheet {
  alignas(64) float x[32][lanes];
  alignas(64) float w[32][lanes];
  alignas(64) float wx[32][lanes];  // w x
};

// Fills a sheet from `count` (1..16) consecutive blocks of `size` values each. Other lanes are 0.
template <int size>
inline void fill(const float* x, const float* w, int count, Sheet& sheet) {
  for (int k = 0; k < size; ++k) {
    for (int b = 0; b < static_cast<int>(lanes); ++b) {
      sheet.x[k][b] = b < count ? x[b * size + k] : 0;
      sheet.w[k][b] = b < count ? w[b * size + k] : 1;
    }
    store(load(sheet.w[k], lanes) * load(sheet.x[k], lanes), sheet.wx[k], lanes);
  }
}

inline F32x16 zero() {
  return broadcast(0);
}

// a > 0 ? x : y, and a == 0 ? y : x for a of any sign.
inline F32x16 where_positive(F32x16 a, F32x16 x, F32x16 y) {
  return select_less(zero(), a, x, y);
}
inline F32x16 where_nonzero(F32x16 a, F32x16 x, F32x16 y) {
  return select_less(zero(), abs(a), x, y);
}

// 1 / a, and 0 for 0.
inline F32x16 inverse_or_zero(F32x16 a) {
  return where_nonzero(a, broadcast(1) / a, zero());
}
inline float inverse_or_zero(float a) {
  return a != 0 ? 1 / a : 0;
}

inline F32x16 clamp(F32x16 y, float low, float high) {
  return min(max(y, broadcast(low)), broadcast(high));
}

// Near it floats are 1 apart, so adding it to a number rounds that number to an integer. The lowest
// bits of the sum are those of the integer.
constexpr float rounding_summand = 12582912.0f;

// Rounds to the nearest integer, for |y| < 2^22.
inline F32x16 round_small(F32x16 y) {
  const F32x16 summand = broadcast(rounding_summand);
  return (y + summand) - summand;
}

// The integers from low to high.
struct UniformGrid {
  static constexpr int stride = 1;  // a search tries every stride-th end
  float low, high;

  float far() const { return -low > high ? low : high; }  // the value of greatest magnitude
  F32x16 nearest(F32x16 y) const { return round_small(clamp(y, low, high)); }
  I32x16 code(F32x16 y) const { return round_to_int(nearest(y) - broadcast(low)); }
};

// The values of IQ4_NL. At every point where the nearest value changes, a cubic polynomial differs
// from the code by less than one half, so it finds the code or the one before it.
struct Iq4Grid {
  static constexpr int stride = 2;  // stride 1 would reduce the error by 0.05 % at most
  alignas(64) float values[lanes];
  alignas(64) float ends[lanes];  // from here on the next value is nearer

  Iq4Grid() {
    for (std::size_t i = 0; i < lanes; ++i) values[i] = iq4_values[i];
    for (std::size_t i = 0; i + 1 < lanes; ++i) ends[i] = (values[i] + values[i + 1]) / 2;
    ends[lanes - 1] = INFINITY;
  }
  float far() const { return values[0]; }
  F32x16 nearest(F32x16 y) const { return lookup(values, summed_code(y)); }
  I32x16 code(F32x16 y) const { return round_to_int(summed_code(y) - broadcast(rounding_summand)); }

 private:
  // The code plus `rounding_summand`.
  F32x16 summed_code(F32x16 y) const {
    y = clamp(y, values[0], values[lanes - 1]);
    const F32x16 slope = broadcast(0.08115f) - y * y * broadcast(1.397e-6f);
    const F32x16 guess = y * slope + broadcast(7.37f) + broadcast(rounding_summand);
    return guess + select_less(y, lookup(ends, guess), zero(), broadcast(1));
  }
};

// Twice the values of E2M1.
struct E2m1Grid {
  static F32x16 magnitude(F32x16 y) {
    const F32x16 a = abs(y);
    F32x16 v = zero();
    for (int i = 1; i < 8; ++i) {
      const float end = static_cast<float>(doubled_e2m1[i - 1] + doubled_e2m1[i]) / 2;
      v = select_less(broadcast(end), a, broadcast(doubled_e2m1[i]), v);
    }
    return v;
  }
  F32x16 nearest(F32x16 y) const {
    const F32x16 v = magnitude(y);
    return select_less(y, zero(), zero() - v, v);
  }
  I32x16 code(F32x16 y) const {
    const F32x16 v = magnitude(y);  // 0 1 2 3 4 6 8 12
    F32x16 at = select_less(broadcast(4), v, v * broadcast(0.5f) + broadcast(2), v);
    at = select_less(broadcast(8), v, broadcast(7), at);
    return round_to_int(at + where_positive(zero() - y * v, broadcast(8), zero()));
  }
};

// --- Grids times a scale -------------------------------------------------------------------------

// Sums over a block for one choice of codes; v is the value of a code, x ~ scale v.
struct ScaleSums {
  F32x16 xv, vv;
};

template <int size, class Grid>
inline ScaleSums scale_sums(const Grid& grid, const Sheet& sheet, F32x16 inverse) {
  ScaleSums sums = {zero(), zero()};
  for (int k = 0; k < size; ++k) {
    const F32x16 v = grid.nearest(load(sheet.x[k], lanes) * inverse);
    sums.xv = sums.xv + load(sheet.wx[k], lanes) * v;
    sums.vv = sums.vv + load(sheet.w[k], lanes) * v * v;
  }
  return sums;
}

// The weighted squared errors of x ~ scale v with the nearest codes, for each of `count` scales.
template <int size, int count, class Grid>
inline void scale_errors(const Grid& grid, const Sheet& sheet, const F32x16 (&scales)[count],
                         F32x16 (&errors)[count]) {
  F32x16 inverses[count];
  for (int i = 0; i < count; ++i) {
    inverses[i] = inverse_or_zero(scales[i]);
    errors[i] = zero();
  }
  for (int k = 0; k < size; ++k) {
    const F32x16 x = load(sheet.x[k], lanes), w = load(sheet.w[k], lanes);
    for (int i = 0; i < count; ++i) {
      const F32x16 rest = x - scales[i] * grid.nearest(x * inverses[i]);
      errors[i] = errors[i] + w * rest * rest;
    }
  }
}

template <int size>
inline F32x16 largest_magnitudes(const Sheet& sheet) {
  F32x16 largest = zero();
  for (int k = 0; k < size; ++k) largest = max(abs(load(sheet.x[k], lanes)), largest);
  return largest;
}

// Finds the scales, of either sign, that make the errors small.
template <int size, class Grid>
inline F32x16 find_scale(const Grid& grid, const Sheet& sheet) {
  constexpr float least = 1e-30f;
  const F32x16 largest = largest_magnitudes<size>(sheet);
  const F32x16 unit = broadcast(1) / max(largest, broadcast(least));
  F32x16 scale = zero(), gain = zero();  // gain: how much the error is below sum w x x
  const auto try_inverse = [&](F32x16 inverse) {
    const ScaleSums sums = scale_sums<size>(grid, sheet, inverse);
    const F32x16 next = where_positive(sums.vv, sums.xv / sums.vv, zero());
    const F32x16 next_gain = sums.xv * next;
    scale = select_less(gain, next_gain, next, scale);
    gain = select_less(gain, next_gain, next_gain, gain);
  };
  constexpr int steps = 10;
  // Tries to put the largest value up to 15 % inside or beyond the end of the grid, or 1.2 steps if
  // that is more.
  const float of_far = 0.15f * (grid.far() < 0 ? -grid.far() : grid.far());
  const float reach = of_far > 1.2f ? of_far : 1.2f;
  for (int step = -steps; step <= steps; step += Grid::stride) {
    const float end = grid.far() + reach * static_cast<float>(step) / steps;
    try_inverse(broadcast(end) * unit);
    try_inverse(broadcast(-end) * unit);
  }
  for (int round = 0; round < 4; ++round) try_inverse(inverse_or_zero(scale));
  return select_less(largest, broadcast(least), zero(), scale);
}

// --- Lines ---------------------------------------------------------------------------------------

// x ~ scale q + offset, for codes q from 0 to a highest code.
struct Affine {
  F32x16 scale, offset;
};

struct AffineFit {
  Affine line;
  F32x16 error;  // minus sum w x x
};

// Sums over a block that do not depend on codes.
struct FixedSums {
  F32x16 w, x;  // the sums of w and of w x
};

template <int size>
inline FixedSums fixed_sums(const Sheet& sheet) {
  FixedSums sums = {zero(), zero()};
  for (int k = 0; k < size; ++k) {
    sums.w = sums.w + load(sheet.w[k], lanes);
    sums.x = sums.x + load(sheet.wx[k], lanes);
  }
  return sums;
}

struct CodeSums {
  F32x16 q, xq, qq;  // the sums of w q, w x q and w q q
};

// The sums with the codes nearest to (x - offset) inverse.
template <int size>
inline CodeSums code_sums(const Sheet& sheet, float highest, F32x16 offset, F32x16 inverse) {
  const UniformGrid grid{0, highest};
  CodeSums sums = {zero(), zero(), zero()};
  for (int k = 0; k < size; ++k) {
    const F32x16 q = grid.nearest((load(sheet.x[k], lanes) - offset) * inverse);
    const F32x16 wq = load(sheet.w[k], lanes) * q;
    sums.q = sums.q + wq;
    sums.xq = sums.xq + load(sheet.wx[k], lanes) * q;
    sums.qq = sums.qq + wq * q;
  }
  return sums;
}

// The best line for the codes of these sums. With `below_zero` the offset must not be positive.
inline AffineFit fit_affine(const FixedSums& fixed, const CodeSums& sums, bool below_zero) {
  const F32x16 determinant = fixed.w * sums.qq - sums.q * sums.q;
  Affine line;
  line.scale =
      where_positive(determinant, (fixed.w * sums.xq - fixed.x * sums.q) / determinant, zero());
  line.offset = where_positive(determinant, (sums.qq * fixed.x - sums.q * sums.xq) / determinant,
                               where_positive(fixed.w, fixed.x / fixed.w, zero()));
  if (below_zero) {
    const F32x16 through_zero = where_positive(sums.qq, sums.xq / sums.qq, zero());
    line.scale = where_positive(line.offset, through_zero, line.scale);
    line.offset = where_positive(line.offset, zero(), line.offset);
  }
  const F32x16 two = broadcast(2);
  const F32x16 of_scale = line.scale * sums.qq + two * line.offset * sums.q - two * sums.xq;
  const F32x16 of_offset = line.offset * fixed.w - two * fixed.x;
  return {line, line.scale * of_scale + line.offset * of_offset};
}

template <int size>
inline Affine find_affine(const Sheet& sheet, float highest, bool below_zero) {
  F32x16 low = load(sheet.x[0], lanes), high = low;
  if (below_zero) low = min(low, zero());
  for (int k = 1; k < size; ++k) {
    low = min(low, load(sheet.x[k], lanes));
    high = max(high, load(sheet.x[k], lanes));
  }
  constexpr float least = 1e-30f;
  const F32x16 range = high - low, unit = broadcast(1) / max(range, broadcast(least));
  const FixedSums fixed = fixed_sums<size>(sheet);
  AffineFit best = fit_affine(
      fixed, code_sums<size>(sheet, highest, low, broadcast(highest) * unit), below_zero);
  const auto try_line = [&](F32x16 offset, F32x16 inverse) {
    const AffineFit fit =
        fit_affine(fixed, code_sums<size>(sheet, highest, offset, inverse), below_zero);
    // A line with a scale of 0 or less is never taken.
    const F32x16 error = where_positive(fit.line.scale, fit.error, best.error);
    best.line.scale = select_less(error, best.error, fit.line.scale, best.line.scale);
    best.line.offset = select_less(error, best.error, fit.line.offset, best.line.offset);
    best.error = select_less(error, best.error, error, best.error);
  };
  constexpr int steps = 20;
  for (int step = 0; step <= steps; ++step) {
    const float levels = highest + (static_cast<float>(step) - 0.4f * steps) * 0.1f;
    try_line(low, broadcast(levels) * unit);
  }
  for (int round = 0; round < 4; ++round) {
    try_line(best.line.offset,
             where_positive(best.line.scale, inverse_or_zero(best.line.scale), zero()));
  }
  return {select_less(broadcast(least), range, best.line.scale, zero()),
          select_less(broadcast(least), range, best.line.offset, low)};
}

// The weighted squared errors with the nearest codes, for each of `count` scales and one offset.
template <int size, int count>
inline void affine_errors(const Sheet& sheet, float highest, F32x16 offset,
                          const F32x16 (&scales)[count], F32x16 (&errors)[count]) {
  const UniformGrid grid{0, highest};
  F32x16 inverses[count];
  for (int i = 0; i < count; ++i) {
    inverses[i] = inverse_or_zero(scales[i]);
    errors[i] = zero();
  }
  for (int k = 0; k < size; ++k) {
    const F32x16 above = load(sheet.x[k], lanes) - offset, w = load(sheet.w[k], lanes);
    for (int i = 0; i < count; ++i) {
      const F32x16 rest = above - scales[i] * grid.nearest(above * inverses[i]);
      errors[i] = errors[i] + w * rest * rest;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
