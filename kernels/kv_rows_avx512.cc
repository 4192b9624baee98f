// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/kv_rows_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_kv_rows_avx512(KvRowKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
