// Q2_0 and PQ2_0: 64 and 128 weights of two bits, and a scale.
#pragma once

#include "kernels/formats/one_scale.h"

namespace sluice::kernels {

#pragma pack(push, 1)
struct BlockQ2_0 {  // x = d (q - 1)
  std::uint16_t d;
  std::uint8_t qs[16];
};
struct BlockPQ2_0 {  // the same
  std::uint16_t d;
  std::uint8_t qs[32];
};
#pragma pack(pop)
static_assert(sizeof(BlockQ2_0) == 18 && sizeof(BlockPQ2_0) == 34);

namespace {

// What both have alike.
template <typename Format, typename BlockOfFormat>
struct TwoBitFormat : EighthsPanels<Format> {
  using Block = BlockOfFormat;
  static constexpr BlockType fallback = BlockType::q4_0;
  static constexpr int weights = 4 * sizeof(Block::qs);
  static constexpr bool has_min = false, can_encode = true;

  static SmallBlock<weights> unpack(const Block& b) {
    SmallBlock<weights> out{{}, half_to_float(b.d) * 0.125f, 0};
    for (int k = 0; k < weights; ++k) out.q[k] = 8 * (b.qs[k / 4] >> (2 * (k % 4)) & 3) - 8;
    return out;
  }

  // In the file a byte has four weights that follow each other. In a packed word field f of byte b
  // and field b of byte f have changed places: field f of all bytes has weights 4 f to 4 f + 3.
  template <typename Words>
  static Words packed_word(Words word) {
    const auto swap = [](Words x, int distance, std::uint32_t mask) {
      const Words change = (x ^ x >> distance) & mask;
      return x ^ change ^ change << distance;
    };
    return swap(swap(word, 12, 0xf0f0), 6, 0xcc00cc);
  }

#ifdef SLUICE_HAS_PANELS
  static constexpr int largest_q = 24;

  template <int group, typename Rows, typename Sink>
  [[gnu::always_inline]] static inline void weights_of(Rows& rows, Sink& sink) {
    const auto qs = words<Format>(rows, 16 * (group / 2));
#pragma GCC unroll 2
    for (std::size_t j = 0; j < 2; ++j) {
      const I32x16 fields = in_packed_order(rows, qs.dword[2 * (group % 2) + j]);
      sink(0, 4 * j, move_bits<2, 0, 3>(fields));
      sink(0, 4 * j + 1, move_bits<2, 2, 3>(fields));
      sink(0, 4 * j + 2, move_bits<2, 4, 3>(fields));
      sink(0, 4 * j + 3, move_bits<2, 6, 3>(fields));
    }
  }

 private:
  static I32x16 in_packed_order(const PackedRows&, I32x16 word) {
    return word;
  }
  static I32x16 in_packed_order(const FileRows&, I32x16 word) {
    const auto swap = [](I32x16 x, int distance, int mask) {
      const I32x16 change = bits_and(bits_xor(x, right_32(x, distance)), each_dword(mask));
      return bits_xor(x, bits_xor(change, left_32(change, distance)));
    };
    return swap(swap(word, 12, 0xf0f0), 6, 0xcc00cc);
  }
#endif

#ifdef SLUICE_HAS_ENCODERS
 public:
  static void encode(const EncodedRow& row) {
    by_blocks<Block, weights>(row, [](const float* x, const float* w, Block& b) {
      b.d = ternary_scale(x, w, weights);
      const float d = half_to_float(b.d);
      for (int k = 0; k < weights; ++k) {
        b.qs[k / 4] |= static_cast<std::uint8_t>(ternary_code(x[k], d) << (2 * (k % 4)));
      }
    });
  }
#endif
};

struct Q2_0 : TwoBitFormat<Q2_0, BlockQ2_0> {
  static constexpr BlockType type = BlockType::q2_0;
  static constexpr const char* name = "Q2_0";
  static constexpr std::uint32_t file_type = 41;
};

struct PQ2_0 : TwoBitFormat<PQ2_0, BlockPQ2_0> {
  static constexpr BlockType type = BlockType::pq2_0;
  static constexpr const char* name = "PQ2_0";
  static constexpr std::uint32_t file_type = 142;
};

}  // namespace
}  // namespace sluice::kernels
