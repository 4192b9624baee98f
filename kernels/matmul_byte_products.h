// Products in the tiers that add those of four bytes to each lane at once. Included by the files of
// these tiers after they have defined
//   add_byte_products(sum, w, a)   sum + the products of the four unsigned bytes of each lane of w
//                                  with the four signed bytes at a
#pragma once

#include "kernels/matmul_formats.h"

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
      const std::int8_t* a = q[c] + 4 * (group + g);
#pragma GCC unroll 2
      for (int i = 0; i < panels; ++i) dot[c][i] = add_byte_products(dot[c][i], w[i], a);
    }
  }
}

template <typename Format, int slots, int columns>
class DotSink {
 public:
  explicit DotSink(const std::int8_t* const (&q)[columns]) : q_(q) {
#pragma GCC unroll 4
    for (int slot = 0; slot < slots; ++slot) {
#pragma GCC unroll 8
      for (int c = 0; c < columns; ++c) dot_[slot][c] = each_dword(0);
    }
  }
  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
#pragma GCC unroll 8
    for (int c = 0; c < columns; ++c) {
      dot_[slot][c] = add_byte_products(dot_[slot][c], q, q_[c] + 4 * group);
    }
  }
  I32x16 dot(int slot, int column) const {
    return dot_[slot][column];
  }

 private:
  const std::int8_t* const (&q_)[columns];
  I32x16 dot_[slots][columns];
};

}  // namespace
}  // namespace sluice::kernels
