// What makes the vector of a text, or its scores, out of the pooled hidden states of its tokens:
// dense layers behind the model (EmbeddingGemma), or the head of a classifier (rerankers). Most
// models have none. The matrices are small, are used once a text, and stay in memory as floats.
//
//   y = dense_3 dense_2 x, as far as the file has them, or
//   y = cls.output norm(activation(cls x)), likewise
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model/hyper_parameters.h"
#include "core/model/norm.h"
#include "core/model/weights.h"

namespace sluice::model {

// The numbers of llama.cpp's enum llama_pooling_type.
enum class PoolingType { none = 0, mean = 1, first = 2, last = 3, rank = 4 };

struct TextHeadSpec {
  enum class Activation { tanh, gelu, silu };
  Activation activation = Activation::tanh;         // behind cls
  bool has_softmax = false;                         // over the scores
  PoolingType scored_pooling = PoolingType::first;  // of what is scored
};

class TextHead {
 public:
  TextHead() = default;
  // Declares the tensors that the file has. Throws ModelError.
  TextHead(WeightLayout& layout, const HyperParameters& hp, const TextHeadSpec& spec);

  const TextHeadSpec& spec() const { return spec_; }
  bool makes_scores() const { return !cls_.weight.empty() || !scores_.weight.empty(); }
  bool has_parts() const {
    return makes_scores() || !dense_2_.weight.empty() || !dense_3_.weight.empty();
  }
  std::uint32_t outputs() const { return outputs_; }  // numbers of a text

  // `pooled`: [embedding]. Returns outputs() numbers, the same bits on every machine of a build.
  std::vector<float> apply(std::span<const float> pooled) const;

 private:
  struct Linear {
    Vector weight = {}, bias = {};  // [out][in], [out]; empty: there is none
    std::size_t in = 0, out = 0;
  };
  Linear read_linear(WeightLayout& layout, const char* stem);
  static std::vector<float> multiply(const Linear& linear, std::span<const float> x);
  void activate(std::span<float> values) const;

  TextHeadSpec spec_;
  Linear dense_2_, dense_3_, cls_, scores_;
  Norm norm_ = {};
  std::uint32_t outputs_ = 0;
};

}  // namespace sluice::model
