// Kimi delta attention (Moonshot AI 2025, arXiv:2510.26692): the delta rule of kernels/recurrence.h
// with a decay for each element of the keys. With x the input, each of
//
//   q, k, v = silu(convolution(Wq x, Wk x, Wv x))
//
// goes through a short convolution of its own; queries and keys are made of length 1 (queries also
// divided by sqrt(D)), and a head h has for its D elements, with f = Wf x + dt,
//
//   decay = exp(a_h softplus(f)), or exp(bound sigmoid(a_h f)) where decays are bounded,
//   rate = sigmoid(beta_h).
//
// The block gives Wo [rms_norm(out_h) * sigmoid(g_h)], g = Wg x. Wf and Wg may be products of two
// narrow matrices. A sequence keeps the last inputs of the convolutions, and a matrix of each head.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/model/blocks/block.h"
#include "core/model/blocks/recurrent_parts.h"
#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

struct KimiDeltaSpec {
  std::size_t embedding = 0;  // E
  std::size_t heads = 0;      // H
  std::size_t dim = 0;        // D, of keys and values
  std::size_t taps = 0;       // of the convolutions
  float norm_epsilon = 0;
  float decay_bound = 0;  // of the logarithm of a decay, below 0; 0: none
};

// Reads "attention.head_count", "kda.*" and "ssm.conv_kernel". Throws ModelError.
KimiDeltaSpec read_kimi_delta(const Keys& keys, std::size_t embedding, float norm_epsilon);

class KimiDelta final : public Block {
 public:
  // Tensors attn_q, attn_k and attn_v, each with ssm_conv1d_q and so on; ssm_f_a and ssm_g_a, and
  // ssm_f_b and ssm_g_b where these are narrow; ssm_beta, ssm_dt.bias, ssm_a, ssm_norm,
  // attn_output. Throws ModelError.
  KimiDelta(Decoder& decoder, const LayerTensors& tensors, const KimiDeltaSpec& spec);

  std::size_t size_max() const override { return std::max(spec_.embedding, size()); }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;

 private:
  // Wf or Wg.
  struct Gate {
    Matrix first;   // [H D][E], or narrow
    Matrix second;  // [H D][rows of first], or no rows
    bool is_narrow() const { return second.rows != 0; }
  };
  // All are [columns][...].
  struct Buffers {
    float* mixed = nullptr;             // [queries, keys, values], H D each; outputs replace values
    float* decays = nullptr;            // [H D]: f at first
    float* gates = nullptr;             // [H D]: g, then the normalised and gated outputs
    float* rates = nullptr;             // [H]: beta at first
    std::array<float*, 2> narrow = {};  // of the two gates
  };

  void declare_gates(const LayerTensors& tensors);
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void project(Pass& pass, const float* in);
  void prepare_column(Pass& pass, std::size_t c) const;
  void run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                std::size_t head) const;

  std::size_t size() const { return spec_.heads * spec_.dim; }
  std::size_t tails() const { return 3 * (spec_.taps - 1) * size(); }

  KimiDeltaSpec spec_;
  std::size_t cache_layer_;
  std::array<Matrix, 3> projections_;  // of queries, keys and values, [H D][E]
  std::array<CausalConvolution, 3> convolutions_;
  std::array<Gate, 2> gates_;  // Wf, Wg
  Matrix beta_;                // [H][E]
  Matrix output_;              // [E][H D]
  Vector dt_;                  // [H D]
  Vector a_;                   // [H]
  Vector norm_;                // [D]
  Buffers buffers_;
};

}  // namespace sluice::model
