// Scaled dot-product attention of a few query heads over one head of cached keys and values.
//
// The positions that a query sees lie in runs (pages of a cache), in order. One call computes the
// query heads that share a head of keys (GQA, Ainslie et al. 2023) for one or several consecutive
// tokens, each with its own window; a key row is read once for all of them. Scores and sums are
// float32. The result of a query depends only on the query and the positions that it sees (with
// int8 also on where in their pages these lie). It does not depend on how positions are cut into
// runs, nor on the other queries of the call.
//
// Rows of int8 are multiplied as integers, with queries and probabilities rounded to 16 bits. The
// error is below 2^-16 of the largest element of a query; that of a probability is below 2^-16 of
// the largest one, or 2^-23 of the sum of all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core_policy.h"

namespace sluice::kernels {

inline constexpr std::size_t attention_run_max = 128;

// Rows [first, first + positions) of a page of keys and values, and the queries that look at them.
// Elements are float, half or int8; int8 has scales and pages of its own, see kernels/kv_rows.h.
struct AttentionRun {
  const void* keys;                   // of float and half: [first + positions][head_dim]
  const void* values;                 // [first + positions][value_dim]
  const std::uint16_t* key_scales;    // int8: [2][scale_stride], of which 32 each are used
  const std::uint16_t* value_scales;  // the same
  std::size_t first;
  std::size_t positions;  // 1..attention_run_max; int8: within the 32 of a page
  const float* queries;   // [columns][query_heads][head_dim], columns query_stride floats apart
};

struct AttentionArgs {
  const AttentionRun* runs;
  std::size_t run_count;     // >= 1
  std::size_t positions;     // of all runs
  std::size_t scale_stride;  // int8: from the scales of first halves to those of second ones
  std::size_t columns;       // consecutive tokens, 1..positions: the last one sees up to the last
                             // position, each token before it up to one position less
  std::size_t window;        // how many of the newest positions a token sees; 0: all
  std::size_t sinks;         // how many of the first positions all tokens see besides, in runs of
                             // their own; only with a window
  std::size_t query_heads;   // heads of a token that share these keys
  std::size_t query_stride;  // from the queries of a token to those of the next
  std::size_t out_stride;    // from the outputs of a token to those of the next
  std::size_t head_dim;      // elements of a query and a key; any size
  std::size_t value_dim;     // elements of a value; any size
  CacheLevel prefetch_into;  // asks for the run after the one that is read; no result depends on it
  // Values are the first value_dim elements of the keys, and `values` and `value_scales` are not
  // used. With int8 value_dim is a multiple of 32 then, and these elements have a scale of their
  // own: the first one of a row.
  bool keys_hold_values;
  float scale;               // of query times key
  float softcap;             // scores become softcap * tanh(score / softcap); 0 means none
  const float* sink_logits;  // [query_heads]: one more score for each head, used without scale or
                             // cap; it takes a share of the probability, has no value; null: none
  // [positions]: how far the first query is from each position. Each further query stands one
  // position later, so its distances begin one number before. Scores lose slope times the distance
  // (ALiBi); null: nothing. Only of floats and halves, with one column and without a window.
  const float* distances;
  float slope;
  float* scores;             // scratch [columns][query_heads][score_stride]
  std::size_t score_stride;  // at least attention_scratch() floats
  float* out;                // [columns][query_heads][value_dim], columns out_stride floats apart
};

// How many floats of scratch a query needs when it sees `positions` positions in `runs` runs.
std::size_t attention_scratch(std::size_t positions, std::size_t runs, std::size_t head_dim);

struct AttentionKernels {
  void (*f32)(const AttentionArgs& args);   // keys and values are float
  void (*f16)(const AttentionArgs& args);   // keys and values are IEEE half
  void (*int8)(const AttentionArgs& args);  // keys and values are int8 with scales
  // out[i] = half of x[i], rounded to nearest even; overflow gives infinity.
  void (*f32_to_f16)(const float* x, std::size_t size, std::uint16_t* out);
};

}  // namespace sluice::kernels
