// The two parts of a layer of RWKV-7 (Peng et al. 2025, arXiv:2503.14456). Both see the token and
// the one before it: with h the input of a token and h' that of the token before, which a sequence
// keeps,
//
//   x_j = h + (h' - h) * lerp_j
//
// Time mixing runs the removal rule of kernels/recurrence.h for each head of S elements. Products
// of two narrow matrices are written W2 f(W1 x):
//
//   r, k, v = Wr x_r, Wk x_k, Wv x_v
//   decay = exp(-exp(-1/2) sigmoid(W2 tanh(W1 x_w) + w0))
//   v += (v of layer 0 - v) * sigmoid(V2 V1 x_v + v0), but in layer 0
//   a = sigmoid(A2 A1 x_a + a0),  g = G2 sigmoid(G1 x_g)
//   removed key = k * k_k, of length 1 in each head, with the rates a
//   key = k * (1 + (a - 1) * k_a),  query = r,  value = v
//   out = norm of each head's out + v_h (sum over a head of key * r * r_k)
//
// and gives Wo (out * g). Channel mixing is a feed-forward network: Wv max(0, Wk x_k)^2.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "core/model/blocks/block.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

struct Rwkv7Spec {
  std::size_t embedding = 0;     // E
  std::size_t head = 0;          // S, divides E
  std::size_t feed_forward = 0;  // F
  // Of the narrow matrices for decays, removal rates, values and gates.
  std::size_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
};

// Reads the keys. Throws ModelError when a key is missing or its value makes no sense.
Rwkv7Spec read_rwkv7(const Keys& keys, std::size_t embedding);

// The values of layer 0, for the other layers. It is a prologue of the decoder, which computes
// nothing: its buffer lasts for the whole step.
class FirstValues final : public Block {
 public:
  explicit FirstValues(std::size_t embedding) : embedding_(embedding) {}

  float* column(std::size_t c) const { return values_ + c * embedding_; }

  std::size_t size_max() const override { return embedding_; }
  void measure(Arena& arena, const BufferShape& shape) const override {
    arena.floats(shape.columns * embedding_);
  }
  void bind(Arena& arena, const BufferShape& shape) override {
    values_ = arena.floats(shape.columns * embedding_);
  }
  void run(Pass&, const float*, float*) override {}

 private:
  std::size_t embedding_;
  float* values_ = nullptr;  // [columns][E]
};

class TimeMixing final : public Block {
 public:
  // Declares the tensors time_mix_*. `first_values` must outlive the block. Throws ModelError.
  TimeMixing(Decoder& decoder, const LayerTensors& tensors, const Rwkv7Spec& spec,
             const FirstValues& first_values, bool is_first);

  std::size_t size_max() const override {
    return std::max(
        {spec_.embedding, spec_.decay_rank, spec_.rate_rank, spec_.value_rank, spec_.gate_rank});
  }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;

 private:
  // W2 W1; the first matrix is [rank][E], the second [E][rank].
  struct Narrow {
    Matrix first = {}, second = {};
    Vector bias = {};  // [E], or empty
    std::size_t rank() const { return first.rows; }
  };
  // All are [columns][E], but for `narrow`.
  struct Buffers {
    float* step = nullptr;   // h' - h
    float* mixed = nullptr;  // x_j, one after the other; at last what heads give
    float* queries = nullptr;
    float* keys = nullptr;
    float* values = nullptr;
    float* decays = nullptr;
    float* rates = nullptr;        // a
    float* removed = nullptr;      // the removed keys
    float* gates = nullptr;        // g
    float* value_gates = nullptr;  // of the values of layer 0
    float* narrow = nullptr;       // [columns][widest rank]
  };

  Narrow declare_narrow(const LayerTensors& tensors, const char* letter, std::size_t rank) const;
  Buffers place(Arena& arena, const BufferShape& shape) const;
  const float* mix(Pass& pass, const float* in, std::size_t j) const;
  void multiply(Pass& pass, const float* x, const Matrix& w, float* y) const;
  // y = W2 f(W1 x) + bias, f in place on one row of `rank` numbers.
  template <typename F>
  void multiply(Pass& pass, const float* x, const Narrow& w, F&& f, float* y) const;
  void project(Pass& pass, const float* in) const;
  void prepare_column(const kernels::VectorOps& ops, std::size_t c) const;
  void blend_first_values(const kernels::VectorOps& ops, std::size_t c) const;
  void finish_column(const kernels::VectorOps& ops, std::size_t c) const;

  std::size_t heads() const { return spec_.embedding / spec_.head; }

  Rwkv7Spec spec_;
  const FirstValues& first_values_;
  bool is_first_;
  std::size_t cache_layer_ = 0;
  Vector lerps_;                               // [6][E], of r, w, k, v, a, g
  Matrix receptance_, key_, value_, output_;   // [E][E]
  Narrow decay_, rate_, value_gate_, gate_;    // the third has no rows in layer 0
  Vector k_k_, k_a_, r_k_, norm_, norm_bias_;  // [E]
  Buffers buffers_;
};

class ChannelMixing final : public Block {
 public:
  // Declares the tensors channel_mix_*. Throws ModelError.
  ChannelMixing(Decoder& decoder, const LayerTensors& tensors, const Rwkv7Spec& spec);

  std::size_t size_max() const override { return network_->size_max(); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  std::size_t embedding_;
  std::size_t cache_layer_;
  Vector lerp_;  // [E]
  std::optional<FeedForward> network_;
  float* mixed_ = nullptr;  // [columns][E]
};

}  // namespace sluice::model
