// Mamba (Gu and Dao 2023, arXiv:2312.00752), as Jamba has it. The input is projected to x and to a
// gate z; x goes through a short convolution with silu, and gives, for all its channels together,
//
//   [r, B, C] = Wx x,  each normalised;  rate = softplus(Wdt r + bias), of each channel.
//
// Each channel i runs the channel scan of kernels/recurrence.h on its value x_i, with key B, query
// C, and the logarithms a_i and the skip d_i of its own. The block gives Wo (y * silu(z)). A
// sequence keeps the last inputs of the convolution, and N numbers for each channel.
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

struct MambaSpec {
  std::size_t embedding = 0;   // E
  std::size_t taps = 0;        // of the convolution
  std::size_t inner = 0;       // I, channels
  std::size_t rank = 0;        // R, of r
  std::size_t state_size = 0;  // N, of B and C
  float norm_epsilon = 0;
};

// Reads the keys "ssm.*". Throws ModelError when a key is missing or its value makes no sense.
MambaSpec read_mamba(const Keys& keys, std::size_t embedding, float norm_epsilon);

class Mamba final : public Block {
 public:
  // Tensors ssm_in, ssm_conv1d with its bias, ssm_x, ssm_dt_norm, ssm_b_norm, ssm_c_norm, ssm_dt
  // with its bias, ssm_a, ssm_d, ssm_out. Throws ModelError.
  Mamba(Decoder& decoder, const LayerTensors& tensors, const MambaSpec& spec);

  std::size_t size_max() const override {
    return std::max({spec_.embedding, spec_.inner, spec_.rank});
  }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return 2 * spec_.inner + 2 * spec_.state_size; }
  void keep_in(float* fed) override { fed_ = fed; }
  void replay(Pass& pass, std::size_t first) override;

 private:
  // All are [columns][...].
  struct Buffers {
    float* projected = nullptr;  // [x (I), z (I)]; y takes the place of x
    float* narrow = nullptr;     // [r (R), B (N), C (N)]
    float* rates = nullptr;      // [I]
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  void normalise_column(const kernels::VectorOps& ops, std::size_t c) const;
  void scan(Pass& pass) const;
  // What columns feed into the convolution, and what they feed into the scan besides; and where
  // the latter is kept, behind the former of all columns.
  std::array<FedPart, 1> convolution_parts() const;
  std::array<FedPart, 2> scan_parts() const;
  float* kept_for_scan() const { return fed_ + kept_max_ * spec_.inner; }

  std::size_t row() const { return 2 * spec_.inner; }
  std::size_t narrow_row() const { return spec_.rank + 2 * spec_.state_size; }

  MambaSpec spec_;
  std::size_t cache_layer_;
  Matrix in_;                           // [x (I), z (I)][E]
  Matrix x_;                            // [R + 2 N][I]
  Matrix dt_;                           // [I][R]
  Matrix output_;                       // [E][I]
  Vector dt_norm_, b_norm_, c_norm_;    // [R], [N], [N]
  Vector dt_bias_;                      // [I]
  Vector a_;                            // [I][N], negative
  Vector d_;                            // [I]
  CausalConvolution convolution_ = {};  // of x
  Buffers buffers_;
  std::size_t kept_max_ = 0;  // columns
  float* fed_ = nullptr;      // [kept_max_][I], [kept_max_][I + 2 N]
};

}  // namespace sluice::model
