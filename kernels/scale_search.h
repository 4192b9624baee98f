// The search for the scale of a block: which one makes the weighted squared error of a row's
// values least when each value is rounded to a grid times the scale.
//
// For fixed codes the best scale (and offset) is a linear least-squares problem with a solution in
// closed form; for a fixed scale the best code of a value is the nearest one. A search starts from
// scales that put the largest value on, inside or beyond the end of the grid, and then alternates
// between the two, which never makes the error larger.
//
// Only for the source files that encode; pure functions on the caller's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"

namespace sluice::kernels {

inline constexpr int search_lanes = 8;  // independent sums, so that a compiler can use vectors

inline float sum_of(const float (&lanes)[search_lanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// To the nearest integer, for |y| < 2^22.
inline float round_small(float y) {
  constexpr float magic = 12582912.0f;  // floats next to it are 1 apart
  return (y + magic) - magic;
}

inline float clamp_to(float y, float low, float high) {
  y = y < low ? low : y;
  return y > high ? high : y;
}

// The integers from low to high.
struct UniformGrid {
  float low, high;

  float far() const { return -low > high ? low : high; }  // the value of greatest magnitude
  float nearest(float y) const { return round_small(clamp_to(y, low, high)); }
  int code(float value) const { return static_cast<int>(value - low); }
};

// The values of IQ4_NL. Where the nearest one changes is a multiple of one half, so a table of
// half steps decides.
class Iq4Grid {
 public:
  Iq4Grid() {
    for (int i = 0; i < half_steps; ++i) {
      const float y = (static_cast<float>(i) + 0.5f) / 2 + lowest;
      int best = 0;
      for (int code = 1; code < 16; ++code) {
        if (std::abs(y - iq4_values[code]) < std::abs(y - iq4_values[best])) best = code;
      }
      codes_[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(best);
    }
  }

  float far() const { return lowest; }
  float nearest(float y) const { return iq4_values[code(y)]; }
  int code(float y) const {
    const float step = clamp_to((y - lowest) * 2, 0, half_steps - 1);
    return codes_[static_cast<std::size_t>(step)];
  }

 private:
  static constexpr float lowest = -127;
  static constexpr int half_steps = 481;  // -127 to 113
  std::array<std::uint8_t, half_steps> codes_;
};

// Sums over a block for one choice of codes; v is the value of a code, x ~ scale v.
struct ScaleSums {
  float xv = 0, vv = 0;

  float scale() const { return vv > 0 ? xv / vv : 0; }
  float gain() const { return vv > 0 ? xv * xv / vv : 0; }  // by which the error is below sum w x x
};

// x, w: `count` values and their weights, count a multiple of search_lanes.
template <class Grid>
ScaleSums scale_sums(const Grid& grid, const float* x, const float* w, int count, float inverse) {
  float xv[search_lanes] = {}, vv[search_lanes] = {};
  for (int i = 0; i < count; i += search_lanes) {
    for (int l = 0; l < search_lanes; ++l) {
      const float v = grid.nearest(x[i + l] * inverse);
      xv[l] += w[i + l] * x[i + l] * v;
      vv[l] += w[i + l] * v * v;
    }
  }
  return {sum_of(xv), sum_of(vv)};
}

// The weighted squared error of x ~ scale v with the nearest codes.
template <class Grid>
float scale_error(const Grid& grid, const float* x, const float* w, int count, float scale) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float error[search_lanes] = {};
  for (int i = 0; i < count; i += search_lanes) {
    for (int l = 0; l < search_lanes; ++l) {
      const float rest = x[i + l] - scale * grid.nearest(x[i + l] * inverse);
      error[l] += w[i + l] * rest * rest;
    }
  }
  return sum_of(error);
}

// The scale, of either sign, that makes the error of a block small.
template <class Grid>
float find_scale(const Grid& grid, const float* x, const float* w, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  if (largest < 1e-30f) return 0;
  constexpr int steps = 10;
  ScaleSums best;
  for (int step = -steps; step <= steps; ++step) {
    // By up to 15 % inside of the end of the grid, or 1.2 steps of it where that is more; as much
    // beyond it.
    const float reach = std::max(0.15f * std::abs(grid.far()), 1.2f);
    const float end = grid.far() + reach * static_cast<float>(step) / steps;
    for (const float inverse : {end / largest, -end / largest}) {
      const ScaleSums sums = scale_sums(grid, x, w, count, inverse);
      if (sums.gain() > best.gain()) best = sums;
    }
  }
  for (int round = 0; round < 4 && best.scale() != 0; ++round) {
    const ScaleSums sums = scale_sums(grid, x, w, count, 1 / best.scale());
    if (!(sums.gain() > best.gain())) break;
    best = sums;
  }
  return best.scale();
}

// x ~ scale q + offset for codes q of 0 to some highest one.
struct Affine {
  float scale = 0, offset = 0;
};

struct AffineFit {
  Affine line;
  float error = 0;  // less sum w x x
};

// The best line for the codes that `start` gives. With `below_zero` the offset may not be positive.
inline AffineFit refit_affine(const float* x, const float* w, int count, float highest,
                              const Affine& start, bool below_zero) {
  const UniformGrid grid{0, highest};
  const float inverse = start.scale > 0 ? 1 / start.scale : 0;
  float lanes[5][search_lanes] = {};
  for (int i = 0; i < count; i += search_lanes) {
    for (int l = 0; l < search_lanes; ++l) {
      const float value = x[i + l], weight = w[i + l];
      const float q = grid.nearest((value - start.offset) * inverse);
      lanes[0][l] += weight;
      lanes[1][l] += weight * value;
      lanes[2][l] += weight * q;
      lanes[3][l] += weight * value * q;
      lanes[4][l] += weight * q * q;
    }
  }
  const float sw = sum_of(lanes[0]), sx = sum_of(lanes[1]), sq = sum_of(lanes[2]);
  const float sxq = sum_of(lanes[3]), sqq = sum_of(lanes[4]);
  const float determinant = sw * sqq - sq * sq;
  Affine line;
  if (determinant > 0) {
    line.scale = (sw * sxq - sx * sq) / determinant;
    line.offset = (sqq * sx - sq * sxq) / determinant;
  } else {
    line.offset = sw > 0 ? sx / sw : 0;
  }
  if (below_zero && line.offset > 0) line = {sqq > 0 ? sxq / sqq : 0, 0};
  const float error = line.scale * (line.scale * sqq + 2 * line.offset * sq - 2 * sxq) +
                      line.offset * (line.offset * sw - 2 * sx);
  return {line, error};
}

inline Affine find_affine(const float* x, const float* w, int count, float highest,
                          bool below_zero) {
  float low = below_zero ? std::min(x[0], 0.0f) : x[0], high = x[0];
  for (int i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (!(high - low > 1e-30f)) return {0, low};
  AffineFit best = refit_affine(x, w, count, highest, {(high - low) / highest, low}, below_zero);
  constexpr int steps = 20;
  for (int step = 0; step <= steps; ++step) {
    const float levels = highest + (static_cast<float>(step) - 0.4f * steps) * 0.1f;
    if (levels <= 0) continue;
    const AffineFit fit =
        refit_affine(x, w, count, highest, {(high - low) / levels, low}, below_zero);
    if (fit.error < best.error && fit.line.scale > 0) best = fit;
  }
  for (int round = 0; round < 4; ++round) {
    const AffineFit fit = refit_affine(x, w, count, highest, best.line, below_zero);
    if (!(fit.error < best.error && fit.line.scale > 0)) break;
    best = fit;
  }
  return best.line;
}

// The weighted squared error of a line with the nearest codes.
inline float affine_error(const float* x, const float* w, int count, float highest,
                          const Affine& line) {
  const UniformGrid grid{0, highest};
  const float inverse = line.scale != 0 ? 1 / line.scale : 0;
  float error[search_lanes] = {};
  for (int i = 0; i < count; i += search_lanes) {
    for (int l = 0; l < search_lanes; ++l) {
      const float q = grid.nearest((x[i + l] - line.offset) * inverse);
      const float rest = x[i + l] - line.offset - line.scale * q;
      error[l] += w[i + l] * rest * rest;
    }
  }
  return sum_of(error);
}

}  // namespace sluice::kernels
