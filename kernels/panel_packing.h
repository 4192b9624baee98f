// A layout of weights in memory that is faster to compute with than that of the file.
//
// The matrix kernels work on panels of 16 rows with one vector lane per row (kernels/matmul.h).
// From rows as they stand in a file each 32-bit word of 16 rows has to be gathered and transposed
// first. A packed panel holds the same bytes already in that order, and is one stream for the
// memory system instead of sixteen:
//   words   [32-bit words of a block][16 rows], in file order, or for Q6_K in the order of
//           kernels/packed_order.h
// for one block after the other. Where a block has odd bytes that would keep its others from being
// whole words (the half float of Q3_K, Q4_0, Q5_0, Q6_K, Q8_0 and IQ4_NL, the exponent of MXFP4),
// blocks go in pairs, or in fours for an exponent, the last maybe fewer, so that words stay on
// whole cache lines:
//   odd bytes  [blocks together][16 rows], then
//   words      [blocks together][32-bit words of a block][16 rows]
// Elements of F32, F16 and BF16 stand as [columns][16 rows].
// A packed panel takes exactly the bytes of its 16 rows, and panels follow each other as the rows
// did. Weights that are copied into memory of their own are packed on the way; weights that are
// used where the page cache or a ring buffer has them stay as they are.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// Whether so many rows can be packed: whole panels.
bool can_pack(std::size_t rows);

// Packs `rows` rows of `columns` weights. `from` and `to`: rows * row_bytes(type, columns) bytes,
// not overlapping; can_pack(rows) must hold.
void pack_panels(BlockType type, std::size_t rows, std::size_t columns, const std::byte* from,
                 std::byte* to);

}  // namespace sluice::kernels
