// What the nibbles of some formats stand for.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Of IQ4_NL and IQ4_XS.
inline constexpr std::int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
// Twice the floats of four bits of MXFP4 (E2M1).
inline constexpr std::int8_t doubled_e2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace sluice::kernels
