// The matrix product for AVX-512 with VNNI. One 512-bit register holds one 32-bit value for each of
// the 16 rows of a panel.
//
// Cost per panel and column of 256 Q4_K weights: 64 vpdpbusd, 8 conversions and 8 fma for the
// sub-blocks (or 8 vpmulld and 8 additions, which take less time on Zen), 4 vpdpwssd for the
// minima, 5 more to finish. Unpacking the panel costs about 300 instructions and is shared by all
// columns.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr int panels_at_once = 2;
constexpr bool high_bits_in_place = true;  // vpdpbusd does not saturate
constexpr int float_sums = 4;              // in four parts each
constexpr bool unsigned_bytes = true;      // vpdpbusd needs unsigned weights

}  // namespace
}  // namespace sluice::kernels

#define SLUICE_HAS_DWORD_PRODUCTS

#include "kernels/matmul_lanes_avx512.h"

namespace sluice::kernels {
namespace {

constexpr int panels_in_registers = panels_at_once, columns_at_once = 6;

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_x86.h"
