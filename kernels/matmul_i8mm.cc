// The matrix product for Armv8.6, or Armv8.2 with its matrix products of bytes: one instruction
// multiplies eight weights of two rows with the activations of two columns. An unpacked panel is
// therefore kept as [8 weights][row]. Packed rows with few columns, floats, and less than a panel
// are left to dotprod.
#include <type_traits>

#include "kernels/matmul_sdot.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 4;

// Interleaves each two groups of four weights, so that those of a row lie together, and takes off
// their offset. The groups of a slot come in ascending order.
template <typename Format, typename Panel>
struct TierSink {
  Panel& panel;
  std::size_t first_group = 0;
  I32x16 even[4] = {};  // of each slot

  [[gnu::always_inline]] inline void operator()(int slot, std::size_t group, I32x16 q) {
    const I32x16 odd = without_offset<Format>(q);
    if (group % 2 == 0) {
      even[slot] = odd;
      return;
    }
    const auto row = [&](int i, bool is_high) {
      const uint32x4_t first = even[slot].v[i];
      return is_high ? vzip2q_u32(first, odd.v[i]) : vzip1q_u32(first, odd.v[i]);
    };
    auto* stored = panel.q + first_group + group;
    store(stored[-1], I32x16{{row(0, false), row(0, true), row(1, false), row(1, true)}});
    store(stored[0], I32x16{{row(2, false), row(2, true), row(3, false), row(3, true)}});
  }
};

// Sums of products of two rows a register, each with two columns.
template <int columns, int registers>
using TierSums = ProductSums<(columns + 1) / 2, 2 * registers>;

constexpr bool keeps_sums = true;
constexpr std::size_t half_bytes = 64;
constexpr std::size_t pair_bytes = 128;  // of two groups: eight weights of each row

template <typename Format, int parts, int registers, int columns, typename Use>
[[gnu::always_inline]] inline void multiply_32(const std::uint8_t* w,
                                               const std::int8_t* const (&q)[columns],
                                               TierSums<columns, registers>& sums, const Use& use) {
  constexpr int column_pairs = (columns + 1) / 2, row_pairs = 2 * registers;
  constexpr int octets = 4 / parts;  // of weights
  int8x16_t a[4][column_pairs];      // eight weights of two columns
#pragma GCC unroll 2
  for (int c = 0; c < column_pairs; ++c) {
    const TwoRegisters first = load_256(q[2 * c]);
    const TwoRegisters second = 2 * c + 1 < columns ? load_256(q[2 * c + 1]) : first;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const uint64x2_t x = vreinterpretq_u64_u32(first.v[i]);
      const uint64x2_t y = vreinterpretq_u64_u32(second.v[i]);
      a[2 * i][c] = vreinterpretq_s8_u64(vzip1q_u64(x, y));
      a[2 * i + 1][c] = vreinterpretq_s8_u64(vzip2q_u64(x, y));
    }
  }
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
#pragma GCC unroll 4
    for (int octet = part * octets; octet < (part + 1) * octets; ++octet) {
#pragma GCC unroll 4
      for (int r = 0; r < row_pairs; r += 2) {
        const TwoRegisters rows = load_256(w + octet * pair_bytes + 16 * r);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 2
          for (int c = 0; c < column_pairs; ++c) {
            int32x4_t& sum = sums.sum[c][r + i];
            sum = vmmlaq_s32(sum, signed_bytes_of(rows.v[i]), a[octet][c]);
          }
        }
      }
    }
    int32x4_t dot[columns][registers];
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
#pragma GCC unroll 4
      for (int i = 0; i < registers; ++i) {
        const int32x4_t low = sums.sum[c / 2][2 * i], high = sums.sum[c / 2][2 * i + 1];
        dot[c][i] = c % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high);
      }
    }
    use(part, dot);
  }
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"

namespace sluice::kernels {

void SLUICE_MATMUL_PART_NAME(const WeightRows& w, const Activations& x, float* y,
                             std::size_t y_stride, const MatmulScratch& scratch,
                             const CorePolicy& policy) {
  bool is_done = false;
  const auto multiply = [&]<typename Format>(Format) {
    constexpr ActivationForm form = form_of<Format>();
    constexpr bool keeps_nothing = !unpacks_first<Format>;
    if constexpr (form != ActivationForm::f32) {
      if (keeps_nothing && w.is_packed && x.columns() <= few_columns_of<Format>) return;
      using Kernel = std::conditional_t<form == ActivationForm::a256, IntegerKernel<Format>,
                                        SmallKernel<Format>>;
      multiply_panels<Kernel>(w, x, y, y_stride, scratch,
                              policy.prefetch.for_columns(x.columns(), !keeps_nothing));
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
