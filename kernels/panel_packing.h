// A layout of weights in memory that is faster to compute with than that of the file.
//
// The matrix kernels work on panels of 16 rows with one vector lane per row (kernels/matmul.h).
// With rows laid out as in a file, each 32-bit word of 16 rows has to be gathered and transposed
// first. A packed panel has the same bytes in the order of the kernels, and is one stream for the
// memory system instead of sixteen. For each block in turn it has
//   words   [32-bit words of a block][16 rows], in file order unless the format says otherwise
//           (packed_at and packed_word in kernels/formats/format.h)
// Most blocks are not a whole number of words: they have odd bytes (a half float; the exponent of
// MXFP4). These blocks are packed two at a time, four for MXFP4, perhaps fewer at the end, so that
// words stay on whole cache lines:
//   odd bytes  [blocks together][16 rows], then
//   words      [blocks together][32-bit words of a block][16 rows]
// Elements of F32, F16 and BF16 are laid out as [columns][16 rows].
//
// A packed panel takes exactly the bytes of its 16 rows, and panels are in the order of their rows.
// Pinned weights that are copied are packed during the copy; weights in the page cache or in the
// ring keep the layout of the file.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// Whether this many rows can be packed: they must be whole panels, at least one.
bool can_pack(std::size_t rows);

// Packs `rows` rows of `columns` weights. `from` and `to` each have rows * row_bytes(type, columns)
// bytes and do not overlap. can_pack(rows) must hold.
void pack_panels(BlockType type, std::size_t rows, std::size_t columns, const std::byte* from,
                 std::byte* to);

}  // namespace sluice::kernels
