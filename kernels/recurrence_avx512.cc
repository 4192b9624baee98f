// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/recurrence_impl.h"
// clang-format on

namespace sluice::kernels {

void fill_recurrence_avx512(RecurrenceKernels& table) {
  fill(table);
}

}  // namespace sluice::kernels
