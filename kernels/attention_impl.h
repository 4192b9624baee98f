// The operations of attention.h on the lanes of one tier; included after its lanes_*.h.
//
// Two passes over the cache. The first makes all scores: a tile of query heads times key rows
// keeps its sums in registers, so that a key row is loaded and converted once for the heads of the
// tile. The second adds up values: a tile of heads times slices of a value row keeps its sums in
// registers over a run of positions. Tiles differ between tiers; the operations that make one
// score or one output, and their order, do not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

// The values of so many positions stay in the cache while all tiles pass over them.
constexpr std::size_t positions_per_run = 128;

// Key rows or value slices that go with a number of heads in a tile.
constexpr int per_head(int heads) {
  const int fitting = accumulators_max / heads;
  return fitting > 4 ? 4 : fitting;
}

constexpr std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

// One step of 16 elements of all dot products of a tile.
template <typename Element, int heads, int rows>
[[gnu::always_inline]] inline void dot_step(const float* const* query, const Element* const* key,
                                            std::size_t i, std::size_t count, F32x16* sums) {
  F32x16 key_part[rows];
  for (int r = 0; r < rows; ++r) key_part[r] = load(key[r] + i, count);
  for (int h = 0; h < heads; ++h) {
    const F32x16 query_part = load(query[h] + i, count);
    for (int r = 0; r < rows; ++r) {
      sums[h * rows + r] = fma(query_part, key_part[r], sums[h * rows + r]);
    }
  }
}

// scores[h][position] = query h . key, for a tile of heads from `first`.
template <typename Element, int heads>
void score_heads(const AttentionArgs& args, std::size_t first) {
  constexpr int rows = per_head(heads);
  constexpr int dots = (heads * rows + 3) / 4 * 4;
  const auto* keys = static_cast<const Element*>(args.keys);
  const std::size_t whole = args.head_dim / lanes * lanes;
  const float* query[heads];
  for (int h = 0; h < heads; ++h) query[h] = args.queries + (first + h) * args.head_dim;
  for (std::size_t position = 0; position < args.positions; position += rows) {
    const std::size_t present = smaller(rows, args.positions - position);
    const Element* key[rows];  // past the end the last row again, to be computed and dropped
    for (int r = 0; r < rows; ++r) {
      key[r] = keys + (position + smaller(r, present - 1)) * args.head_dim;
    }
    F32x16 sums[dots];
    for (F32x16& s : sums) s = broadcast(0);
    for (std::size_t i = 0; i < whole; i += lanes) {
      dot_step<Element, heads, rows>(query, key, i, lanes, sums);
    }
    if (whole < args.head_dim) {
      dot_step<Element, heads, rows>(query, key, whole, args.head_dim - whole, sums);
    }
    float dot[dots];
    for (int i = 0; i < dots; i += 4) sum_four(sums + i, dot + i);
    for (int h = 0; h < heads; ++h) {
      float* scores = args.scores + (first + h) * args.positions + position;
      for (std::size_t r = 0; r < present; ++r) scores[r] = dot[h * rows + r];
    }
  }
}

inline void scores_to_probabilities(const AttentionArgs& args, float* scores) {
  const F32x16 scale = broadcast(args.scale), cap = broadcast(args.softcap);
  const bool capped = args.softcap > 0;
  by_sixteen(args.positions, [&](std::size_t i, std::size_t count) {
    const F32x16 score = load(scores + i, count) * scale;
    store(capped ? softcap(score, cap) : score, scores + i, count);
  });
  softmax(scores, args.positions);
}

// Positions [begin, end) of a pass over the values.
struct Run {
  std::size_t begin, end;
};

// out[h][at ...] += probability * value over a run, for `slices` times 16 elements of a tile of
// heads; `count` is 16, or fewer when there is only one slice.
template <typename Element, int heads, int slices>
[[gnu::always_inline]] inline void mix_tile(const AttentionArgs& args, std::size_t first, Run run,
                                            std::size_t at, std::size_t count) {
  const auto* values = static_cast<const Element*>(args.values) + at;
  const float* probabilities[heads];
  for (int h = 0; h < heads; ++h) probabilities[h] = args.scores + (first + h) * args.positions;
  float* out = args.out + first * args.value_dim + at;
  F32x16 sums[heads * slices];
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      sums[h * slices + s] =
          run.begin == 0 ? broadcast(0) : load(out + h * args.value_dim + s * lanes, count);
    }
  }
  for (std::size_t p = run.begin; p < run.end; ++p) {
    F32x16 value[slices];
    for (int s = 0; s < slices; ++s)
      value[s] = load(values + p * args.value_dim + s * lanes, count);
    for (int h = 0; h < heads; ++h) {
      const F32x16 probability = broadcast(probabilities[h][p]);
      for (int s = 0; s < slices; ++s) {
        sums[h * slices + s] = fma(probability, value[s], sums[h * slices + s]);
      }
    }
  }
  for (int h = 0; h < heads; ++h) {
    for (int s = 0; s < slices; ++s) {
      store(sums[h * slices + s], out + h * args.value_dim + s * lanes, count);
    }
  }
}

template <typename Element, int heads>
void mix_heads(const AttentionArgs& args, std::size_t first, Run run) {
  constexpr int slices = per_head(heads);
  std::size_t at = 0;
  for (; at + slices * lanes <= args.value_dim; at += slices * lanes) {
    mix_tile<Element, heads, slices>(args, first, run, at, lanes);
  }
  for (; at + lanes <= args.value_dim; at += lanes) {
    mix_tile<Element, heads, 1>(args, first, run, at, lanes);
  }
  if (at < args.value_dim) {
    mix_tile<Element, heads, 1>(args, first, run, at, args.value_dim - at);
  }
}

// Calls tile<n>() with the number of heads as a constant.
template <int n, typename Tile>
void with_heads(std::size_t heads, Tile tile) {
  if (heads >= n) {
    tile.template operator()<n>();
  } else if constexpr (n > 1) {
    with_heads<n - 1>(heads, tile);
  }
}

template <typename Element>
void attention(const AttentionArgs& args) {
  for (std::size_t h = 0; h < args.query_heads; h += tile_heads_max) {
    with_heads<tile_heads_max>(args.query_heads - h,
                               [&]<int heads>() { score_heads<Element, heads>(args, h); });
  }
  for (std::size_t h = 0; h < args.query_heads; ++h) {
    scores_to_probabilities(args, args.scores + h * args.positions);
  }
  for (std::size_t p = 0; p < args.positions; p += positions_per_run) {
    const Run run = {p, smaller(p + positions_per_run, args.positions)};
    for (std::size_t h = 0; h < args.query_heads; h += tile_heads_max) {
      with_heads<tile_heads_max>(args.query_heads - h,
                                 [&]<int heads>() { mix_heads<Element, heads>(args, h, run); });
    }
  }
}

inline void f32_to_f16(const float* x, std::size_t size, std::uint16_t* out) {
  by_sixteen(size,
             [&](std::size_t i, std::size_t count) { store(load(x + i, count), out + i, count); });
}

inline void fill(AttentionKernels& table) {
  table.f32 = attention<float>;
  table.f16 = attention<std::uint16_t>;
  table.f32_to_f16 = f32_to_f16;
}

}  // namespace
}  // namespace sluice::kernels
