#include "kernels/dequantise.h"

#include <bit>
#include <cstring>

#include "kernels/formats/all.h"

namespace sluice::kernels {
namespace {

// The float operations of a weight, in the order of the formats' definition: every decoder that is
// right gives these bits.
template <typename Format, int sub_block>
void decode(const IntegerBlock<sub_block>& b, float* out) {
  for (int s = 0; s < b.sub_blocks; ++s) {
    const float scale = b.d * static_cast<float>(b.scale[s]);
    const int* q = b.q + s * sub_block;
    float* of_sub_block = out + s * sub_block;
    for (int k = 0; k < sub_block; ++k) of_sub_block[k] = scale * static_cast<float>(q[k]);
    if constexpr (Format::has_min) {
      const float min = b.dmin * static_cast<float>(b.min[s]);
      for (int k = 0; k < sub_block; ++k) of_sub_block[k] -= min;
    }
  }
}

template <typename Format, int count>
void decode(const SmallBlock<count>& b, float* out) {
  for (int k = 0; k < b.weights; ++k) out[k] = b.d * static_cast<float>(b.q[k]);
  if constexpr (Format::has_min) {
    for (int k = 0; k < b.weights; ++k) out[k] += b.m;
  }
}

template <typename Format, int count>
void decode(const FineBlock<count>& b, float* out) {
  for (int k = 0; k < b.weights; ++k) out[k] = b.d[k / 16] * static_cast<float>(b.q[k]);
}

template <typename Format>
void decode_blocks(const std::byte* blocks, std::size_t columns, float* out) {
  using Block = typename Format::Block;
  static_assert(alignof(Block) == 1);
  const auto* block = reinterpret_cast<const Block*>(blocks);
  for (std::size_t i = 0; i < columns; i += Format::weights) {
    decode<Format>(Format::unpack(*block++), out + i);
  }
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
    default:
      visit_format(type, [&]<typename Format>(Format) {
        if constexpr (!is_float<Format>) decode_blocks<Format>(blocks, columns, out);
      });
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

float half_of_ue4m3(std::uint8_t e) {
  const std::uint32_t code = e & 127, exponent = code >> 3;
  if (code == 127) return 0;
  if (exponent == 0) return static_cast<float>(code) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 119) << 23 | (code & 7) << 20);
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
