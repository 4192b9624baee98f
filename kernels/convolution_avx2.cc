// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/convolution_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_convolution_avx2(ConvolutionKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
