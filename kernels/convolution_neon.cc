// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/convolution_impl.h"
// clang-format on
#include "kernels/arm_tiers.h"

namespace sluice::kernels {

void fill_convolution_neon(ConvolutionKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
