// The matrix product in plain C++, row by row and column by column: the definition that the other
// tiers reproduce bit for bit. Slow, and meant to be read.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/dequantise.h"
#include "kernels/matmul.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t block = 256;

// 256 weights whose sub-block scales are integers: w = d * scale * q - dmin * min, q signed.
struct IntegerBlock {
  std::array<int, block> q;
  std::array<int, 16> scale, min;  // one per sub-block
  std::size_t sub_block;           // 16 or 32 weights
  float d, dmin;
  bool has_min;
};

int bit(const std::uint8_t* bytes, std::size_t i) {
  return (bytes[i / 8] >> (i % 8)) & 1;
}

// Unpacks the eight 6-bit scales and minima of Q4_K and Q5_K.
void unpack_scales(const std::uint8_t* s, IntegerBlock& out) {
  for (std::size_t j = 0; j < 4; ++j) {
    out.scale[j] = s[j] & 63;
    out.min[j] = s[j + 4] & 63;
    out.scale[j + 4] = (s[j + 8] & 15) | (s[j] >> 6) << 4;
    out.min[j + 4] = (s[j + 8] >> 4) | (s[j + 4] >> 6) << 4;
  }
}

// Q4_K and Q5_K differ by the fifth bit: in byte l of qh, bit j belongs to sub-block j.
template <typename Block>
IntegerBlock unpack_4_or_5(const Block& b, const std::uint8_t* qh) {
  IntegerBlock out{};
  out.sub_block = 32;
  out.has_min = true;
  out.d = half_to_float(b.d);
  out.dmin = half_to_float(b.dmin);
  unpack_scales(b.scales, out);
  for (std::size_t k = 0; k < block; ++k) {
    const std::size_t j = k / 32, l = k % 32;
    const int byte = b.qs[j / 2 * 32 + l];
    out.q[k] = (j % 2 ? byte >> 4 : byte & 15) | (qh ? ((qh[l] >> j) & 1) << 4 : 0);
  }
  return out;
}

IntegerBlock unpack(const BlockQ4_K& b) {
  return unpack_4_or_5(b, nullptr);
}
IntegerBlock unpack(const BlockQ5_K& b) {
  return unpack_4_or_5(b, b.qh);
}

IntegerBlock unpack(const BlockQ6_K& b) {
  IntegerBlock out{};
  out.sub_block = 16;
  out.d = half_to_float(b.d);
  // The sign is meant to be kept. NOLINTNEXTLINE(bugprone-signed-char-misuse)
  for (std::size_t s = 0; s < 16; ++s) out.scale[s] = b.scales[s];
  for (std::size_t k = 0; k < block; ++k) {
    const std::size_t half = k / 128, group = k % 128 / 32, l = k % 32;
    const int low = b.ql[64 * half + 32 * (group % 2) + l];
    const int high = b.qh[32 * half + l] >> (2 * group) & 3;
    out.q[k] = ((group < 2 ? low & 15 : low >> 4) | high << 4) - 32;
  }
  return out;
}

// Where Q2_K and Q3_K have weight k: in one of the four 2-bit fields of a byte.
int two_bits(const std::uint8_t* qs, std::size_t k) {
  return qs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3;
}

IntegerBlock unpack(const BlockQ2_K& b) {
  IntegerBlock out{};
  out.sub_block = 16;
  out.has_min = true;
  out.d = half_to_float(b.d);
  out.dmin = half_to_float(b.dmin);
  for (std::size_t s = 0; s < 16; ++s) {
    out.scale[s] = b.scales[s] & 15;
    out.min[s] = b.scales[s] >> 4;
  }
  for (std::size_t k = 0; k < block; ++k) out.q[k] = two_bits(b.qs, k);
  return out;
}

IntegerBlock unpack(const BlockQ3_K& b) {
  IntegerBlock out{};
  out.sub_block = 16;
  out.d = half_to_float(b.d);
  for (std::size_t s = 0; s < 16; ++s) {
    const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
    const int high = b.scales[8 + s % 4] >> (s / 4 * 2) & 3;
    out.scale[s] = (low | high << 4) - 32;
  }
  for (std::size_t k = 0; k < block; ++k) {
    const int third = b.hmask[k % 32] >> (k / 32) & 1;
    out.q[k] = (two_bits(b.qs, k) | third << 2) - 4;
  }
  return out;
}

IntegerBlock unpack(const BlockIQ4_XS& b) {
  IntegerBlock out{};
  out.sub_block = 32;
  out.d = half_to_float(b.d);
  for (std::size_t s = 0; s < 8; ++s) {
    const int low = b.scales_l[s / 2] >> (s % 2 * 4) & 15, high = b.scales_h >> (2 * s) & 3;
    out.scale[s] = (low | high << 4) - 32;
  }
  for (std::size_t k = 0; k < block; ++k) {
    const int byte = b.qs[k / 32 * 16 + k % 16];
    out.q[k] = iq4_values[k % 32 < 16 ? byte & 15 : byte >> 4];
  }
  return out;
}

// 32 weights that share a float scale: w = d * q + m, q signed.
struct SmallBlock {
  std::array<int, 32> q;
  float d, m;
  bool has_min;
};

template <typename Block>
int nibble(const Block& b, std::size_t k) {
  return k < 16 ? b.qs[k] & 15 : b.qs[k - 16] >> 4;
}

SmallBlock unpack(const BlockQ4_0& b) {
  SmallBlock out{{}, half_to_float(b.d), 0, false};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = nibble(b, k) - 8;
  return out;
}

SmallBlock unpack(const BlockQ4_1& b) {
  SmallBlock out{{}, half_to_float(b.d), half_to_float(b.m), true};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = nibble(b, k);
  return out;
}

SmallBlock unpack(const BlockQ5_0& b) {
  SmallBlock out{{}, half_to_float(b.d), 0, false};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = (nibble(b, k) | bit(b.qh, k) << 4) - 16;
  return out;
}

SmallBlock unpack(const BlockQ5_1& b) {
  SmallBlock out{{}, half_to_float(b.d), half_to_float(b.m), true};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = nibble(b, k) | bit(b.qh, k) << 4;
  return out;
}

SmallBlock unpack(const BlockQ8_0& b) {
  SmallBlock out{{}, half_to_float(b.d), 0, false};
  // The sign is meant to be kept. NOLINTNEXTLINE(bugprone-signed-char-misuse)
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = b.qs[k];
  return out;
}

SmallBlock unpack(const BlockIQ4_NL& b) {
  SmallBlock out{{}, half_to_float(b.d), 0, false};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = iq4_values[nibble(b, k)];
  return out;
}

SmallBlock unpack(const BlockMXFP4& b) {
  SmallBlock out{{}, half_of_e8m0(b.e), 0, false};
  for (std::size_t k = 0; k < 32; ++k) out.q[k] = doubled_e2m1[nibble(b, k)];
  return out;
}

template <typename Block>
Block load(const std::byte* p) {
  Block b;
  std::memcpy(&b, p, sizeof b);
  return b;
}

// Returns `sum` plus the product of one block of a row with one column.
float add_block(const IntegerBlock& b, const ColumnA256& column, std::size_t i, float sum) {
  const BlockA256& a = column.blocks[i * column.stride];
  int block_sum = 0;
  for (std::size_t k = 0; k < block; ++k) {
    block_sum += b.scale[k / b.sub_block] * b.q[k] * a.q[k];
  }
  float scaled = static_cast<float>(block_sum) * b.d;
  if (b.has_min) {
    int min_dot = 0;
    for (std::size_t k = 0; k < block; ++k) min_dot += b.min[k / b.sub_block] * a.q[k];
    scaled = std::fma(-static_cast<float>(min_dot), b.dmin, scaled);
  }
  return std::fma(scaled, a.d, sum);
}

float add_block(const SmallBlock& b, const ColumnA32& column, std::size_t i, float sum) {
  const BlockA32& a = column.blocks[i / 8 * column.stride];
  const std::size_t at = i % 8;
  int dot = 0;
  for (std::size_t k = 0; k < 32; ++k) dot += b.q[k] * a.q[at * 32 + k];
  sum = std::fma(static_cast<float>(dot), b.d * a.d[at], sum);
  return b.has_min ? std::fma(b.m, a.d_sums[at], sum) : sum;
}

// Multiplies one block of weights after another with all columns. `form` returns a column of
// activations in the form that the weights need.
template <typename Block, typename Form>
void multiply_blocks(const WeightRows& w, const Activations& x, Form form, float* y,
                     std::size_t y_stride) {
  const std::size_t blocks = w.row_bytes / sizeof(Block);
  for (std::size_t row = 0; row < w.rows; ++row) {
    const std::byte* row_data = w.data + row * w.row_bytes;
    for (std::size_t c = 0; c < x.columns(); ++c) y[c * y_stride + row] = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto b = unpack(load<Block>(row_data + i * sizeof(Block)));
      for (std::size_t c = 0; c < x.columns(); ++c) {
        float& sum = y[c * y_stride + row];
        sum = add_block(b, form(c), i, sum);
      }
    }
  }
}

void multiply_f32(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride) {
  std::array<float, block> weights;
  for (std::size_t row = 0; row < w.rows; ++row) {
    const std::byte* row_data = w.data + row * w.row_bytes;
    for (std::size_t c = 0; c < x.columns(); ++c) y[c * y_stride + row] = 0;
    for (std::size_t start = 0; start < w.columns; start += block) {
      const std::size_t count = std::min(block, w.columns - start);
      dequantise(w.type, row_data + row_bytes(w.type, start), count, weights.data());
      for (std::size_t c = 0; c < x.columns(); ++c) {
        std::array<float, 4> sum{};
        for (std::size_t k = 0; k < count; ++k) {
          sum[k % 4] = std::fma(weights[k], x.f32(c)[start + k], sum[k % 4]);
        }
        y[c * y_stride + row] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
      }
    }
  }
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch&, const PrefetchPolicy&) {
  const auto a256 = [&x](std::size_t c) { return x.a256(c); };
  const auto a32 = [&x](std::size_t c) { return x.a32(c); };
  switch (w.type) {
    case BlockType::q2_k:
      return multiply_blocks<BlockQ2_K>(w, x, a256, y, y_stride);
    case BlockType::q3_k:
      return multiply_blocks<BlockQ3_K>(w, x, a256, y, y_stride);
    case BlockType::q4_k:
      return multiply_blocks<BlockQ4_K>(w, x, a256, y, y_stride);
    case BlockType::q5_k:
      return multiply_blocks<BlockQ5_K>(w, x, a256, y, y_stride);
    case BlockType::q6_k:
      return multiply_blocks<BlockQ6_K>(w, x, a256, y, y_stride);
    case BlockType::iq4_xs:
      return multiply_blocks<BlockIQ4_XS>(w, x, a256, y, y_stride);
    case BlockType::q4_0:
      return multiply_blocks<BlockQ4_0>(w, x, a32, y, y_stride);
    case BlockType::q4_1:
      return multiply_blocks<BlockQ4_1>(w, x, a32, y, y_stride);
    case BlockType::q5_0:
      return multiply_blocks<BlockQ5_0>(w, x, a32, y, y_stride);
    case BlockType::q5_1:
      return multiply_blocks<BlockQ5_1>(w, x, a32, y, y_stride);
    case BlockType::q8_0:
      return multiply_blocks<BlockQ8_0>(w, x, a32, y, y_stride);
    case BlockType::iq4_nl:
      return multiply_blocks<BlockIQ4_NL>(w, x, a32, y, y_stride);
    case BlockType::mxfp4:
      return multiply_blocks<BlockMXFP4>(w, x, a32, y, y_stride);
    default:
      return multiply_f32(w, x, y, y_stride);
  }
}

}  // namespace

void fill_matmul_scalar(MatmulKernels& table) {
  table = {multiply, false};
}

}  // namespace sluice::kernels
