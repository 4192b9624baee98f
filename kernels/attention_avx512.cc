// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/attention_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_attention_avx512(AttentionKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
