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
constexpr int panels_in_registers = 1, columns_at_once = 4;

[[gnu::always_inline]] inline I32x16 add_byte_products(I32x16 sum, I32x16 w, const std::int8_t* q,
                                                       std::size_t group) {
  const __m256i x = broadcast(q + 4 * group);
  return {{_mm256_dpbusd_avx_epi32(sum.half[0], w.half[0], x),
           _mm256_dpbusd_avx_epi32(sum.half[1], w.half[1], x)}};
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_byte_products.h"
#include "kernels/matmul_panels_x86.h"
