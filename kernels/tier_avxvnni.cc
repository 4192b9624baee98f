// AVX2 with AVX-VNNI, for processors without AVX-512: Alder Lake and later. Only products are
// written for it apart from AVX2.
#include "kernels/peak_x86.h"
#include "kernels/tiers.h"

namespace sluice::kernels {

void fill_avxvnni(KernelTable& table) {
  fill_matmul_avxvnni(table.matmul);
  table.peak.int8_macs = [](std::uint64_t rounds) {
    return repeat_dot<__m256i>(rounds, [](__m256i sum, __m256i w, __m256i x) {
      return _mm256_dpbusd_avx_epi32(sum, w, x);
    });
  };
}

}  // namespace sluice::kernels
