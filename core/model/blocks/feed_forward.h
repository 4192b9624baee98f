// Feed-forward networks: down(activation(gate x, up x)), with or without a gate. Either the network
// of all tokens, or one expert of a mixture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/weights.h"
#include "kernels/vector_ops.h"

namespace sluice::model {

enum class Activation {
  swiglu,          // silu(gate x) * (up x) (Shazeer 2020)
  geglu,           // gelu(gate x) * (up x), the tanh form
  clamped_swiglu,  // g sigmoid(1.702 g) (u + 1), both kept within 7 (gpt-oss)
  reglu,           // max(0, gate x) * (up x) (SmallThinker)
  relu_squared,    // max(0, up x)^2, without a gate (Nemotron)
  gelu,            // gelu(up x), the tanh form, without a gate (StarCoder 2)
  xielu,           // xielu(up x), without a gate (Apertus)
};

constexpr bool has_gate(Activation activation) {
  return activation != Activation::relu_squared && activation != Activation::gelu &&
         activation != Activation::xielu;
}

// What some activations have of a layer.
struct ActivationNumbers {
  float limit = 0;  // of swiglu: min(silu(gate x), limit) * (up x kept within it); 0: none
  // Of geglu: what gate x lies above its mean by, less so many standard deviations, if that is
  // above 0, takes the place of gate x (Gemma 3n). Nothing: no such cut.
  std::optional<float> cut = {};
  kernels::Xielu xielu = {};
};

struct FeedForwardSpec {
  std::size_t embedding = 0;  // E
  std::size_t width = 0;      // F
  Activation activation = Activation::swiglu;
  ActivationNumbers numbers = {};
  // True for the expert that all tokens share: its tensors have the suffix "_shexp".
  bool is_shared_expert = false;

  bool has_gate() const { return model::has_gate(activation); }
};

struct FeedForwardWeights {
  Matrix gate = {}, up, down;                           // [F][E], [F][E], [E][F]
  Vector gate_bias = {}, up_bias = {}, down_bias = {};  // [F], [F], [E]; empty in most models
};

class FeedForward final : public Block {
 public:
  // Declares the tensors ffn_gate, ffn_up and ffn_down, and the biases that the file has. ffn_up
  // may hold the rows of the gate above its own, in place of ffn_gate. A shared expert may have
  // ffn_gate_inp_shexp, a row [E]: its output for a token x is then multiplied by sigmoid(row . x).
  // Throws ModelError.
  FeedForward(const LayerTensors& tensors, const FeedForwardSpec& spec);

  // For weights that are declared already.
  FeedForward(FeedForwardWeights weights, const FeedForwardSpec& spec)
      : spec_(spec), weights_(std::move(weights)) {}

  std::size_t size_max() const override { return std::max(spec_.embedding, spec_.width); }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override {
    run(pass.compute, in, pass.columns.size(), out);
  }

  // The same for `columns` inputs, which may be any tokens.
  void run(Compute& compute, const float* in, std::size_t columns, float* out);

  // A network, and where its output [E] goes.
  struct Output {
    const FeedForward* network;
    float* out;
  };

  // Runs several networks of one Spec, without token gates, on one input; none of `outputs` may be
  // that. It takes fewer passes over the thread team than one after the other. They share their
  // buffers, which hold as many columns.
  // `products` is scratch.
  static void run_together(Compute& compute, const float* in, std::span<const Output> outputs,
                           std::vector<Product>& products);

 private:
  struct Buffers {
    float* gate = nullptr;         // [columns][F]; unused without a gate
    float* up = nullptr;           // [columns][F]
    float* token_gates = nullptr;  // [columns]; only with ffn_gate_inp_shexp
  };

  bool has_token_gate() const { return token_gate_.rows != 0; }
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void activate(Compute& compute, std::size_t columns) const;
  void cut_gate(float* gate) const;
  void apply_token_gates(Compute& compute, std::size_t columns, float* out) const;

  FeedForwardSpec spec_;
  FeedForwardWeights weights_;
  Matrix token_gate_ = {};  // [1][E], or no rows
  Buffers buffers_;
};

}  // namespace sluice::model
