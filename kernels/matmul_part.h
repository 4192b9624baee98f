// The products of one part of the formats, in the tier whose kernels stand before. Included at the
// end of its file, which is compiled once for each part (kernels/CMakeLists.txt names part and
// function).
#pragma once

#include "kernels/matmul_dispatch.h"

namespace sluice::kernels {

void SLUICE_MATMUL_PART_NAME(const WeightRows& w, const Activations& x, float* y,
                             std::size_t y_stride, const MatmulScratch& scratch,
                             const CorePolicy& policy) {
  multiply_in_tier<SLUICE_MATMUL_PART>(w, x, y, y_stride, scratch, policy);
}

}  // namespace sluice::kernels
