#include "kernels/block_formats.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace sluice::kernels {
namespace {

constexpr std::array<BlockTraits, 16> supported = {{
    {BlockType::f32, "F32", 1, sizeof(float)},
    {BlockType::f16, "F16", 1, sizeof(std::uint16_t)},
    {BlockType::q4_0, "Q4_0", 32, sizeof(BlockQ4_0)},
    {BlockType::q4_1, "Q4_1", 32, sizeof(BlockQ4_1)},
    {BlockType::q5_0, "Q5_0", 32, sizeof(BlockQ5_0)},
    {BlockType::q5_1, "Q5_1", 32, sizeof(BlockQ5_1)},
    {BlockType::q8_0, "Q8_0", 32, sizeof(BlockQ8_0)},
    {BlockType::q2_k, "Q2_K", 256, sizeof(BlockQ2_K)},
    {BlockType::q3_k, "Q3_K", 256, sizeof(BlockQ3_K)},
    {BlockType::q4_k, "Q4_K", 256, sizeof(BlockQ4_K)},
    {BlockType::q5_k, "Q5_K", 256, sizeof(BlockQ5_K)},
    {BlockType::q6_k, "Q6_K", 256, sizeof(BlockQ6_K)},
    {BlockType::iq4_nl, "IQ4_NL", 32, sizeof(BlockIQ4_NL)},
    {BlockType::iq4_xs, "IQ4_XS", 256, sizeof(BlockIQ4_XS)},
    {BlockType::bf16, "BF16", 1, sizeof(std::uint16_t)},
    {BlockType::mxfp4, "MXFP4", 32, sizeof(BlockMXFP4)},
}};

struct UnsupportedType {
  std::uint32_t id;
  std::string_view name;
};

// Types of GGUF files that sluice cannot compute with.
constexpr std::array<UnsupportedType, 19> unsupported = {{
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},
    {26, "I32"},   {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},
    {35, "TQ2_0"}, {40, "NVFP4"}, {41, "Q1_0"},    {42, "Q2_0"},
}};

const BlockTraits* find(std::uint32_t id) {
  const auto found = std::find_if(supported.begin(), supported.end(), [id](const BlockTraits& t) {
    return static_cast<std::uint32_t>(t.type) == id;
  });
  return found == supported.end() ? nullptr : &*found;
}

}  // namespace

std::span<const BlockTraits> all_block_types() {
  return supported;
}

std::optional<BlockTraits> find_block_type(std::uint32_t gguf_type_id) {
  const BlockTraits* found = find(gguf_type_id);
  return found ? std::optional(*found) : std::nullopt;
}

const BlockTraits& traits(BlockType type) {
  const BlockTraits* found = find(static_cast<std::uint32_t>(type));
  if (!found) {
    throw std::invalid_argument("no block format has the id " +
                                std::to_string(static_cast<std::uint32_t>(type)));
  }
  return *found;
}

std::string gguf_type_name(std::uint32_t gguf_type_id) {
  if (const BlockTraits* found = find(gguf_type_id)) return std::string(found->name);
  for (const UnsupportedType& type : unsupported) {
    if (type.id == gguf_type_id) return std::string(type.name);
  }
  return "type " + std::to_string(gguf_type_id);
}

std::size_t row_bytes(BlockType type, std::size_t columns) {
  const BlockTraits& t = traits(type);
  return columns / t.elements_per_block * t.bytes_per_block;
}

}  // namespace sluice::kernels
