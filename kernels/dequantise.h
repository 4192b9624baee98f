// Weight blocks to float32, for every format of block_formats.h. It is the reference for tests of
// the matrix products, and it reads rows of embeddings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_formats.h"

namespace sluice::kernels {

// Decodes `columns` consecutive weights, a multiple of the elements per block, from `blocks` (no
// alignment needed) to out[0..columns).
void dequantise(BlockType type, const std::byte* blocks, std::size_t columns, float* out);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);  // rounds to nearest even; overflow gives infinity

// 2^(e - 128), half of the scale that an exponent of MXFP4 stands for: the factor of doubled_e2m1.
float half_of_e8m0(std::uint8_t e);

// Half of the float of eight bits (E4M3, without its sign) that is a scale of NVFP4: the factor of
// doubled_e2m1. The one code that is no number counts as 0.
float half_of_ue4m3(std::uint8_t e);

}  // namespace sluice::kernels
