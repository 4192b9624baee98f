// The sink of weights for a few columns, in the tiers that add the products of four bytes to each
// lane at once. Included by the files of these tiers after they have defined
//   add_byte_products(sum, w, q, group)   sum + the products of the four bytes of each lane of w
//                                         with the four from q + 4 group on
#pragma once

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

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
      dot_[slot][c] = add_byte_products(dot_[slot][c], q, q_[c], group);
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
