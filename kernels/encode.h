// Float32 to weight blocks: the quantisers, for the formats with traits(type).can_encode.
//
// They minimise the sum of w (x - x')^2 over a row, where w is the importance of a column: the mean
// square of the input that the column is multiplied with, but at least a millionth of the mean of
// the row. Only their ratios matter. Without importances w is 1. The same values give the same
// bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// The largest magnitude that a block of NVFP4 holds: E2M1 ends at 6, and E4M3 at 448.
inline constexpr float largest_nvfp4 = 6 * 448;

// Encodes `columns` values, a multiple of the elements per block, as row_bytes(type, columns) bytes
// at `blocks` (no alignment needed). Values must be finite, and at most 65504 in magnitude if the
// format has half floats, or largest_nvfp4. `importance` is null or has `columns` finite values
// that are not negative. Uses the kernels of kernel_table().
void encode(BlockType type, const float* values, std::size_t columns, const float* importance,
            std::byte* blocks);

struct EncodeKernels {
  // Does what `encode` does, for formats whose blocks have more than one element.
  void (*blocks)(BlockType type, const float* values, std::size_t columns, const float* importance,
                 std::byte* blocks);
  // For values that come from a file: halves to floats; and the largest magnitude of `count`
  // values, NaN if one of them is a NaN, 0 if there are none.
  void (*from_halves)(const std::uint16_t* halves, std::size_t count, float* out);
  float (*largest_magnitude)(const float* values, std::size_t count);
};

}  // namespace sluice::kernels
