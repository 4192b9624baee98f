// The matrix product for AMX: eight tile registers of 16 rows of 64 bytes.
//
// An unpacked panel is in the order of a second operand of the tile product as it stands: row k / 4
// of the tile holds four neighbouring weights of each of the 16 rows of the panel. The first
// operand is 16 columns of activations, the result 16 x 16 dot products of one sub-block, a 512-bit
// register for each column. Weights with an offset are unpacked as signed bytes, so that products
// need none. Dot products are exact and the float operations those of the other tiers.
//
// Cost of 16 columns, a panel and 32 weights (16 for Q6_K): 16 cycles for the product, about 12 for
// the store of the result (tile registers go to vector registers through memory only), and 16
// conversions and 16 fma meanwhile. The products run some sub-blocks ahead of the floats.
//
// For few columns tiles are too coarse: those are multiplied by the AVX-512 tier, and so are
// weights that are dequantised to float.
#include <cstddef>
#include <cstdint>

namespace sluice::kernels {
namespace {

constexpr bool unsigned_q8 = false;  // the tile products have all combinations of signs

}  // namespace
}  // namespace sluice::kernels

#include "kernels/matmul_lanes_avx512.h"

namespace sluice::kernels {
namespace {

// Fewer columns go to the AVX-512 tier. Between what was measured: with 8 columns Q6_K is slower on
// tiles (Q4_K and Q8_0 are a little faster), with 16 none is.
constexpr std::size_t fewest_columns = 12;
constexpr std::size_t tile_rows = 16;

// Registers 0 and 1 take the dot products of even and odd sub-blocks, 2 and 3 their activations,
// 4 and 5 their weights.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  // For products of `weights` weights with as many columns.
  TileConfiguration(std::size_t columns, std::size_t weights) {
    for (int odd = 0; odd < 2; ++odd) {
      shape(odd, columns, panel_rows * sizeof(std::int32_t));
      shape(2 + odd, columns, weights);
      shape(4 + odd, weights / 4, panel_rows * 4);
    }
  }

 private:
  void shape(int tile, std::size_t count, std::size_t bytes) {
    rows[tile] = static_cast<std::uint8_t>(count);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

// The intrinsics do not tell every compiler which memory they read.
inline void write_before_tiles_read() {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// The tile registers of this thread, configured; nothing is left in them afterwards.
class TileRegisters {
 public:
  explicit TileRegisters(const TileConfiguration& configuration) {
    write_before_tiles_read();
    _tile_loadconfig(&configuration);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

inline void read_scales_ahead(const ColumnA256& a, std::size_t k) {
  __builtin_prefetch(a.d + k / k_block, 0, 3);
  __builtin_prefetch(a.sums_of_32 + k / 32, 0, 3);
}
inline void read_scales_ahead(const ColumnA32& a, std::size_t k) {
  __builtin_prefetch(a.d + k / 32, 0, 3);
  __builtin_prefetch(a.d_sums + k / 32, 0, 3);
}

// A column, and the tile of activations that it is the first of. For the last columns of all there
// is no such tile: theirs starts earlier, and has them from `row` on.
template <typename Column>
struct TileColumn : Column {
  const std::int8_t* tile;
  std::size_t tile_stride;
  std::size_t row;
  // The column that is due where this one is now after one more tile: from this one, and how many
  // weights further on.
  std::ptrdiff_t next;
  std::size_t next_weights;

  TileColumn(const Activations& x, std::size_t c, Column (Activations::*form)(std::size_t) const)
      : Column((x.*form)(c)), tile_stride(x.column_bytes()) {
    const std::size_t count = smaller(tile_rows, x.columns());
    const std::size_t first = smaller(c, x.columns() - count);
    tile = (x.*form)(first).q;
    row = c - first;
    const std::size_t in_block = c % column_block, of_tile = c % tile_rows;
    const bool is_last =
        in_block - of_tile + tile_rows >= column_block || c - of_tile + tile_rows >= x.columns();
    next = is_last ? -static_cast<std::ptrdiff_t>(in_block - of_tile)
                   : static_cast<std::ptrdiff_t>(tile_rows);
    next_weights = is_last ? k_block : 0;
  }
};

// Asks for the activations of the next tile to come into the first-level cache, where those of all
// tiles have no room: a processor does not guess 16 streams that go on elsewhere after 256 bytes.
// Called after each of `steps` steps, so that the requests are spread evenly.
template <typename Column>
[[gnu::always_inline]] inline void read_ahead(const Column* a, int columns, std::size_t k, int step,
                                              int steps) {
  for (int c = step; c < columns; c += steps) {
    const Column& next = a[c + a[c].next];
    const std::size_t at = k + a[c].next_weights;
#pragma GCC unroll 4
    for (std::size_t line = 0; line < k_block; line += cache_line) {
      __builtin_prefetch(next.q + at + line, 0, 3);
    }
    read_scales_ahead(next, at);
  }
}

// Keeps weights as signed bytes where they have an offset.
template <typename Format, typename Panel>
struct SignedSink {
  Panel& panel;
  std::size_t first_group = 0;

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    if constexpr (Format::has_offset) q = _mm512_sub_epi8(q, each_byte(Format::offset));
    store(panel.q[first_group + group], q);
  }
};

// How a format meets the tiles.
template <typename Format>
struct TileTraits {
  static constexpr bool has_sub_blocks = requires { Format::sub_block; };
  static constexpr bool is_signed = !Format::has_min;

  static constexpr int weights() {
    if constexpr (has_sub_blocks) {
      return Format::sub_block;
    } else {
      return 32;
    }
  }
  // Where the n-th sub-block stands whose product is added.
  static constexpr int position(int n) {
    if constexpr (has_sub_blocks) {
      return Format::sub_block_of(n / Format::slots, n % Format::slots);
    } else {
      return n;
    }
  }
};

// Results of tile products that wait to be used. One more than there are at a time: a tile that is
// wider than the columns that are left reads beyond its own.
constexpr int products_kept = 4;
struct alignas(64) Dots {
  std::int32_t of[products_kept + 1][tile_rows][panel_rows];
};

// The dot products of a tile of columns with the sub-blocks of some panels: those of the first
// panel, in the order in which they are added, then those of the next.
template <typename Format, typename Panel>
class TileProducts {
 public:
  // sub_blocks: of each panel. k: where the activations of the block start in the column. dots: not
  // part of this, so that the compiler may keep all the rest in registers.
  template <typename Column>
  TileProducts(const Panel* panels, int count, int sub_blocks, const Column& column, std::size_t k,
               Dots& dots)
      : panels_(panels),
        sub_blocks_(sub_blocks),
        total_(count * sub_blocks),
        q_(column.tile + k),
        stride_(column.tile_stride),
        row_(column.row),
        dots_(dots) {
    write_before_tiles_read();
    for (int t = 0; t < ahead; ++t) {
      begin();
      if (t > 0) end();
    }
  }

  // Starts the product that is `ahead` of those used.
  [[gnu::always_inline]] inline void begin() {
    if (begun_ == total_) return;
    const int at = Traits::position(sub_block_) * Traits::weights();
    const std::int8_t* a = q_ + at;
    const std::uint8_t* w = panels_->q[at / 4][0];
    if (begun_ % 2 == 0) {
      _tile_loadd(2, a, stride_);
      _tile_loadd(4, w, 64);
      _tile_zero(0);
      if constexpr (Traits::is_signed) {
        _tile_dpbssd(0, 2, 4);
      } else {
        _tile_dpbsud(0, 2, 4);
      }
    } else {
      _tile_loadd(3, a, stride_);
      _tile_loadd(5, w, 64);
      _tile_zero(1);
      if constexpr (Traits::is_signed) {
        _tile_dpbssd(1, 3, 5);
      } else {
        _tile_dpbsud(1, 3, 5);
      }
    }
    ++begun_;
    if (++sub_block_ == sub_blocks_) {
      sub_block_ = 0;
      ++panels_;
    }
  }

  // Stores the product that was begun before the last one.
  [[gnu::always_inline]] inline void end() {
    if (ended_ == total_) return;
    if (ended_ % 2 == 0) {
      _tile_stored(0, dots_.of[ended_ % products_kept], 64);
    } else {
      _tile_stored(1, dots_.of[ended_ % products_kept], 64);
    }
    ++ended_;
  }

  // Those of product t with the columns that are present: [column][row of the panel].
  [[gnu::always_inline]] inline const std::int32_t (*dots(int t) const)[panel_rows] {
    return dots_.of[t % products_kept] + row_;
  }

 private:
  using Traits = TileTraits<Format>;
  // Products that are at work or waiting before they are used.
  static constexpr int ahead = 4;
  static_assert(ahead <= products_kept);

  const Panel* panels_;
  int sub_blocks_, total_;
  const std::int8_t* q_;
  std::size_t stride_, row_;
  int begun_ = 0, ended_ = 0;
  int sub_block_ = 0;  // of the next product, in its panel
  Dots& dots_;
};

template <typename Format>
struct IntegerKernel : UnpacksIntegers<Format, SignedSink> {
  using Column = TileColumn<ColumnA256>;
  static constexpr int tile_columns = tile_rows;
  static constexpr bool pads_columns = true;

  static Column column(const Activations& x, std::size_t c) { return {x, c, &Activations::a256}; }

  template <int panels, int columns>
  static void multiply(const IntegerPanel* p, const Column* a, std::size_t k, std::size_t,
                       float* sums) {
    multiply_tile<columns>(p, panels, a, k, sums);
  }

 private:
  template <int columns>
  [[gnu::noinline]] static void multiply_tile(const IntegerPanel* panel, int panels,
                                              const Column* a, std::size_t k, float* sums) {
    constexpr int sub_blocks = static_cast<int>(k_block) / Format::sub_block;
    Dots dots;
    TileProducts<Format, IntegerPanel> products(panel, panels, sub_blocks, a[0], k, dots);
    for (int i = 0; i < panels; ++i, ++panel, sums += panel_rows) {
      __m512 block[columns];
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) block[c] = _mm512_setzero_ps();
      for (int n = 0; n < sub_blocks; ++n) {
        const __m512 scale = _mm512_load_ps(panel->scale[TileTraits<Format>::position(n)]);
        const auto* dot = products.dots(i * sub_blocks + n);
        products.begin();
        add_dots<0, columns / 2>(dot, scale, block);
        products.end();
        add_dots<columns / 2, columns>(dot, scale, block);
        read_ahead(a, columns, k, i * sub_blocks + n, panels * sub_blocks);
      }
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) {
        finish_block<Format>(*panel, a[c], k, block[c], sums + c * static_cast<int>(sums_stride));
      }
    }
  }

  template <int first, int last, int columns>
  [[gnu::always_inline]] static inline void add_dots(const std::int32_t (*dot)[panel_rows],
                                                     __m512 scale, __m512 (&block)[columns]) {
#pragma GCC unroll 16
    for (int c = first; c < last; ++c) {
      block[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dot[c])), scale, block[c]);
    }
  }
};

template <typename Format>
struct SmallKernel : UnpacksSmall<Format, SignedSink> {
  using Column = TileColumn<ColumnA32>;
  static constexpr int tile_columns = tile_rows;
  static constexpr bool pads_columns = true;

  static Column column(const Activations& x, std::size_t c) { return {x, c, &Activations::a32}; }

  template <int panels, int columns>
  static void multiply(const SmallPanel* p, const Column* a, std::size_t k, std::size_t weights,
                       float* sums) {
    multiply_tile<columns>(p, panels, a, k, static_cast<int>(weights / 32), sums);
  }

 private:
  template <int columns>
  [[gnu::noinline]] static void multiply_tile(const SmallPanel* panel, int panels, const Column* a,
                                              std::size_t k, int blocks, float* sums) {
    constexpr int stride = static_cast<int>(sums_stride);
    Dots dots;
    TileProducts<Format, SmallPanel> products(panel, panels, blocks, a[0], k, dots);
    for (int i = 0; i < panels; ++i, ++panel, sums += panel_rows) {
      __m512 sum[columns];
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) sum[c] = _mm512_load_ps(sums + c * stride);
      for (int s = 0; s < blocks; ++s) {
        const auto* dot = products.dots(i * blocks + s);
        products.begin();
        add_dots<0, columns / 2>(dot, *panel, s, a, k, sum);
        products.end();
        add_dots<columns / 2, columns>(dot, *panel, s, a, k, sum);
        read_ahead(a, columns, k, i * blocks + s, panels * blocks);
      }
#pragma GCC unroll 16
      for (int c = 0; c < columns; ++c) _mm512_store_ps(sums + c * stride, sum[c]);
    }
  }

  template <int first, int last, int columns>
  [[gnu::always_inline]] static inline void add_dots(const std::int32_t (*dots)[panel_rows],
                                                     const SmallPanel& p, int s, const Column* a,
                                                     std::size_t k, __m512 (&sum)[columns]) {
    const std::size_t at = k / 32 + static_cast<std::size_t>(s);
    const __m512 d = _mm512_load_ps(p.d[s]);
#pragma GCC unroll 16
    for (int c = first; c < last; ++c) {
      const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(a[c].d[at]));
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[c]));
      sum[c] = _mm512_fmadd_ps(dot, scale, sum[c]);
      if constexpr (Format::has_min) {
        sum[c] = _mm512_fmadd_ps(_mm512_load_ps(p.m[s]), _mm512_set1_ps(a[c].d_sums[at]), sum[c]);
      }
    }
  }
};

template <typename Kernel, typename Format>
void multiply_on_tiles(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                       const MatmulScratch& scratch) {
  const TileConfiguration configuration(smaller(tile_rows, x.columns()),
                                        TileTraits<Format>::weights());
  const TileRegisters registers(configuration);
  multiply_panels<Kernel>(w, x, y, y_stride, scratch);
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch) {
  const auto run_integer = [&]<typename Format>(Format) {
    multiply_on_tiles<IntegerKernel<Format>, Format>(w, x, y, y_stride, scratch);
  };
  const auto run_small = [&]<typename Format>(Format) {
    multiply_on_tiles<SmallKernel<Format>, Format>(w, x, y, y_stride, scratch);
  };
  const bool is_large = w.rows >= panel_rows && x.columns() >= fewest_columns;
  if (is_large && visit_quantised(w.type, run_integer, run_small)) return;
  MatmulKernels avx512;
  fill_matmul_avx512vnni(avx512);
  avx512.multiply(w, x, y, y_stride, scratch);
}

}  // namespace

void fill_matmul_amx(MatmulKernels& table) {
  table = {multiply, true};
}

}  // namespace sluice::kernels
