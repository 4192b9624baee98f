// The matrix product for AVX2 with AVX-VNNI: vpdpbusd adds four products of unsigned and signed
// bytes to 32 bits, without an intermediate result that could overflow.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = true;
constexpr bool unsigned_bytes = true;  // vpdpbusd needs unsigned weights

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_lanes_avx2.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t few_columns = 4, few_sums = 4;
constexpr int columns_at_once = 4;

template <int columns, int groups, int largest_q, typename Panel>
inline void dot_groups(const Panel& p, std::size_t group, const std::int8_t* const* q,
                       I32x16 (&dot)[columns]) {
  for (int c = 0; c < columns; ++c) dot[c] = each_dword(0);
#pragma GCC unroll 8
  for (int g = 0; g < groups; ++g) {
    const __m256i low = load_q(p.q[group + g], 0), high = load_q(p.q[group + g], 1);
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      const __m256i a = broadcast(q[c] + 4 * (group + g));
      dot[c].half[0] = _mm256_dpbusd_avx_epi32(dot[c].half[0], low, a);
      dot[c].half[1] = _mm256_dpbusd_avx_epi32(dot[c].half[1], high, a);
    }
  }
}

[[gnu::always_inline]] inline I32x16 add_byte_products(I32x16 sum, I32x16 w, const std::int8_t* a) {
  const __m256i x = broadcast(a);
  return {{_mm256_dpbusd_avx_epi32(sum.half[0], w.half[0], x),
           _mm256_dpbusd_avx_epi32(sum.half[1], w.half[1], x)}};
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_dot_sink.h"
#include "kernels/matmul_panels_avx2.h"
#include "kernels/matmul_part.h"
