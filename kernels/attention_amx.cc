// Attention over pages of long int8 rows with the tile registers of AMX.
//
// A set of eight queries fills the 16 rows of a tile. Each word of a query is split into two signed
// bytes; eight rows have the upper bytes of the queries, the other eight the lower ones. Pages are
// already in the order of a second operand. The sum of a query is 256 times the sum of its upper
// bytes plus the sum of its lower ones: the same integers as in the other tiers, and the same float
// operations after that.
//
// Scores leave the tiles after each page. Sums of values stay in the tiles over all pages: 64
// elements of half a row are four tiles. Other shapes, and too few queries for tiles to be faster,
// go to the AVX-512 tier.
// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_avx512.h"
#include "kernels/attention_impl.h"
// clang-format on

#include <utility>

#include "kernels/amx_tiles.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t set_size = tile_rows / 2;
constexpr std::size_t fewest_queries = 3;
constexpr std::size_t tile_depth = 64;  // elements of a key in a product
constexpr std::size_t row_max = 512;
constexpr std::size_t slices_max = 4;  // tiles of sums of values

// Whether the halves of a row of `size` elements fill whole tiles.
constexpr bool fits_tiles(std::size_t size) {
  return size % 32 == 0 && size <= row_max &&
         (size / 2 <= tile_depth || size / 2 % tile_depth == 0);
}

// Queries [first, first + count), count at most set_size.
struct QuerySet {
  std::size_t first, count;
};

// Splits sixteen words into signed bytes: a word is 256 times the upper one and the lower one.
inline void store_two_bytes(I32x16 words, std::int8_t* upper, std::int8_t* lower) {
  const __m512i rounded = _mm512_add_epi32(words.v, _mm512_set1_epi32(128));
  store(I32x16{_mm512_srai_epi32(rounded, 8)}, upper);
  store(words, lower);  // its lowest byte
}

// The same for words that store_words() has stored.
inline void take_apart(const std::int16_t* words, std::int8_t* upper, std::int8_t* lower) {
  const __m256i stored = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  store_two_bytes({_mm512_cvtepi16_epi32(exchanged(stored))}, upper, lower);
}

// The sums of query `q` of a set.
inline F32x16 sum_of(const std::int32_t (&sums)[tile_rows][lanes], std::size_t q) {
  const __m512i upper = _mm512_load_si512(sums[q]), lower = _mm512_load_si512(sums[q + set_size]);
  return to_float({_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower)});
}

// Prefetches the q-th of set.count equal parts of some bytes.
inline void prefetch_share(const AttentionArgs& args, const std::int8_t* bytes, std::size_t size,
                           QuerySet set, std::size_t q) {
  constexpr std::size_t line_bytes = 64;
  const std::size_t lines = size / line_bytes;
  for (std::size_t i = q * lines / set.count; i < (q + 1) * lines / set.count; ++i) {
    ask_for(args, bytes + i * line_bytes);
  }
}

// The scores of a set. Tile registers: 0 to 3 sums [half][vector of positions], 4 and 5 the queries
// of a half, 6 and 7 keys.
class ScoreTiles {
 public:
  ScoreTiles(const AttentionArgs& args, QuerySet set)
      : args_(args),
        set_(set),
        depth_(smaller(args.head_dim / 2, tile_depth)),
        parts_(args.head_dim / 2 / depth_),
        registers_(configuration(depth_)) {
    for (std::size_t q = 0; q < set.count; ++q) {
      scores_[q] = scores_of(args, set.first + q);
      scales_[q] = integers_of(args, set.first + q).scales;
      sights_[q] = sight_of(args, set.first + q);
    }
  }

  void run() {
    const float* queries = nullptr;
    for_each_slot(args_, [&](PlacedRun place) {
      if (place.run->queries != queries) quantise(*place.run);
      queries = place.run->queries;
      ask_for_scales(args_, place);
      if (is_seen_by(args_, place, set_.first, set_.count)) multiply(place);
      if (args_.softcap <= 0 && see_whole_slot(args_, place, set_.first, set_.count)) return;
      for (std::size_t q = 0; q < set_.count; ++q) {
        finish_slot(args_, place, scores_[q] + slot_begin(place), sights_[q], true);
      }
    });
  }

 private:
  static TileConfiguration configuration(std::size_t depth) {
    TileConfiguration made;
    for (int tile = 0; tile < 4; ++tile) made.shape(tile, tile_rows, sizeof(sums_[0][0][0]));
    for (int tile = 4; tile < 6; ++tile) made.shape(tile, tile_rows, depth);
    for (int tile = 6; tile < 8; ++tile) made.shape(tile, depth / 4, 4 * lanes);
    return made;
  }

  void quantise(const AttentionRun& run) {
    for (std::size_t q = 0; q < set_.count; ++q) {
      quantise_query(args_, run, set_.first + q);
      const std::int16_t* words = integers_of(args_, set_.first + q).words;
      for (std::size_t i = 0; i < args_.head_dim; i += lanes) {
        auto& part = queries_[i / depth_];
        take_apart(words + i, part[q] + i % depth_, part[q + set_size] + i % depth_);
      }
    }
  }

  template <std::size_t half>
  void multiply_half(const AttentionRun& run) {
    constexpr std::size_t group_bytes = 4 * slot_size;
    constexpr int sums = 2 * half, query = 4 + half;
    clear_tile<sums>();
    clear_tile<sums + 1>();
    for (std::size_t p = half * parts_; p < (half + 1) * parts_; ++p) {
      const auto* keys = static_cast<const std::int8_t*>(run.keys) + p * depth_ / 4 * group_bytes;
      load_tile<query>(queries_[p], tile_depth);
      load_tile<6>(keys, group_bytes);
      load_tile<7>(keys + 4 * lanes, group_bytes);
      add_tile_product<true, sums, query, 6>();
      add_tile_product<true, sums + 1, query, 7>();
    }
  }

  void multiply(PlacedRun place) {
    multiply_half<0>(*place.run);
    multiply_half<1>(*place.run);
    store_tile<0>(sums_[0][0]);
    store_tile<1>(sums_[0][1]);
    store_tile<2>(sums_[1][0]);
    store_tile<3>(sums_[1][1]);
    F32x16 key_scales[2][slot_vectors];
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t v = 0; v < slot_vectors; ++v) {
        key_scales[half][v] =
            load(place.run->key_scales + half * args_.scale_stride + v * lanes, lanes);
      }
    }
    const auto* next = static_cast<const std::int8_t*>(place.next->keys);
    for (std::size_t q = 0; q < set_.count; ++q) {
      prefetch_share(args_, next, args_.head_dim * slot_size, set_, q);
      float* slot = scores_[q] + slot_begin(place);
      for (std::size_t v = 0; v < slot_vectors; ++v) {
        const F32x16 first = key_scales[0][v] * broadcast(scales_[q][0]);
        const F32x16 second = key_scales[1][v] * broadcast(scales_[q][1]);
        const F32x16 product = sum_of(sums_[0][v], q) * first;
        store(fma(sum_of(sums_[1][v], q), second, product), slot + v * lanes, lanes);
      }
    }
  }

  const AttentionArgs& args_;
  QuerySet set_;
  std::size_t depth_, parts_;  // a half row is parts_ tiles of depth_ elements
  // Of each query of the set.
  float* scores_[set_size];
  const float* scales_[set_size];
  Sight sights_[set_size];
  TileRegisters registers_;
  // [part][upper bytes of each query, then lower bytes of each query][element]
  alignas(64) std::int8_t queries_[row_max / tile_depth][tile_rows][tile_depth] = {};
  alignas(64) std::int32_t sums_[2][slot_vectors][tile_rows][lanes];
};

// The outputs of a set. Tile registers: 0 to 3 sums of 16 elements each, 4 probabilities, 6 and 7
// values.
class MixTiles {
 public:
  MixTiles(const AttentionArgs& args, QuerySet set)
      : args_(args), set_(set), registers_(configuration()) {
    const std::size_t end = sight_of(args, set.first + set.count - 1).end;
    for (std::size_t before = 0; run_count_ < args.run_count && before < end; ++run_count_) {
      before += args.runs[run_count_].positions;
    }
  }

  void run() {
    const std::size_t half_size = args_.value_dim / 2;
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t at = 0; at < half_size; at += slices_max * lanes) {
        switch (smaller(slices_max, (half_size - at) / lanes)) {
          case 1:
            mix<1>(half, at);
            break;
          case 2:
            mix<2>(half, at);
            break;
          case 3:
            mix<3>(half, at);
            break;
          default:
            mix<slices_max>(half, at);
        }
      }
    }
  }

 private:
  static TileConfiguration configuration() {
    TileConfiguration made;
    for (int tile = 0; tile < 4; ++tile) made.shape(tile, tile_rows, sizeof(sums_[0][0]));
    made.shape(4, tile_rows, slot_size);
    for (int tile = 6; tile < 8; ++tile) made.shape(tile, slot_size / 4, 4 * lanes);
    return made;
  }

  // Gathers the probabilities of a run: the upper bytes of each query, then the lower ones.
  void gather(std::size_t run, std::size_t half) {
    auto& to = probabilities_[run % 2];
    for (std::size_t q = 0; q < set_.count; ++q) {
      float* slot = scores_of(args_, set_.first + q) + run * slot_size;
      const auto* bytes = reinterpret_cast<const __m256i*>(words_of(slot, half));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to[q]), _mm256_loadu_si256(bytes));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to[q + set_size]),
                         _mm256_loadu_si256(bytes + 1));
    }
  }

  // Computes elements [at, at + 16 * slices) of a half of the outputs.
  template <std::size_t slices>
  void mix(std::size_t half, std::size_t at) {
    const std::size_t half_size = args_.value_dim / 2, group_bytes = 4 * half_size;
    const std::size_t offset = half * half_size * slot_size + 4 * at;
    for_slices<slices>([]<std::size_t s>() { clear_tile<s>(); });
    gather(0, half);
    for (std::size_t r = 0; r < run_count_; ++r) {
      const auto* values = static_cast<const std::int8_t*>(args_.runs[r].values) + offset;
      load_tile<4>(probabilities_[r % 2], slot_size);
      for_slices<slices>([&]<std::size_t s>() {
        load_tile<6 + s % 2>(values + 4 * lanes * s, group_bytes);
        add_tile_product<true, s, 4, 6 + s % 2>();
      });
      if (r + 1 == run_count_) break;
      gather(r + 1, half);  // early, so that its stores are done when a tile is loaded from there
      const auto* next = static_cast<const std::int8_t*>(args_.runs[r + 1].values) + offset;
      for (std::size_t group = 0; group < slot_size / 4; ++group) {
        for (std::size_t s = 0; s < slices; ++s) {
          ask_for(args_, next + group * group_bytes + 4 * lanes * s);
        }
      }
    }
    for_slices<slices>([&]<std::size_t s>() { store_tile<s>(sums_[s]); });
    for (std::size_t q = 0; q < set_.count; ++q) {
      const F32x16 scale = broadcast(integers_of(args_, set_.first + q).scales[half]);
      float* out = out_of(args_, set_.first + q) + half * half_size + at;
      for (std::size_t s = 0; s < slices; ++s) {
        store(sum_of(sums_[s], q) * scale, out + s * lanes, lanes);
      }
    }
  }

  template <std::size_t slices, typename Operation>
  static void for_slices(Operation operation) {
    [&]<std::size_t... s>(std::index_sequence<s...>) {
      (operation.template operator()<s>(), ...);
    }
    (std::make_index_sequence<slices>());
  }

  const AttentionArgs& args_;
  QuerySet set_;
  std::size_t run_count_ = 0;  // runs that the set sees
  TileRegisters registers_;
  alignas(64) std::int8_t probabilities_[2][tile_rows][slot_size] = {};
  alignas(64) std::int32_t sums_[slices_max][tile_rows][lanes];
};

void attention_tiles(const AttentionArgs& args) {
  const std::size_t queries = query_count(args);
  if (queries < fewest_queries || args.keys_hold_values || !fits_tiles(args.head_dim) ||
      !fits_tiles(args.value_dim)) {
    return attention_int8(args);
  }
  for (std::size_t first = 0; first < queries; first += set_size) {
    const QuerySet set = {first, smaller(set_size, queries - first)};
    ScoreTiles(args, set).run();
    for (std::size_t i = first; i < first + set.count; ++i) {
      const float total =
          exponentials(scores_of(args, i), args.run_count * slot_size, sink_logit_of(args, i));
      // In the order of the tiles: for a half of the values the upper bytes, then the lower ones.
      pack_probabilities(args, i, total,
                         [](I32x16 words, float* slot, std::size_t half, std::size_t v) {
                           auto* bytes = reinterpret_cast<std::int8_t*>(words_of(slot, half));
                           bytes += v * lanes;
                           store_two_bytes(words, bytes, bytes + slot_size);
                         });
    }
    MixTiles(args, set).run();
  }
}

}  // namespace

void fill_attention_amx(AttentionKernels& table) {
  table.int8 = attention_tiles;
}

}  // namespace sluice::kernels
