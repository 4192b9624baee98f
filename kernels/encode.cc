#include "kernels/encode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dequantise.h"
#include "kernels/scale_search.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t block_max = 256;
constexpr UniformGrid q4_0_grid{-8, 7}, q5_0_grid{-16, 15}, q6_k_grid{-32, 31};

const Iq4Grid& iq4_grid() {
  static const Iq4Grid grid;
  return grid;
}

// Nearest codes for a scale that is fixed; 0 is as good as any code then.
template <class Grid>
void choose_codes(const Grid& grid, const float* x, int count, float scale, std::uint8_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(grid.code(grid.nearest(x[i] * inverse)));
  }
}

void choose_codes(const float* x, int count, float highest, const Affine& line,
                  std::uint8_t* codes) {
  const UniformGrid grid{0, highest};
  const float inverse = line.scale != 0 ? 1 / line.scale : 0;
  for (int i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(grid.nearest((x[i] - line.offset) * inverse));
  }
}

// Codes of a block of 32 as nibbles, element j beside element j + 16.
void pack_nibbles(const std::uint8_t* codes, std::uint8_t* qs) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

void pack_fifth_bits(const std::uint8_t* codes, std::uint8_t (&qh)[4]) {
  std::fill(std::begin(qh), std::end(qh), std::uint8_t{0});
  for (int j = 0; j < 32; ++j) {
    qh[j / 8] = static_cast<std::uint8_t>(qh[j / 8] | (codes[j] >> 4) << (j % 8));
  }
}

void encode(const float* x, const float*, BlockQ8_0& b) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(x[j]));
  b.d = float_to_half(largest / 127);
  const float d = half_to_float(b.d);
  const float inverse = d > 0 ? 1 / d : 0;
  for (int j = 0; j < 32; ++j) {
    b.qs[j] = static_cast<std::int8_t>(round_small(clamp_to(x[j] * inverse, -127, 127)));
  }
}

template <class Grid>
float half_scale(const Grid& grid, const float* x, const float* w, std::uint16_t& d) {
  d = float_to_half(find_scale(grid, x, w, 32));
  return half_to_float(d);
}

void encode(const float* x, const float* w, BlockQ4_0& b) {
  std::uint8_t codes[32];
  choose_codes(q4_0_grid, x, 32, half_scale(q4_0_grid, x, w, b.d), codes);
  pack_nibbles(codes, b.qs);
}

void encode(const float* x, const float* w, BlockQ5_0& b) {
  std::uint8_t codes[32];
  choose_codes(q5_0_grid, x, 32, half_scale(q5_0_grid, x, w, b.d), codes);
  pack_nibbles(codes, b.qs);
  pack_fifth_bits(codes, b.qh);
}

void encode(const float* x, const float* w, BlockIQ4_NL& b) {
  std::uint8_t codes[32];
  choose_codes(iq4_grid(), x, 32, half_scale(iq4_grid(), x, w, b.d), codes);
  pack_nibbles(codes, b.qs);
}

template <class Block>
void encode_affine(const float* x, const float* w, float highest, Block& b, std::uint8_t* codes) {
  const Affine line = find_affine(x, w, 32, highest, false);
  b.d = float_to_half(line.scale);
  b.m = float_to_half(line.offset);
  choose_codes(x, 32, highest, {half_to_float(b.d), half_to_float(b.m)}, codes);
  pack_nibbles(codes, b.qs);
}

void encode(const float* x, const float* w, BlockQ4_1& b) {
  std::uint8_t codes[32];
  encode_affine(x, w, 15, b, codes);
}

void encode(const float* x, const float* w, BlockQ5_1& b) {
  std::uint8_t codes[32];
  encode_affine(x, w, 31, b, codes);
  pack_fifth_bits(codes, b.qh);
}

// The scale is a power of two: the one that the largest value asks for, or a neighbour.
void encode(const float* x, const float* w, BlockMXFP4& b) {
  const auto nearest_code = [](float y) {
    int best = 0;
    for (int code = 1; code < 16; ++code) {
      if (std::abs(y - doubled_e2m1[code]) < std::abs(y - doubled_e2m1[best])) best = code;
    }
    return best;
  };
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(x[j]));
  std::memset(&b, 0, sizeof b);
  if (largest == 0) return;
  const int wanted = std::ilogb(largest) - 2 + 127;  // the greatest value of E2M1 is 1.5 * 2^2
  float least = std::numeric_limits<float>::infinity();
  for (int e = std::clamp(wanted - 1, 0, 254); e <= std::clamp(wanted + 1, 0, 254); ++e) {
    const float half = half_of_e8m0(static_cast<std::uint8_t>(e));
    std::uint8_t codes[32];
    float error = 0;
    for (int j = 0; j < 32; ++j) {
      const int code = nearest_code(x[j] / half);
      const float rest = x[j] - half * doubled_e2m1[code];
      codes[j] = static_cast<std::uint8_t>(code);
      error += w[j] * rest * rest;
    }
    if (error >= least) continue;
    least = error;
    b.e = static_cast<std::uint8_t>(e);
    pack_nibbles(codes, b.qs);
  }
}

// A block of 256 whose sub-blocks have integer scales in `lowest..highest`, all times d.
struct ScaledBlock {
  float d = 0;
  std::array<int, 16> scales{};
  float error = std::numeric_limits<float>::infinity();
};

template <class Grid>
float block_error(const Grid& grid, const float* x, const float* w, int size,
                  const ScaledBlock& b) {
  float error = 0;
  for (int s = 0; s < 256 / size; ++s) {
    const float scale = b.d * static_cast<float>(b.scales[static_cast<std::size_t>(s)]);
    error += scale_error(grid, x + s * size, w + s * size, size, scale);
  }
  return error;
}

// For each sub-block the best integer scale beside the one that it has.
template <class Grid>
void improve_scales(const Grid& grid, const float* x, const float* w, int size, int lowest,
                    int highest, ScaledBlock& b) {
  b.error = 0;
  for (int s = 0; s < 256 / size; ++s) {
    int& scale = b.scales[static_cast<std::size_t>(s)];
    const int middle = scale;
    float least = std::numeric_limits<float>::infinity();
    for (int next = std::max(lowest, middle - 1); next <= std::min(highest, middle + 1); ++next) {
      const float error =
          scale_error(grid, x + s * size, w + s * size, size, b.d * static_cast<float>(next));
      if (error >= least) continue;
      least = error;
      scale = next;
    }
    b.error += least;
  }
}

// The best d for the codes and integer scales that the block has.
template <class Grid>
float refit_d(const Grid& grid, const float* x, const float* w, int size, const ScaledBlock& b) {
  float xv = 0, vv = 0;
  for (int s = 0; s < 256 / size; ++s) {
    const auto integer = static_cast<float>(b.scales[static_cast<std::size_t>(s)]);
    if (integer == 0 || b.d == 0) continue;
    const ScaleSums sums = scale_sums(grid, x + s * size, w + s * size, size, 1 / (b.d * integer));
    xv += integer * sums.xv;
    vv += integer * integer * sums.vv;
  }
  return vv > 0 ? xv / vv : b.d;
}

float to_half_and_back(float value) {
  return half_to_float(float_to_half(value));
}

template <class Grid>
ScaledBlock find_scales(const Grid& grid, const float* x, const float* w, int size, int lowest,
                        int highest) {
  std::array<float, 16> wanted{};
  float largest = 0;  // with its sign
  for (int s = 0; s < 256 / size; ++s) {
    const float scale = find_scale(grid, x + s * size, w + s * size, size);
    wanted[static_cast<std::size_t>(s)] = scale;
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  }
  ScaledBlock best;
  best.d = 0;
  if (largest == 0) return best;
  for (const float reach : {0.0f, 0.6f}) {  // how far inside of the range the largest scale lies
    ScaledBlock b;
    b.d = to_half_and_back(largest / (static_cast<float>(lowest) + reach));
    if (b.d == 0) continue;
    for (std::size_t s = 0; s < 16; ++s) {
      b.scales[s] = std::clamp(static_cast<int>(std::lrint(wanted[s] / b.d)), lowest, highest);
    }
    for (int round = 0; round < 3; ++round) {
      improve_scales(grid, x, w, size, lowest, highest, b);
      if (b.error < best.error) best = b;
      const float d = to_half_and_back(refit_d(grid, x, w, size, b));
      if (d == b.d || d == 0) break;
      b.d = d;
    }
    b.error = block_error(grid, x, w, size, b);
    if (b.error < best.error) best = b;
  }
  return best;
}

void encode(const float* x, const float* w, BlockQ6_K& b) {
  const ScaledBlock found = find_scales(q6_k_grid, x, w, 16, -128, 127);
  std::memset(&b, 0, sizeof b);
  b.d = float_to_half(found.d);
  for (std::size_t s = 0; s < 16; ++s) {
    b.scales[s] = static_cast<std::int8_t>(found.scales[s]);
    std::uint8_t codes[16];
    const float scale = found.d * static_cast<float>(found.scales[s]);
    choose_codes(q6_k_grid, x + 16 * s, 16, scale, codes);
    for (std::size_t k = 0; k < 16; ++k) {
      const std::size_t i = 16 * s + k, half = i / 128, quarter = i % 128 / 32, l = i % 32;
      std::uint8_t& low = b.ql[64 * half + 32 * (quarter % 2) + l];
      low = static_cast<std::uint8_t>(low | (codes[k] & 15) << (quarter < 2 ? 0 : 4));
      std::uint8_t& high = b.qh[32 * half + l];
      high = static_cast<std::uint8_t>(high | (codes[k] >> 4) << (2 * quarter));
    }
  }
}

void encode(const float* x, const float* w, BlockIQ4_XS& b) {
  const ScaledBlock found = find_scales(iq4_grid(), x, w, 32, -32, 31);
  std::memset(&b, 0, sizeof b);
  b.d = float_to_half(found.d);
  for (std::size_t j = 0; j < 8; ++j) {
    const int stored = found.scales[j] + 32;
    b.scales_l[j / 2] = static_cast<std::uint8_t>(b.scales_l[j / 2] | (stored & 15) << (j % 2 * 4));
    b.scales_h = static_cast<std::uint16_t>(b.scales_h | (stored >> 4) << (2 * j));
    std::uint8_t codes[32];
    const float scale = found.d * static_cast<float>(found.scales[j]);
    choose_codes(iq4_grid(), x + 32 * j, 32, scale, codes);
    pack_nibbles(codes, b.qs + 16 * j);
  }
}

// A block of 256 of Q4_K or Q5_K: x ~ d scale q - dmin min in each of 8 sub-blocks.
struct AffineBlock {
  float d = 0, dmin = 0;
  std::array<int, 8> scales{}, mins{};
  float error = std::numeric_limits<float>::infinity();

  Affine line(std::size_t s) const {
    return {d * static_cast<float>(scales[s]), -dmin * static_cast<float>(mins[s])};
  }
};

// For each sub-block the best pair of integers beside the one that it has.
void improve_pairs(const float* x, const float* w, float highest, AffineBlock& b) {
  b.error = 0;
  for (std::size_t s = 0; s < 8; ++s) {
    const int scale = b.scales[s], min = b.mins[s];
    AffineBlock tried = b;
    float least = std::numeric_limits<float>::infinity();
    for (int i = std::max(0, scale - 1); i <= std::min(63, scale + 1); ++i) {
      for (int k = std::max(0, min - 1); k <= std::min(63, min + 1); ++k) {
        tried.scales[s] = i;
        tried.mins[s] = k;
        const float error = affine_error(x + 32 * s, w + 32 * s, 32, highest, tried.line(s));
        if (error >= least) continue;
        least = error;
        b.scales[s] = i;
        b.mins[s] = k;
      }
    }
    b.error += least;
  }
}

// The best d and dmin for the codes and integers that the block has; false where they are not
// determined.
bool refit_halves(const float* x, const float* w, float highest, AffineBlock& b) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // x ~ d a - dmin b
  for (std::size_t s = 0; s < 8; ++s) {
    std::uint8_t codes[32];
    choose_codes(x + 32 * s, 32, highest, b.line(s), codes);
    double sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      const double weight = w[32 * s + i], value = x[32 * s + i], q = codes[i];
      sw += weight;
      sq += weight * q;
      sqq += weight * q * q;
      sx += weight * value;
      sxq += weight * value * q;
    }
    const double scale = b.scales[s], min = b.mins[s];
    aa += scale * scale * sqq;
    ab += scale * min * sq;
    bb += min * min * sw;
    xa += scale * sxq;
    xb += min * sx;
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-9 * aa * bb)) return false;
  const float d = to_half_and_back(static_cast<float>((xa * bb - xb * ab) / determinant));
  const float dmin = to_half_and_back(static_cast<float>((xa * ab - xb * aa) / determinant));
  if (!(d > 0 && dmin >= 0) || (d == b.d && dmin == b.dmin)) return false;
  b.d = d;
  b.dmin = dmin;
  return true;
}

AffineBlock find_pairs(const float* x, const float* w, float highest) {
  std::array<Affine, 8> wanted;
  float scale_max = 0, min_max = 0;
  for (std::size_t s = 0; s < 8; ++s) {
    wanted[s] = find_affine(x + 32 * s, w + 32 * s, 32, highest, true);
    scale_max = std::max(scale_max, wanted[s].scale);
    min_max = std::max(min_max, -wanted[s].offset);
  }
  AffineBlock b;
  b.d = to_half_and_back(scale_max / 63);
  b.dmin = to_half_and_back(min_max / 63);
  const auto integer = [](float value, float unit) {
    return unit > 0 ? std::clamp(static_cast<int>(std::lrint(value / unit)), 0, 63) : 0;
  };
  for (std::size_t s = 0; s < 8; ++s) {
    b.scales[s] = integer(wanted[s].scale, b.d);
    b.mins[s] = integer(-wanted[s].offset, b.dmin);
  }
  AffineBlock best = b;
  for (int round = 0; round < 3; ++round) {
    improve_pairs(x, w, highest, b);
    if (b.error < best.error) best = b;
    if (!refit_halves(x, w, highest, b)) break;
  }
  return best;
}

// The 6-bit pair of sub-block j of Q4_K and Q5_K.
void pack_pair(std::uint8_t (&s)[12], std::size_t j, int scale, int min) {
  const auto set = [&](std::size_t at, int bits) {
    s[at] = static_cast<std::uint8_t>(s[at] | bits);
  };
  if (j < 4) {
    set(j, scale);
    set(j + 4, min);
  } else {
    set(j + 4, (scale & 15) | (min & 15) << 4);
    set(j - 4, scale >> 4 << 6);
    set(j, min >> 4 << 6);
  }
}

// Fills all but the fifth bits, which `fifth(sub-block, element, code)` takes.
template <class Block, class Fifth>
void encode_pairs(const float* x, const float* w, float highest, Block& b, const Fifth& fifth) {
  const AffineBlock found = find_pairs(x, w, highest);
  std::memset(&b, 0, sizeof b);
  b.d = float_to_half(found.d);
  b.dmin = float_to_half(found.dmin);
  for (std::size_t j = 0; j < 8; ++j) {
    pack_pair(b.scales, j, found.scales[j], found.mins[j]);
    std::uint8_t codes[32];
    choose_codes(x + 32 * j, 32, highest, found.line(j), codes);
    for (std::size_t l = 0; l < 32; ++l) {
      std::uint8_t& byte = b.qs[j / 2 * 32 + l];
      byte = static_cast<std::uint8_t>(byte | (codes[l] & 15) << (j % 2 * 4));
      fifth(j, l, codes[l] >> 4);
    }
  }
}

void encode(const float* x, const float* w, BlockQ4_K& b) {
  encode_pairs(x, w, 15, b, [](std::size_t, std::size_t, int) {});
}

void encode(const float* x, const float* w, BlockQ5_K& b) {
  encode_pairs(x, w, 31, b, [&](std::size_t j, std::size_t l, int bit) {
    b.qh[l] = static_cast<std::uint8_t>(b.qh[l] | bit << j);
  });
}

template <typename Block>
void encode_blocks(const float* values, std::size_t elements, std::size_t columns,
                   const float* importance, std::byte* blocks) {
  static_assert(alignof(Block) == 1);
  std::array<float, block_max> ones;
  ones.fill(1);
  auto* block = reinterpret_cast<Block*>(blocks);
  for (std::size_t i = 0; i < columns; i += elements) {
    const float* w = importance != nullptr ? importance + i : ones.data();
    // Columns that no input ever reached: any code will do, so take the plain error.
    const bool is_unknown = std::all_of(w, w + elements, [](float one) { return one <= 0; });
    encode(values + i, is_unknown ? ones.data() : w, *block++);
  }
}

void store_u16(std::byte* at, std::uint16_t value) {
  std::memcpy(at, &value, sizeof value);
}

// To nearest even; a NaN stays one.
std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

bool can_encode(BlockType type) {
  return type != BlockType::q2_k && type != BlockType::q3_k;
}

void encode(BlockType type, const float* values, std::size_t columns, const float* importance,
            std::byte* blocks) {
  switch (type) {
    case BlockType::f32:
      if (columns > 0) std::memcpy(blocks, values, columns * sizeof(float));
      return;
    case BlockType::f16:
      for (std::size_t i = 0; i < columns; ++i) store_u16(blocks + 2 * i, float_to_half(values[i]));
      return;
    case BlockType::bf16:
      for (std::size_t i = 0; i < columns; ++i) store_u16(blocks + 2 * i, float_to_bf16(values[i]));
      return;
    case BlockType::q4_0:
      return encode_blocks<BlockQ4_0>(values, 32, columns, importance, blocks);
    case BlockType::q4_1:
      return encode_blocks<BlockQ4_1>(values, 32, columns, importance, blocks);
    case BlockType::q5_0:
      return encode_blocks<BlockQ5_0>(values, 32, columns, importance, blocks);
    case BlockType::q5_1:
      return encode_blocks<BlockQ5_1>(values, 32, columns, importance, blocks);
    case BlockType::q8_0:
      return encode_blocks<BlockQ8_0>(values, 32, columns, importance, blocks);
    case BlockType::q4_k:
      return encode_blocks<BlockQ4_K>(values, 256, columns, importance, blocks);
    case BlockType::q5_k:
      return encode_blocks<BlockQ5_K>(values, 256, columns, importance, blocks);
    case BlockType::q6_k:
      return encode_blocks<BlockQ6_K>(values, 256, columns, importance, blocks);
    case BlockType::iq4_nl:
      return encode_blocks<BlockIQ4_NL>(values, 32, columns, importance, blocks);
    case BlockType::iq4_xs:
      return encode_blocks<BlockIQ4_XS>(values, 256, columns, importance, blocks);
    case BlockType::mxfp4:
      return encode_blocks<BlockMXFP4>(values, 32, columns, importance, blocks);
    case BlockType::q2_k:
    case BlockType::q3_k:
      return;  // can_encode() is false
  }
}

}  // namespace sluice::kernels
