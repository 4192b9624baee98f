// Embeddings of n-grams, as Qwen 3.8 Flash Next has them on one layer: a table of hundreds of
// millions of rows, of which each token has a few, chosen by hashes of itself and the tokens before
// it. The table, a quarter of such a model, is never in memory: its rows are read from the file one
// by one. They are known as soon as the tokens are, so the system is asked for them before the
// first layer, and they are there when the layer needs them.
//
// With c_0 the token, c_1, c_2 ... those before it (the id of an end of text once there is none, or
// behind such an end), and in 64 bits, head h of those that look at n tokens reads row
//   (c_0 m_0 xor ... xor c_{n-1} m_{n-1}) mod size_h + offset_h.
// With e the rows of a token, k = Wkey e and v = Wvalue e, each residual stream x_c of C gets
//   a = <rms_norm(k_c), rms_norm(x_c)> / sqrt(E),  u_c = sigmoid(sign(a) sqrt(max(|a|, 1e-6))) v
//   x_c += u_c + silu(convolution(rms_norm(u_c)))
// where the taps of the convolution lie as many tokens apart as the longest n-gram has.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/blocks/recurrent_parts.h"
#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

class HyperStreams;

struct NgramSpec {
  std::size_t layer = 0;      // that has them
  std::size_t streams = 0;    // C
  std::size_t embedding = 0;  // E
  std::size_t tokens = 0;     // of the longest n-gram
  std::size_t width = 0;      // of a row
  std::size_t taps = 0;
  float norm_epsilon = 0;
  std::uint32_t end_of_text = 0;
  std::vector<std::uint64_t> multipliers = {};          // m, [tokens]
  std::vector<std::uint64_t> sizes = {}, offsets = {};  // by head: of 2 tokens, of 3, ...

  std::size_t heads() const { return sizes.size(); }
  std::size_t history() const { return tokens - 1; }
  std::size_t wide() const { return streams * embedding; }
};

// Reads the keys "ple.*"; nothing where the file has no such layer. Throws ModelError.
std::optional<NgramSpec> read_ngrams(const Keys& keys, const HyperParameters& hp,
                                     std::size_t streams);

// The rows of all tokens of a step. A sequence keeps its last tokens, and the inputs of the
// convolution.
class NgramRows {
 public:
  // Tensor per_layer_token_embd. Throws ModelError.
  NgramRows(Decoder& decoder, WeightLayout& layout, const NgramSpec& spec);

  const NgramSpec& spec() const { return spec_; }
  std::size_t cache_layer() const { return cache_layer_; }
  CausalConvolution convolution() const { return convolution_; }  // without taps

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape);

  // Finds the rows, and asks the system for them. Throws std::system_error.
  void find(const Pass& pass);
  // After find(): reads the rows of all columns, [columns][heads * width]. Throws
  // std::system_error.
  void read(Pass& pass, float* out);

  // The tokens of the step as they are kept, plus 1, [columns].
  float* tokens() const { return buffers_.tokens; }
  // Writes the last tokens of each sequence to its next state.
  void keep_history(Pass& pass) const;

 private:
  struct Buffers {
    std::uint64_t* numbers = nullptr;  // of rows, [columns][heads]
    float* tokens = nullptr;           // [columns]
    std::byte* bytes = nullptr;        // [threads][a row]
  };
  Buffers place(Arena& arena, const BufferShape& shape) const;
  float token_before(const LayerState& state, const Stretch& stretch, std::size_t i,
                     std::size_t distance) const;
  void hash(const LayerState& state, const Stretch& stretch, std::size_t i) const;

  NgramSpec spec_;
  const gguf::Model& model_;
  const gguf::TensorInfo& table_;
  CausalConvolution convolution_;
  std::size_t cache_layer_;
  std::optional<EmbeddingTable> rows_;
  Buffers buffers_;
};

// The layer's part: gives what the first stream gets, and adds to the others.
class NgramEmbedding final : public Block {
 public:
  // Tensors ple_key, ple_value, ple_norm_key, ple_norm_query, ple_norm_conv and ple_conv1d.
  // `rows` and `streams` must outlive the block. Throws ModelError.
  NgramEmbedding(const LayerTensors& tensors, NgramRows& rows, const HyperStreams& streams);

  std::size_t size_max() const override { return std::max(spec().wide(), rows_size()); }
  void measure(Arena& arena, const BufferShape& shape) const override { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) override { buffers_ = place(arena, shape); }
  void run(Pass& pass, const float* in, float* out) override;
  std::size_t fed_floats() const override { return spec().wide() + 1; }
  void keep_in(float* fed) override { fed_ = fed; }
  void replay(Pass& pass, std::size_t first) override;

 private:
  // All are [columns][...].
  struct Buffers {
    float* rows = nullptr;    // [heads * width]
    float* keys = nullptr;    // [C E], later u
    float* values = nullptr;  // [E]
    float* query = nullptr;   // [E]
    float* gates = nullptr;   // [C]
    float* normed = nullptr;  // [C E]: what is convolved
  };
  const NgramSpec& spec() const { return rows_.spec(); }
  std::size_t rows_size() const { return spec().heads() * spec().width; }
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void weigh(const kernels::VectorOps& ops, std::size_t column, const float* in) const;
  std::array<FedPart, 2> fed_parts() const;
  void mix(Pass& pass) const;

  NgramRows& rows_;
  const HyperStreams& streams_;
  Matrix key_, value_;                         // [C E][rows_size()], [E][rows_size()]
  Vector key_norm_, query_norm_, value_norm_;  // [C E]
  CausalConvolution convolution_;
  Buffers buffers_;
  float* fed_ = nullptr;  // [kept columns][fed_floats()]
};

}  // namespace sluice::model
