// The formats of kernels/formats/ on the lanes of a tier, with their part for panels: how the words
// of 16 rows become unsigned bytes and scales, written once for all instruction sets. Included by
// the file of each tier after it has defined the lane types and operations used here:
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
//   look_up_quads<n>(table, at)      for each row the word of a table by the n-th of the numbers
//                                    that it has in memory at `at`,
//   look_up_octets<n>(table, at)     the two words of an entry of eight bytes,
//   store_pairs(at, low, high)       stores a number for each byte: low + 256 high, and
//   negate_bytes(x, mask)            bytes of x, negative where the ByteMask has a byte; these only
//                                    where SLUICE_LOOKS_UP_ENTRIES is defined: in tiers without a
//                                    faster way to look up an entry of a grid than to load it
//   look_up_pairs<n>(table, x)       two of n entries of 16 bits by the numbers in the halves of x,
//                                    and
//   look_up_either(a, b, x, mask)    look_up in b where the ByteMask has a byte, else in a; these
//                                    only in the other tiers
//   has_bits(x, pattern)             a ByteMask of the bytes of x that have the one bit of their
//                                    byte of the pattern
//   choose(mask, a, b)               bytes of a where the ByteMask has a byte, else of b
//   shuffle_bytes<pattern>(x)        in byte i of a lane its byte (pattern >> 8 i) & 3
//   add_bytes(x, y)                  sums of bytes, without a carry
//   thirds(x)                        for each byte 2 from 171 on, 1 from 86 on, else 0
//   bits_and, bits_or, bits_xor, left_16<n>, right_16<n> (within 16 bits), left_32, right_32,
//   right_signed_32, each_byte(v), each_dword(v), each(v), store
//   each_word_at(p)                  the 32-bit word at p, in every lane
//   add_pair_products(a, b, c)       c + the sum of the products of both 16-bit halves of a lane
//   multiply_add(a, b, c)            also of I32x16, only where SLUICE_MULTIPLIES_INTEGERS is
//                                    defined: integers are multiplied about as fast as floats
//   multiply(a, b)                   also of I32x16, only where SLUICE_SUMS_WORDS or
//                                    SLUICE_HAS_DWORD_PRODUCTS (the tier has DwordSum) is defined
//   join_halves(a, b)                the low halves of the lanes of a with the high ones of b, and
//   right_signed_16<n>               only where SLUICE_SUMS_WORDS is defined: the products of a
//                                    sub-block are two words a lane, whose sums are multiplied
//                                    with its scale
//   add(I32x16, I32x16), multiply(F32x16, F32x16), multiply_add(a, b, c) = a b + c,
//   subtract_product(a, b, c) = c - a b, to_float, to_integer (of a float with an integer value),
//   as_floats (the same bits)
//   look_up_bytes(table, x)          the byte of a table of 256 for each byte of x; this and
//   look_up_sevens(table, x)         the same by the low seven bits, of 128,
//   bits_from<a, b, c, d>(x)         in byte i of a lane its eight bits from the i-th of these on,
//                                    only where SLUICE_LOOKS_UP_BYTES is defined
//   even_bytes(x, y), odd_bytes(x, y)    such bytes of x, then of y, only where
//                                    SLUICE_HAS_GRID_PRODUCT is defined: in tiers with a product of
//                                    their own for weights that index grids (FewGridColumns)
// and the constants
//   high_bits_in_place   whether bytes may be up to 240: then the high bits of Q2_K and Q4_K stay
//                        where they are, as multiples of their value, and the scale makes up for it
//                        exactly
//   float_sums           how many sums of a panel and a column, in four parts each, fit into
//                        registers
//   keeps_signs          whether products take signed bytes: weights of grids have no offset then
//   unsigned_bytes       whether weights of eight bits (Q8_0, IQ4_NL, IQ4_XS) are stored as q + 128
//
// The part of a format for panels has
//   sub_block                      how many weights share a scale
//   largest_q                      the largest byte q; if above 127, weights have eight bits (see
//                                  unsigned_bytes)
//   has_offset                     weights are q - offset; the sums of the activations give what
//                                  the offset takes off a dot product
//   is_for_tiles                   whether it has a tile product (matmul_amx.cc); those of others
//                                  have never been run on a CPU with tiles
//   grid_entries                   present if weights index a grid: its size; then also
//       entry_weights, grid        the weights of an entry, 4 or 8, and the numbers in all entries
//       entries                    the same as magnitudes in bytes; IQ1 has none
//       grid_byte(n, is_negative)  the byte of the weight with number n and a sign
//       grid_group(rows, scales, s)    the entries of weights 32 s to 32 s + 31, only where
//                                  SLUICE_HAS_GRID_PRODUCT is defined
//   has_base_3                     present if bytes have five digits in base 3, which can be looked
//                                  up (matmul_avx512vbmi.cc)
//   unpacks_first                  true if unpacking takes longer than a few products: weights are
//                                  then unpacked to a panel for a few columns, too; may be absent
// and one with integer scales also
//   largest_product                the largest product of a weight and its scale
//   exact_run                      how many sub-blocks floats can add up exactly
//   min_pairs                      pairs of minima in a block
//   Scales::scale_pair(j)          the scales of two sub-blocks as min_pair(j) has their minima, if
//                                  that takes less than to join those of scale(s); only where
//                                  SLUICE_SUMS_WORDS is defined
//   scaled_up(s)                   the factor by which the bytes q of sub-block s are multiplied
//
// The weights of a block are unpacked in stages. weights_of<stage>(rows, scales, sink) calls
// sink(slot, group, q), where q has the weights 4 group ... 4 group + 3 of each row; `slot` counts
// the sub-blocks of the stage, all of which are complete when the stage ends.
#pragma once

#include "kernels/matmul_formats_a256.h"
#include "kernels/matmul_formats_a32.h"
#include "kernels/matmul_formats_f32.h"

#define SLUICE_HAS_PANELS
#include "kernels/formats/all.h"
