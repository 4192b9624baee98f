// What each architecture is made of, as tables: a layer is a list of blocks, a block a list of
// tensors, and a dimension one of the sizes of its layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "core/quant/quant_mix.h"
#include "core/synth/tensors.h"

namespace sluice::synth {

// Everything that a dimension of a tensor can be; of one layer.
struct Sizes {
  std::uint64_t one = 1;
  std::uint64_t embedding = 0, vocabulary = 0;
  std::uint64_t heads = 0, key_heads = 0, head = 0, half_head = 0, half_rotated = 0;
  std::uint64_t query = 0, gated_query = 0, key = 0, query_key_value = 0;  // all heads together
  std::uint64_t query_rank = 0, latent = 0, latent_row = 0, plain = 0;     // of latent attention
  std::uint64_t values = 0, keys_and_values = 0;                           // of all heads together
  std::uint64_t value = 0;
  std::uint64_t feed_forward = 0, gate_and_up = 0;
  std::uint64_t taps = 0, short_taps = 0, gates_and_value = 0;
  std::uint64_t inner = 0, state = 0, recurrent_heads = 0, channels = 0, mixer_input = 0;
  std::uint64_t groups = 0, group = 0, betas_and_alphas = 0;
  std::uint64_t values_and_gates = 0, steps_and_keys = 0;                      // of Mamba
  std::uint64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;  // of RWKV-7
  std::uint64_t mixtures = 6;                                                  // of it, too
  std::uint64_t streams = 0, stream_pairs = 0, side_rank = 0;                  // of Gemma 3n
  // Of Qwen 3.8.
  std::uint64_t wide = 0, ngram = 0, ngram_taps = 0, index_queries = 0, index_key = 0;
  std::uint64_t layer_embedding = 0, layer_embeddings = 0;  // of one layer, of all
  std::uint64_t experts = 0, expert = 0, expert_gate_and_up = 0, shared_expert = 0;

  Sizes(const Shape& shape, std::uint32_t layer);
};

using Size = std::uint64_t Sizes::*;

// At most `most` elements, as a constant: a table of vectors would be made at every start.
template <typename Element, std::size_t most>
class Few {
 public:
  constexpr Few() = default;
  constexpr Few(std::initializer_list<Element> elements) : count_(elements.size()) {
    std::copy(elements.begin(), elements.end(), elements_);
  }

  constexpr const Element* begin() const { return elements_; }
  constexpr const Element* end() const { return elements_ + count_; }
  constexpr const Element& operator[](std::size_t i) const { return elements_[i]; }

 private:
  Element elements_[most] = {};
  std::size_t count_ = 0;
};

// A tensor of each layer of a kind; the name goes after "blk.N.".
struct Row {
  const char* name;
  Few<Size, 4> dims;
  Fill fill = Fill::matrix;
  float mean = 0;
  float deviation = 1;  // of a matrix: a factor of what suits its number of columns
  TensorRole role = TensorRole::other;
};

using Block = std::span<const Row>;

struct LayerKinds {
  std::string_view kinds;  // characters of Shape::kinds
  Few<Block, 12> blocks;
};

struct Architecture {
  std::string_view name;  // Shape::tensors or Shape::architecture
  Few<LayerKinds, 4> layers;
  std::string_view dense = {};  // describes the layers without experts; empty: there are none
  const char* final_norm = "output_norm.weight";  // null: none
  std::string_view bare_norm = {};                // that layer 0 does not have; empty: it has all
  Block ngrams = {};                              // of layer 1
  bool plain_heads = false;      // loaders insist on heads of embedding / heads elements
  bool subtracts_means = false;  // norms do, and their epsilon has another key
  bool has_norm_biases = false, has_head_bias = false;
  bool has_embedding_norm = false;
  bool has_position_table = false;
  bool has_word_pieces = false;     // a vocabulary of WordPiece
  bool has_window_pattern = false;  // as a key: one flag of each layer
  // The width of the expert that all tokens share is said as a number of experts.
  bool counts_shared_experts = false;
  bool multiplies_logits = false;  // "logit_scale" does, where others divide by it
};

// Throws std::logic_error when there is none of this name.
const Architecture& architecture_by_name(std::string_view name);
const Architecture& architecture_of(const Shape& shape);

}  // namespace sluice::synth
