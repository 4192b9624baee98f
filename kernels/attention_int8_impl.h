// Attention over pages of long int8 rows, on the lanes of one tier; included after its lanes_*.h.
//
// All products are of integers: keys and values as they are stored, queries and probabilities as
// words of 16 bits. Sums of 32 bits are exact, so their order does not matter. A lane has the sum
// of one position (keys) or of one element (values). kernels/kv_rows.h describes the order of a
// page; 32 bytes of it are eight lanes.
//
// A query has one scale for each half of a row, max|q| / 32639. Probabilities are first multiplied
// by the scales of the values; the products have one scale for each half, max / 32639. If attention
// is spread over many positions the scale is larger, so that the sum over all of them stays below
// 2^23. That sum times 127, the largest value, is below 2^31 even after rounding. (32639 is the
// largest number of two signed bytes, 256 * 127 + 127, which attention_amx.cc uses.)
//
// The scores of a query lie in slots of 32, one slot for each run. Scores of positions that the
// query does not see are -infinity. Later a slot has the probabilities as words instead: 32 for the
// first half of the values and 32 for the second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>
#include <utility>

#include "kernels/attention_rows_impl.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t slot_size = kv_page_positions;
constexpr std::size_t slot_vectors = slot_size / lanes;

constexpr float word_max = 32639;
constexpr float byte_limit = 128;  // magnitude of any byte, also in parts of a page not yet written
constexpr float probabilities_limit = 0x1p23f;

// How many elements of a key its first scale is for.
inline std::size_t first_part(const AttentionArgs& args) {
  return args.keys_hold_values ? args.value_dim : first_half(args.head_dim);
}

// The index of the first score of a slot in the scores of a query.
inline std::size_t slot_begin(PlacedRun place) {
  return place.slot - place.run->first;
}

// The words in a slot for one half of the values.
inline std::int16_t* words_of(float* slot, std::size_t half) {
  return reinterpret_cast<std::int16_t*>(slot) + half * slot_size;
}

// What follows the scores of a query in its scratch.
struct IntegerScratch {
  std::int16_t* words;  // the query
  float* scales;        // for each half of the query, later of the outputs
};

inline IntegerScratch integers_of(const AttentionArgs& args, std::size_t i) {
  float* after = scores_of(args, i) + args.run_count * slot_size;
  const std::size_t words = (args.head_dim + lanes - 1) / lanes * lanes;
  return {reinterpret_cast<std::int16_t*>(after), after + words / 2};
}

// How many steps 1 has if `largest` has `most` steps. 0 if `largest` is 0, below about 2^-112, or
// NaN.
inline float steps_for(float largest, float most) {
  const float steps = most / largest;
  return largest > 0 && steps < INFINITY ? steps : 0;
}

// The size of a step: 1 / steps, or 0 for 0 steps. NaN if `largest` is infinite or NaN, so that
// products with it show that something is wrong.
inline float step_for(float largest, float steps) {
  return steps > 0 ? 1 / steps : largest * 0;
}

// Quantises elements [begin, end) of a query.
inline void quantise_half(const AttentionArgs& args, const float* query, std::size_t begin,
                          std::size_t end, const IntegerScratch& integers, std::size_t half) {
  F32x16 top = broadcast(0);
  by_sixteen(end - begin, [&](std::size_t i, std::size_t count) {
    top = max_or_nan(abs(load(query + begin + i, count)), top);
  });
  const float products_max = 0x1.fffffep30f / (byte_limit * static_cast<float>(end - begin));
  const float most = products_max < word_max ? ::floorf(products_max) : word_max;
  const float largest = largest_or_nan(top), steps = steps_for(largest, most);
  by_sixteen(end - begin, [&](std::size_t i, std::size_t count) {
    const F32x16 words = load(query + begin + i, count) * broadcast(steps);
    store_words(round_to_int(words), integers.words + begin + i);
  });
  integers.scales[half] = args.scale * step_for(largest, steps);
}

inline void quantise_query(const AttentionArgs& args, const AttentionRun& run, std::size_t i) {
  const std::size_t middle = first_part(args);
  const float* query = query_of(args, run, i);
  const IntegerScratch integers = integers_of(args, i);
  quantise_half(args, query, 0, middle, integers, 0);
  quantise_half(args, query, middle, args.head_dim, integers, 1);
}

// Asks for a line of the next page.
inline void ask_for(const AttentionArgs& args, const void* line) {
  if (args.prefetch_into == CacheLevel::l1) {
    prefetch(line);
  } else {
    prefetch_far(line);
  }
}

// Sums of a tile: of each head, vectors of sixteen lanes.
template <int heads, int vectors>
using TileSums = I32x16[heads][vectors];

// sums[i] += the products of one part of the bytes of group i % vectors with the four words at
// words[i / vectors] + at. One part of all comes before the next, so that sixteen registers are
// enough for eight sums.
template <int part, int heads, int vectors, int... i>
[[gnu::always_inline]] inline void add_parts(std::integer_sequence<int, i...>,
                                             GroupSums (&sums)[heads * vectors],
                                             const ByteGroup (&groups)[vectors],
                                             const std::int16_t* const (&words)[heads],
                                             std::size_t at) {
  GroupPart parts[vectors];
#pragma GCC unroll 2
  for (int v = 0; v < vectors; ++v) parts[v] = part_of<part>(groups[v]);
  (add_part<part>(sums[i], parts[i % vectors], words[i / vectors] + at), ...);
}

// result[head] += the products of each head's words with `groups` rows. A row has four bytes for
// each lane of the vectors; of the last vector `count` lanes are used. Rows are `stride` bytes
// apart. Asks for the rows at `next` meanwhile. i... are the numbers of the sums, as constants: GCC
// 12 does not keep sums in registers that loops count.
template <int heads, int vectors, int... i>
[[gnu::always_inline]] inline void add_groups(std::integer_sequence<int, i...>,
                                              const AttentionArgs& args, const std::int8_t* bytes,
                                              std::size_t stride, std::size_t groups,
                                              std::size_t count, const std::int8_t* next,
                                              const std::int16_t* const (&words)[heads],
                                              TileSums<heads, vectors>& result) {
  constexpr std::integer_sequence<int, i...> each;
  GroupSums sums[] = {begin_sums(result[i / vectors][i % vectors])...};
  for (std::size_t group = 0; group < groups; ++group, bytes += stride, next += stride) {
    ByteGroup four[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      ask_for(args, next + 4 * lanes * v);
      four[v] = load_group(bytes + 4 * lanes * v, v + 1 < vectors ? lanes : count);
    }
    add_parts<0, heads, vectors>(each, sums, four, words, 4 * group);
    if constexpr (group_parts == 2) {
      add_parts<1, heads, vectors>(each, sums, four, words, 4 * group);
    }
  }
  ((result[i / vectors][i % vectors] = total(sums[i], result[i / vectors][i % vectors])), ...);
}

template <int heads, int vectors>
[[gnu::always_inline]] inline void add_groups(const AttentionArgs& args, const std::int8_t* bytes,
                                              std::size_t stride, std::size_t groups,
                                              std::size_t count, const std::int8_t* next,
                                              const std::int16_t* const (&words)[heads],
                                              TileSums<heads, vectors>& result) {
  add_groups<heads, vectors>(std::make_integer_sequence<int, heads * vectors>(), args, bytes,
                             stride, groups, count, next, words, result);
}

// Products of `heads` queries from number `first` on with the keys of some positions of a page,
// those from vector `v` on, whether or not these are written or seen.
template <int heads>
[[gnu::always_inline]] inline void score_page_tile(const AttentionArgs& args, PlacedRun place,
                                                   std::size_t first, std::size_t v) {
  constexpr int vectors = integer_tile_vectors;
  constexpr std::size_t group_bytes = 4 * slot_size;
  const AttentionRun& run = *place.run;
  const std::size_t borders[] = {0, first_part(args), args.head_dim};
  const std::int16_t* words[heads];
  const float* query_scales[heads];
  float* scores[heads];
  for (int h = 0; h < heads; ++h) {
    const IntegerScratch integers = integers_of(args, first + h);
    words[h] = integers.words;
    query_scales[h] = integers.scales;
    scores[h] = scores_of(args, first + h) + slot_begin(place) + v * lanes;
  }
  for (std::size_t half = 0; half < 2; ++half) {
    const std::size_t begin = borders[half];
    TileSums<heads, vectors> sums;
    for (I32x16(&of_head)[vectors] : sums) {
      for (I32x16& sum : of_head) sum = broadcast_int(0);
    }
    const std::size_t at = begin / 4 * group_bytes + v * 4 * lanes;
    add_groups<heads, vectors>(args, static_cast<const std::int8_t*>(run.keys) + at, group_bytes,
                               (borders[half + 1] - begin + 3) / 4, lanes,
                               static_cast<const std::int8_t*>(place.next->keys) + at, words, sums);
    F32x16 key_scales[vectors];
    for (std::size_t i = 0; i < vectors; ++i) {
      key_scales[i] = load(run.key_scales + half * args.scale_stride + (v + i) * lanes, lanes);
    }
#pragma GCC unroll 8
    for (int h = 0; h < heads; ++h) {
      const F32x16 query_scale = broadcast(query_scales[h][half]);
#pragma GCC unroll 2
      for (std::size_t i = 0; i < vectors; ++i) {
        const F32x16 scale = key_scales[i] * query_scale, sum = to_float(sums[h][i]);
        float* to = scores[h] + i * lanes;
        store(half == 0 ? sum * scale : fma(sum, scale, load(to, lanes)), to, lanes);
      }
    }
    for (const std::int16_t*& of_head : words) of_head += borders[1];
  }
}

// Calls operation<n>(first) for tiles of n queries that see part of a run. n is a compile-time
// constant.
template <int n = integer_tile_heads, typename Operation>
void for_query_tiles(const AttentionArgs& args, PlacedRun place, Operation operation,
                     std::size_t first = 0) {
  const std::size_t queries = query_count(args);
  for (; queries - first >= n; first += n) {
    if (is_seen_by(args, place, first, n)) operation.template operator()<n>(first);
  }
  if constexpr (n > 1) {
    if (first < queries) for_query_tiles<n - 1>(args, place, operation, first);
  }
}

// The lane in vector v of a position of a slot, clamped to 0..16.
inline std::size_t within(std::size_t position, std::size_t v) {
  return position <= v * lanes ? 0 : smaller(position - v * lanes, lanes);
}

// The positions of a slot that a query sees.
inline Positions seen_in_slot(PlacedRun place, const Sight& sight) {
  const Positions seen = seen_of(place, sight);
  return {place.run->first + seen.begin, place.run->first + seen.end};
}

inline bool is_whole_slot(Positions seen) {
  return seen.begin == 0 && seen.end == slot_size;
}

// Whether queries [first, first + count) all see a whole slot: the first one sees least of the
// newest positions, the last one least of the oldest.
inline bool see_whole_slot(const AttentionArgs& args, PlacedRun place, std::size_t first,
                           std::size_t count) {
  return is_whole_slot(seen_in_slot(place, sight_of(args, first))) &&
         is_whole_slot(seen_in_slot(place, sight_of(args, first + count - 1)));
}

// Finishes the scores of a query in a slot: applies scale and cap, and sets the scores of positions
// that it does not see to -infinity. With long keys the scale has been applied already.
inline void finish_slot(const AttentionArgs& args, PlacedRun place, float* slot, const Sight& sight,
                        bool are_long) {
  const Positions seen = seen_in_slot(place, sight);
  for (std::size_t v = 0; v < slot_vectors; ++v) {
    float* scores = slot + v * lanes;
    F32x16 score = load(scores, lanes);
    score = are_long ? capped(args, score) : finished_score(args, score);
    store(keep(score, within(seen.begin, v), within(seen.end, v), -INFINITY), scores, lanes);
  }
}

// The scales of the values of a run, for one half of them.
inline const std::uint16_t* value_scales_of(const AttentionArgs& args, const AttentionRun& run,
                                            std::size_t half) {
  return args.keys_hold_values ? run.key_scales : run.value_scales + half * args.scale_stride;
}

// Asks for the scales of the next page, each of whose halves is a line.
inline void ask_for_scales(const AttentionArgs& args, PlacedRun place) {
  for (std::size_t half = 0; half < 2; ++half) {
    ask_for(args, place.next->key_scales + half * args.scale_stride);
    ask_for(args, value_scales_of(args, *place.next, half));
  }
}

// Computes the scores of all queries in a run.
inline void score_page(const AttentionArgs& args, PlacedRun place, bool are_long) {
  ask_for_scales(args, place);
  if (are_long) {
    for_query_tiles(args, place, [&]<int heads>(std::size_t first) {
      for (std::size_t v = 0; v < slot_vectors; v += integer_tile_vectors) {
        score_page_tile<heads>(args, place, first, v);
      }
    });
  } else {
    score_short_rows(args, place);
  }
  const std::size_t queries = query_count(args);
  if (are_long && args.softcap <= 0 && see_whole_slot(args, place, 0, queries)) return;
  for (std::size_t i = 0; i < queries; ++i) {
    finish_slot(args, place, scores_of(args, i) + slot_begin(place), sight_of(args, i), are_long);
  }
}

// Calls pass(place) for every run; the place has a slot.
template <typename Pass>
inline void for_each_slot(const AttentionArgs& args, Pass pass) {
  for_each_run(args, [&](PlacedRun place) {
    place.has_slot = true;
    place.slot = static_cast<std::size_t>(place.run - args.runs) * slot_size + place.run->first;
    pass(place);
  });
}

// Calls operation(slot, scales) for every slot of a query. scales [half][vector] are those of the
// values; they are 0 at positions that the query does not see.
template <typename Operation>
inline void for_value_scales(const AttentionArgs& args, std::size_t i, Operation operation) {
  const Sight sight = sight_of(args, i);
  for_each_slot(args, [&](PlacedRun place) {
    const Positions seen = seen_in_slot(place, sight);
    F32x16 scales[2][slot_vectors];
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t v = 0; v < slot_vectors; ++v) {
        scales[half][v] = load(value_scales_of(args, *place.run, half) + v * lanes, lanes);
        if (is_whole_slot(seen)) continue;
        scales[half][v] = keep(scales[half][v], within(seen.begin, v), within(seen.end, v), 0);
      }
    }
    operation(scores_of(args, i) + slot_begin(place), scales);
  });
}

// Multiplies the probabilities of a query, whose sum is `total`, by the scales of the values and
// rounds the products to words: keep_words(words, slot, half, vector) stores sixteen of them in the
// slot.
template <typename KeepWords>
inline void pack_probabilities(const AttentionArgs& args, std::size_t i, float total,
                               KeepWords keep_words) {
  F32x16 tops[2] = {broadcast(0), broadcast(0)}, sums[2] = {broadcast(0), broadcast(0)};
  for_value_scales(args, i, [&](const float* slot, const F32x16(&scales)[2][slot_vectors]) {
    for (std::size_t v = 0; v < slot_vectors; ++v) {
      const F32x16 probability = load(slot + v * lanes, lanes);
      for (std::size_t half = 0; half < 2; ++half) {
        const F32x16 product = probability * scales[half][v];
        tops[half] = max_or_nan(product, tops[half]);
        sums[half] = sums[half] + product;
      }
    }
  });
  F32x16 steps[2];
  for (std::size_t half = 0; half < 2; ++half) {
    const float largest = largest_or_nan(tops[half]);
    const float for_largest = steps_for(largest, word_max);
    const float for_sum = steps_for(sum(sums[half]), probabilities_limit);
    const float least = for_sum < for_largest ? for_sum : for_largest;
    steps[half] = broadcast(least);
    integers_of(args, i).scales[half] = step_for(largest, least) / total;
  }
  for_value_scales(args, i, [&](float* slot, const F32x16(&scales)[2][slot_vectors]) {
    const F32x16 probabilities[] = {load(slot, lanes), load(slot + lanes, lanes)};
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t v = 0; v < slot_vectors; ++v) {
        const F32x16 words = probabilities[v] * scales[half][v] * steps[half];
        keep_words(round_to_int(words), slot, half, v);
      }
    }
  });
}

// Some elements of the values of a page, those of four positions side by side: [position / 4]
// [element][position % 4]. `next` are the same of the page after it.
struct ValueBlock {
  const std::int8_t* values;
  const std::int8_t* next;
  std::size_t size;  // elements
};

// A tile of queries, and the words of a half of their probabilities for a page, which is the first
// one that they see or a later one. Outputs are integers meanwhile.
template <int heads>
struct MixedTile {
  float* out[heads];
  const std::int16_t* words[heads];
  bool is_first;
};

// Adds words of probabilities * values: elements from `at` on of a block, to the outputs from `at`
// on. The last vector of them has `count` elements, the others have all.
template <int heads, int vectors>
[[gnu::always_inline]] inline void mix_slice(const AttentionArgs& args, const ValueBlock& block,
                                             const MixedTile<heads>& tile, std::size_t at,
                                             std::size_t count) {
  const auto present = [&](int v) { return v + 1 < vectors ? lanes : count; };
  TileSums<heads, vectors> sums;
  for (int h = 0; h < heads; ++h) {
    for (int v = 0; v < vectors; ++v) {
      const float* out = tile.out[h] + at + lanes * v;
      sums[h][v] = tile.is_first ? broadcast_int(0) : load_bits(out, present(v));
    }
  }
  add_groups<heads, vectors>(args, block.values + 4 * at, 4 * block.size, slot_size / 4, count,
                             block.next + 4 * at, tile.words, sums);
  for (int h = 0; h < heads; ++h) {
    for (int v = 0; v < vectors; ++v) {
      store_bits(sums[h][v], tile.out[h] + at + lanes * v, present(v));
    }
  }
}

// Adds the values of a page to elements from `begin` on of the outputs of a tile of queries; the
// block has elements of this half of the values.
template <int heads>
void mix_block(const AttentionArgs& args, PlacedRun place, const ValueBlock& block,
               std::size_t first, std::size_t half, std::size_t begin) {
  MixedTile<heads> tile;
  for (int h = 0; h < heads; ++h) {
    tile.out[h] = out_of(args, first + h) + begin;
    tile.words[h] = words_of(scores_of(args, first + h) + slot_begin(place), half);
  }
  const std::size_t first_seen = sight_of(args, first).first();
  tile.is_first = place.before <= first_seen;  // the tile does see part of this run
  constexpr std::size_t slice = integer_tile_vectors * lanes;
  std::size_t at = 0;
  for (; at + slice <= block.size; at += slice) {
    mix_slice<heads, integer_tile_vectors>(args, block, tile, at, lanes);
  }
  by_sixteen(block.size - at, [&](std::size_t i, std::size_t count) {
    mix_slice<heads, 1>(args, block, tile, at + i, count);
  });
}

inline void mix_page(const AttentionArgs& args, PlacedRun place) {
  const std::size_t borders[] = {0, first_half(args.value_dim), args.value_dim};
  const auto* values = static_cast<const std::int8_t*>(place.run->values);
  const auto* next = static_cast<const std::int8_t*>(place.next->values);
  for_query_tiles(args, place, [&]<int heads>(std::size_t first) {
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t begin = borders[half], at = begin * slot_size;
      mix_block<heads>(args, place, {values + at, next + at, borders[half + 1] - begin}, first,
                       half, begin);
    }
  });
}

// The same where keys hold the values: rearranges them piece by piece. Their halves have the same
// scale, thus the same words.
inline void mix_page_of_keys(const AttentionArgs& args, PlacedRun place) {
  constexpr std::size_t piece = 64, key_group_bytes = 4 * slot_size;
  alignas(64) std::int8_t values[piece * slot_size];
  const auto* keys = static_cast<const std::int8_t*>(place.run->keys);
  for (std::size_t begin = 0; begin < args.value_dim; begin += piece) {
    const std::size_t size = smaller(piece, args.value_dim - begin);
    for (std::size_t i = 0; i < size; i += 4) {
      const std::int8_t* group = keys + (begin + i) / 4 * key_group_bytes;
      for (std::size_t p = 0; p < slot_size; p += lanes) {
        store_transposed(group + 4 * p, values + p * size + 4 * i, 4 * size);
      }
    }
    for_query_tiles(args, place, [&]<int heads>(std::size_t first) {
      mix_block<heads>(args, place, {values, values, size}, first, 0, begin);
    });
  }
}

// Replaces the integers in the place of the outputs by the floats that they stand for.
inline void scale_outputs(const AttentionArgs& args) {
  const std::size_t middle = first_half(args.value_dim);
  for (std::size_t i = 0; i < query_count(args); ++i) {
    const float* scales = integers_of(args, i).scales;
    by_sixteen(args.value_dim, [&](std::size_t at, std::size_t count) {
      float* out = out_of(args, i) + at;
      const F32x16 scale = broadcast(scales[at < middle ? 0 : 1]);
      store(to_float(load_bits(out, count)) * scale, out, count);
    });
  }
}

}  // namespace
}  // namespace sluice::kernels
