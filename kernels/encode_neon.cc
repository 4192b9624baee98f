// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/encode_impl.h"
// clang-format on
#include "kernels/arm_tiers.h"

namespace sluice::kernels {

void fill_encode_neon(EncodeKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
