// The matrix product for Armv8.6, or Armv8.2 with its matrix products of bytes: one instruction
// multiplies eight weights of two rows with the activations of two columns. An unpacked panel is
// therefore kept as [8 weights][row]. Packed rows with few columns, floats, and less than a panel
// are left to dotprod.
#include <type_traits>

#include "kernels/arm_tiers.h"
#include "kernels/matmul_sdot.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 4;
constexpr int row_pairs = static_cast<int>(panel_rows) / 2;

// Interleaves each two groups of four weights, so that those of a row lie together. The groups of a
// slot come in ascending order.
template <typename Format, typename Panel>
struct TierSink {
  Panel& panel;
  std::size_t first_group = 0;
  I32x16 even[4] = {};  // of each slot

  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 odd) {
    if (group % 2 == 0) {
      even[slot] = odd;
      return;
    }
    const auto row = [&](int i, bool is_high) {
      const uint32x4_t first = even[slot].v[i];
      return is_high ? vzip2q_u32(first, odd.v[i]) : vzip1q_u32(first, odd.v[i]);
    };
    auto* q = panel.q + first_group + group;
    store(q[-1], I32x16{{row(0, false), row(0, true), row(1, false), row(1, true)}});
    store(q[0], I32x16{{row(2, false), row(2, true), row(3, false), row(3, true)}});
  }
};

template <int columns, int groups, typename Format, typename Panel>
inline void dot_groups(const Panel& p, std::size_t group, const std::int8_t* const* q,
                       I32x16 (&dot)[columns]) {
  constexpr int column_pairs = (columns + 1) / 2;
  int32x4_t sum[column_pairs][row_pairs];  // of two rows, each with two columns
  for (auto& of_columns : sum) {
#pragma GCC unroll 8
    for (int32x4_t& of_rows : of_columns) of_rows = vdupq_n_s32(0);
  }
#pragma GCC unroll 4
  for (int g = 0; g < groups; g += 2) {
    int8x16_t a[column_pairs];
#pragma GCC unroll 2
    for (int c = 0; c < column_pairs; ++c) {
      const int second = 2 * c + 1 < columns ? 2 * c + 1 : 2 * c;
      a[c] = vcombine_s8(vld1_s8(q[2 * c] + 4 * (group + g)), vld1_s8(q[second] + 4 * (group + g)));
    }
    const std::uint8_t* w = p.q[group + g][0];
#pragma GCC unroll 4
    for (int r = 0; r < row_pairs; r += 2) {
      const TwoRegisters rows = load_256(w + 16 * r);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 2
        for (int c = 0; c < column_pairs; ++c) {
          sum[c][r + i] = vmmlaq_s32(sum[c][r + i], signed_bytes_of(rows.v[i]), a[c]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 4
    for (int i = 0; i < registers; ++i) {
      const int32x4_t low = sum[c / 2][2 * i], high = sum[c / 2][2 * i + 1];
      dot[c].v[i] =
          vreinterpretq_u32_s32(c % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high));
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"

namespace sluice::kernels {

void SLUICE_MATMUL_PART_NAME(const WeightRows& w, const Activations& x, float* y,
                             std::size_t y_stride, const MatmulScratch& scratch,
                             const PrefetchPolicy& policy) {
  bool is_done = false;
  const auto multiply = [&]<typename Format>(Format) {
    constexpr ActivationForm form = form_of<Format>();
    constexpr bool keeps_nothing = !unpacks_first<Format>;
    if constexpr (form != ActivationForm::f32) {
      if (keeps_nothing && w.is_packed && x.columns() <= few_columns) return;
      using Kernel = std::conditional_t<form == ActivationForm::a256, IntegerKernel<Format>,
                                        SmallKernel<Format>>;
      multiply_panels<Kernel>(w, x, y, y_stride, scratch,
                              policy.for_columns(x.columns(), !keeps_nothing));
      is_done = true;
    }
  };
  if (w.rows >= panel_rows) visit_format_of_part<SLUICE_MATMUL_PART>(w.type, multiply);
  if (is_done) return;
  MatmulKernels dotprod;
  fill_matmul_dotprod(dotprod);
  dotprod.kernel(w, x, y, y_stride, scratch, policy);
}

}  // namespace sluice::kernels
