// A layout of weights in memory that is faster to compute with than that of the file.
//
// The matrix kernels work on panels of 16 rows with one vector lane per row (kernels/matmul.h).
// From rows as they stand in a file each 32-bit word of 16 rows has to be gathered and transposed
// first. A packed panel holds the same bytes already in that order, and is one stream for the
// memory system instead of sixteen:
//   words   [32-bit words of a block][16 rows], in file order, or for Q6_K in the order of
//           kernels/packed_order.h
// for one block after the other. Where a block has a half float that would keep its other bytes
// from being whole words (the scale of Q4_0, Q5_0, Q8_0 and Q6_K), blocks go in pairs, a last one
// maybe alone, so that words stay on whole cache lines:
//   halves  [blocks of the pair][16 rows], then
//   words   [blocks of the pair][32-bit words of a block][16 rows]
// A packed panel takes exactly the bytes of its 16 rows, and panels follow each other as the rows
// did. Weights that are copied into memory of their own are packed on the way; weights that are
// used where the page cache or a ring buffer has them stay as they are.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// Whether rows of this type can be packed: those with integer products. `rows` must be whole
// panels.
bool can_pack(BlockType type, std::size_t rows);

// Packs `rows` rows of `columns` weights. `from` and `to`: rows * row_bytes(type, columns) bytes,
// not overlapping; can_pack(type, rows) must hold.
void pack_panels(BlockType type, std::size_t rows, std::size_t columns, const std::byte* from,
                 std::byte* to);

}  // namespace sluice::kernels
