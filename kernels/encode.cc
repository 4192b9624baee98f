#include "kernels/encode.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"

namespace sluice::kernels {
namespace {

void store_u16(std::byte* at, std::uint16_t value) {
  std::memcpy(at, &value, sizeof value);
}

// Rounds to nearest even; a NaN stays a NaN.
std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

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
    default:
      return kernel_table().encode.blocks(type, values, columns, importance, blocks);
  }
}

}  // namespace sluice::kernels
