// Weight blocks to float32, for every format of block_formats.h: the reference that the
// kernels of matrix products are tested against, and how rows of embeddings are read.
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

// Half of the 2^(e - 127) that an exponent of MXFP4 stands for: the factor of doubled_e2m1.
float half_of_e8m0(std::uint8_t e);

}  // namespace sluice::kernels
