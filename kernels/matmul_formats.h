// Every weight format, written once for all instruction sets: how the words of 16 rows become
// unsigned bytes and scales. Included by the file of each tier after it has defined the lane types
// and operations used here:
//   I32x16   sixteen 32-bit lanes, lane = row        F32x16   sixteen floats
//   load_dwords(FileRows&, offset)   16 bytes at `offset` of each of 16 rows, transposed: dword[j]
//                                    holds 32-bit word j of every row; reads ahead by as much
//   load_words(p)                    one packed word of 16 rows
//   load_bytes(p)                    sixteen unsigned bytes, one in each lane
//   load(p)                          sixteen floats
//   load_floats, load_halves, load_bfloats(p, count)   the first `count` of 16 elements in memory
//   low_halves                       the half floats in the low 16 bits of the lanes
//   byte_table(p)                    sixteen bytes, for look_up(table, x), which replaces each byte
//                                    of x (0..15) by the table's byte with that number
//   bits_and, bits_or, bits_xor, left_16<n>, right_16<n> (within 16 bits), left_32, right_32,
//   right_signed_32, each_byte(v), each_dword(v), each(v), store
//   each_word_at(p)                  the 32-bit word at p, in every lane
//   add_pair_products(a, b, c)       c + the sum of the products of both 16-bit halves of a lane
//   add(I32x16, I32x16), multiply(F32x16, F32x16), multiply_add(a, b, c) = a b + c, to_float,
//   to_integer (of a float with an integer value), as_floats (the same bits)
// and the constants
//   high_bits_in_place   whether bytes may be up to 240: then the high bits of Q2_K and Q4_K stay
//                        where they are, as multiples of their value, and the scale makes up for it
//                        exactly
//   float_sums           how many sums of a panel and a column, in four parts each, fit into
//                        registers
//   unsigned_bytes       whether weights of eight bits (Q8_0, IQ4_NL, IQ4_XS) are stored as q + 128
//
// A format has
//   type, block_bytes, sub_block   sub_block: weights that share a scale
//   largest_q                      the largest byte q; if above 127, weights have eight bits (see
//                                  unsigned_bytes)
//   has_offset                     weights are q - offset; the sums of the activations give what
//                                  the offset takes off a dot product
//   has_min                        each sub-block has a minimum
// and one with integer scales also
//   largest_product                the largest product of a weight and its scale
//   exact_run                      how many sub-blocks floats can add up exactly
//   min_pairs                      pairs of minima in a block
//   scaled_up(s)                   the factor by which the bytes q of sub-block s are multiplied
//
// The weights of a block are unpacked in stages. weights<stage>(rows, scales, sink) calls
// sink(slot, group, q), where q has the weights 4 group ... 4 group + 3 of each row; `slot` counts
// the sub-blocks of the stage, all of which are complete when the stage ends.
#pragma once

#include "kernels/matmul_formats_a256.h"
#include "kernels/matmul_formats_a32.h"
#include "kernels/matmul_formats_f32.h"

namespace sluice::kernels {
namespace {

// Calls `integer` or `small` with the format of a quantised type; returns false for other types.
template <typename Integer, typename Small>
inline bool visit_quantised(BlockType type, const Integer& integer, const Small& small) {
  switch (type) {
    case BlockType::q2_k:
      return integer(Q2_K{}), true;
    case BlockType::q3_k:
      return integer(Q3_K{}), true;
    case BlockType::q4_k:
      return integer(Q4_K{}), true;
    case BlockType::q5_k:
      return integer(Q5_K{}), true;
    case BlockType::q6_k:
      return integer(Q6_K{}), true;
    case BlockType::iq4_xs:
      return integer(IQ4_XS{}), true;
    case BlockType::q4_0:
      return small(Q4_0{}), true;
    case BlockType::q4_1:
      return small(Q4_1{}), true;
    case BlockType::q5_0:
      return small(Q5_0{}), true;
    case BlockType::q5_1:
      return small(Q5_1{}), true;
    case BlockType::q8_0:
      return small(Q8_0{}), true;
    case BlockType::iq4_nl:
      return small(IQ4_NL{}), true;
    case BlockType::mxfp4:
      return small(MXFP4{}), true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace sluice::kernels
