// Q6_K: 256 weights of six bits; each 16 have a scale of eight bits.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ6_K {  // 16 sub-blocks of 16: x = d scale (q - 32)
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;
};
#pragma pack(pop)
static_assert(sizeof(BlockQ6_K) == 210);

namespace {

#ifdef SLUICE_HAS_PANELS

// The 8-bit scales of Q6_K.
struct EightBitScales {
  template <typename Format, typename Rows>
  static EightBitScales read(Rows& rows) {
    const auto scales = words<Format>(rows, 192);
    return {{scales.dword[0], scales.dword[1], scales.dword[2], scales.dword[3]},
            half<Format>(rows)};
  }
  I32x16 scale(int s) const { return signed_byte_of(scales[s / 4], s % 4); }
#ifdef SLUICE_SUMS_WORDS
  // The scales of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7) and so on.
  I32x16 scale_pair(int j) const {
    const I32x16 four = scales[j / 2];
    return right_signed_16<8>(j % 2 != 0 ? four : left_16<8>(four));
  }
#endif

  I32x16 scales[4];
  F32x16 d;
};

#endif

struct Q6_K {
  using Block = BlockQ6_K;
  static constexpr BlockType type = BlockType::q6_k, fallback = BlockType::q8_0;
  static constexpr const char* name = "Q6_K";
  static constexpr int weights = 256;
  static constexpr bool has_min = false, can_encode = true;
  static constexpr std::uint32_t file_type = 18;

  static IntegerBlock<16> unpack(const Block& b) {
    IntegerBlock<16> out;
    out.d = half_to_float(b.d);
    // The sign is meant to be kept. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    for (int s = 0; s < 16; ++s) out.scale[s] = b.scales[s];
    for (int k = 0; k < 256; ++k) {
      const int half = k / 128, quarter = k % 128 / 32, l = k % 32;
      const int low = b.ql[64 * half + 32 * (quarter % 2) + l];
      const int high = b.qh[32 * half + l] >> (2 * quarter) & 3;
      out.q[k] = ((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32;
    }
    return out;
  }

  static constexpr bool is_odd_at_end = true;

  // The packed order is: the scales, then for each 16 bytes of qh these and the two times 16 bytes
  // of ql that belong to them. So the kernels read a block as one stream.
  static constexpr std::size_t packed_at(std::size_t at) {
    if (at >= 192) return at - 192;
    const bool is_high = at >= 128;
    const std::size_t in_half = is_high ? at % 32 : at % 64;
    const std::size_t half = is_high ? (at - 128) / 32 : at / 64;
    const std::size_t stage = 2 * half + in_half % 32 / 16;
    const std::size_t part = is_high ? 0 : 1 + in_half / 32;
    return 16 + 48 * stage + 16 * part + at % 16;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 63, largest_product = 32 * 128, slots = 4, sub_block = 16;
  static constexpr int exact_run = 2, min_pairs = 0, offset = 32;
  static constexpr bool has_offset = true, is_for_tiles = true;
  using Scales = EightBitScales;

  static constexpr int sub_block_of(int stage, int slot) {
    return interleaved(stage, slot);
  }
  static constexpr int scaled_up(int) {
    return 1;
  }
  static I32x16 offset_dot(const BlockA256& a, int s) {
    return each_dword(a.minus_32_sums_of_16[s]);
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
    constexpr std::size_t at_half = stage / 2, part = stage % 2;
    const auto high = [](I32x16 x) { return bits_and(x, each_byte(0x30)); };
    const auto qh = words<Q6_K>(rows, 128 + 32 * at_half + 16 * part);
    const auto ql0 = words<Q6_K>(rows, 64 * at_half + 16 * part);
    const auto ql1 = words<Q6_K>(rows, 64 * at_half + 16 * part + 32);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t group = 32 * at_half + 4 * part + j;
      const I32x16 h = qh.dword[j], l0 = ql0.dword[j], l1 = ql1.dword[j];
      sink(0, group, bits_or(low_nibbles(l0), high(left_16<4>(h))));
      sink(1, group + 8, bits_or(low_nibbles(l1), high(left_16<2>(h))));
      sink(2, group + 16, bits_or(high_nibbles(l0), high(h)));
      sink(3, group + 24, bits_or(high_nibbles(l1), high(right_16<2>(h))));
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    by_blocks_of_256<Block, 16>(row, encode_sheet);
  }

 private:
  static void encode_sheet(const float* x, const Sheet& sheet, int count, Block* blocks) {
    constexpr UniformGrid grid{-32, 31};
    const ScaledBlocks found = find_scales<16>(grid, sheet, -128, 127);
    const LaneArray d(found.d), integers(found.integer);
    for (int i = 0; i < count / 16; ++i) {
      Block& b = blocks[i];
      b.d = float_to_half(d.of[16 * i]);
      std::uint8_t codes[256];
      for (int s = 0; s < 16; ++s) {
        const float integer = integers.of[16 * i + s];
        b.scales[s] = static_cast<std::int8_t>(integer);
        const float scale = d.of[16 * i] * integer;
        choose_codes(grid, x + 256 * i + 16 * s, 16, scale, 0, codes + 16 * s);
      }
      for (int half = 0; half < 2; ++half) {
        const std::uint8_t* c = codes + 128 * half;
        for (int l = 0; l < 32; ++l) {
          b.ql[64 * half + l] = static_cast<std::uint8_t>((c[l] & 15) | (c[l + 64] & 15) << 4);
          b.ql[64 * half + 32 + l] =
              static_cast<std::uint8_t>((c[l + 32] & 15) | (c[l + 96] & 15) << 4);
          b.qh[32 * half + l] = static_cast<std::uint8_t>(
              c[l] >> 4 | c[l + 32] >> 4 << 2 | c[l + 64] >> 4 << 4 | c[l + 96] >> 4 << 6);
        }
      }
    }
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
