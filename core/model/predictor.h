// The block of a model that predicts further tokens (multi-token prediction: DeepSeek-V3, 2024,
// arXiv:2412.19437, section 2.2; "nextn" in GGUF): what comes behind a token that is known, but
// that the layers have not read. Row p knows token p and guesses token p + 1:
//
//   x = eh_proj [rms_norm(embedding of token p) | rms_norm(h)]
//   x goes through a layer of the model, which has keys and values of its own
//   y = rms_norm(x); logits = head y
//
// h is the hidden state of the layers after the output norm at position p - 1; zeros at 0. For a
// guess behind a guess, which the layers have not seen, it is the y of the row before.
//
// This is what the block has beside its layer, which the Decoder has with its other layers. The
// embedding and the head are those of the model where the file has none for the block.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "core/model/arena.h"
#include "core/model/compute.h"
#include "core/model/hyper_parameters.h"
#include "core/model/norm.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace sluice::model {

class Predictor {
 public:
  // Declares what is read before the block's layer. Throws ModelError.
  Predictor(const HyperParameters& hp, WeightLayout& layout);

  // Declares what is read behind it. `final_norm` is the model's, in place of one of its own.
  void declare_head(const Norm& final_norm);

  // The tensor that has the embeddings of its tokens.
  const std::string& table() const { return table_; }
  const Norm& norm() const { return norm_; }
  // Null: the head is the model's.
  const Matrix* head() const { return head_ ? &*head_ : nullptr; }

  std::size_t size_max() const { return 2 * hp_.embedding; }
  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) { inputs_ = place(arena, shape); }

  // The hidden state [E] before a column; null: zeros.
  using StateBefore = std::function<const float*(std::size_t column)>;

  // x: [columns][E], in: the embeddings of the tokens, out: what goes into the block's layer.
  void combine(Compute& compute, float* x, std::size_t columns, const StateBefore& state) const;

 private:
  float* place(Arena& arena, const BufferShape& shape) const {
    return arena.floats(shape.columns * 2 * hp_.embedding);
  }

  const HyperParameters& hp_;
  LayerTensors tensors_;
  std::string table_;
  Norm embedding_norm_, state_norm_;
  Matrix projection_;  // [E][2 E]
  Norm norm_;
  std::optional<Matrix> head_;  // [V][E]
  float* inputs_ = nullptr;     // [columns][2 E]
};

}  // namespace sluice::model
