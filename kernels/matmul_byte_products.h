// Products in the tiers of x86-64 that add those of four unsigned bytes with four signed ones to
// each lane at once. Included by their files after they have defined what matmul_dot_sink.h needs.
#pragma once

#include "kernels/matmul_dot_sink.h"

namespace sluice::kernels {
namespace {

template <int panels, int columns, int groups, int largest_q, typename Panel, typename Start>
inline void multiply_groups(const Panel* p, std::size_t group, const std::int8_t* const* q,
                            const Start& start, I32x16 (&dot)[columns][panels]) {
#pragma GCC unroll 8
  for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
    for (int i = 0; i < panels; ++i) dot[c][i] = start(c);
  }
#pragma GCC unroll 8
  for (int g = 0; g < groups; ++g) {
    I32x16 w[panels];
#pragma GCC unroll 2
    for (int i = 0; i < panels; ++i) w[i] = load_words(p[i].q[group + g]);
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) {
        dot[c][i] = add_byte_products(dot[c][i], w[i], q[c], group + g);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
