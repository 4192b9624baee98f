// Q5_K: 256 weights of five bits; each 32 have a scale and a minimum of six bits.
#pragma once

#include "kernels/formats/q4_k.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ5_K {  // as Q4_K, with the fifth bit of sub-block j in bit j of the bytes of qh
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ5_K) == 176);

namespace {

#ifdef SLUICE_HAS_PANELS

// The scales, and the fifth bits, which are read once for all stages.
struct ScalesAndFifthBits : SixBitScales {
  template <typename Format, typename Rows>
  static ScalesAndFifthBits read(Rows& rows) {
    return {SixBitScales::read<Format>(rows), {words<Format>(rows, 16), words<Format>(rows, 32)}};
  }

  RowDwords qh[2];
};

#endif

struct Q5_K {
  using Block = BlockQ5_K;
  static constexpr BlockType type = BlockType::q5_k, fallback = BlockType::q5_1;
  static constexpr const char* name = "Q5_K";
  static constexpr int weights = 256;
  static constexpr bool has_min = true, can_encode = true;
  static constexpr std::uint32_t file_type = 17;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out = unpack_six_bit_scales(b);
    for (int j = 0; j < 8; ++j) {
      for (int l = 0; l < 32; ++l) {
        const int byte = b.qs[j / 2 * 32 + l];
        out.q[32 * j + l] = (j % 2 ? byte >> 4 : byte & 15) | (b.qh[l] >> j & 1) << 4;
      }
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 31, largest_product = 31 * 63, slots = 2, sub_block = 32;
  static constexpr int exact_run = 2, min_pairs = 4;
  static constexpr bool has_offset = false, is_for_tiles = true;
  using Scales = ScalesAndFifthBits;

  static constexpr int sub_block_of(int stage, int slot) {
    return 2 * stage + slot;
  }
  static constexpr int scaled_up(int) {
    return 1;
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales& scales,
                                                       Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const auto qs = words<Q5_K>(rows, 48 + 32 * stage + 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j], fifth = scales.qh[i].dword[j];
        const std::size_t group = 16 * stage + 4 * i + j;
        sink(0, group, bits_or(low_nibbles(q), move_bits<1, 2 * stage, 4>(fifth)));
        sink(1, group + 8, bits_or(high_nibbles(q), move_bits<1, 2 * stage + 1, 4>(fifth)));
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_pairs_row<Block>(31, row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
