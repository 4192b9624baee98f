// AltUp (Baykal et al. 2023, arXiv:2301.13310), as Gemma 3n has it: there are A residual streams,
// and layers compute on the first alone. A layer begins with a prediction of all streams from all,
// and ends with a correction of all by what came out of it. With x the streams and
// m(y) = tanh(router (rms_norm(y) / E)), A numbers:
//
//   C = Wp m(x_0), [to][from];  p_b = x_b + sum_a C[b][a] x_a
//   y = what the layer makes of p_0
//   c = Wc m(y) + 1;            x_b = p_b + c_b (y - p_0)
//
// and then the per-layer input of x_0 * scale (blocks/per_layer_inputs.h) is normalised and added
// to all streams but the first.
//
// The decoder's stream is the first. The others begin as products with it, made as long as it is,
// and in the end the products of all others, made as long as it is, join it: their mean is what the
// head sees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/blocks/per_layer_inputs.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

// The streams of a step, and the per-layer inputs. It is a prologue of the decoder.
class Streams final : public Block {
 public:
  static constexpr std::size_t count_max = 8;

  // Tensors of PerLayerInputs, and altup_proj. `count` is A. Throws ModelError.
  Streams(WeightLayout& layout, const PerLayerInputsSpec& spec, std::size_t count);

  std::size_t count() const { return count_; }
  std::size_t embedding() const { return inputs_.spec().embedding; }
  const PerLayerInputs& inputs() const { return inputs_; }

  // Stream `a` of a column, [E]. Within a layer the first is p_0.
  float* stream(std::size_t column, std::size_t a) const {
    return streams_ + (column * count_ + a) * embedding();
  }

  std::size_t size_max() const override { return embedding(); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  std::size_t count_;
  PerLayerInputs inputs_;
  std::vector<Matrix> projections_;  // of all but the first, [E][E]
  float* streams_ = nullptr;         // [columns][A][E]
};

// What both ends of a layer have: numbers made of one stream.
class StreamRouter {
 public:
  // Tensors altup_router_norm and altup_router. Both ends read the same.
  StreamRouter(const LayerTensors& tensors, const Streams& streams, float norm_epsilon);

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) { buffers_ = place(arena, shape); }

  // m(x) of all columns; x: [columns][E].
  void run(Pass& pass, const float* x);
  const float* numbers(std::size_t column) const { return buffers_.numbers + column * count_; }

 private:
  struct Buffers {
    float* normed = nullptr;   // [columns][E]
    float* numbers = nullptr;  // [columns][A]
  };
  Buffers place(Arena& arena, const BufferShape& shape) const;

  std::size_t embedding_, count_;
  float norm_epsilon_;
  Vector norm_;    // [E]
  Matrix router_;  // [A][E]
  Buffers buffers_;
};

// The beginning of a layer: gives p_0 - x_0, and predicts the other streams.
class StreamPrediction final : public Block {
 public:
  // Tensors of StreamRouter, and altup_predict_coef. `streams` must outlive the block.
  StreamPrediction(const LayerTensors& tensors, const Streams& streams, float norm_epsilon);

  std::size_t size_max() const override { return streams_.embedding(); }
  void measure(Arena& arena, const BufferShape& shape) const override {
    router_.measure(arena, shape);
  }
  void bind(Arena& arena, const BufferShape& shape) override { router_.bind(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;

 private:
  void predict_column(const kernels::VectorOps& ops, std::size_t c, const float* in,
                      float* out) const;

  const Streams& streams_;
  StreamRouter router_;
  Vector coefficients_;  // [to][from][A]
};

// The end of a layer: gives the new x_0 less y, corrects the other streams, and adds the per-layer
// input to them.
class StreamCorrection final : public Block {
 public:
  // Tensors of StreamRouter and PerLayerInput, altup_correct_coef, altup_correct_scale and
  // post_norm. `streams` must outlive the block.
  StreamCorrection(const LayerTensors& tensors, const Streams& streams, std::size_t layer,
                   float norm_epsilon);

  std::size_t size_max() const override {
    return std::max(streams_.embedding(), input_.size_max());
  }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  void correct_column(const kernels::VectorOps& ops, std::size_t c, const float* in,
                      float* out) const;

  const Streams& streams_;
  float norm_epsilon_;
  StreamRouter router_;
  Vector coefficients_;  // [A][A]
  Vector scale_;         // [E]
  PerLayerInput input_;
  Vector post_norm_;        // [E]
  float* added_ = nullptr;  // [columns][E]: x_0 * scale, then the per-layer input
};

// Behind the last layer: gives the sum of what joins the first stream.
class StreamSum final : public Block {
 public:
  // Tensor altup_unembd_proj. `streams` must outlive the block.
  StreamSum(WeightLayout& layout, const Streams& streams);

  std::size_t size_max() const override { return streams_.embedding(); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  const Streams& streams_;
  std::vector<Matrix> projections_;
  float* projected_ = nullptr;  // [columns][E]
};

// Laurel, beside attention (Gemma 3n): both see h = rms_norm(x), and the block gives
//   rms_norm(attention(h)) + h + rms_norm(Wr Wl h)
class AttentionAndSidePath final : public Block {
 public:
  // Tensors attn_norm, laurel_l, laurel_r, laurel_post_norm, those of `attention`, which is made
  // by then, and post_attention_norm. The rank of the side path is that of laurel_l.
  AttentionAndSidePath(const LayerTensors& tensors, std::size_t embedding, float norm_epsilon,
                       std::unique_ptr<Block> attention);

  std::size_t size_max() const override {
    return std::max({embedding_, left_.rows, attention_->size_max()});
  }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  struct Buffers {
    float* normed = nullptr;  // [columns][E]
    float* side = nullptr;    // [columns][E]
    float* narrow = nullptr;  // [columns][rank]
  };
  Buffers place(Arena& arena, const BufferShape& shape) const;

  std::size_t embedding_;
  float norm_epsilon_;
  std::unique_ptr<Block> attention_;
  Vector norm_, post_attention_norm_, side_norm_;  // [E]
  Matrix left_, right_;                            // [rank][E], [E][rank]
  Buffers buffers_;
};

}  // namespace sluice::model
