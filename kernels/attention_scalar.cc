// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_scalar.h"
#include "kernels/attention_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_attention_scalar(AttentionKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
