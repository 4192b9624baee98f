// AVX-512 with VBMI, which only Cascade Lake and Cooper Lake lack of the processors with AVX-512
// and VNNI: only products are written for it.
#include "kernels/tiers.h"

namespace sluice::kernels {

void fill_avx512vbmi(KernelTable& table) {
  fill_matmul_avx512vbmi(table.matmul);
}

}  // namespace sluice::kernels
