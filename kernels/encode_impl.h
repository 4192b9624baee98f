// The quantisers of encode.h on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>

#include "kernels/dequantise.h"
#include "kernels/encode.h"
#include "kernels/grid_search.h"
#include "kernels/lanes_math.h"
#include "kernels/scale_search.h"

namespace sluice::kernels {
namespace {

// The lanes of a vector as an array.
struct LaneArray {
  alignas(64) float of[lanes];

  LaneArray() = default;
  explicit LaneArray(F32x16 a) { store(a, of, lanes); }
  F32x16 vector() const { return load(of, lanes); }
};

inline float to_half_and_back(float value) {
  return half_to_float(float_to_half(value));
}

// Replaces each `group` neighbouring lanes by their sum.
template <int group>
inline F32x16 group_sums(F32x16 a) {
  LaneArray array(a);
  for (std::size_t first = 0; first < lanes; first += group) {
    float total = 0;
    for (std::size_t i = first; i < first + group; ++i) total += array.of[i];
    for (std::size_t i = first; i < first + group; ++i) array.of[i] = total;
  }
  return array.vector();
}

// Finds the nearest codes of `count` values, a multiple of 16, for a given scale and offset. With a
// scale of 0 any code will do.
template <class Grid>
inline void choose_codes(const Grid& grid, const float* x, int count, float scale, float offset,
                         std::uint8_t* codes) {
  const F32x16 inverse = broadcast(inverse_or_zero(scale));
  for (int i = 0; i < count; i += static_cast<int>(lanes)) {
    store(grid.code((load(x + i, lanes) - broadcast(offset)) * inverse),
          reinterpret_cast<std::int8_t*>(codes + i));
  }
}

// Packs the codes of a block of 32 as nibbles, element j beside element j + 16.
inline void pack_nibbles(const std::uint8_t* codes, std::uint8_t* qs) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

inline void pack_fifth_bits(const std::uint8_t* codes, std::uint8_t (&qh)[4]) {
  for (int i = 0; i < 4; ++i) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) bits |= codes[8 * i + j] >> 4 << j;
    qh[i] = static_cast<std::uint8_t>(bits);
  }
}

// --- Blocks of 32, sixteen at a time -------------------------------------------------------------

template <class Grid, class Block>
inline void encode_scaled(const Grid& grid, const float* x, const Sheet& sheet, int count,
                          Block* blocks) {
  const LaneArray scales(find_scale<32>(grid, sheet));
  for (int i = 0; i < count; ++i) {
    Block& b = blocks[i];
    b.d = float_to_half(scales.of[i]);
    std::uint8_t codes[32];
    choose_codes(grid, x + 32 * i, 32, half_to_float(b.d), 0, codes);
    pack_nibbles(codes, b.qs);
    if constexpr (requires { b.qh; }) pack_fifth_bits(codes, b.qh);
  }
}

template <class Block>
inline void encode_affine(float highest, const float* x, const Sheet& sheet, int count,
                          Block* blocks) {
  const Affine lines = find_affine<32>(sheet, highest, false);
  const LaneArray scales(lines.scale), offsets(lines.offset);
  for (int i = 0; i < count; ++i) {
    Block& b = blocks[i];
    b.d = float_to_half(scales.of[i]);
    b.m = float_to_half(offsets.of[i]);
    std::uint8_t codes[32];
    choose_codes(UniformGrid{0, highest}, x + 32 * i, 32, half_to_float(b.d), half_to_float(b.m),
                 codes);
    pack_nibbles(codes, b.qs);
    if constexpr (requires { b.qh; }) pack_fifth_bits(codes, b.qh);
  }
}

// --- Blocks of 256 whose sub-blocks have integer scales, all times d -----------------------------

struct ScaledBlocks {
  F32x16 d, integer;  // one sub-block in each lane; d is the same in all lanes of a block
};

// For each sub-block, takes the best of its integer scale and the two next to it. Returns the
// errors.
template <int size, class Grid>
inline F32x16 improve_scales(const Grid& grid, const Sheet& sheet, float lowest, float highest,
                             ScaledBlocks& b) {
  F32x16 integers[3], scales[3], errors[3];
  for (int i = 0; i < 3; ++i) {
    integers[i] = clamp(b.integer + broadcast(static_cast<float>(i - 1)), lowest, highest);
    scales[i] = b.d * integers[i];
  }
  scale_errors<size, 3>(grid, sheet, scales, errors);
  F32x16 least = errors[0];
  b.integer = integers[0];
  for (int i = 1; i < 3; ++i) {
    b.integer = select_less(errors[i], least, integers[i], b.integer);
    least = min(errors[i], least);
  }
  return least;
}

// The best d of each block for its present codes and integer scales.
template <int size, class Grid>
inline LaneArray refit_d(const Grid& grid, const Sheet& sheet, const ScaledBlocks& b) {
  constexpr int group = 256 / size;
  const ScaleSums sums = scale_sums<size>(grid, sheet, inverse_or_zero(b.d * b.integer));
  const LaneArray xv(group_sums<group>(b.integer * sums.xv));
  const LaneArray vv(group_sums<group>(b.integer * b.integer * sums.vv));
  LaneArray d(b.d);
  for (std::size_t i = 0; i < lanes; i += group) {
    const float next = vv.of[i] > 0 ? to_half_and_back(xv.of[i] / vv.of[i]) : 0;
    if (next == 0) continue;
    for (std::size_t k = i; k < i + group; ++k) d.of[k] = next;
  }
  return d;
}

template <int size, class Grid>
inline ScaledBlocks find_scales(const Grid& grid, const Sheet& sheet, float lowest, float highest) {
  constexpr int group = 256 / size;
  const F32x16 wanted = find_scale<size>(grid, sheet);
  const LaneArray wanted_array(wanted);
  ScaledBlocks best = {zero(), zero()};
  F32x16 least = broadcast(INFINITY);
  const auto keep_if_better = [&](const ScaledBlocks& b, F32x16 error_of_lanes) {
    const F32x16 error = group_sums<group>(error_of_lanes);
    best.d = select_less(error, least, b.d, best.d);
    best.integer = select_less(error, least, b.integer, best.integer);
    least = min(error, least);
  };
  for (const float reach : {0.0f, 0.6f}) {  // how far inside the range the largest scale lies
    LaneArray d;
    for (std::size_t i = 0; i < lanes; i += group) {
      float largest = 0;  // with its sign
      for (std::size_t k = i; k < i + group; ++k) {
        if (::fabsf(wanted_array.of[k]) > ::fabsf(largest)) largest = wanted_array.of[k];
      }
      const float of_block = to_half_and_back(largest / (lowest + reach));
      for (std::size_t k = i; k < i + group; ++k) d.of[k] = of_block;
    }
    ScaledBlocks b = {d.vector(), zero()};
    b.integer = round_small(clamp(wanted * inverse_or_zero(b.d), lowest, highest));
    // A fixed number of rounds: a block must not depend on how soon the blocks in other lanes
    // converge.
    for (int round = 0; round < 3; ++round) {
      keep_if_better(b, improve_scales<size>(grid, sheet, lowest, highest, b));
      b.d = refit_d<size>(grid, sheet, b).vector();
    }
    const F32x16 scales[1] = {b.d * b.integer};
    F32x16 errors[1];
    scale_errors<size, 1>(grid, sheet, scales, errors);
    keep_if_better(b, errors[0]);
  }
  return best;
}

// --- Blocks of 256 whose sub-blocks have a scale and a minimum -----------------------------------
// x ~ d scale q - dmin min

// Codes go up to `highest`, and integers of sub-blocks up to `top`.
struct PairRange {
  float highest, top;
};

struct AffineBlocks {
  F32x16 d, dmin;      // the same in all lanes of a block
  F32x16 scale, min_;  // integers of a sub-block in each lane

  F32x16 offset() const { return zero() - dmin * min_; }
};

// For each sub-block, takes the best of its pair of integers and the eight next to it. Returns the
// errors.
template <int size>
inline F32x16 improve_pairs(const Sheet& sheet, const PairRange& range, AffineBlocks& b) {
  F32x16 integers[3], scales[3], errors[3], least = broadcast(INFINITY);
  for (int i = 0; i < 3; ++i) {
    integers[i] = clamp(b.scale + broadcast(static_cast<float>(i - 1)), 0, range.top);
    scales[i] = b.d * integers[i];
  }
  const F32x16 middle = b.min_;
  for (int k = -1; k <= 1; ++k) {
    const F32x16 next = clamp(middle + broadcast(static_cast<float>(k)), 0, range.top);
    affine_errors<size, 3>(sheet, range.highest, zero() - b.dmin * next, scales, errors);
    for (int i = 0; i < 3; ++i) {
      b.scale = select_less(errors[i], least, integers[i], b.scale);
      b.min_ = select_less(errors[i], least, next, b.min_);
      least = min(errors[i], least);
    }
  }
  return least;
}

// Sets the best d and dmin of each block for its present codes and integers, if these determine
// both.
template <int size>
inline void refit_halves(const Sheet& sheet, const FixedSums& fixed, float highest,
                         AffineBlocks& b) {
  const F32x16 inverse = inverse_or_zero(b.d * b.scale);
  const CodeSums sums = code_sums<size>(sheet, highest, b.offset(), inverse);
  // x ~ d p - dmin m, with p = scale q and m = min.
  const LaneArray pp(b.scale * b.scale * sums.qq), pm(b.scale * b.min_ * sums.q);
  const LaneArray mm(b.min_ * b.min_ * fixed.w);
  const LaneArray xp(b.scale * sums.xq), xm(b.min_ * fixed.x);
  LaneArray d(b.d), dmin(b.dmin);
  constexpr int group = 256 / size;
  for (std::size_t first = 0; first < lanes; first += group) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (std::size_t i = first; i < first + group; ++i) {
      aa += static_cast<double>(pp.of[i]);
      ab += static_cast<double>(pm.of[i]);
      bb += static_cast<double>(mm.of[i]);
      xa += static_cast<double>(xp.of[i]);
      xb += static_cast<double>(xm.of[i]);
    }
    const double determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-6 * aa * bb)) continue;  // too small for sums of float precision
    const float next = to_half_and_back(static_cast<float>((xa * bb - xb * ab) / determinant));
    const float next_min = to_half_and_back(static_cast<float>((xa * ab - xb * aa) / determinant));
    if (!(next > 0 && next_min >= 0)) continue;
    for (std::size_t i = first; i < first + group; ++i) {
      d.of[i] = next;
      dmin.of[i] = next_min;
    }
  }
  b.d = d.vector();
  b.dmin = dmin.vector();
}

template <int size>
inline AffineBlocks find_pairs(const Sheet& sheet, const PairRange& range) {
  constexpr int group = 256 / size;
  const Affine wanted = find_affine<size>(sheet, range.highest, true);
  const LaneArray scales(wanted.scale), mins(zero() - wanted.offset);
  LaneArray d, dmin;
  for (std::size_t first = 0; first < lanes; first += group) {
    float scale_max = 0, min_max = 0;
    for (std::size_t i = first; i < first + group; ++i) {
      scale_max = scales.of[i] > scale_max ? scales.of[i] : scale_max;
      min_max = mins.of[i] > min_max ? mins.of[i] : min_max;
    }
    for (std::size_t i = first; i < first + group; ++i) {
      d.of[i] = to_half_and_back(scale_max / range.top);
      dmin.of[i] = to_half_and_back(min_max / range.top);
    }
  }
  AffineBlocks b = {d.vector(), dmin.vector(), zero(), zero()};
  b.scale = round_small(clamp(wanted.scale * inverse_or_zero(b.d), 0, range.top));
  b.min_ = round_small(clamp(mins.vector() * inverse_or_zero(b.dmin), 0, range.top));
  const FixedSums fixed = fixed_sums<size>(sheet);
  AffineBlocks best = b;
  F32x16 least = broadcast(INFINITY);
  for (int round = 0; round < 3; ++round) {  // a fixed number, as in find_scales
    const F32x16 error = group_sums<group>(improve_pairs<size>(sheet, range, b));
    best.d = select_less(error, least, b.d, best.d);
    best.dmin = select_less(error, least, b.dmin, best.dmin);
    best.scale = select_less(error, least, b.scale, best.scale);
    best.min_ = select_less(error, least, b.min_, best.min_);
    least = min(error, least);
    refit_halves<size>(sheet, fixed, range.highest, b);
  }
  return best;
}

// --- Rows ----------------------------------------------------------------------------------------

// The power of two next below 1 / x, of a double that is normal and positive.
inline double inverse_power_of_two(double x) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  bits = (2046 - (bits >> 52)) << 52;
  double inverse;
  __builtin_memcpy(&inverse, &bits, sizeof inverse);
  return inverse;
}

// The factor that gives the importances of a row a mean between 1 and 2: sums of them neither
// overflow nor vanish then, and as it is a power of two, nothing else changes. 0: all are 0.
inline double importance_unit(const float* importance, std::size_t columns) {
  double sum = 0;
  for (std::size_t i = 0; i < columns; ++i) sum += static_cast<double>(importance[i]);
  return sum == 0 ? 0 : inverse_power_of_two(sum / static_cast<double>(columns));
}

// The weights of the columns of a row: their importances, but at least a millionth of the mean of
// these. Columns that no input has reached so far may be reached later, and a block of nothing else
// must keep its values. If all of a row are 0, or there are none, weights are 1.
class RowWeights {
 public:
  // importance: null or one for each column.
  RowWeights(const float* importance, std::size_t columns)
      : importance_(importance),
        unit_(importance == nullptr ? 0 : importance_unit(importance, columns)) {}

  // The weights of `count` columns from `at` on.
  void fill(std::size_t at, std::size_t count, float* weights) const {
    constexpr float least = 1.0f / (1 << 20);
    for (std::size_t i = 0; i < count; ++i) {
      weights[i] = 1;
      if (unit_ == 0) continue;
      const auto weight = static_cast<float>(static_cast<double>(importance_[at + i]) * unit_);
      weights[i] = weight > least ? weight : least;
    }
  }

 private:
  const float* importance_;
  double unit_;
};

// Calls body(values, sheet, sub-blocks, block) for up to sixteen sub-blocks of `size` values at a
// time.
template <int elements, int size, class Block, class Body>
inline void by_sheets(const float* values, std::size_t columns, const float* importance,
                      std::byte* blocks, const Body& body) {
  static_assert(alignof(Block) == 1);
  constexpr std::size_t at_once = lanes * size;
  Sheet sheet;
  float weights[at_once];
  const RowWeights weights_of_row(importance, columns);
  auto* block = reinterpret_cast<Block*>(blocks);
  for (std::size_t at = 0; at < columns; at += at_once) {
    const std::size_t count = columns - at < at_once ? columns - at : at_once;
    weights_of_row.fill(at, count, weights);
    const int sub_blocks = static_cast<int>(count / size);
    fill<size>(values + at, weights, sub_blocks, sheet);
    body(values + at, sheet, sub_blocks, block);
    block += count / elements;
  }
}

// The values of a row and where its blocks go.
struct EncodedRow {
  const float* values;
  std::size_t columns;
  const float* importance;  // or null
  std::byte* blocks;
};

template <class Block, class Body>
inline void by_blocks_of_32(const EncodedRow& row, const Body& body) {
  by_sheets<32, 32, Block>(row.values, row.columns, row.importance, row.blocks, body);
}

template <class Block, int size, class Body>
inline void by_blocks_of_256(const EncodedRow& row, const Body& body) {
  by_sheets<256, size, Block>(row.values, row.columns, row.importance, row.blocks, body);
}

// Calls body(values, weights, block) for each block.
template <class Block, int elements, class Body>
inline void by_blocks(const EncodedRow& row, const Body& body) {
  static_assert(alignof(Block) == 1);
  const RowWeights weights_of_row(row.importance, row.columns);
  float weights[elements];
  auto* block = reinterpret_cast<Block*>(row.blocks);
  for (std::size_t at = 0; at < row.columns; at += elements) {
    weights_of_row.fill(at, elements, weights);
    *block = {};
    body(row.values + at, weights, *block++);
  }
}

// Calls pack(codes, block) for each block of a format that indexes a grid.
template <class Block, class Pack>
inline void encode_grid_row(const GridFormat& format, const EncodedRow& row, const Pack& pack) {
  by_blocks<Block, 256>(row, [&](const float* x, const float* w, Block& b) {
    pack(find_grid_block(format, x, w), b);
  });
}

// The code of a ternary weight: 0 for -d, 1 for 0, 2 for d.
inline int ternary_code(float x, float d) {
  return 2 * ::fabsf(x) <= d ? 1 : x > 0 ? 2 : 0;
}

template <class Block, class Grid>
inline void encode_scaled_row(const Grid& grid, const EncodedRow& row) {
  by_blocks_of_32<Block>(row, [&](const float* x, const Sheet& sheet, int count, Block* b) {
    encode_scaled(grid, x, sheet, count, b);
  });
}

template <class Block>
inline void encode_affine_row(float highest, const EncodedRow& row) {
  by_blocks_of_32<Block>(row, [&](const float* x, const Sheet& sheet, int count, Block* b) {
    encode_affine(highest, x, sheet, count, b);
  });
}

}  // namespace
}  // namespace sluice::kernels

#define SLUICE_HAS_ENCODERS
#include "kernels/formats/all.h"

namespace sluice::kernels {
namespace {

inline void encode_blocks(BlockType type, const float* values, std::size_t columns,
                          const float* importance, std::byte* blocks) {
  const EncodedRow row = {values, columns, importance, blocks};
  visit_format(type, [&]<typename Format>(Format) {
    if constexpr (!is_float<Format>) {
      static_assert(Format::can_encode == requires { Format::encode(row); });
      if constexpr (Format::can_encode) Format::encode(row);
    }
  });
}

inline void from_halves(const std::uint16_t* halves, std::size_t count, float* out) {
  by_sixteen(count, [&](std::size_t i, std::size_t n) { store(load(halves + i, n), out + i, n); });
}

inline float largest_magnitude(const float* values, std::size_t count) {
  F32x16 top = zero();
  by_sixteen(count, [&](std::size_t i, std::size_t n) {
    top = max_or_nan(abs(load(values + i, n)), top);
  });
  return largest_or_nan(top);
}

inline void fill(EncodeKernels& table) {
  table.blocks = encode_blocks;
  table.from_halves = from_halves;
  table.largest_magnitude = largest_magnitude;
}

}  // namespace
}  // namespace sluice::kernels
