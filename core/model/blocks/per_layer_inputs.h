// Per-layer embeddings (Gemma 3n and 4): a second embedding table has P numbers for each token and
// layer, and each layer adds something made of them. The rows are read from the file one by one, so
// the table, a third of such a model, is never in memory.
//
// Once a step, for each token and layer l, where x is the scaled embedding:
//   input_l = (rms_norm((Wproj x / sqrt(E))_l) + sqrt(P) table[token]_l) / sqrt(2)
// Then layer l computes from the residual stream x:
//   y = Wout (gelu(Wgate x) * input_l)
#pragma once

#include <cstddef>
#include <optional>

#include "core/model/blocks/block.h"
#include "core/model/weights.h"

namespace sluice::model {

struct PerLayerInputsSpec {
  std::size_t embedding = 0;  // E
  std::size_t width = 0;      // P
  std::size_t layers = 0;     // L
  std::size_t vocabulary = 0;
  float norm_epsilon = 0;
};

// Computes the inputs of all layers. It is a prologue of the decoder.
class PerLayerInputs final : public Block {
 public:
  PerLayerInputs(WeightLayout& layout, const PerLayerInputsSpec& spec);

  const PerLayerInputsSpec& spec() const { return spec_; }

  // The input of one layer for one column of the step, [P].
  const float* input(std::size_t column, std::size_t layer) const {
    return inputs_ + (column * spec_.layers + layer) * spec_.width;
  }

  std::size_t size_max() const override { return spec_.embedding; }
  void measure(Arena& arena, const BufferShape& shape) const override {
    arena.floats(shape.columns * all());
    arena.floats(all());
  }
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  std::size_t all() const { return spec_.layers * spec_.width; }

  PerLayerInputsSpec spec_;
  const gguf::Model& model_;
  const gguf::TensorInfo& table_;  // [V][L P]
  Matrix projection_;              // [L P][E]
  Vector norm_;                    // [P]
  std::optional<EmbeddingTable> rows_;
  float* inputs_ = nullptr;  // [columns][L][P]
  float* row_ = nullptr;     // [L][P]
};

// What one layer adds: y above.
class PerLayerInput final : public Block {
 public:
  // `inputs` must outlive the block.
  PerLayerInput(const LayerTensors& tensors, const PerLayerInputs& inputs, std::size_t layer);

  std::size_t size_max() const override {
    return std::max(inputs_.spec().embedding, inputs_.spec().width);
  }
  void measure(Arena& arena, const BufferShape& shape) const override {
    arena.floats(shape.columns * inputs_.spec().width);
  }
  void bind(Arena& arena, const BufferShape& shape) override {
    gated_ = arena.floats(shape.columns * inputs_.spec().width);
  }
  void run(Pass& pass, const float* in, float* out) override;

 private:
  const PerLayerInputs& inputs_;
  std::size_t layer_;
  Matrix gate_, output_;    // [P][E], [E][P]
  float* gated_ = nullptr;  // [columns][P]
};

}  // namespace sluice::model
