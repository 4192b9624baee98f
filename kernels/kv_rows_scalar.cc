// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_scalar.h"
#include "kernels/kv_rows_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_kv_rows_scalar(KvRowKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
