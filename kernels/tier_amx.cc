// tdpbssd on full tiles: 16 x 16 sums of 64 products an instruction.
#include <immintrin.h>

#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

struct alignas(64) FullTiles {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four tiles of sums, from two tiles of each operand. All are zeros: the speed is the same.
std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr std::uint64_t macs = 4 * 16 * 16 * 64;
  const FullTiles configuration;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);  // compilers do not know that all of it is read
  _tile_loadconfig(&configuration);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return rounds * macs;
}

}  // namespace

void fill_amx(KernelTable& table) {
  fill_matmul_amx(table.matmul);
  fill_attention_amx(table.attention);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
