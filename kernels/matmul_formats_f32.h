// Formats that are multiplied as floats: F32, F16, BF16. Included by the file of each tier by way
// of matmul_formats.h.
//
// A panel of floats is laid out as [k][row of the panel]. So is a packed panel, with elements of
// two or four bytes. Rows laid out as in a file are transposed first.
#pragma once

#include "kernels/formats/floats.h"
#include "kernels/matmul_words.h"

namespace sluice::kernels {
namespace {

// Loads the first `count` of sixteen consecutive elements.
template <typename Format>
inline F32x16 load_elements(const std::byte* p, std::size_t count) {
  if constexpr (Format::type == BlockType::f32) return load_floats(p, count);
  if constexpr (Format::type == BlockType::f16) return load_halves(p, count);
  if constexpr (Format::type == BlockType::bf16) return load_bfloats(p, count);
}

template <typename Format>
struct UnpacksFloats {
  using Panel = FloatPanel;

  static void unpack(FileRows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     FloatPanel& panel) {
    const std::size_t weights = smaller(k_block, size - k);
    alignas(64) float values[panel_rows][k_block];
    for (std::size_t r = 0; r < panel_rows; ++r) {
      const std::byte* row = data + r * rows.row_bytes + k * block_bytes<Format>;
      for (std::size_t i = 0; i < weights; i += 16) {
        store(values[r] + i,
              load_elements<Format>(row + i * block_bytes<Format>, smaller(16, weights - i)));
      }
    }
    FileRows floats{reinterpret_cast<const std::byte*>(values), sizeof values[0], rows.ahead};
    for (std::size_t i = 0; i < weights; i += 4) {
      const RowDwords four = load_dwords(floats, i * sizeof(float));
      for (std::size_t j = 0; j < 4; ++j) store(panel.w[i + j], four.dword[j]);
    }
    rows.ahead = floats.ahead;
  }

  static void unpack(PackedRows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     FloatPanel& panel) {
    constexpr std::size_t bytes = panel_rows * block_bytes<Format>;
    const std::byte* p = data + k * bytes;
    for (std::size_t i = 0; i < smaller(k_block, size - k); ++i, p += bytes) {
      rows.ahead.prefetch_from(p);
      store(panel.w[i], load_elements<Format>(p, panel_rows));
    }
  }
};

// Multiplies up to 256 weights, [k][row], of some panels with the activations of each column, in
// four partial sums that are then added to `sum`. Prefetches weights if `reads_ahead`.
template <typename Format, bool reads_ahead, int panels, int columns>
[[gnu::always_inline]] inline void add_float_products(const std::byte* const (&weights)[panels],
                                                      const Ahead& ahead, std::size_t count,
                                                      const float* const (&x)[columns],
                                                      F32x16 (&sum)[panels][columns]) {
  constexpr std::size_t bytes = panel_rows * block_bytes<Format>;
  F32x16 part[4][panels][columns];
#pragma GCC unroll 4
  for (auto& of_part : part) {
#pragma GCC unroll 4
    for (auto& of_panel : of_part) {
#pragma GCC unroll 4
      for (F32x16& of_column : of_panel) of_column = each(0);
    }
  }
  const auto add_weights = [&](std::size_t k, std::size_t j) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int p = 0; p < panels; ++p) {
      const std::byte* at = weights[p] + (k + j) * bytes;
      if constexpr (reads_ahead) {
        if (j * bytes % cache_line == 0) ahead.prefetch_from(at);
      }
      const F32x16 w = load_elements<Format>(at, panel_rows);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        part[j][p][c] = multiply_add(w, each(x[c][k + j]), part[j][p][c]);
      }
    }
  };
  std::size_t k = 0;
  for (; k + 4 <= count; k += 4) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) add_weights(k, j);
  }
#pragma GCC unroll 3
  for (std::size_t j = 0; j < 3; ++j) {
    if (k + j < count) add_weights(k, j);
  }
#pragma GCC unroll 4
  for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const F32x16 first = add(part[0][p][c], part[1][p][c]);
      const F32x16 second = add(part[2][p][c], part[3][p][c]);
      sum[p][c] = add(sum[p][c], add(first, second));
    }
  }
}

template <typename Format>
struct FloatKernel : UnpacksFloats<Format> {
  using Column = const float*;
  static constexpr int tile_columns = float_sums;

  static Column column(const Activations& x, std::size_t c) { return x.f32(c); }

  template <int panels, int columns>
  static void multiply(const FloatPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    const float* x[columns];
    for (int c = 0; c < columns; ++c) x[c] = a[c] + k;
    for (int i = 0; i < panels; ++i) {
      F32x16 sum[1][columns];
      float* sums_of_panel = sums + i * panel_rows;
      for (int c = 0; c < columns; ++c) sum[0][c] = load(sums_of_panel + c * sums_stride);
      const std::byte* const w[1] = {reinterpret_cast<const std::byte*>(p[i].w)};
      add_float_products<F32, false>(w, Ahead(), weights, x, sum);
      for (int c = 0; c < columns; ++c) store(sums_of_panel + c * sums_stride, sum[0][c]);
    }
  }
};

}  // namespace
}  // namespace sluice::kernels
