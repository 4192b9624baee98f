// Scaled dot-product attention of a few query heads over one head of cached keys and values.
//
// With grouped queries (GQA, Ainslie et al. 2023) several query heads share one head of keys, so
// a key row is read once for all of them. Scores and sums are float32. The result of a query does
// not depend on which other queries are computed with it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

struct AttentionArgs {
  const float* queries;     // [query_heads][head_dim]
  std::size_t query_heads;  // heads that share these keys
  std::size_t head_dim;     // elements of a query and a key; any size
  std::size_t value_dim;    // elements of a value; any size
  const void* keys;         // [positions][head_dim], consecutive rows of float or half
  const void* values;       // [positions][value_dim]
  std::size_t positions;    // >= 1
  float scale;              // of query times key
  float softcap;            // scores become softcap * tanh(score / softcap); 0 means none
  float* scores;            // scratch [query_heads][positions]
  float* out;               // [query_heads][value_dim]
};

struct AttentionKernels {
  void (*f32)(const AttentionArgs& args);  // keys and values are float
  void (*f16)(const AttentionArgs& args);  // keys and values are IEEE half
  // out[i] = half of x[i], rounded to nearest even; overflow gives infinity.
  void (*f32_to_f16)(const float* x, std::size_t size, std::uint16_t* out);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_attention_scalar(AttentionKernels& table);
void fill_attention_avx2(AttentionKernels& table);
void fill_attention_avx512(AttentionKernels& table);

}  // namespace sluice::kernels
