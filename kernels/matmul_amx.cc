// The matrix product for AMX: eight tile registers of 16 rows of 64 bytes.
//
// An unpacked panel is already in the order of the second operand of a tile product: row k / 4 of
// the tile has four neighbouring weights of each of the 16 rows of the panel. The first operand is
// 16 columns of activations. The result is 16 x 16 sums of 32 bits: a 512-bit register for each
// column. Sums are exact integers, and the float operations are those of the other tiers.
//
// Results get from a tile to vector registers only through memory, so there should be few of them.
// Therefore weights with integer scales are multiplied by these first, and each product is stored
// as two bytes. The sum over 256 weights of scale times weight times activation is then made of two
// sums of tile products, and nothing leaves the tiles in between. Cost of 16 columns, a panel and
// 256 weights: 8 products of 16 cycles each, during which the sums of the tile before are used.
//
// For weights with a float scale per 32, sums leave the tiles after each 32 weights. Those with an
// offset are unpacked as signed bytes, so that products need no correction. The AVX-512 tier
// multiplies few columns, for which tiles are too large, and floats and the formats that have no
// tile product (is_for_tiles).
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace sluice::kernels {
namespace {

// Two panels would leave no room in the first-level cache for anything else; when another thread
// uses half of the cache, they would not even fit.
constexpr int panels_at_once = 1;
constexpr bool high_bits_in_place = false;  // a scale times 240 would need more than two bytes
constexpr int float_sums = 4;               // in four parts each
constexpr bool unsigned_bytes = false;      // the tile products have all combinations of signs

}  // namespace
}  // namespace sluice::kernels

#include "kernels/amx_tiles.h"
#include "kernels/matmul_lanes_avx512.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

// Fewer columns go to the AVX-512 tier, which reads weights once for up to eight.
constexpr std::size_t fewest_columns = 9;
static_assert(fewest_columns > activation_tile / 2);  // fewer would be in a narrower tile

// Tile registers for products of `weights` weights with `columns` columns: 0 and 1 have sums, 4 and
// 5 activations, 6 and 7 weights.
inline TileConfiguration product_configuration(std::size_t columns, std::size_t weights) {
  TileConfiguration made;
  for (int tile = 0; tile < 2; ++tile) made.shape(tile, columns, panel_rows * sizeof(std::int32_t));
  for (int tile = 4; tile < 6; ++tile) made.shape(tile, columns, weights);
  for (int tile = 6; tile < 8; ++tile) made.shape(tile, weights / 4, panel_rows * 4);
  return made;
}

// Activations come in tiles of 16 columns (kernels/matmul.h). The unused columns of the last tile
// may be computed too; their results are not used.
static_assert(activation_tile == tile_rows);

// How many bytes of a block of activations the tiles need; the rest is for unsigned weights.
constexpr std::size_t used_bytes = 320;
static_assert(used_bytes == offsetof(BlockA256, minus_32_sums_of_16));
static_assert(used_bytes == offsetof(BlockA32, minus_8_sums));

// The tile of activations for columns i and up, and for weights k and up.
template <typename Block>
const Block* tile_at(const ActivationColumn<Block>* a, std::size_t i, std::size_t k) {
  return &block_at(a[i], k / k_block);
}
// The tile that is multiplied next; `count` is the total number of columns.
template <typename Block>
const Block* tile_after(const ActivationColumn<Block>* a, std::size_t i, std::size_t count,
                        std::size_t k) {
  return i + tile_rows < count ? tile_at(a, i + tile_rows, k) : tile_at(a, 0, k + k_block);
}

// Prefetches part `step` of `steps` of a tile of activations into the first-level cache, which has
// no room for all tiles. Called after each step of work, so that prefetches are spread evenly.
template <typename Block>
[[gnu::always_inline]] inline void read_ahead(const Block* tile, int columns, int step, int steps) {
  for (int c = step; c < columns; c += steps) {
    for (std::size_t at = 0; at < used_bytes; at += cache_line) {
      __builtin_prefetch(reinterpret_cast<const char*>(tile + c) + at, 0, 3);
    }
  }
}

// --- Weights times their scales ------------------------------------------------------------------

// Weights times their scales, each split into two bytes: byte[0] + (byte[1] << shift).
struct TwoByteWeights {
  I32x16 byte[2];
};

// Copies the low 16 bits of every lane to both of its halves.
inline I32x16 in_both_halves(I32x16 x) {
  return bits_or(left_32(x, 16), bits_and(x, each_dword(0xffff)));
}

// Unsigned 6-bit scales are two digits in base 8. A weight of five bits times a digit fits into a
// byte, so one 16-bit product multiplies two neighbouring weights without a carry between them.
class DigitScale {
 public:
  static constexpr int shift = 3;
  static constexpr bool is_signed = false;

  DigitScale() = default;
  explicit DigitScale(I32x16 scale)
      : low_(in_both_halves(bits_and(scale, each_dword(7)))),
        high_(in_both_halves(right_32(scale, 3))) {}

  TwoByteWeights times(I32x16 q) const {
    return {{_mm512_mullo_epi16(q, low_), _mm512_mullo_epi16(q, high_)}};
  }

 private:
  I32x16 low_, high_;
};

// Signed scales: the products, of 14 bits, are split into two signed bytes.
template <int offset>
class SplitScale {
 public:
  static constexpr int shift = 8;
  static constexpr bool is_signed = true;

  SplitScale() = default;
  explicit SplitScale(I32x16 scale) {
    const I32x16 words = in_both_halves(scale);
    of_even_ = bits_and(words, each_word(0xff));
    of_odd_ = left_16<8>(words);
    of_offset_ = _mm512_mullo_epi16(words, each_word(offset));
  }

  TwoByteWeights times(I32x16 q) const {
    const I32x16 even = product(q, of_even_), odd = product(q, of_odd_);
    const auto upper_byte = [](I32x16 x) { return _mm512_add_epi16(x, each_word(0x80)); };
    return {{bytes(even, left_16<8>(odd)), bytes(right_16<8>(upper_byte(even)), upper_byte(odd))}};
  }

 private:
  static I32x16 each_word(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  // The lower bytes of `even` and the upper ones of `odd`.
  static I32x16 bytes(I32x16 even, I32x16 odd) {
    constexpr int choose_by_first = 0xca;
    return _mm512_ternarylogic_epi32(each_word(0xff), even, odd, choose_by_first);
  }
  // The products of the even or of the odd weights: `scale` is zero for the others.
  I32x16 product(I32x16 q, I32x16 scale) const {
    return _mm512_sub_epi16(_mm512_maddubs_epi16(q, scale), of_offset_);
  }

  I32x16 of_even_, of_odd_, of_offset_;
};

struct TwoBytePanel : BlockScales {
  std::uint8_t q[2][k_block / 4][panel_rows][4];
};

template <typename Format>
class TwoByteSink {
 public:
  using Scale = std::conditional_t<Format::has_offset, SplitScale<32>, DigitScale>;

  TwoByteSink(const typename Format::Scales& scales, TwoBytePanel& panel) : panel_(panel) {
    for (int s = 0; s < sub_blocks; ++s) scales_[s] = Scale(scales.scale(s));
  }

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    const TwoByteWeights w = scales_[4 * group / Format::sub_block].times(q);
    store(panel_.q[0][group], w.byte[0]);
    store(panel_.q[1][group], w.byte[1]);
  }

 private:
  static constexpr int sub_blocks = static_cast<int>(k_block) / Format::sub_block;

  TwoBytePanel& panel_;
  Scale scales_[sub_blocks];
};

// Kernels for formats with integer scales.
template <typename Format>
struct TwoByteKernel {
  using Panel = TwoBytePanel;
  using Column = ColumnA256;

  static Column column(const Activations& x, std::size_t c) { return x.a256(c); }

  static TileConfiguration configuration(std::size_t columns) {
    return product_configuration(columns, chunk);
  }

  template <typename Rows>
  static void unpack(Rows& rows, const std::byte* data, std::size_t size, std::size_t k,
                     Panel& panel) {
    go_to<Format>(rows, data, size / k_block, k / k_block);
    const auto scales = Format::Scales::template read<Format>(rows);
    TwoByteSink<Format> sink(scales, panel);
    unpack_stages<Format>(rows, scales, sink);
    store_block_scales<Format>(scales, panel);
  }

  // While the products of a tile are computed, the sums of the tile before are used. Operands are
  // loaded one product ahead, and each product is followed by its share of the other work: a core
  // that runs two threads looks no further ahead than that.
  static void multiply_all(const Panel& p, const Column* a, std::size_t count, std::size_t k,
                           std::size_t, float* sums) {
    constexpr int products = chunks * 2, columns_at_once = int{tile_rows} / products;
    const PanelScales<Format> scales(p);
    TileSums of_tile[2];
    const BlockA256* before = nullptr;
    float* sums_before = nullptr;
    for (std::size_t i = 0; i < count; i += tile_rows) {
      const BlockA256* x = tile_at(a, i, k);
      const BlockA256* next = tile_after(a, i, count, k);
      const std::size_t turn = i / tile_rows % 2;
      const TileSums& of_before = of_tile[1 - turn];
      const auto meanwhile = [&](int t) __attribute__((always_inline)) {
        if (before != nullptr) {
          for (int c = t * columns_at_once; c < (t + 1) * columns_at_once; ++c) {
            add_column(scales, of_before, c, before[c], sums_before);
          }
        }
        read_ahead(next, tile_rows, t, products);
      };
      clear_tile<0>();
      clear_tile<1>();
      load_operands<0>(p, x);
      multiply_tile(std::make_integer_sequence<int, products>(), p, x, of_tile[turn], meanwhile);
      before = x;
      sums_before = sums + i * sums_stride;
      if (i + tile_rows < count) continue;
      for (int c = 0; c < static_cast<int>(count - i); ++c) {
        add_column(scales, of_tile[turn], c, x[c], sums_before);
      }
    }
  }

 private:
  using Scale = typename TwoByteSink<Format>::Scale;
  static constexpr int chunk = 64;  // weights of a tile
  static constexpr int chunks = static_cast<int>(k_block) / chunk;

  // The sums for both bytes of the weights.
  struct alignas(64) TileSums {
    std::int32_t of[2][tile_rows][panel_rows];
  };

  // Multiplies the block. Product t is that of chunk t / 2 and byte t % 2; meanwhile(t) is called
  // after it. A sum is stored one product after its last one, when it is complete.
  template <int... t, typename Meanwhile>
  [[gnu::always_inline]] static inline void multiply_tile(std::integer_sequence<int, t...>,
                                                          const Panel& p, const BlockA256* x,
                                                          TileSums& out,
                                                          const Meanwhile& meanwhile) {
    ((load_operands<t + 1>(p, x), add_product<t>(), meanwhile(t), store_sum<t - 1>(out)), ...);
    store_sum<sizeof...(t) - 1>(out);
  }
  template <int t>
  [[gnu::always_inline]] static inline void load_operands(const Panel& p, const BlockA256* x) {
    constexpr int byte = t % 2, n = t / 2;
    if constexpr (n < chunks) {
      if constexpr (byte == 0) load_tile<4 + n % 2>(x->q + n * chunk, sizeof *x);
      load_tile<6 + byte>(p.q[byte][n * chunk / 4], 64);
    }
  }
  // Stores a sum if product t was the last of it.
  template <int t>
  [[gnu::always_inline]] static inline void store_sum(TileSums& out) {
    constexpr int byte = t - (chunks - 1) * 2;
    if constexpr (byte >= 0) store_tile<byte>(out.of[byte]);
  }
  template <int t>
  [[gnu::always_inline]] static inline void add_product() {
    add_tile_product<Scale::is_signed, t % 2, 4 + t / 2 % 2, 6 + t % 2>();
  }

  // Adds the results of column c of a tile to the sums of that column.
  [[gnu::always_inline]] static inline void add_column(const PanelScales<Format>& scales,
                                                       const TileSums& tile, int c,
                                                       const BlockA256& x, float* sums) {
    const I32x16 low = _mm512_load_si512(tile.of[0][c]);
    const I32x16 high = _mm512_load_si512(tile.of[1][c]);
    const __m512 block = to_float(add(left_32(high, Scale::shift), low));
    finish_block_at(scales, x, block, sums + c * static_cast<int>(sums_stride));
  }
};

// --- Dot products of 32 weights ------------------------------------------------------------------

// Stores weights; those with an offset as signed bytes.
template <typename Format, typename Panel>
struct SignedSink {
  Panel& panel;
  std::size_t first_group = 0;

  [[gnu::always_inline]] inline void operator()(int, std::size_t group, I32x16 q) const {
    if constexpr (Format::has_offset) q = _mm512_sub_epi8(q, each_byte(Format::offset));
    store(panel.q[first_group + group], q);
  }
};

// How many results of tile products are kept until they are used.
constexpr int products_kept = 4;
struct alignas(64) Dots {
  std::int32_t of[products_kept][tile_rows][panel_rows];
};

// The dot products of a tile of columns with the blocks of 32 weights of a panel.
template <typename Format>
class TileProducts {
 public:
  // `dots` is not a member, so that the compiler can keep the members in registers.
  TileProducts(const SmallPanel& panel, int blocks, const BlockA32* x, Dots& dots)
      : panel_(panel), blocks_(blocks), x_(x), dots_(dots) {
    for (int t = 0; t < ahead; ++t) {
      begin();
      if (t > 0) end();
    }
  }

  // Starts the product that will be used `ahead` products later.
  [[gnu::always_inline]] inline void begin() {
    if (begun_ == blocks_) return;
    if (begun_ % 2 == 0) {
      begin_in<0>();
    } else {
      begin_in<1>();
    }
    ++begun_;
  }

  // Stores the oldest product that has been started and not stored.
  [[gnu::always_inline]] inline void end() {
    if (ended_ == blocks_) return;
    if (ended_ % 2 == 0) {
      store_tile<0>(dots_.of[ended_ % products_kept]);
    } else {
      store_tile<1>(dots_.of[ended_ % products_kept]);
    }
    ++ended_;
  }

  // The results of product t: [column][row of the panel].
  [[gnu::always_inline]] inline const std::int32_t (*dots(int t) const)[panel_rows] {
    return dots_.of[t % products_kept];
  }

 private:
  template <int odd>
  [[gnu::always_inline]] inline void begin_in() {
    load_tile<4 + odd>(x_->q + 32 * begun_, sizeof *x_);
    load_tile<6 + odd>(panel_.q[8 * begun_], 64);
    clear_tile<odd>();
    add_tile_product<!Format::has_min, odd, 4 + odd, 6 + odd>();
  }

  // How many products are started ahead of the one that is used.
  static constexpr int ahead = 4;
  static_assert(ahead <= products_kept);

  const SmallPanel& panel_;
  int blocks_;
  const BlockA32* x_;
  int begun_ = 0, ended_ = 0;
  Dots& dots_;
};

// Kernels for formats with a float scale per 32.
template <typename Format>
struct SmallKernel : UnpacksSmall<Format, SignedSink> {
  using Column = ColumnA32;

  static Column column(const Activations& x, std::size_t c) { return x.a32(c); }

  static TileConfiguration configuration(std::size_t columns) {
    return product_configuration(columns, 32);
  }

  // If at most half of the last tile is used, only half of it is computed.
  static void multiply_all(const SmallPanel& p, const Column* a, std::size_t count, std::size_t k,
                           std::size_t weights, float* sums) {
    for (std::size_t i = 0; i < count; i += tile_rows, sums += tile_rows * sums_stride) {
      const auto multiply =
          count - i > tile_rows / 2 ? multiply_tile<tile_rows> : multiply_tile<tile_rows / 2>;
      multiply(p, tile_at(a, i, k), tile_after(a, i, count, k), static_cast<int>(weights) / 32,
               sums);
    }
  }

 private:
  template <int columns>
  [[gnu::noinline]] static void multiply_tile(const SmallPanel& panel, const BlockA32* x,
                                              const BlockA32* next, int blocks, float* sums) {
    constexpr int stride = static_cast<int>(sums_stride);
    Dots dots;
    TileProducts<Format> products(panel, blocks, x, dots);
    __m512 sum[columns];
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) sum[c] = _mm512_load_ps(sums + c * stride);
    for (int s = 0; s < blocks; ++s) {
      const auto* dot = products.dots(s);
      products.begin();
      add_dots<0, columns / 2>(dot, panel, s, x, sum);
      products.end();
      add_dots<columns / 2, columns>(dot, panel, s, x, sum);
      read_ahead(next, columns, s, blocks);
    }
#pragma GCC unroll 16
    for (int c = 0; c < columns; ++c) _mm512_store_ps(sums + c * stride, sum[c]);
  }

  template <int first, int last, int columns>
  [[gnu::always_inline]] static inline void add_dots(const std::int32_t (*dots)[panel_rows],
                                                     const SmallPanel& p, int s, const BlockA32* x,
                                                     __m512 (&sum)[columns]) {
    const __m512 d = _mm512_load_ps(p.d[s]);
#pragma GCC unroll 16
    for (int c = first; c < last; ++c) {
      const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x[c].d[s]));
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[c]));
      sum[c] = _mm512_fmadd_ps(dot, scale, sum[c]);
      if constexpr (Format::has_min) {
        sum[c] = _mm512_fmadd_ps(_mm512_load_ps(p.m[s]), _mm512_set1_ps(x[c].d_sums[s]), sum[c]);
      }
    }
  }
};

template <typename Kernel>
void multiply_on_tiles(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                       const MatmulScratch& scratch, const Prefetch& prefetch) {
  const TileRegisters registers(Kernel::configuration(smaller(tile_rows, x.columns())));
  multiply_panels<Kernel>(w, x, y, y_stride, scratch, prefetch);
}

void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch, const CorePolicy& policy) {
  const Prefetch& prefetch = policy.prefetch.for_columns(x.columns());
  bool is_done = false;
  if (w.rows >= panel_rows && x.columns() >= fewest_columns) {
    visit_format(w.type, [&]<typename Format>(Format) {
      if constexpr (form_of<Format>() != ActivationForm::f32) {
        if constexpr (Format::is_for_tiles) {
          using Kernel = std::conditional_t<form_of<Format>() == ActivationForm::a256,
                                            TwoByteKernel<Format>, SmallKernel<Format>>;
          multiply_on_tiles<Kernel>(w, x, y, y_stride, scratch, prefetch);
          is_done = true;
        }
      }
    });
  }
  if (is_done) return;
  MatmulKernels avx512;
  fill_matmul_avx512vbmi(avx512);
  avx512.kernel(w, x, y, y_stride, scratch, policy);
}

}  // namespace

void fill_matmul_amx(MatmulKernels& table) {
  table = {multiply, true};
}

}  // namespace sluice::kernels
