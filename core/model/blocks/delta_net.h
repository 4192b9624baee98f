// Gated delta net (Yang et al. 2024, arXiv:2412.06464), as in Qwen 3 Next and 3.5. The input is
// projected to queries, keys and values, which go through a short convolution with silu, and to a
// gate z and two numbers for each value head, alpha and beta. With queries and keys of length 1
// (queries also divided by sqrt(key_dim)), each value head runs the delta rule of
// kernels/recurrence.h with
//
//   decay = exp(a softplus(alpha + dt)),  rate = sigmoid(beta).
//
// The block gives Wo [rms_norm(out_h) * silu(z_h)], or with a sigmoid in place of silu. A sequence
// keeps the last inputs of the convolution, and a matrix for each value head.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/blocks/recurrent_parts.h"
#include "core/model/decoder.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

struct DeltaNetSpec {
  std::size_t embedding = 0;    // E
  std::size_t taps = 0;         // of the convolution
  std::size_t key_heads = 0;    // K
  std::size_t value_heads = 0;  // N
  std::size_t key_dim = 0;      // D
  std::size_t value_dim = 0;    // Dv
  float norm_epsilon = 0;
  // Value head h reads key head h / (N / K) (Qwen 3 Next), or h mod K.
  bool groups_value_heads = false;
  // Outputs are multiplied by sigmoid(z) (Qwen 3.8), or by silu(z).
  bool has_sigmoid_gate = false;
};

// Reads the keys "ssm.*". Throws ModelError when a key is missing or its value makes no sense.
DeltaNetSpec read_delta_net(const Keys& keys, std::size_t embedding, float norm_epsilon);

// Whether each layer of a hybrid with attention is a delta net. Throws as above.
std::vector<bool> read_delta_net_layers(const Keys& keys, std::span<const Heads> heads);

class DeltaNet final : public Block {
 public:
  // Tensors attn_qkv and attn_gate, or ssm_in; ssm_alpha and ssm_beta, or ssm_ba; ssm_dt.bias,
  // ssm_a, ssm_conv1d, ssm_norm, ssm_out. ssm_in has for each key head the rows of its query, its
  // key, and the values and the gates of the value heads that read it; ssm_ba their betas, and
  // their alphas. Throws ModelError.
  DeltaNet(Decoder& decoder, const LayerTensors& tensors, const DeltaNetSpec& spec);

  std::size_t size_max() const override { return std::max(spec_.embedding, value_size()); }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return mixed_size() + 2 * spec_.value_heads; }
  void keep_in(float* fed) override { fed_ = fed; }
  void replay(Pass& pass, std::size_t first) override;

 private:
  // All are [columns][...].
  struct Buffers {
    float* mixed = nullptr;   // [queries, keys, values]; the outputs of the heads replace them
    float* gates = nullptr;   // [N Dv]: z, then the normalised and gated outputs
    float* decays = nullptr;  // [N]: alpha at first
    float* rates = nullptr;   // [N]: beta at first
    float* joint = nullptr;   // [rows of joint_], as is the next
    float* betas_and_alphas = nullptr;
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  void declare_projections(const LayerTensors& tensors);
  void separate(Pass& pass, std::size_t c) const;
  std::array<FedPart, 3> fed_parts() const;
  void mix(Pass& pass) const;
  void prepare_column(Pass& pass, std::size_t c) const;
  std::size_t key_head_of(std::size_t value_head) const;
  void run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                std::size_t head) const;

  std::size_t key_size() const { return spec_.key_heads * spec_.key_dim; }
  std::size_t value_size() const { return spec_.value_heads * spec_.value_dim; }
  std::size_t mixed_size() const { return 2 * key_size() + value_size(); }

  DeltaNetSpec spec_;
  std::size_t cache_layer_;
  Matrix mixed_;                   // [2 K D + N Dv][E]
  Matrix gate_;                    // [N Dv][E]
  Matrix alpha_, beta_;            // [N][E]
  Matrix joint_;                   // [2 K D + 2 N Dv][E], or no rows
  Matrix betas_and_alphas_;        // [2 N][E], or no rows
  Matrix output_;                  // [E][N Dv]
  Vector dt_, a_;                  // [N]; a is negative
  Vector norm_;                    // [Dv]
  CausalConvolution convolution_;  // of `mixed`
  Buffers buffers_;
  float* fed_ = nullptr;  // [kept columns][fed_floats()]
};

}  // namespace sluice::model
