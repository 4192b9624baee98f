// What formats with a float scale for each 32 weights, or each 16, share. Included by the file of
// each tier by way of matmul_formats.h, which says what a format has.
#pragma once

#include <utility>

#include "kernels/matmul_words.h"

namespace sluice::kernels {
namespace {

struct SmallScales {
  F32x16 d, m;  // m only if the format has minima
};

// Of 32 weights, for formats with a scale for each 16.
struct FineScales {
  F32x16 d[2];
};

// How many scales 32 weights have.
template <typename Format>
constexpr int scales_of_32 = 32 / Format::sub_block;

// The scales of a group of 32 weights of a block.
template <typename Format, int group, typename Rows>
inline auto scales_of_group(Rows& rows) {
  if constexpr (scales_of_32<Format> == 1) {
    return Format::scales(rows);
  } else {
    return Format::template scales<group>(rows);
  }
}
inline F32x16 scale_of(const SmallScales& scales, int) {
  return scales.d;
}
inline F32x16 scale_of(const FineScales& scales, int nth) {
  return scales.d[nth];
}

// What the offset takes off the dot product with sub-block `at` of a block of activations.
template <typename Format>
inline std::int32_t offset_dot(const BlockA32& a, std::size_t at) {
  if constexpr (scales_of_32<Format> == 1) {
    return Format::offsets(a)[at];
  } else {
    return Format::offset_dot(a, at);
  }
}

template <typename Dwords, typename Sink>
[[gnu::always_inline]] inline void sink_nibbles(const Dwords& qs, Sink& sink) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, j, low_nibbles(qs.dword[j]));
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) sink(0, 4 + j, high_nibbles(qs.dword[j]));
}

template <typename Dwords, typename Sink>
[[gnu::always_inline]] inline void sink_looked_up(const Dwords& qs, const NibbleTable& table,
                                                  Sink& sink) {
  const I32x16 bytes = byte_table(table.bytes);
  const auto looked_up = [&](int slot, std::size_t group, I32x16 nibbles)
      __attribute__((always_inline)) {
    sink(slot, group, look_up(bytes, nibbles));
  };
  sink_nibbles(qs, looked_up);
}

// Moves the four bits from position `at` on of every lane to bit 4 of the lane's four bytes: copies
// shifted by 4, 11, 18 and 25 put bit j of the four at bit 8 j + 4.
inline I32x16 spread_fifth_bits(I32x16 qh, int at) {
  const I32x16 four = bits_and(right_32(qh, at), each_dword(15));
  const I32x16 copies = bits_or(bits_or(left_32(four, 4), left_32(four, 11)),
                                bits_or(left_32(four, 18), left_32(four, 25)));
  return bits_and(copies, each_byte(0x10));
}

template <typename Dwords, typename Sink>
[[gnu::always_inline]] inline void sink_five_bits(const Dwords& qs, I32x16 qh, Sink& sink) {
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) {
    const I32x16 fifth = spread_fifth_bits(qh, 4 * static_cast<int>(j));
    sink(0, j, bits_or(low_nibbles(qs.dword[j]), fifth));
  }
#pragma GCC unroll 4
  for (std::size_t j = 0; j < 4; ++j) {
    const I32x16 fifth = spread_fifth_bits(qh, 16 + 4 * static_cast<int>(j));
    sink(0, 4 + j, bits_or(high_nibbles(qs.dword[j]), fifth));
  }
}

template <typename Format, typename Rows>
inline SmallScales scales_and_minima(Rows& rows) {
  const I32x16 head = word<Format>(rows, 0);
  return {low_halves(head), high_halves(head)};
}

// Groups of 32 weights in a block.
template <typename Format>
constexpr std::size_t groups_of = Format::weights / 32;

// Calls body(group) with each group of a block, as a constant.
template <typename Format, typename Body>
[[gnu::always_inline]] inline void for_each_group(const Body& body) {
  const auto call = [&]<int... group>(std::integer_sequence<int, group...>)
      __attribute__((always_inline)) {
    (body(std::integral_constant<int, group>()), ...);
  };
  call(std::make_integer_sequence<int, groups_of<Format>>());
}

template <typename Format, template <typename, typename> typename Sink = PanelSink>
struct UnpacksSmall {
  using Panel = SmallPanel;

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     SmallPanel& panel) {
    const std::size_t count = smaller(k_block, size - k) / Format::weights;
    for (std::size_t i = 0; i < count; ++i) {
      go_to<Format>(rows, data, size / Format::weights, k / Format::weights + i);
      for_each_group<Format>([&](auto group) __attribute__((always_inline)) {
        const std::size_t s = i * groups_of<Format> + group;
        Sink<Format, SmallPanel> sink{panel, 8 * s};
        const auto scales = scales_of_group<Format, group>(rows);
        Format::template weights_of<group>(rows, sink);
        constexpr int count_of_32 = scales_of_32<Format>;
        for (int n = 0; n < count_of_32; ++n) {
          store(panel.d[count_of_32 * s + static_cast<std::size_t>(n)], scale_of(scales, n));
        }
        if constexpr (Format::has_min) store(panel.m[s], scales.m);
      });
    }
  }
};

}  // namespace
}  // namespace sluice::kernels
