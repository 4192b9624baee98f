// The gated short convolution of LFM2 (Liquid AI 2025, arXiv:2511.23404). The input is projected to
// B, C and X, and the block gives
//
//   out = Wo (C * convolution(B * X)).
//
// The convolution is causal, has a few taps, and treats each feature separately. A sequence keeps
// the last products B * X.
#pragma once

#include <array>
#include <cstddef>

#include "core/model/blocks/block.h"
#include "core/model/blocks/recurrent_parts.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"

namespace sluice::model {

struct ShortConvSpec {
  std::size_t embedding = 0;  // E
  std::size_t taps = 0;
};

class ShortConv final : public Block {
 public:
  // Tensors shortconv.in_proj, shortconv.conv, shortconv.out_proj. Throws ModelError.
  ShortConv(Decoder& decoder, const LayerTensors& tensors, const ShortConvSpec& spec);

  std::size_t size_max() const override { return spec_.embedding; }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { projected_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return spec_.embedding; }
  void keep_in(float* fed) override { fed_ = fed; }
  void replay(Pass& pass, std::size_t first) override;

 private:
  float* place(Arena& arena, const BufferShape& shape) const {
    return arena.floats(shape.columns * 3 * spec_.embedding);
  }
  std::array<FedPart, 1> fed_parts() const {
    const std::size_t e = spec_.embedding;
    return {FedPart{projected_ + 2 * e, 3 * e, e}};
  }

  ShortConvSpec spec_;
  std::size_t cache_layer_;
  Matrix in_;   // [3 E][E]: B, C, X
  Matrix out_;  // [E][E]
  CausalConvolution convolution_;
  float* projected_ = nullptr;  // [columns][B, C, X]
  float* fed_ = nullptr;        // [kept columns][fed_floats()]
};

}  // namespace sluice::model
