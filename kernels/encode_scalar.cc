// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_scalar.h"
#include "kernels/encode_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_encode_scalar(EncodeKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
