// Float32 to weight blocks: the quantisers, for the formats of block_formats.h that `can_encode`.
//
// What they make small is the sum of w (x - x')^2 over a row, where w is the importance of a
// column: the mean square of the input that the column is multiplied with. Without it, w is 1. The
// same values give the same bytes on every machine.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {

bool can_encode(BlockType type);

// Writes `columns` values as row_bytes(type, columns) bytes to `blocks`, which needs no alignment.
// `columns` is a multiple of the elements per block. The values are finite, and where the format
// has half floats of magnitude up to 65504; `importance` is null or has `columns` values that are
// finite and not negative.
void encode(BlockType type, const float* values, std::size_t columns, const float* importance,
            std::byte* blocks);

}  // namespace sluice::kernels
