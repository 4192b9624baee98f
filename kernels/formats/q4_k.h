// Q4_K: 256 weights of four bits; each 32 have a scale and a minimum of six bits.
#pragma once

#include "kernels/formats/format.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ4_K {  // 8 sub-blocks of 32: x = d scale q - dmin min
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ4_K) == 144);

namespace {

// Unpacks all but the weights of Q4_K and Q5_K.
template <typename Block>
IntegerBlock<32> unpack_six_bit_scales(const Block& b) {
  IntegerBlock<32> out;
  out.d = half_to_float(b.d);
  out.dmin = half_to_float(b.dmin);
  const std::uint8_t* s = b.scales;
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = s[j] & 63;
    out.min[j] = s[j + 4] & 63;
    out.scale[j + 4] = (s[j + 8] & 15) | (s[j] >> 6) << 4;
    out.min[j + 4] = (s[j + 8] >> 4) | (s[j + 4] >> 6) << 4;
  }
  return out;
}

#ifdef SLUICE_HAS_PANELS

// d, dmin and the 6-bit scales and minima of Q4_K and Q5_K.
struct SixBitScales {
  template <typename Format, typename Rows>
  static SixBitScales read(Rows& rows) {
    const auto head = words<Format>(rows, 0);
    const I32x16 s0 = head.dword[1], s1 = head.dword[2], s2 = head.dword[3];
    const auto high_bits = [](I32x16 x) { return bits_and(right_32(x, 2), each_byte(0x30)); };
    return {{bits_and(s0, each_byte(63)), bits_or(low_nibbles(s2), high_bits(s0))},
            {bits_and(s1, each_byte(63)), bits_or(high_nibbles(s2), high_bits(s1))},
            low_halves(head.dword[0]),
            high_halves(head.dword[0])};
  }

  I32x16 scale(int s) const { return byte_of(scales[s / 4], s % 4); }
  // The minima of two sub-blocks, as 16-bit pairs: (0 2) (1 3) (4 6) (5 7).
  I32x16 min_pair(int j) const {
    const I32x16 m = j % 2 != 0 ? right_32(minima[j / 2], 8) : minima[j / 2];
    return bits_and(m, each_dword(0x00ff00ff));
  }

  I32x16 scales[2], minima[2];
  F32x16 d, dmin;
};

#endif

#ifdef SLUICE_HAS_ENCODERS

// Stores the 6-bit scale and minimum of sub-block j of Q4_K and Q5_K.
inline void pack_pair(std::uint8_t (&s)[12], int j, int scale, int min) {
  const auto set = [&](int at, int bits) { s[at] = static_cast<std::uint8_t>(s[at] | bits); };
  if (j < 4) {
    set(j, scale);
    set(j + 4, min);
  } else {
    set(j + 4, (scale & 15) | (min & 15) << 4);
    set(j - 4, scale >> 4 << 6);
    set(j, min >> 4 << 6);
  }
}

// Encodes a sheet of Q4_K or Q5_K, whose highest code is `highest`.
template <class Block>
inline void encode_pairs(float highest, const float* x, const Sheet& sheet, int count,
                         Block* blocks) {
  const AffineBlocks found = find_pairs<32>(sheet, {highest, 63});
  const LaneArray d(found.d), dmin(found.dmin), scales(found.scale), mins(found.min_);
  for (int i = 0; i < count / 8; ++i) {
    Block& b = blocks[i];
    __builtin_memset(&b, 0, sizeof b);
    b.d = float_to_half(d.of[8 * i]);
    b.dmin = float_to_half(dmin.of[8 * i]);
    std::uint8_t codes[256];
    for (int j = 0; j < 8; ++j) {
      const int lane = 8 * i + j;
      pack_pair(b.scales, j, static_cast<int>(scales.of[lane]), static_cast<int>(mins.of[lane]));
      choose_codes(UniformGrid{0, highest}, x + 32 * lane, 32, d.of[lane] * scales.of[lane],
                   -(dmin.of[lane] * mins.of[lane]), codes + 32 * j);
    }
    for (int j = 0; j < 8; j += 2) {
      for (int l = 0; l < 32; ++l) {
        const int first = codes[32 * j + l], second = codes[32 * j + 32 + l];
        b.qs[16 * j + l] = static_cast<std::uint8_t>((first & 15) | (second & 15) << 4);
        if constexpr (requires { b.qh; }) {
          b.qh[l] = static_cast<std::uint8_t>(b.qh[l] | first >> 4 << j | second >> 4 << (j + 1));
        }
      }
    }
  }
}

template <class Block>
inline void encode_pairs_row(float highest, const EncodedRow& row) {
  by_blocks_of_256<Block, 32>(row, [&](const float* x, const Sheet& sheet, int count, Block* b) {
    encode_pairs(highest, x, sheet, count, b);
  });
}

#endif

struct Q4_K {
  using Block = BlockQ4_K;
  static constexpr BlockType type = BlockType::q4_k, fallback = BlockType::q5_0;
  static constexpr const char* name = "Q4_K";
  static constexpr int weights = 256;
  static constexpr bool has_min = true, can_encode = true;
  static constexpr std::uint32_t file_type = 15;

  static IntegerBlock<32> unpack(const Block& b) {
    IntegerBlock<32> out = unpack_six_bit_scales(b);
    for (int j = 0; j < 8; ++j) {
      for (int l = 0; l < 32; ++l) {
        const int byte = b.qs[j / 2 * 32 + l];
        out.q[32 * j + l] = j % 2 ? byte >> 4 : byte & 15;
      }
    }
    return out;
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 15, largest_product = 15 * 63, slots = 2, sub_block = 32;
  static constexpr int exact_run = 4, min_pairs = 4;
  static constexpr bool has_offset = false, is_for_tiles = true;
  using Scales = SixBitScales;

  static constexpr int sub_block_of(int stage, int slot) {
    return 2 * stage + slot;
  }
  static constexpr int scaled_up(int s) {
    return high_bits_in_place && s % 2 != 0 ? 16 : 1;
  }

  template <int stage, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, const Scales&, Sink& sink) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const auto qs = words<Q4_K>(rows, 16 + 32 * stage + 16 * i);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < 4; ++j) {
        const I32x16 q = qs.dword[j];
        const std::size_t group = 16 * stage + 4 * i + j;
        sink(0, group, low_nibbles(q));
        sink(1, group + 8, high_bits_in_place ? bits_and(q, each_byte(0xf0)) : high_nibbles(q));
      }
    }
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
  static void encode(const EncodedRow& row) {
    encode_pairs_row<Block>(15, row);
  }
#endif
};

}  // namespace
}  // namespace sluice::kernels
