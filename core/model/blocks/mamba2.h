// Mamba-2 (Dao and Gu 2024, arXiv:2405.21060). The input is projected to a gate z, to x, B and C,
// which go through a short convolution with silu, and to a time step for each head. Head h runs the
// state scan of kernels/recurrence.h on the values x_h with key B and query C of its group, and
//
//   rate = softplus(dt_h + bias_h),  decay = exp(a_h rate),  skip = d_h.
//
// The block gives Wo rms_norm(y * silu(z)), where each group is normalised by itself. A sequence
// keeps the last inputs of the convolution, and a matrix for each head.
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

struct Mamba2Spec {
  std::size_t embedding = 0;   // E
  std::size_t taps = 0;        // of the convolution
  std::size_t inner = 0;       // I, of all heads together
  std::size_t heads = 0;       // H, divides I
  std::size_t groups = 0;      // G, divides H: consecutive heads share B and C
  std::size_t state_size = 0;  // N, of B and C
  float norm_epsilon = 0;
};

// Reads the keys "ssm.*". Throws ModelError when a key is missing or its value makes no sense.
Mamba2Spec read_mamba2(const Keys& keys, std::size_t embedding, float norm_epsilon);

class Mamba2 final : public Block {
 public:
  // Tensors ssm_in, ssm_conv1d with its bias, ssm_dt.bias, ssm_a, ssm_d, ssm_out; ssm_norm where
  // the file has it. Throws ModelError.
  Mamba2(Decoder& decoder, const LayerTensors& tensors, const Mamba2Spec& spec);

  std::size_t size_max() const override { return std::max(spec_.embedding, spec_.inner); }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return channels() + spec_.heads; }
  void keep_in(float* fed) override { fed_ = fed; }
  void replay(Pass& pass, std::size_t first) override;

 private:
  struct Buffers {
    float* projected = nullptr;  // [columns][z (I), x (I), B (G N), C (G N), time steps (H)]
    float* decays = nullptr;     // [columns][H]
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  std::array<FedPart, 1> fed_parts() const;
  void mix(Pass& pass) const;
  void prepare_column(Pass& pass, std::size_t c) const;
  void run_head(const Pass& pass, const Stretch& stretch, const LayerState& state,
                std::size_t head) const;
  void finish_column(Pass& pass, std::size_t c) const;

  std::size_t channels() const { return spec_.inner + 2 * spec_.groups * spec_.state_size; }
  std::size_t row() const { return spec_.inner + channels() + spec_.heads; }
  std::size_t head_dim() const { return spec_.inner / spec_.heads; }

  Mamba2Spec spec_;
  std::size_t cache_layer_;
  Matrix in_;                      // [I + (I + 2 G N) + H][E]
  Matrix output_;                  // [E][I]
  Vector dt_bias_, a_, d_;         // [H]; a is negative
  Vector norm_;                    // [G][I / G], or empty
  CausalConvolution convolution_;  // of x, B and C
  Buffers buffers_;
  float* fed_ = nullptr;  // [kept columns][fed_floats()]
};

}  // namespace sluice::model
