// The GGUF weight formats: type ids, block sizes, and the byte layout of every block that sluice
// can compute with. Follows the GGUF v3 format; multi-byte fields are little-endian, `d`, `m` and
// `dmin` are IEEE half floats kept as raw bits.
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
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

struct BlockTraits {
  BlockType type;
  std::string_view name;  // as GGUF tools print it: "Q4_K"
  std::uint32_t elements_per_block;
  std::uint32_t bytes_per_block;
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

// The values of the nibbles of IQ4_NL and IQ4_XS, and twice the values of those of MXFP4 (E2M1).
inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::int8_t doubled_e2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

#pragma pack(push, 1)

struct BlockQ4_0 {  // x[j] = d (lo(qs[j]) - 8), x[j+16] = d (hi(qs[j]) - 8)
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // x = d q + m, nibbles as in Q4_0
  std::uint16_t d, m;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // x = d (q - 16); bit j of qh is the fifth bit of element j
  std::uint16_t d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // x = d q + m, bits as in Q5_0
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // x = d q
  std::uint16_t d;
  std::int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ2_K {  // 16 sub-blocks of 16: x = d (scales & 15) q - dmin (scales >> 4)
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

struct BlockQ3_K {  // 16 sub-blocks of 16: x = d (scale - 32) q, q in -4..3
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

struct BlockQ4_K {  // 8 sub-blocks of 32: x = d scale q - dmin min, scale and min of 6 bits
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ5_K {  // as Q4_K, with a fifth bit in qh
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

struct BlockQ6_K {  // 16 sub-blocks of 16: x = d scale (q - 32)
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

struct BlockIQ4_NL {  // x = d iq4_values[q], nibbles as in Q4_0
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

struct BlockIQ4_XS {  // 8 sub-blocks of 32: x = d (scale - 32) iq4_values[q]
  std::uint16_t d;
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

struct BlockMXFP4 {  // x = e2m1[q] 2^(e - 127) (OCP microscaling)
  std::uint8_t e;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

#pragma pack(pop)

}  // namespace sluice::kernels
