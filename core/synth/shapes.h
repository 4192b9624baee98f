// The sizes of known models, from which synthetic ones are made. A program that runs a model takes
// its sizes from the file, never from here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::synth {

// How the routers of mixtures of experts choose. Random routers choose all experts about equally
// often; those of trained models prefer some, and choose them again for the tokens that follow.
enum class Routing { uniform, skewed, real };

// The sizes of a model. What an architecture does not have is 0 or empty; such keys and tensors
// are not written. Names of keys stand in metadata.cc, those of tensors in tensors.cc.
struct Shape {
  std::string name;
  std::string architecture;  // value of general.architecture
  // Which list of tensors (architectures.cc) it has, if its architecture has several; empty: the
  // one with the name of the architecture.
  std::string tensors = {};
  std::uint32_t layers = 0;
  std::uint32_t predictors = 0;  // blocks behind them that predict further tokens: 0 or 1
  std::uint32_t embedding = 0;
  struct Heads {
    std::uint32_t queries = 0;
    std::uint32_t keys = 0;  // and values
    std::uint32_t size = 0;
  } heads = {};
  // Latent attention: keys and values of all heads come from `rank` elements of a token; rope.size
  // more are rotated. heads.size is that of queries; value_size that of values.
  struct Latent {
    std::uint32_t rank = 0, query_rank = 0, value_size = 0;
    bool is_old_form = false;  // keys and values of the heads in one matrix
  } latent = {};
  std::uint32_t feed_forward = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context = 0;
  float norm_epsilon = 1e-5f;
  bool tied = false;  // no output matrix: the token embedding serves as one

  // The kind of each layer, repeated as often as there are layers:
  // * attention   ~ attention in a window   M a recurrent mixer   - feed-forward alone
  std::string kinds = "*";

  struct Rope {
    float base = 1e4f;
    std::uint32_t size = 0;  // elements of a head that are rotated; 0: all
    float llama3 = 0;        // factor of Llama 3's frequency scaling, written as a tensor
    std::string scaling = {};
    float factor = 0;
    std::uint32_t original_context = 0;
    float attention_factor = 0, beta_fast = 0, beta_slow = 0, log_multiplier = 0;
  } rope = {};

  struct Window {
    std::uint32_t positions = 0;
    // Of the layers with a window, where they differ: sizes of heads, heads of keys, of queries.
    std::uint32_t head_size = 0, keys = 0, queries = 0;
    float rope_base = 0;
  } window = {};

  struct Scales {
    float attention = 0, embedding = 0, residual = 0, logit = 0, temperature = 0;
    float attention_cap = 0, logit_cap = 0;
  } scales = {};

  // Mamba-2, or a gated delta net: `groups` are its key heads then, and `inner` is heads * state.
  // Or Mamba, without groups: `heads` is the rank of its time steps.
  struct Recurrence {
    std::uint32_t inner = 0, heads = 0, state = 0, groups = 0, taps = 0;
  } recurrence = {};
  // RWKV-7: heads of recurrence.state elements, and the ranks of narrow matrices.
  struct NarrowRanks {
    std::uint32_t decay = 0, rate = 0, value = 0, gate = 0;
  } ranks = {};
  std::uint32_t short_convolution = 0;  // taps

  // Gemma 3n and 4: so many of the last layers use the keys and values of earlier ones and have a
  // wider feed-forward; each layer has a small embedding of the token of its own.
  std::uint32_t shared_layers = 0, shared_feed_forward = 0, layer_embedding = 0;
  // Gemma 3n: streams, the rank of the path beside attention, and how many of the first layers have
  // sparse activations. Qwen 3.8: streams, and the rank of their gates.
  std::uint32_t streams = 0, side_rank = 0, sparse_layers = 0;
  // Qwen 3.8: embeddings of n-grams of up to `tokens` tokens on layer 1, from a table with `heads`
  // rows of `width` elements for each n above 1, each one of about `rows`.
  struct Ngrams {
    std::uint32_t tokens = 0, heads = 0, width = 0, rows = 0, taps = 0;
  } ngrams = {};
  // Qwen 3.8: attention to the `top` tokens in blocks that its indexer's heads prefer.
  struct Indexer {
    std::uint32_t heads = 0, size = 0, block = 0, top = 0;
  } indexer = {};

  struct Experts {
    std::uint32_t count = 0, used = 0;
    std::uint32_t feed_forward = 0, shared_feed_forward = 0;  // of one expert; of the one for all
    std::uint32_t groups = 0, groups_used = 0;
    bool is_sigmoid = false;
    float weights_scale = 0;
    std::uint32_t leading_dense = 0;  // so many of the first layers have no experts
    std::uint32_t period = 0;         // of so many layers the last has experts; 0: all have
    float router_bias = 0.02f;        // standard deviation, in architectures that have some
    // What a layer adds to the stream, beside the embedding. If this were much, attention would
    // make the tokens of a text more alike from layer to layer, and with them their experts.
    float layer_gain = 0.15f;
    Routing routing = Routing::uniform;
  } experts = {};

  // Of encoders, and of what scores texts: how a vector is made of a text (llama.cpp's numbers: 1
  // the mean of its tokens, 2 the first, 4 scores), kinds of token, and the width between two dense
  // layers behind all others.
  struct TextVectors {
    std::uint32_t pooling = 0, token_types = 0, dense = 0;
    bool is_unigram = false;  // the vocabulary, as XLM-RoBERTa's
  } vectors = {};

  // Weights have a standard deviation of gain / sqrt(columns). Above 1 attention chooses more
  // sharply, so that errors show.
  float gain = 1;
  float logit_deviation = 3;  // about as in trained models

  char kind(std::uint32_t layer) const {
    return layer < layers ? kinds[layer % kinds.size()] : '*';
  }
  bool is_shared(std::uint32_t layer) const {
    return layer < layers && layer + shared_layers >= layers;
  }
  bool is_encoder() const { return vectors.pooling != 0; }
  // Whether files of the architecture may have a block that predicts.
  bool can_predict() const;
  bool is_dense(std::uint32_t layer) const {
    const bool is_between = experts.period != 0 && (layer + 1) % experts.period != 0;
    return layer < experts.leading_dense || is_between;
  }
};

// All known shapes: real ones, and a tiny one of each architecture, named "tiny-ARCHITECTURE".
const std::vector<Shape>& shapes();

// Throws UsageError that says where the names are listed.
const Shape& shape_by_name(std::string_view name);

// A tiny shape with sizes drawn by a seed: few things are equal or a power of two, and none is as
// in the real models. Throws UsageError for a shape that is not tiny.
Shape odd_shape(const Shape& tiny, std::uint64_t seed);

}  // namespace sluice::synth
