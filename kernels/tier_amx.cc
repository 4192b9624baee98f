// tdpbssd on full tiles: 16 x 16 sums of 64 products an instruction.
#include "kernels/amx_tiles.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

// Four tiles of sums, from two tiles of each operand. All are zeros: the speed is the same.
std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr std::uint64_t macs = 4 * 16 * 16 * 64;
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) configuration.shape(tile, tile_rows, 64);
  const TileRegisters registers(configuration);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    add_tile_product<true, 0, 4, 6>();
    add_tile_product<true, 1, 4, 7>();
    add_tile_product<true, 2, 5, 6>();
    add_tile_product<true, 3, 5, 7>();
  }
  return rounds * macs;
}

}  // namespace

void fill_amx(KernelTable& table) {
  fill_matmul_amx(table.matmul);
  fill_attention_amx(table.attention);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
