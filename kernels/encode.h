// Float32 to weight blocks: the quantisers, for the formats of block_formats.h that `can_encode`.
//
// What they make small is the sum of w (x - x')^2 over a row, where w is the importance of a
// column: the mean square of the input that the column is multiplied with. Without it, w is 1. The
// same values give the same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"

namespace sluice::kernels {

bool can_encode(BlockType type);

// Writes `columns` values as row_bytes(type, columns) bytes to `blocks`, which needs no alignment.
// `columns` is a multiple of the elements per block. The values are finite, and where the format
// has half floats of magnitude up to 65504; `importance` is null or has `columns` values that are
// finite and not negative. The kernels are those of the table in use.
void encode(BlockType type, const float* values, std::size_t columns, const float* importance,
            std::byte* blocks);

struct EncodeKernels {
  // The formats whose blocks have more than one element, as `encode` above does.
  void (*blocks)(BlockType type, const float* values, std::size_t columns, const float* importance,
                 std::byte* blocks);
  // What stands before it where values come from a file: halves to floats, and the largest
  // magnitude of some, NaN where one is; 0 of none.
  void (*from_halves)(const std::uint16_t* halves, std::size_t count, float* out);
  float (*largest_magnitude)(const float* values, std::size_t count);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_encode_scalar(EncodeKernels& table);
void fill_encode_avx2(EncodeKernels& table);
void fill_encode_avx512(EncodeKernels& table);

}  // namespace sluice::kernels
