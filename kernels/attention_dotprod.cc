// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/attention_impl.h"
// clang-format on
#include "kernels/arm_tiers.h"

namespace sluice::kernels {

void fill_attention_dotprod(AttentionKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
