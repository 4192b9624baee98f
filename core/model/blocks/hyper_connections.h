// Hyper-connections, as Qwen 3.8 Flash Next has them (after Zhu et al. 2024, arXiv:2409.19606):
// C residual streams in place of one, and gates in place of the norms before each part. With x the
// streams [C][E], a part computes
//
//   n = [rms_norm(x_1) ... rms_norm(x_C)] * norm
//   g = sigmoid(Wup silu(Wdown n / C)),   h = the mean over c of (g * n)_c
//   w = 2 sigmoid(Winject n / C)
//   x_c += w_c part(h)
//
// The first stream is the decoder's; the others last beside it for the step. What the head sees is
// the h of a mix of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "core/model/blocks/block.h"
#include "core/model/blocks/ngram_embedding.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"

namespace sluice::model {

struct HyperSpec {
  std::size_t embedding = 0;  // E
  std::size_t count = 0;      // C
  std::size_t rank = 0;       // of the gates
  float norm_epsilon = 0;

  std::size_t wide() const { return count * embedding; }
};

// The streams of a step. It is a prologue of the decoder: all streams begin as the embedded token.
class HyperStreams final : public Block {
 public:
  static constexpr std::size_t count_max = 8;

  // `rows` are found once a step, before the layers; null in a model without n-grams.
  HyperStreams(const HyperSpec& spec, std::unique_ptr<NgramRows> rows)
      : spec_(spec), rows_(std::move(rows)) {}

  const HyperSpec& spec() const { return spec_; }

  // Stream c of a column, [E]; `first` are the decoder's, [columns][E].
  const float* stream(const float* first, std::size_t column, std::size_t c) const {
    return c == 0 ? first + column * spec_.embedding : other(column, c);
  }
  // One that is not the first.
  float* other(std::size_t column, std::size_t c) const {
    return others_ + (column * (spec_.count - 1) + c - 1) * spec_.embedding;
  }

  std::size_t size_max() const override { return spec_.embedding; }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;

 private:
  HyperSpec spec_;
  std::unique_ptr<NgramRows> rows_;
  float* others_ = nullptr;  // [columns][C - 1][E]
};

// What a part sees of the streams, and how much of it each of them gets.
class HyperMix {
 public:
  // Tensors <name>_norm, <name>_down, <name>_inject where it `injects`, and <name>_up. `tensors` is
  // a WeightLayout or a LayerTensors. `streams` must outlive the mix. Throws ModelError.
  template <typename Tensors>
  HyperMix(Tensors& tensors, const std::string& name, const HyperStreams& streams, bool injects)
      : streams_(streams), norm_(tensors.vector(name + "_norm.weight", {streams.spec().wide()})) {
    const HyperSpec& spec = streams.spec();
    down_ = tensors.matrix(name + "_down.weight", spec.wide(), spec.rank);
    if (injects) inject_ = tensors.matrix(name + "_inject.weight", spec.wide(), spec.count);
    up_ = tensors.matrix(name + "_up.weight", spec.rank, spec.wide());
  }

  const HyperStreams& streams() const { return streams_; }
  std::size_t size_max() const { return std::max(norm_.size(), up_.columns); }
  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) { buffers_ = place(arena, shape); }

  // `first`: the decoder's stream; h: [columns][E], which may be `first`.
  void run(Pass& pass, const float* first, float* h);
  // After run(): w of a column, [C].
  const float* weights(std::size_t column) const {
    return buffers_.weights + column * streams_.spec().count;
  }

 private:
  // All are [columns][...].
  struct Buffers {
    float* normed = nullptr;    // [C E]
    float* narrow = nullptr;    // [rank]
    float* squashed = nullptr;  // [rank]: silu of `narrow`
    float* gates = nullptr;     // [C E]
    float* weights = nullptr;   // [C]
  };
  Buffers place(Arena& arena, const BufferShape& shape) const;

  const HyperStreams& streams_;
  Vector norm_;    // [C E]
  Matrix down_;    // [rank][C E]
  Matrix inject_;  // [C][C E], or no rows
  Matrix up_;      // [C E][rank]
  Buffers buffers_;
};

// A part of a layer between its streams: gives what the first one gets, and adds to the others.
class HyperPart final : public Block {
 public:
  // `part` has no norms. `mix` was declared before it.
  HyperPart(HyperMix mix, Residual part) : mix_(std::move(mix)), part_(std::move(part)) {}

  std::size_t size_max() const override;
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return part_.block->fed_floats(); }
  void keep_in(float* fed) override { part_.block->keep_in(fed); }
  void replay(Pass& pass, std::size_t first) override { part_.block->replay(pass, first); }

 private:
  HyperMix mix_;
  Residual part_;
  float* h_ = nullptr;       // [columns][E]
  float* beside_ = nullptr;  // the same, where the part has two blocks
};

// Behind the last layer: the mix that the head sees, in place of the first stream.
class HyperEnd final : public Block {
 public:
  explicit HyperEnd(HyperMix mix) : mix_(std::move(mix)) {}

  std::size_t size_max() const override { return mix_.size_max(); }
  void measure(Arena& arena, const BufferShape& shape) const override {
    mix_.measure(arena, shape);
  }
  void bind(Arena& arena, const BufferShape& shape) override { mix_.bind(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override { mix_.run(pass, in, out); }

 private:
  HyperMix mix_;
};

}  // namespace sluice::model
