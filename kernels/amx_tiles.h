// The eight tile registers of AMX, each of up to 16 rows of up to 64 bytes. A product of two tiles
// multiplies each four bytes in a row of the first with a row of the second, which has four bytes
// for each of its columns (Intel, Architecture Instruction Set Extensions, chapter 3).
//
// In an anonymous namespace, like everything that is compiled for one tier.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr std::size_t tile_rows = 16;

struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void shape(int tile, std::size_t count, std::size_t bytes) {
    rows[tile] = static_cast<std::uint8_t>(count);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

// The instructions, with the register as a template argument: the intrinsics accept only literals.
template <int tile>
inline void load_tile(const void* p, std::size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void store_tile(void* p) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(std::size_t{64}), "i"(tile)
               : "memory");
}
template <int tile>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
// sums += a x b; a holds signed bytes, and b does if `is_signed`.
template <bool is_signed, int sums, int a, int b>
inline void add_tile_product() {
  if constexpr (is_signed) {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
  } else {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
  }
}

// Configures the tile registers of this thread; the destructor releases them.
class TileRegisters {
 public:
  explicit TileRegisters(const TileConfiguration& configuration) {
    asm volatile("ldtilecfg %0" ::"m"(configuration));
  }
  ~TileRegisters() { asm volatile("tilerelease"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

}  // namespace
}  // namespace sluice::kernels
