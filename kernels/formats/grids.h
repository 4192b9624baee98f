// The grids of the IQ formats. An entry stands for 8 neighbouring weights (4 for IQ3), each of
// which is the number of one of a few values.
//
// An entry has sixteen bits. Nibble i has the number of weight i, and for grids of 8 weights also
// that of weight i + 4, in its upper two bits: so all four bytes of a vector lane get their nibble
// by the same two shifts. Behind the last entry are two more of zeros, because vectors read more.
#pragma once

#include <cstdint>

namespace sluice::kernels {

extern const std::uint16_t iq1_grid[2048 + 2];
extern const std::uint16_t iq2_xxs_grid[256 + 2], iq2_xs_grid[512 + 2], iq2_s_grid[1024 + 2];
extern const std::uint16_t iq3_xxs_grid[256 + 2], iq3_s_grid[512 + 2];

#ifdef __aarch64__
// The same with the weights without signs, one in each byte.
template <int entries>
struct Quads {
  std::uint32_t of[entries];
};
extern const Quads<256> iq3_xxs_quads;
extern const Quads<512> iq3_s_quads;
#endif

}  // namespace sluice::kernels
