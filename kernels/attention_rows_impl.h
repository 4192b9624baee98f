// Attention over rows of floats or halves, and over short int8 rows converted to floats, on the
// lanes of one tier; included after its lanes_*.h. attention_impl.h loops over the runs.
//
// A tile of queries times key rows keeps its sums in registers, so that a key row is loaded and
// converted once for the queries of the tile. The same holds for a tile of queries times slices of
// value rows, over a run. A run stays in the first-level cache while all tiles are computed. The
// sizes of tiles differ between tiers; the operations that give one score or one output, and their
// order, do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <math.h>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/kv_rows.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

// How many key rows or value slices a tile with this many heads has.
constexpr int per_head(int heads) {
  const int fitting = accumulators_max / heads;
  return fitting > 4 ? 4 : fitting;
}

constexpr std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

// From the value of a position to the next, in elements.
inline std::size_t value_stride(const AttentionArgs& args) {
  return args.keys_hold_values ? args.head_dim : args.value_dim;
}

inline const void* values_of(const AttentionArgs& args, const AttentionRun& run) {
  return args.keys_hold_values ? run.keys : run.values;
}

// A run and its place among all runs: `before` positions come before it. `next` is the run after
// it; the last run is its own next. With slots, the first score of the run is number `slot` of a
// query's scores. Without, a query has scores only for positions that it sees, one after the other.
struct PlacedRun {
  const AttentionRun* run;
  std::size_t before;
  const AttentionRun* next;
  bool has_slot = false;
  std::size_t slot = 0;
};

// Positions [begin, end) of a run.
struct Positions {
  std::size_t begin, end;
  bool is_empty() const { return begin >= end; }
};

// Positions of a run, and the first of the queries of a tile, which all see these positions.
struct Tile {
  std::size_t first;
  Positions positions;
};

// Calls pass(place) for every run.
template <typename Pass>
inline void for_each_run(const AttentionArgs& args, Pass pass) {
  std::size_t before = 0;
  for (std::size_t r = 0; r < args.run_count; ++r) {
    const AttentionRun& run = args.runs[r];
    pass(PlacedRun{&run, before, args.runs + smaller(r + 1, args.run_count - 1)});
    before += run.positions;
  }
}

// Queries are numbered [columns][query_heads].
inline std::size_t query_count(const AttentionArgs& args) {
  return args.columns * args.query_heads;
}

inline std::size_t column_of(const AttentionArgs& args, std::size_t i) {
  return args.columns == 1 ? 0 : i / args.query_heads;  // avoids a slow division in decoding
}

inline const float* query_of(const AttentionArgs& args, const AttentionRun& run, std::size_t i) {
  const std::size_t column = column_of(args, i);
  return run.queries + column * args.query_stride + (i - column * args.query_heads) * args.head_dim;
}

inline float* scores_of(const AttentionArgs& args, std::size_t i) {
  return args.scores + i * args.score_stride;
}

inline float* out_of(const AttentionArgs& args, std::size_t i) {
  const std::size_t column = column_of(args, i);
  return args.out + column * args.out_stride + (i - column * args.query_heads) * args.value_dim;
}

// The sink logit of a query; -infinity, which adds nothing, if there is none.
inline float sink_logit_of(const AttentionArgs& args, std::size_t i) {
  if (args.sink_logits == nullptr) return -INFINITY;
  return args.sink_logits[i - column_of(args, i) * args.query_heads];
}

// The positions that a query sees, numbered over all runs: the sinks, and [begin, end).
struct Sight {
  std::size_t sinks, begin, end;
  std::size_t size() const { return sinks + (end - begin); }
  std::size_t first() const { return sinks > 0 ? 0 : begin; }
};

inline Sight sight_of(const AttentionArgs& args, std::size_t i) {
  const std::size_t end = args.positions - (args.columns - 1 - column_of(args, i));
  if (args.window == 0) return {0, 0, end};
  const bool has_slid = end > args.sinks + args.window;
  return {args.sinks, has_slid ? end - args.window : args.sinks, end};
}

// The positions of a run that are in sight.
inline Positions seen_of(PlacedRun place, const Sight& sight) {
  const auto within = [&](std::size_t position) {
    return position <= place.before ? 0 : smaller(position - place.before, place.run->positions);
  };
  return {place.before < sight.sinks ? 0 : within(sight.begin), within(sight.end)};
}

inline Positions seen_by(const AttentionArgs& args, PlacedRun place, std::size_t i) {
  return seen_of(place, sight_of(args, i));
}

// Whether queries [first, first + count) see part of a run. May be true although none does, if
// windows are shorter than runs.
inline bool is_seen_by(const AttentionArgs& args, PlacedRun place, std::size_t first,
                       std::size_t count) {
  return seen_by(args, place, first).begin < place.run->positions &&
         seen_by(args, place, first + count - 1).end > 0;
}

// Where the score of the first position of a run is, or would be if the query saw that position.
inline float* scores_of(const AttentionArgs& args, PlacedRun place, std::size_t i) {
  float* scores = scores_of(args, i);
  if (place.has_slot) return scores + place.slot;
  const Sight sight = sight_of(args, i);
  const std::size_t unseen = place.before < sight.sinks ? 0 : sight.begin - sight.sinks;
  return scores + (static_cast<std::ptrdiff_t>(place.before) - static_cast<std::ptrdiff_t>(unseen));
}

// All dot products of a tile.
template <typename Element, int heads, int rows>
[[gnu::always_inline]] inline void add_products(const float* const* query,
                                                const Element* const* key, std::size_t size,
                                                F32x16* sums) {
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    F32x16 key_part[rows];
    for (int r = 0; r < rows; ++r) key_part[r] = load(key[r] + i, count);
    for (int h = 0; h < heads; ++h) {
      const F32x16 query_part = load(query[h] + i, count);
      for (int r = 0; r < rows; ++r) {
        sums[h * rows + r] = fma(query_part, key_part[r], sums[h * rows + r]);
      }
    }
  });
}

// out[i] = sum(a[i]). AVX-512 has one of its own for 16 sums.
template <int count>
[[gnu::always_inline]] inline void sum_each(const F32x16 (&a)[count], float* out) {
  for (int i = 0; i < count; i += 4) sum_four(a + i, out + i);
}

// score[position] = query . key, for a tile of `heads` queries.
template <typename Element, int heads>
void score_tile(const AttentionArgs& args, PlacedRun place, const Tile& tile) {
  constexpr int rows = per_head(heads);
  constexpr int dots = (heads * rows + 3) / 4 * 4;
  const AttentionRun& run = *place.run;
  const auto* keys = static_cast<const Element*>(run.keys) + run.first * args.head_dim;
  const float* query[heads];
  float* scores[heads];
  for (int h = 0; h < heads; ++h) {
    query[h] = query_of(args, run, tile.first + h);
    scores[h] = scores_of(args, place, tile.first + h);
  }
  const auto [begin, end] = tile.positions;
  for (std::size_t position = begin; position < end; position += rows) {
    const std::size_t present = smaller(rows, end - position);
    const Element* key[rows];  // past the end the last row again; its extra scores are not stored
    for (int r = 0; r < rows; ++r) {
      key[r] = keys + (position + smaller(r, present - 1)) * args.head_dim;
    }
    F32x16 sums[dots];
    for (F32x16& s : sums) s = broadcast(0);
    add_products<Element, heads, rows>(query, key, args.head_dim, sums);
    float dot[dots];
    sum_each(sums, dot);
    for (int h = 0; h < heads; ++h) {
      float* score = scores[h] + position;
      if (present == rows) {  // a length that the compiler knows
        std::memcpy(score, dot + h * rows, rows * sizeof(float));
      } else {
        std::memcpy(score, dot + h * rows, present * sizeof(float));
      }
    }
  }
}

inline F32x16 capped(const AttentionArgs& args, F32x16 score) {
  return args.softcap > 0 ? softcap(score, broadcast(args.softcap)) : score;
}

// Applies scale and cap to sixteen products of a query with keys.
inline F32x16 finished_score(const AttentionArgs& args, F32x16 product) {
  return capped(args, product * broadcast(args.scale));
}

// The queries of a tile: their outputs, their probabilities for the positions of a run, and whether
// the first position of the tile is the first one that they see.
template <int heads>
struct MixedQueries {
  MixedQueries(const AttentionArgs& args, PlacedRun place, const Tile& tile) {
    for (int h = 0; h < heads; ++h) {
      const std::size_t i = tile.first + h;
      out[h] = out_of(args, i);
      probabilities[h] = scores_of(args, place, i);
      is_first[h] = place.before + tile.positions.begin == sight_of(args, i).first();
    }
  }

  float* out[heads];
  const float* probabilities[heads];
  bool is_first[heads];
};

// out[h][at ...] += probability * value over positions of a run, for `slices` times 16 elements.
// `count` is 16, or fewer if there is only one slice. At the first position that a query sees, out
// is set instead.
template <typename Element, int heads, int slices>
[[gnu::always_inline]] inline void mix_slices(const Element* values, std::size_t value_stride,
                                              Positions positions,
                                              const MixedQueries<heads>& queries, std::size_t at,
                                              std::size_t count) {
  F32x16 sums[heads * slices];
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      const float* out = queries.out[h] + at + s * lanes;
      sums[h * slices + s] = queries.is_first[h] ? broadcast(0) : load(out, count);
    }
  }
  for (std::size_t p = positions.begin; p < positions.end; ++p) {
    F32x16 value[slices];
    for (int s = 0; s < slices; ++s) {
      value[s] = load(values + p * value_stride + at + s * lanes, count);
    }
    for (int h = 0; h < heads; ++h) {
      const F32x16 probability = broadcast(queries.probabilities[h][p]);
      for (int s = 0; s < slices; ++s) {
        sums[h * slices + s] = fma(probability, value[s], sums[h * slices + s]);
      }
    }
  }
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      store(sums[h * slices + s], queries.out[h] + at + s * lanes, count);
    }
  }
}

template <typename Element, int heads>
void mix_tile(const AttentionArgs& args, PlacedRun place, const Tile& tile) {
  constexpr int slices = per_head(heads);
  const std::size_t dim = args.value_dim, stride = value_stride(args);
  const AttentionRun& run = *place.run;
  const auto* values = static_cast<const Element*>(values_of(args, run)) + run.first * stride;
  const MixedQueries<heads> queries(args, place, tile);
  std::size_t at = 0;
  for (; at + slices * lanes <= dim; at += slices * lanes) {
    mix_slices<Element, heads, slices>(values, stride, tile.positions, queries, at, lanes);
  }
  by_sixteen(dim - at, [&](std::size_t i, std::size_t count) {
    mix_slices<Element, heads, 1>(values, stride, tile.positions, queries, at + i, count);
  });
}

// Calls operation<n>(tile) for tiles of n queries, a compile-time constant, over the positions of a
// run that all queries of the tile see; and operation<1> for each query over the positions before
// and after these that it sees.
template <int n = tile_heads_max, typename Operation>
void for_tiles(const AttentionArgs& args, PlacedRun place, Operation operation,
               std::size_t first = 0) {
  const std::size_t queries = query_count(args);
  for (; queries - first >= n; first += n) {
    const Positions common = {seen_by(args, place, first + n - 1).begin,
                              seen_by(args, place, first).end};
    const auto alone = [&](std::size_t i, Positions positions) {
      if (!positions.is_empty()) operation.template operator()<1>(Tile{i, positions});
    };
    if (common.is_empty()) {
      for (std::size_t i = first; i < first + n; ++i) alone(i, seen_by(args, place, i));
      continue;
    }
    for (std::size_t i = first; i + 1 < first + n; ++i) {
      alone(i, {seen_by(args, place, i).begin, common.begin});
    }
    operation.template operator()<n>(Tile{first, common});
    for (std::size_t i = first + 1; i < first + n; ++i) {
      alone(i, {common.end, seen_by(args, place, i).end});
    }
  }
  if constexpr (n > 1) {
    if (first < queries) for_tiles<n - 1>(args, place, operation, first);
  }
}

// The rows of a run converted to floats, once for many queries; sums are the same. Short int8 rows
// are multiplied with their scales.
class ExpandedRows {
 public:
  static bool fits(std::size_t positions, std::size_t size) {
    return positions * size <= floats_max;
  }
  const float* expand(const std::uint16_t* rows, std::size_t positions, std::size_t size) {
    by_sixteen(positions * size, [&](std::size_t i, std::size_t count) {
      store(load(rows + i, count), floats_ + i, count);
    });
    return floats_;
  }
  const float* dequantise(const std::int8_t* page, const std::uint16_t* scales, std::size_t first,
                          std::size_t positions, std::size_t size, std::size_t scale_stride) {
    for (std::size_t p = 0; p < positions; ++p) {
      dequantise_row(page, contiguous_place(size, (first + p) * size), size, scales + first + p,
                     scale_stride, floats_ + p * size);
    }
    return floats_;
  }

 private:
  static constexpr std::size_t floats_max = 8192;  // 32 rows of 256
  static_assert(attention_run_max * short_row_max <= floats_max);
  float floats_[floats_max];
};

// With at least this many queries, rows are expanded once for all tiles.
constexpr std::size_t expanding_queries = 2 * tile_heads_max;

template <typename Element>
inline bool expands(const AttentionArgs& args, PlacedRun place, std::size_t size) {
  return std::is_same_v<Element, std::uint16_t> && query_count(args) >= expanding_queries &&
         ExpandedRows::fits(place.run->positions, size);
}

template <typename Element>
void score_tiles(const AttentionArgs& args, PlacedRun place) {
  for_tiles(args, place,
            [&]<int heads>(const Tile& tile) { score_tile<Element, heads>(args, place, tile); });
}

template <typename Element>
void mix_tiles(const AttentionArgs& args, PlacedRun place) {
  for_tiles(args, place,
            [&]<int heads>(const Tile& tile) { mix_tile<Element, heads>(args, place, tile); });
}

// The run with its keys or values (whichever are used next) replaced by floats at `rows`.
inline AttentionRun run_of_floats(AttentionRun run, const float* rows) {
  run.keys = run.values = rows;
  run.first = 0;
  return run;
}

// Computes the scores of all queries in a run whose keys are floats at `keys`.
inline void score_floats(const AttentionArgs& args, PlacedRun place, const float* keys) {
  const AttentionRun run = run_of_floats(*place.run, keys);
  place.run = &run;
  score_tiles<float>(args, place);
}

// Adds the values of a run, floats at `values`, to the outputs of all queries.
inline void mix_floats(const AttentionArgs& args, PlacedRun place, const float* values) {
  const AttentionRun run = run_of_floats(*place.run, values);
  place.run = &run;
  mix_tiles<float>(args, place);
}

// The same two for rows of floats or halves.
template <typename Element>
void score_rows(const AttentionArgs& args, PlacedRun place) {
  if (!expands<Element>(args, place, args.head_dim)) return score_tiles<Element>(args, place);
  ExpandedRows rows;
  const AttentionRun& run = *place.run;
  const auto* keys = static_cast<const std::uint16_t*>(run.keys) + run.first * args.head_dim;
  score_floats(args, place, rows.expand(keys, run.positions, args.head_dim));
}

template <typename Element>
void mix_rows(const AttentionArgs& args, PlacedRun place) {
  if (args.keys_hold_values || !expands<Element>(args, place, args.value_dim)) {
    return mix_tiles<Element>(args, place);
  }
  ExpandedRows rows;
  const AttentionRun& run = *place.run;
  const auto* values = static_cast<const std::uint16_t*>(run.values) + run.first * args.value_dim;
  mix_floats(args, place, rows.expand(values, run.positions, args.value_dim));
}

// The same two for short int8 rows.
inline void score_short_rows(const AttentionArgs& args, PlacedRun place) {
  ExpandedRows rows;
  const AttentionRun& run = *place.run;
  score_floats(args, place,
               rows.dequantise(static_cast<const std::int8_t*>(run.keys), run.key_scales, run.first,
                               run.positions, args.head_dim, args.scale_stride));
}

inline void mix_short_rows(const AttentionArgs& args, PlacedRun place) {
  ExpandedRows rows;
  const AttentionRun& run = *place.run;
  mix_floats(args, place,
             rows.dequantise(static_cast<const std::int8_t*>(run.values), run.value_scales,
                             run.first, run.positions, args.value_dim, args.scale_stride));
}

}  // namespace
}  // namespace sluice::kernels
