// The grids of the IQ formats. An entry stands for 8 neighbouring weights (4 for IQ3), each of
// which is the number of one of a few values.
//
// An entry has sixteen bits. Nibble i has the number of weight i, and for grids of 8 weights also
// that of weight i + 4, in its upper two bits: so all four bytes of a vector lane get their nibble
// by the same two shifts.
#pragma once

#include <cstdint>

namespace sluice::kernels {

extern const std::uint16_t iq1_grid[2048];
extern const std::uint16_t iq2_xxs_grid[256], iq2_xs_grid[512], iq2_s_grid[1024];
extern const std::uint16_t iq3_xxs_grid[256], iq3_s_grid[512];

// The same with one weight in each byte, for tiers that look entries up in memory: those of IQ2 and
// IQ3 without signs, those of IQ1 with a shift of 1.
template <typename Entry, int entries>
struct EntryBytes {
  Entry of[entries];
};
template <int entries>
using Octets = EntryBytes<std::uint64_t, entries>;
template <int entries>
using Quads = EntryBytes<std::uint32_t, entries>;

extern const Octets<2048> iq1_octets;
extern const Octets<256> iq2_xxs_octets;
extern const Octets<512> iq2_xs_octets;
extern const Octets<1024> iq2_s_octets;
extern const Quads<256> iq3_xxs_quads;
extern const Quads<512> iq3_s_quads;

}  // namespace sluice::kernels
