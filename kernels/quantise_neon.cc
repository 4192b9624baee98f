// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/quantise_impl.h"
// clang-format on
#include "kernels/arm_tiers.h"

namespace sluice::kernels {

void fill_quantise_neon(QuantiseKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
