// AVX-512 with VNNI.
// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/operations_impl.h"
#include "kernels/peak_x86.h"
// clang-format on

namespace sluice::kernels {

void fill_avx512(KernelTable& table) {
  fill_operations(table);
  fill_matmul_avx512(table.matmul);
  table.peak.int8_macs = [](std::uint64_t rounds) {
    return repeat_dot<__m512i>(
        rounds, [](__m512i sum, __m512i w, __m512i x) { return _mm512_dpbusd_epi32(sum, w, x); });
  };
}

}  // namespace sluice::kernels
