// AVX2 with AVX-VNNI, for processors without AVX-512: Alder Lake and later. What multiplies
// integers is compiled for it apart from AVX2. The lanes come first: the operations are written in
// terms of them.
// clang-format off
#include "kernels/lanes_avx2.h"
#include "kernels/attention_impl.h"
// clang-format on

#include "kernels/peak_x86.h"
#include "kernels/tiers.h"

namespace sluice::kernels {

void fill_avxvnni(KernelTable& table) {
  fill(table.attention);
  fill_matmul_avxvnni(table.matmul);
  table.peak.int8_macs = [](std::uint64_t rounds) {
    return repeat_dot<__m256i>(rounds, [](__m256i sum, __m256i w, __m256i x) {
      return _mm256_dpbusd_avx_epi32(sum, w, x);
    });
  };
}

}  // namespace sluice::kernels
