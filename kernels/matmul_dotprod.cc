// The matrix product for Armv8.2 with the dot product of bytes: one instruction multiplies four
// weights of each of four rows with four activations, of which a register holds four groups.
#include <utility>

#include "kernels/matmul_sdot.h"

namespace sluice::kernels {
namespace {

constexpr int columns_at_once = 4;

template <int columns, int registers>
using TierSums = ProductSums<columns, registers>;
constexpr bool keeps_sums = true;

template <typename Format, typename Panel>
using TierSink = SignedSink<Format, Panel>;

constexpr std::size_t half_bytes = 32;
constexpr std::size_t group_bytes = 64;  // four weights of each row

// Adds the products of group `group` of 32 weights; a has their activations.
template <int group, int columns, int registers>
[[gnu::always_inline]] inline void add_group(const std::uint8_t* w,
                                             const TwoRegisters (&a)[columns],
                                             int32x4_t (&dot)[columns][registers]) {
#pragma GCC unroll 2
  for (int i = 0; i < registers; i += 2) {
    const TwoRegisters rows = load_256(w + group * group_bytes + 16 * i);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        dot[c][i + j] = vdotq_laneq_s32(dot[c][i + j], signed_bytes_of(rows.v[j]),
                                        signed_bytes_of(a[c].v[group / 4]), group % 4);
      }
    }
  }
}

template <typename Format, int parts, int registers, int columns, typename Use>
[[gnu::always_inline]] inline void multiply_32(const std::uint8_t* w,
                                               const std::int8_t* const (&q)[columns],
                                               ProductSums<columns, registers>& sums,
                                               const Use& use) {
  TwoRegisters a[columns];
#pragma GCC unroll 4
  for (int c = 0; c < columns; ++c) a[c] = load_256(q[c]);
  const auto of_part = [&]<int part, int... group>(std::integer_sequence<int, part>,
                                                   std::integer_sequence<int, group...>)
      __attribute__((always_inline)) {
    (add_group<8 / parts * part + group>(w, a, sums.sum), ...);
    use(part, sums.sum);
  };
  using Groups = std::make_integer_sequence<int, 8 / parts>;
  of_part(std::integer_sequence<int, 0>(), Groups());
  if constexpr (parts == 2) of_part(std::integer_sequence<int, 1>(), Groups());
}

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_panels_neon.h"
#include "kernels/matmul_part.h"
