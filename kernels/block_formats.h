// The GGUF weight formats that sluice can compute with: type ids, block sizes, and what else is to
// be known of them without looking into a block. kernels/formats/ has one file for each.
//
// A row of `columns` weights is columns / elements_per_block blocks, one after another, without
// padding. Everything here is constant data; any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::kernels {

// Values are the type ids of GGUF tensor infos.
enum class BlockType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
  pq2_0 = 142,
  ptq1_0 = 143,
};

// The form of the activations that a format is multiplied with (kernels/quantise.h).
enum class ActivationForm { f32, a256, a32 };

struct BlockTraits {
  BlockType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  std::uint32_t elements_per_block;
  std::uint32_t bytes_per_block;
  ActivationForm activation_form;
  BlockType fallback;       // stands in where rows are no multiple of elements_per_block
  std::uint32_t file_type;  // general.file_type of a file that is mostly of this type
  bool can_encode;          // see kernels/encode.h
};

// All types that sluice computes with, ascending by id.
std::span<const BlockTraits> all_block_types();

// The traits of a GGUF type id; nothing when sluice cannot compute with it.
std::optional<BlockTraits> find_block_type(std::uint32_t gguf_type_id);

// The traits of a supported type.
const BlockTraits& traits(BlockType type);

// The name of any GGUF type id, also of those that sluice does not support ("IQ2_XXS"), for
// messages; "type 97" when the id is unknown.
std::string gguf_type_name(std::uint32_t gguf_type_id);

// Bytes of one row. `columns` must be a multiple of elements_per_block.
std::size_t row_bytes(BlockType type, std::size_t columns);

}  // namespace sluice::kernels
