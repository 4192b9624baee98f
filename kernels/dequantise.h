// Weight blocks to float32, for every format of block_formats.h: the reference that all faster
// paths are tested against, and the path of formats that have no integer kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// out[i] = element i of `columns` consecutive weights that start at `blocks`. `columns` is a
// multiple of the elements per block. `blocks` needs no alignment.
void dequantise(BlockType type, const std::byte* blocks, std::size_t columns, float* out);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);  // to nearest even; overflow gives infinity

}  // namespace sluice::kernels
