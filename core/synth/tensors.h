// The tensors of a model of some shape, by architecture: names and dimensions as converters write
// them to GGUF files, and what random values suit each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/quant/quant_mix.h"
#include "core/synth/shapes.h"

namespace sluice::synth {

// What the values of a tensor are.
enum class Fill {
  matrix,                // mean 0 and standard deviation `deviation`, in a format of the mix; F32
                         // if no quantisation changes the tensor
  vector,                // about `mean`, F32
  router,                // mean 0, F32, with a deviation of its own for the first common columns
  router_bias,           // mean 0, F32
  llama3_factors,        // the rest is not random, F32: Llama 3's scaling of RoPE,
  proportional_factors,  // 1 for the first quarter and 1e30, which stops rotation, for the others,
  short_factors,         // and those of longrope
  long_factors,
};

using quant::TensorPlace;
using quant::TensorRole;

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the contiguous one first
  Fill fill = Fill::matrix;
  float mean = 0;
  float deviation = 0;
  TensorPlace place;  // chooses the format of a matrix

  // Rows at the start that are much smaller than the others: the logits of control and byte
  // tokens, so that random models speak in printable words.
  std::uint64_t quiet_rows = 0;

  // For routing that prefers some experts. The first columns of the table of embeddings are the
  // same for all tokens; routers weigh these columns with a deviation of their own.
  std::uint64_t common_columns = 0;
  float common_deviation = 0;  // of a router

  std::uint64_t elements() const;
};

// All tensors: global ones first, then layer by layer. Throws std::logic_error for a shape whose
// architecture or kind of layer is not described here.
std::vector<Tensor> tensors_of(const Shape& shape);

// Shape::TextVectors::pooling of what scores texts.
inline constexpr std::uint32_t scores_pooling = 4;

// The layer with embeddings of n-grams; how many rows of their table each head has, and all rows.
inline constexpr std::uint32_t ngram_layer = 1;
std::vector<std::uint64_t> ngram_sizes(const Shape& shape);
std::uint64_t ngram_rows(const Shape& shape);

// Do all files of this architecture have heads of embedding / heads elements?
bool has_plain_heads(const Shape& shape);

}  // namespace sluice::synth
