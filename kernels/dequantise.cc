#include "kernels/dequantise.h"

#include <bit>
#include <cstring>

namespace sluice::kernels {
namespace {

int low(std::uint8_t byte) {
  return byte & 15;
}
int high(std::uint8_t byte) {
  return byte >> 4;
}

float times(float d, int q) {
  return d * static_cast<float>(q);
}

// The fifth bits of a block of 32, bit j for element j.
std::uint32_t fifth_bits(const std::uint8_t (&qh)[4]) {
  return qh[0] | qh[1] << 8 | qh[2] << 16 | static_cast<std::uint32_t>(qh[3]) << 24;
}

int fifth(std::uint32_t bits, int element) {
  return static_cast<int>(bits >> element & 1) << 4;
}

void decode(const BlockQ4_0& b, float* out) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, low(b.qs[j]) - 8);
    out[j + 16] = times(d, high(b.qs[j]) - 8);
  }
}

void decode(const BlockQ4_1& b, float* out) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, low(b.qs[j])) + m;
    out[j + 16] = times(d, high(b.qs[j])) + m;
  }
}

void decode(const BlockQ5_0& b, float* out) {
  const float d = half_to_float(b.d);
  const std::uint32_t bits = fifth_bits(b.qh);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, (low(b.qs[j]) | fifth(bits, j)) - 16);
    out[j + 16] = times(d, (high(b.qs[j]) | fifth(bits, j + 16)) - 16);
  }
}

void decode(const BlockQ5_1& b, float* out) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  const std::uint32_t bits = fifth_bits(b.qh);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, low(b.qs[j]) | fifth(bits, j)) + m;
    out[j + 16] = times(d, high(b.qs[j]) | fifth(bits, j + 16)) + m;
  }
}

void decode(const BlockQ8_0& b, float* out) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 32; ++j) out[j] = times(d, b.qs[j]);
}

void decode(const BlockIQ4_NL& b, float* out) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, iq4_values[low(b.qs[j])]);
    out[j + 16] = times(d, iq4_values[high(b.qs[j])]);
  }
}

void decode(const BlockMXFP4& b, float* out) {
  const float d = half_of_e8m0(b.e);
  for (int j = 0; j < 16; ++j) {
    out[j] = times(d, doubled_e2m1[low(b.qs[j])]);
    out[j + 16] = times(d, doubled_e2m1[high(b.qs[j])]);
  }
}

// Q2_K and Q3_K keep four elements, 32 apart, in the 2-bit fields of a byte.
struct TwoBitElement {
  int byte;   // of qs
  int shift;  // of the field
};

TwoBitElement two_bit_element(int i) {
  return {i / 128 * 32 + i % 32, i % 128 / 32 * 2};
}

void decode(const BlockQ2_K& b, float* out) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int s = 0; s < 16; ++s) {
    const float scale = times(d, low(b.scales[s])), min = times(dmin, high(b.scales[s]));
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const auto [byte, shift] = two_bit_element(i);
      out[i] = times(scale, b.qs[byte] >> shift & 3) - min;
    }
  }
}

// Scale s of Q3_K: four low bits in the first eight bytes, two high bits in the last four.
int scale_of_q3_k(const std::uint8_t (&a)[12], int s) {
  const int low_bits = s < 8 ? low(a[s]) : high(a[s - 8]);
  const int high_bits = a[8 + s % 4] >> (s / 4 * 2) & 3;
  return (low_bits | high_bits << 4) - 32;
}

void decode(const BlockQ3_K& b, float* out) {
  const float d = half_to_float(b.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = times(d, scale_of_q3_k(b.scales, s));
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const auto [byte, shift] = two_bit_element(i);
      const int third = b.hmask[i % 32] >> (i / 32) & 1;
      out[i] = times(scale, (b.qs[byte] >> shift & 3) - (third ? 0 : 4));
    }
  }
}

struct ScaleAndMin {
  int scale, min;
};

// The 6-bit pair of sub-block j of Q4_K and Q5_K.
ScaleAndMin scale_and_min(const std::uint8_t (&s)[12], int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {low(s[j + 4]) | s[j - 4] >> 6 << 4, high(s[j + 4]) | s[j] >> 6 << 4};
}

void decode(const BlockQ4_K& b, float* out) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_and_min(b.scales, j);
    const float sub_d = times(d, scale), sub_min = times(dmin, min);
    for (int l = 0; l < 32; ++l) {
      const std::uint8_t byte = b.qs[j / 2 * 32 + l];
      out[32 * j + l] = times(sub_d, j % 2 ? high(byte) : low(byte)) - sub_min;
    }
  }
}

void decode(const BlockQ5_K& b, float* out) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_and_min(b.scales, j);
    const float sub_d = times(d, scale), sub_min = times(dmin, min);
    for (int l = 0; l < 32; ++l) {
      const std::uint8_t byte = b.qs[j / 2 * 32 + l];
      const int q = (j % 2 ? high(byte) : low(byte)) | (b.qh[l] >> j & 1) << 4;
      out[32 * j + l] = times(sub_d, q) - sub_min;
    }
  }
}

void decode(const BlockQ6_K& b, float* out) {
  const float d = half_to_float(b.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = times(d, b.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
      const std::uint8_t byte = b.ql[64 * half + 32 * (quarter % 2) + l];
      const int top = b.qh[32 * half + l] >> (2 * quarter) & 3;
      out[i] = times(scale, ((quarter < 2 ? low(byte) : high(byte)) | top << 4) - 32);
    }
  }
}

void decode(const BlockIQ4_XS& b, float* out) {
  const float d = half_to_float(b.d);
  for (int j = 0; j < 8; ++j) {
    const int low_bits = b.scales_l[j / 2] >> (j % 2 * 4) & 15;
    const int high_bits = b.scales_h >> (2 * j) & 3;
    const float scale = times(d, (low_bits | high_bits << 4) - 32);
    for (int l = 0; l < 16; ++l) {
      const std::uint8_t byte = b.qs[16 * j + l];
      out[32 * j + l] = times(scale, iq4_values[low(byte)]);
      out[32 * j + l + 16] = times(scale, iq4_values[high(byte)]);
    }
  }
}

template <typename Block>
void decode_blocks(const std::byte* blocks, std::size_t elements, std::size_t columns, float* out) {
  static_assert(alignof(Block) == 1);
  const auto* block = reinterpret_cast<const Block*>(blocks);
  for (std::size_t i = 0; i < columns; i += elements) decode(*block++, out + i);
}

std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

void dequantise(BlockType type, const std::byte* blocks, std::size_t columns, float* out) {
  switch (type) {
    case BlockType::f32:
      if (columns > 0) std::memcpy(out, blocks, columns * sizeof(float));
      return;
    case BlockType::f16:
      for (std::size_t i = 0; i < columns; ++i) out[i] = half_to_float(load_u16(blocks + 2 * i));
      return;
    case BlockType::bf16:
      for (std::size_t i = 0; i < columns; ++i) {
        const std::uint32_t upper = load_u16(blocks + 2 * i);
        out[i] = std::bit_cast<float>(upper << 16);
      }
      return;
    case BlockType::q4_0:
      return decode_blocks<BlockQ4_0>(blocks, 32, columns, out);
    case BlockType::q4_1:
      return decode_blocks<BlockQ4_1>(blocks, 32, columns, out);
    case BlockType::q5_0:
      return decode_blocks<BlockQ5_0>(blocks, 32, columns, out);
    case BlockType::q5_1:
      return decode_blocks<BlockQ5_1>(blocks, 32, columns, out);
    case BlockType::q8_0:
      return decode_blocks<BlockQ8_0>(blocks, 32, columns, out);
    case BlockType::q2_k:
      return decode_blocks<BlockQ2_K>(blocks, 256, columns, out);
    case BlockType::q3_k:
      return decode_blocks<BlockQ3_K>(blocks, 256, columns, out);
    case BlockType::q4_k:
      return decode_blocks<BlockQ4_K>(blocks, 256, columns, out);
    case BlockType::q5_k:
      return decode_blocks<BlockQ5_K>(blocks, 256, columns, out);
    case BlockType::q6_k:
      return decode_blocks<BlockQ6_K>(blocks, 256, columns, out);
    case BlockType::iq4_nl:
      return decode_blocks<BlockIQ4_NL>(blocks, 32, columns, out);
    case BlockType::iq4_xs:
      return decode_blocks<BlockIQ4_XS>(blocks, 256, columns, out);
    case BlockType::mxfp4:
      return decode_blocks<BlockMXFP4>(blocks, 32, columns, out);
  }
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent == 31) {  // infinity, or a NaN, which becomes a quiet one
    const std::uint32_t quiet = mantissa ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | mantissa << 13);
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float half_of_e8m0(std::uint8_t e) {
  // The two smallest are subnormal.
  const std::uint32_t bits =
      e < 2 ? std::uint32_t{0x200000} << e : static_cast<std::uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  std::uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN: quiet, with the upper part of its payload
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= std::bit_cast<std::uint32_t>(65520.0f)) {
    half = 0x7c00;
  } else if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14f)) {
    // Next to 0.5 the floats are one smallest half apart, so the addition rounds as we want.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  } else {
    const std::uint32_t odd = magnitude >> 13 & 1;
    half = ((magnitude + 0xfff + odd) >> 13) - (112 << 10);
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace sluice::kernels
