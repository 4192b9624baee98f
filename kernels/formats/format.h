// What a weight format has. Each has a file of its own in this folder, and one line in all.h; the
// traits, the choice of kernels, decoding, packing and the tests are derived from these.
//
// The struct of a format says, wherever it is included:
//   Block             the bytes of a block, as in a GGUF file
//   type, name        its GGUF id, and its name as GGUF tools print it
//   weights           how many a block has
//   fallback          the format that stands in where rows do not divide into such blocks
//   file_type         general.file_type of a file that is mostly of this format
//   has_min           whether weights have minima
//   can_encode        whether it has an encoder
//   unpack(block)     the meaning of a block, as IntegerBlock, SmallBlock or FineBlock:
//                     what the scalar kernels multiply, and what decoding and all other tiers are
//                     held to
// and perhaps
//   is_odd_at_end     whether the bytes that are no whole word are the last ones (packed_order.h)
//   packed_at(at)     another order of the words of a packed block than that of the file
//   packed_word(w)    another order of the bits of a packed word
//
// The part behind SLUICE_HAS_PANELS is for the files of the tiers, which have defined the lanes
// that it is written on: see kernels/matmul_formats.h. That behind SLUICE_HAS_ENCODERS, the
// encoder, is for the quantisers: see kernels/encode_impl.h.
//
// Internal linkage: see kernels/matmul_driver.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"
#include "kernels/dequantise.h"

namespace sluice::kernels {
namespace {

// 256 weights whose sub-blocks have integer scales: w = d scale q - dmin min.
template <int sub_block_size>
struct IntegerBlock {
  static constexpr ActivationForm form = ActivationForm::a256;
  static constexpr int weights = 256, sub_block = sub_block_size, sub_blocks = weights / sub_block;

  int q[weights];
  int scale[sub_blocks], min[sub_blocks];
  float d, dmin;
};

// Weights that share a float scale: w = d q + m.
template <int count>
struct SmallBlock {
  static constexpr ActivationForm form = ActivationForm::a32;
  static constexpr int weights = count, groups = count / 32;

  int q[weights];
  float d, m;
};

// The same with a scale for each 16 weights.
template <int count>
struct FineBlock {
  static constexpr ActivationForm form = ActivationForm::a32;
  static constexpr int weights = count, sub_blocks = count / 16;

  int q[weights];
  float d[sub_blocks];
};

template <typename Format>
using Unpacked = decltype(Format::unpack(typename Format::Block{}));

// Nibble k of 32: first the low ones of 16 bytes, then the high ones.
inline int nibble(const std::uint8_t* qs, int k) {
  return k < 16 ? qs[k] & 15 : qs[k - 16] >> 4;
}

inline int bit(const std::uint8_t* bytes, int i) {
  return bytes[i / 8] >> (i % 8) & 1;
}

}  // namespace
}  // namespace sluice::kernels
