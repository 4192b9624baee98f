// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/vector_ops_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_vector_ops_avx2(VectorOps& table) {
  fill(table);
}

}  // namespace sluice::kernels
