// F32, F16 and BF16, whose blocks are single numbers. They are decoded in kernels/dequantise.cc and
// multiplied as they are (kernels/matmul_formats_f32.h).
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {
namespace {

template <BlockType block_type, typename Element>
struct FloatDescriptor {
  using Block = Element;
  static constexpr BlockType type = block_type, fallback = BlockType::f16;
  static constexpr int weights = 1;
  static constexpr bool can_encode = true;
};

struct F32 : FloatDescriptor<BlockType::f32, std::uint32_t> {
  static constexpr const char* name = "F32";
  static constexpr std::uint32_t file_type = 0;
};
struct F16 : FloatDescriptor<BlockType::f16, std::uint16_t> {
  static constexpr const char* name = "F16";
  static constexpr std::uint32_t file_type = 1;
};
struct BF16 : FloatDescriptor<BlockType::bf16, std::uint16_t> {
  static constexpr const char* name = "BF16";
  static constexpr std::uint32_t file_type = 32;
};

}  // namespace
}  // namespace sluice::kernels
