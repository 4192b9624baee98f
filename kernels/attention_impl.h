// The operations of attention.h on the lanes of one tier; included after its lanes_*.h.
//
// Two passes over the runs. The first makes all scores: a tile of queries times key rows keeps its
// sums in registers, so that a key row is loaded and converted once for the queries of the tile.
// The second adds up values: a tile of queries times slices of a value row keeps its sums in
// registers over a run. A run stays in the first-level cache while all tiles pass over it. Tiles
// differ between tiers; the operations that make one score or one output, and their order, do not.
//
// int8 rows are multiplied as they are. Between the halves of a key the sums are multiplied by the
// ratio of the two scales, and a whole score by the second scale: three more operations a score.
// Scales of values go into the probabilities. Short rows are made into floats first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/kv_rows.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

// Key rows or value slices that go with a number of heads in a tile.
constexpr int per_head(int heads) {
  const int fitting = accumulators_max / heads;
  return fitting > 4 ? 4 : fitting;
}

constexpr std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

template <typename Element>
constexpr bool has_scales = std::is_same_v<Element, std::int8_t>;

// Elements of a row before its second half.
template <bool scaled>
inline std::size_t middle_of(std::size_t size) {
  return scaled ? first_half(size) : size;
}

// A run among all: its first position is number `at`.
struct PlacedRun {
  const AttentionRun* run;
  std::size_t at;
};

// Positions [begin, end) of a run, and queries from number `first` on that see all of them.
struct Tile {
  std::size_t first, begin, end;
};

// Queries are numbered [columns][query_heads].
inline std::size_t query_count(const AttentionArgs& args) {
  return args.columns * args.query_heads;
}

inline const float* query_of(const AttentionArgs& args, const AttentionRun& run, std::size_t i) {
  return run.queries + i / args.query_heads * args.query_stride +
         i % args.query_heads * args.head_dim;
}

inline float* scores_of(const AttentionArgs& args, std::size_t i) {
  return args.scores + i * args.positions;
}

inline float* out_of(const AttentionArgs& args, std::size_t i) {
  return args.out + i / args.query_heads * args.out_stride + i % args.query_heads * args.value_dim;
}

// How many positions a query sees: of all, and of a run.
inline std::size_t seen_by(const AttentionArgs& args, std::size_t i) {
  return args.positions - (args.columns - 1 - i / args.query_heads);
}

inline std::size_t seen_by(const AttentionArgs& args, PlacedRun place, std::size_t i) {
  const std::size_t seen = seen_by(args, i);
  return seen <= place.at ? 0 : smaller(seen - place.at, place.run->positions);
}

// Elements [begin, end) of all dot products of a tile; `begin` is a multiple of 16.
template <typename Element, int heads, int rows>
[[gnu::always_inline]] inline void add_products(const float* const* query,
                                                const Element* const* key, std::size_t begin,
                                                std::size_t end, F32x16* sums) {
  const auto step = [&](std::size_t i, std::size_t count) {
    F32x16 key_part[rows];
    for (int r = 0; r < rows; ++r) key_part[r] = load(key[r] + i, count);
    for (int h = 0; h < heads; ++h) {
      const F32x16 query_part = load(query[h] + i, count);
      for (int r = 0; r < rows; ++r) {
        sums[h * rows + r] = fma(query_part, key_part[r], sums[h * rows + r]);
      }
    }
  };
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) step(i, lanes);
  if (i < end) step(i, end - i);
}

// score[position] = query . key, for a tile of `heads` queries. `ratios` are those of the scales of
// each row, and unused without scales.
template <typename Element, bool scaled, int heads>
void score_tile(const AttentionArgs& args, PlacedRun place, const Tile& tile, const float* ratios) {
  constexpr int rows = per_head(heads);
  constexpr int dots = (heads * rows + 3) / 4 * 4;
  const AttentionRun& run = *place.run;
  const auto* keys = static_cast<const Element*>(run.keys);
  const std::size_t middle = middle_of<scaled>(args.head_dim);
  const float* query[heads];
  float* scores[heads];
  for (int h = 0; h < heads; ++h) {
    query[h] = query_of(args, run, tile.first + h);
    scores[h] = scores_of(args, tile.first + h) + place.at;
  }
  for (std::size_t position = tile.begin; position < tile.end; position += rows) {
    const std::size_t present = smaller(rows, tile.end - position);
    std::size_t row[rows];  // past the end the last row again, to be computed and dropped
    const Element* key[rows];
    for (int r = 0; r < rows; ++r) {
      row[r] = position + smaller(r, present - 1);
      key[r] = keys + row[r] * args.head_dim;
    }
    F32x16 sums[dots];
    for (F32x16& s : sums) s = broadcast(0);
    add_products<Element, heads, rows>(query, key, 0, middle, sums);
    if constexpr (scaled) {
      for (int r = 0; r < rows; ++r) {
        const F32x16 ratio = broadcast(ratios[row[r]]);
        for (int h = 0; h < heads; ++h) sums[h * rows + r] = sums[h * rows + r] * ratio;
      }
      add_products<Element, heads, rows>(query, key, middle, args.head_dim, sums);
    }
    float dot[dots];
    for (int i = 0; i < dots; i += 4) sum_four(sums + i, dot + i);
    for (int h = 0; h < heads; ++h) {
      for (std::size_t r = 0; r < present; ++r) scores[h][position + r] = dot[h * rows + r];
    }
  }
}

inline void scores_to_probabilities(const AttentionArgs& args, float* scores, std::size_t size) {
  const F32x16 scale = broadcast(args.scale), cap = broadcast(args.softcap);
  const bool capped = args.softcap > 0;
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 score = load(scores + i, count) * scale;
    store(capped ? softcap(score, cap) : score, scores + i, count);
  });
  softmax(scores, size);
}

// The outputs and the probabilities of a tile of queries; the latter begin with those of the run.
template <int heads>
struct Mix {
  float* out[heads];
  const float* probabilities[heads];
};

// out[h][at ...] += probability * value over the positions of a tile, for `slices` times 16
// elements; `count` is 16, or fewer when there is only one slice. The first position of all sets
// them.
template <typename Element, int heads, int slices>
[[gnu::always_inline]] inline void mix_slices(const AttentionArgs& args, PlacedRun place,
                                              const Tile& tile, const Mix<heads>& mix,
                                              std::size_t at, std::size_t count) {
  const auto* values = static_cast<const Element*>(place.run->values) + at;
  const bool is_first = place.at + tile.begin == 0;
  F32x16 sums[heads * slices];
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      sums[h * slices + s] = is_first ? broadcast(0) : load(mix.out[h] + at + s * lanes, count);
    }
  }
  for (std::size_t p = tile.begin; p < tile.end; ++p) {
    F32x16 value[slices];
    for (int s = 0; s < slices; ++s) {
      value[s] = load(values + p * args.value_dim + s * lanes, count);
    }
    for (int h = 0; h < heads; ++h) {
      const F32x16 probability = broadcast(mix.probabilities[h][p]);
      for (int s = 0; s < slices; ++s) {
        sums[h * slices + s] = fma(probability, value[s], sums[h * slices + s]);
      }
    }
  }
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      store(sums[h * slices + s], mix.out[h] + at + s * lanes, count);
    }
  }
}

// Elements [begin, end) of the outputs.
template <typename Element, int heads>
void mix_part(const AttentionArgs& args, PlacedRun place, const Tile& tile, const Mix<heads>& mix,
              std::size_t begin, std::size_t end) {
  constexpr int slices = per_head(heads);
  std::size_t at = begin;
  for (; at + slices * lanes <= end; at += slices * lanes) {
    mix_slices<Element, heads, slices>(args, place, tile, mix, at, lanes);
  }
  for (; at + lanes <= end; at += lanes) {
    mix_slices<Element, heads, 1>(args, place, tile, mix, at, lanes);
  }
  if (at < end) mix_slices<Element, heads, 1>(args, place, tile, mix, at, end - at);
}

template <typename Element, bool scaled, int heads>
void mix_tile(const AttentionArgs& args, PlacedRun place, const Tile& tile) {
  Mix<heads> mix;
  const float* probabilities[heads];
  for (int h = 0; h < heads; ++h) {
    mix.out[h] = out_of(args, tile.first + h);
    mix.probabilities[h] = probabilities[h] = scores_of(args, tile.first + h) + place.at;
  }
  const std::size_t middle = middle_of<scaled>(args.value_dim);
  if constexpr (!scaled) {
    mix_part<Element, heads>(args, place, tile, mix, 0, middle);
  } else {
    float products[heads][attention_run_max];
    const auto scale = [&](const std::uint16_t* scales) {
      by_sixteen(tile.end, [&](std::size_t i, std::size_t count) {
        const F32x16 s = load(scales + i, count);
        for (int h = 0; h < heads; ++h) {
          store(load(probabilities[h] + i, count) * s, products[h] + i, count);
        }
      });
    };
    for (int h = 0; h < heads; ++h) mix.probabilities[h] = products[h];
    scale(place.run->value_scales);
    mix_part<Element, heads>(args, place, tile, mix, 0, middle);
    scale(place.run->value_scales + args.scale_stride);
    mix_part<Element, heads>(args, place, tile, mix, middle, args.value_dim);
  }
}

// Calls operation<n>(tile) for tiles of n queries, n as a constant, over the positions of a run
// that all of a tile see; and for each query alone over those that only it and later ones see.
template <int n = tile_heads_max, typename Operation>
void for_tiles(const AttentionArgs& args, PlacedRun place, Operation operation,
               std::size_t first = 0) {
  const std::size_t queries = query_count(args);
  for (; queries - first >= n; first += n) {
    const std::size_t common = seen_by(args, place, first);
    if (common > 0) operation.template operator()<n>(Tile{first, 0, common});
    for (std::size_t i = first + 1; i < first + n; ++i) {
      const std::size_t seen = seen_by(args, place, i);
      if (seen > common) operation.template operator()<1>(Tile{i, common, seen});
    }
  }
  if constexpr (n > 1) {
    if (first < queries) for_tiles<n - 1>(args, place, operation, first);
  }
}

// Rows of int8 or halves made into floats, once for many queries, which gives the same sums.
// `dequantise`: with their scales, for short rows.
class ExpandedRows {
 public:
  static bool fits(std::size_t positions, std::size_t size) {
    return positions * size <= floats_max;
  }
  template <typename Element>
  const float* expand(const void* rows, std::size_t positions, std::size_t size) {
    const auto* elements = static_cast<const Element*>(rows);
    by_sixteen(positions * size, [&](std::size_t i, std::size_t count) {
      store(load(elements + i, count), floats_ + i, count);
    });
    return floats_;
  }
  const float* dequantise(const void* rows, const std::uint16_t* scales, std::size_t positions,
                          std::size_t size, std::size_t scale_stride) {
    const auto* q = static_cast<const std::int8_t*>(rows);
    for (std::size_t p = 0; p < positions; ++p) {
      dequantise_row(q + p * size, size, scales + p, scale_stride, floats_ + p * size);
    }
    return floats_;
  }

 private:
  static constexpr std::size_t floats_max = 8192;  // 32 rows of 256
  static_assert(attention_run_max * short_row_max <= floats_max);
  float floats_[floats_max];
};

// From so many tiles on, rows are expanded for all of them.
constexpr std::size_t expanding_queries = 2 * tile_heads_max;

template <typename Element>
inline bool expands(const AttentionArgs& args, PlacedRun place, std::size_t size) {
  return !std::is_same_v<Element, float> && query_count(args) >= expanding_queries &&
         ExpandedRows::fits(place.run->positions, size);
}

template <typename Element, bool scaled>
void score_tiles(const AttentionArgs& args, PlacedRun place, const float* ratios) {
  for_tiles(args, place, [&]<int heads>(const Tile& tile) {
    score_tile<Element, scaled, heads>(args, place, tile, ratios);
  });
}

template <typename Element, bool scaled>
void score_expanded(const AttentionArgs& args, PlacedRun place, const float* ratios) {
  if (!expands<Element>(args, place, args.head_dim)) {
    return score_tiles<Element, scaled>(args, place, ratios);
  }
  ExpandedRows rows;
  AttentionRun expanded = *place.run;
  expanded.keys = rows.expand<Element>(expanded.keys, expanded.positions, args.head_dim);
  score_tiles<float, scaled>(args, {&expanded, place.at}, ratios);
}

inline void score_scaled(const AttentionArgs& args, PlacedRun place) {
  const AttentionRun& run = *place.run;
  float ratios[attention_run_max];
  by_sixteen(run.positions, [&](std::size_t i, std::size_t count) {
    const std::uint16_t* scales = run.key_scales + i;
    store(load(scales, count) / load(scales + args.scale_stride, count), ratios + i, count);
  });
  score_expanded<std::int8_t, true>(args, place, ratios);
  for (std::size_t i = 0; i < query_count(args); ++i) {
    float* scores = scores_of(args, i) + place.at;
    by_sixteen(seen_by(args, place, i), [&](std::size_t k, std::size_t count) {
      const F32x16 scale = load(run.key_scales + args.scale_stride + k, count);
      store(load(scores + k, count) * scale, scores + k, count);
    });
  }
}

template <typename Element>
void score_run(const AttentionArgs& args, PlacedRun place) {
  if constexpr (!has_scales<Element>) {
    score_expanded<Element, false>(args, place, nullptr);
  } else if (args.head_dim > short_row_max) {
    score_scaled(args, place);
  } else {
    ExpandedRows rows;
    AttentionRun expanded = *place.run;
    expanded.keys = rows.dequantise(expanded.keys, expanded.key_scales, expanded.positions,
                                    args.head_dim, args.scale_stride);
    score_tiles<float, false>(args, {&expanded, place.at}, nullptr);
  }
}

template <typename Element, bool scaled>
void mix_tiles(const AttentionArgs& args, PlacedRun place) {
  for_tiles(args, place, [&]<int heads>(const Tile& tile) {
    mix_tile<Element, scaled, heads>(args, place, tile);
  });
}

template <typename Element>
void mix_run(const AttentionArgs& args, PlacedRun place) {
  const bool is_short = has_scales<Element> && args.value_dim <= short_row_max;
  if (!is_short && !expands<Element>(args, place, args.value_dim)) {
    return mix_tiles<Element, has_scales<Element>>(args, place);
  }
  ExpandedRows rows;
  AttentionRun expanded = *place.run;
  if (is_short) {
    expanded.values = rows.dequantise(expanded.values, expanded.value_scales, expanded.positions,
                                      args.value_dim, args.scale_stride);
    return mix_tiles<float, false>(args, {&expanded, place.at});
  }
  expanded.values = rows.expand<Element>(expanded.values, expanded.positions, args.value_dim);
  mix_tiles<float, has_scales<Element>>(args, {&expanded, place.at});
}

// Runs lie apart in memory, where the processor does not expect the next one.
template <typename Element>
inline void prefetch_rows(const void* rows, std::size_t positions, std::size_t size) {
  constexpr std::size_t line_bytes = 64;
  const auto* bytes = static_cast<const char*>(rows);
  const std::size_t end = positions * size * sizeof(Element);
  for (std::size_t i = 0; i < end; i += line_bytes) prefetch(bytes + i);
}

// Calls pass(run, at) on every run, `at` positions from the first, and asks for the rows of the
// next one meanwhile.
template <typename Element, typename Pass>
inline void for_each_run(const AttentionArgs& args, const void* AttentionRun::*rows,
                         std::size_t size, Pass pass) {
  std::size_t at = 0;
  for (std::size_t r = 0; r < args.run_count; ++r) {
    if (r + 1 < args.run_count) {
      const AttentionRun& next = args.runs[r + 1];
      prefetch_rows<Element>(next.*rows, next.positions, size);
    }
    pass(args.runs + r, at);
    at += args.runs[r].positions;
  }
}

template <typename Element>
void attention(const AttentionArgs& args) {
  for_each_run<Element>(args, &AttentionRun::keys, args.head_dim,
                        [&](const AttentionRun* run, std::size_t at) {
                          score_run<Element>(args, {run, at});
                        });
  for (std::size_t i = 0; i < query_count(args); ++i) {
    scores_to_probabilities(args, scores_of(args, i), seen_by(args, i));
  }
  for_each_run<Element>(args, &AttentionRun::values, args.value_dim,
                        [&](const AttentionRun* run, std::size_t at) {
                          mix_run<Element>(args, {run, at});
                        });
}

inline void f32_to_f16(const float* x, std::size_t size, std::uint16_t* out) {
  by_sixteen(size,
             [&](std::size_t i, std::size_t count) { store(load(x + i, count), out + i, count); });
}

inline void fill(AttentionKernels& table) {
  table.f32 = attention<float>;
  table.f16 = attention<std::uint16_t>;
  table.int8 = attention<std::int8_t>;
  table.f32_to_f16 = f32_to_f16;
}

}  // namespace
}  // namespace sluice::kernels
