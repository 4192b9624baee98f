// Q8_0: 32 weights of eight bits and a scale.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ8_0 {  // x = d q
  std::uint16_t d;
  std::int8_t qs[32];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ8_0) == 34);

namespace {

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr BlockType type = BlockType::q8_0, fallback = BlockType::f16;
  static constexpr const char* name = "Q8_0";
  static constexpr int weights = 32;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 7;

  static SmallBlock<32> unpack(const Block& b) {
    SmallBlock<32> out{{}, half_to_float(b.d), 0};
    // The sign is meant to be kept. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    for (int k = 0; k < 32; ++k) out.q[k] = b.qs[k];
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 255, sub_block = 32;
  static constexpr bool has_offset = unsigned_bytes, is_for_tiles = true;
  static constexpr int offset = 128;
  static const std::int32_t* offsets(const BlockA32& a) {
    return a.minus_128_sums;
  }

  template <typename Rows>
  static SmallScales scales(Rows& rows) {
    return {half<Q8_0>(rows), each(0)};
  }
  template <int, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const auto qs = words<Q8_0>(rows, 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        sink(0, 4 * i + j, unsigned_bytes ? bits_xor(q, each_byte(0x80)) : q);
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    for (std::size_t i = 0; i < row.columns / 32; ++i) {
      encode_block(row.values + 32 * i, reinterpret_cast<Block*>(row.blocks)[i]);
    }
  }

 private:
  static void encode_block(const float* x, Block& b) {
    const F32x16 first = load(x, lanes), second = load(x + lanes, lanes);
    b.d = float_to_half(largest(max(abs(first), abs(second))) / 127);
    const F32x16 inverse = broadcast(inverse_or_zero(half_to_float(b.d)));
    std::int8_t codes[32];
    store(round_to_int(clamp(first * inverse, -127, 127)), codes);
    store(round_to_int(clamp(second * inverse, -127, 127)), codes + lanes);
    __builtin_memcpy(b.qs, codes, sizeof codes);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
