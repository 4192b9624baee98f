// The matrix product for Armv8.2 with the dot product of bytes: one instruction multiplies four
// weights of each of four rows with four activations, of which a register holds four groups.
#include "kernels/matmul_sdot.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 4;

template <typename Format, typename Panel>
using TierSink = PanelSink<Format, Panel>;

// Adds the products of one group; its activations have number `lane` in a.
template <int lane, int columns>
[[gnu::always_inline]] inline void add_group(const std::uint8_t (&w)[panel_rows][4],
                                             const int8x16_t (&a)[columns],
                                             I32x16 (&dot)[columns]) {
#pragma GCC unroll 2
  for (int i = 0; i < registers; i += 2) {
    const TwoRegisters rows = load_256(w[4 * i]);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        dot[c].v[i + j] = add_dot<lane>(dot[c].v[i + j], rows.v[j], a[c]);
      }
    }
  }
}

template <int columns, int groups, typename Format, typename Panel>
inline void dot_groups(const Panel& p, std::size_t group, const std::int8_t* const* q,
                       I32x16 (&dot)[columns]) {
  for (int c = 0; c < columns; ++c) dot[c] = each_dword(0);
#pragma GCC unroll 2
  for (int g = 0; g < groups; g += 4) {
    int8x16_t a[columns];
    for (int c = 0; c < columns; ++c) a[c] = vld1q_s8(q[c] + 4 * (group + g));
    const auto* w = p.q + group + g;
    add_group<0>(w[0], a, dot);
    add_group<1>(w[1], a, dot);
    add_group<2>(w[2], a, dot);
    add_group<3>(w[3], a, dot);
  }
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"
#include "kernels/matmul_part.h"
