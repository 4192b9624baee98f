// The shapes of known models, and the tensors that each consists of: what a synthetic model is
// made from. A program that runs a model takes its shape from the file, never from here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/quant_mix.h"

namespace sluice::model {

struct SyntheticShape {
  std::string_view name;
  std::string_view architecture;
  std::uint32_t layers;
  std::uint32_t embedding;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  std::uint32_t feed_forward;
  std::uint32_t vocabulary;
  std::uint32_t context;
  float rope_base;
  float norm_epsilon;
  bool tied;           // no output matrix: the token embedding serves as one
  float rope_scaling;  // factor of Llama 3's frequency scaling; 0: none
};

std::span<const SyntheticShape> synthetic_shapes();

// Throws UsageError that lists the names.
const SyntheticShape& synthetic_shape(std::string_view name);

// What the values of a tensor are drawn from.
enum class Fill {
  weights,       // mean 0 and standard deviation `scale`
  norm,          // about 1, F32
  bias,          // as weights, F32
  decay,         // negative, about -0.6, F32
  rope_factors,  // not random: Llama 3's frequency factors, F32
};

struct SyntheticTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the contiguous one first
  Fill fill = Fill::weights;
  float scale = 0;
  TensorPlace place;  // chooses the format of `weights`

  // Rows at the start that are much smaller than the others: the logits of control and byte
  // tokens, so that random models speak in printable words.
  std::uint64_t quiet_rows = 0;
};

// The sizes of qwen35's gated delta net (the same in all models of up to 9B).
struct DeltaNet {
  static constexpr std::uint32_t state = 128;
  static constexpr std::uint32_t key_heads = 16;
  static constexpr std::uint32_t value_heads = 32;
  static constexpr std::uint32_t inner = state * value_heads;
  static constexpr std::uint32_t convolution = 4;
  static constexpr std::uint32_t attention_interval = 4;  // every fourth layer is full attention
};

// All tensors: global ones first, then layer by layer.
std::vector<SyntheticTensor> synthetic_tensors(const SyntheticShape& shape);

}  // namespace sluice::model
