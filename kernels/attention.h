// Scaled dot-product attention of a few query heads over one head of cached keys and values.
//
// The positions that a query sees lie in runs (pages of a cache), in order. With grouped queries
// (GQA, Ainslie et al. 2023) several query heads share one head of keys, and so do consecutive
// tokens of a prompt, each with a window of its own: a key row is read once for all of them. Scores
// and sums are float32. The result of a query depends on nothing but the query and the positions
// that it sees (with int8 also on where in their pages these lie): not on how they are cut into
// runs, nor on which other queries are computed with it.
//
// Rows of int8 are multiplied as integers, with queries and probabilities of 16 bits: that is exact
// to 2^-16 of the largest element of a query, and of the largest probability, or better than 2^-23
// of the sum of all.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

inline constexpr std::size_t attention_run_max = 128;

// Rows [first, first + positions) of a page of keys and values, and the queries that look at them.
// Elements are float, half or int8; int8 has scales and pages of its own, see kernels/kv_rows.h.
struct AttentionRun {
  const void* keys;                   // float and half: [first + positions][head_dim]
  const void* values;                 // [first + positions][value_dim]
  const std::uint16_t* key_scales;    // int8: [2][scale_stride], 32 of each
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
  std::size_t columns;       // consecutive tokens: what the last sees ends with the last position,
                             // what each before it sees one earlier; 1..positions
  std::size_t window;        // how many of the newest positions a token sees; 0: all
  std::size_t sinks;         // and of the first ones, in runs of their own, which all tokens see;
                             // only with a window
  std::size_t query_heads;   // heads of a token that share these keys
  std::size_t query_stride;  // from the queries of a token to those of the next
  std::size_t out_stride;    // the same of the outputs
  std::size_t head_dim;      // elements of a query and a key; any size
  std::size_t value_dim;     // elements of a value; any size
  float scale;               // of query times key
  float softcap;             // scores become softcap * tanh(score / softcap); 0 means none
  const float* sink_logits;  // [query_heads]: of each head, one more score, as it stands, that has
                             // no value and only takes its share of the probability; null: none
  float* scores;             // scratch [columns][query_heads][score_stride]
  std::size_t score_stride;  // at least attention_scratch() floats
  float* out;                // [columns][query_heads][value_dim], columns out_stride floats apart
};

// Floats of scratch that a query needs, with so many positions in so many runs.
std::size_t attention_scratch(std::size_t positions, std::size_t runs, std::size_t head_dim);

struct AttentionKernels {
  void (*f32)(const AttentionArgs& args);   // keys and values are float
  void (*f16)(const AttentionArgs& args);   // keys and values are IEEE half
  void (*int8)(const AttentionArgs& args);  // keys and values are int8 with scales
  // out[i] = half of x[i], rounded to nearest even; overflow gives infinity.
  void (*f32_to_f16)(const float* x, std::size_t size, std::uint16_t* out);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_attention_scalar(AttentionKernels& table);
void fill_attention_avx2(AttentionKernels& table);
void fill_attention_avx512(AttentionKernels& table);
void fill_attention_amx(AttentionKernels& table);  // the entries that tiles make faster

}  // namespace sluice::kernels
