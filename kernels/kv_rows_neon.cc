// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/kv_rows_impl.h"
// clang-format on
#include "kernels/arm_tiers.h"

namespace sluice::kernels {

void fill_kv_rows_neon(KvRowKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
