// The architectures of Hugging Face checkpoints that can be imported: tables of what their tensors
// are called and how they are laid out, there and here.
//
// A family whose weights are stored otherwise than a GGUF file has them says so in its table: rows
// or columns in another order (Order), another shape of the same values (Form), other values
// (Change, scales), a matrix that is a part of another (Part::first). import.cc carries it out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/convert/config.h"
#include "core/gguf/gguf_writer.h"

namespace sluice::convert {

// The numbers that shapes are made of. What a family does not have is 0.
struct Sizes {
  std::uint64_t one = 1;
  std::uint64_t embedding = 0;
  std::uint64_t layers = 0;
  std::uint64_t query_heads = 0, key_heads = 0, head = 0;
  std::uint64_t rotated = 0;  // of a head, from its beginning
  std::uint64_t feed_forward = 0;
  std::uint64_t vocabulary = 0;
  // Rows of tables that an encoder adds, and of the first one those in front that no text has.
  std::uint64_t positions = 0, token_types = 0, unused_positions = 0;

  // Recurrent mixers: a short convolution with a state scan (Mamba-2) or a gated delta net, whose
  // groups are its key heads. `has_mixer_norm` is 1 where Mamba-2 ends in a norm.
  std::uint64_t taps = 0, inner = 0, state = 0, recurrent_heads = 0, groups = 0;
  std::uint64_t has_mixer_norm = 0;
  std::uint64_t layer_embedding = 0;   // of each layer for itself
  std::uint64_t layer_vocabulary = 0;  // rows of its table
  std::uint64_t streams = 0,
                side_rank = 0;  // residual streams, and the narrow path beside attention
  // Of the narrow matrices of RWKV-7, and how many mixtures its layers make of two tokens.
  std::uint64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0, mixtures = 6;

  // Latent attention: ranks of what keys and values, and queries, are made of; of a head's key what
  // does not rotate, and its value. `query_rank` is 0 where queries are made at once.
  std::uint64_t latent = 0, query_rank = 0, unrotated = 0, latent_value = 0;

  // Mixtures: how many experts there are and a token takes, their width, that of the expert that
  // all tokens share, and how many of the first layers have none.
  std::uint64_t experts = 0, experts_used = 0, expert = 0, shared_expert = 0;
  std::uint64_t leading_dense = 0;

  // Made of those above by derive().
  std::uint64_t queries = 0, keys = 0;   // heads times their size
  std::uint64_t gated_queries = 0;       // rows of queries and of their gates
  std::uint64_t fused_attention = 0;     // rows of queries, keys and values
  std::uint64_t all_positions = 0;       // with those that no text has
  std::uint64_t fused_feed_forward = 0;  // rows of gate and up
  std::uint64_t gates_and_value = 0;     // rows of a short convolution's input
  std::uint64_t group = 0;               // of what a mixer computes
  std::uint64_t channels = 0;            // of its convolution
  std::uint64_t mixer_input = 0;         // rows of Mamba-2's input
  std::uint64_t values_and_gates = 0;    // rows of Mamba's input
  std::uint64_t steps_and_keys = 0;      // rows of its time steps, keys and queries
  std::uint64_t layer_embeddings = 0;    // of all layers
  std::uint64_t other_streams = 0;       // all but the first
  std::uint64_t stream_pairs = 0;
  std::uint64_t fused_expert = 0;  // rows of gate and up of an expert
  std::uint64_t fused_shared_expert = 0;
  std::uint64_t betas_and_alphas = 0;  // rows of a delta net's two gates
  std::uint64_t delta_input = 0;       // of its queries, keys, values and output gates
  std::uint64_t queries_and_keys = 0;
  std::uint64_t latent_queries = 0;  // of all heads
  std::uint64_t latent_keys = 0;     // the latent of a token, and the key that all heads share
  std::uint64_t latent_values = 0;   // of all heads
  std::uint64_t key_and_value = 0;   // of a head, made of the latent
  std::uint64_t plain_queries = 0;   // 1 without a rank of queries

  void derive();
};

using Size = std::uint64_t Sizes::*;

// In which order a checkpoint has rows or columns.
enum class Order {
  same,
  // Heads whose halves rotate together. Where neighbours do (Family::interleaves_heads), the rows
  // of a head take turns from its halves.
  rotating_rows,
  // The last rows, or the columns, are value heads of `unit` each. A checkpoint has those together
  // that share a key head; here they take turns.
  value_head_rows,
  value_head_columns,
  // A checkpoint has for each key head the rows of its queries, keys, values and output gates.
  // Here are the queries of all heads, then their keys, values and output gates, and first_row
  // counts in this order.
  key_head_rows,
  // A checkpoint has for each key head the rows of its queries, of its key and of its value. Here
  // are the queries of all heads, then their keys and values, and first_row counts in this order.
  // Queries and keys rotate.
  grouped_rows,
  // The rows, or the columns, of two matrices take turns there; first_row says which is ours.
  alternating_rows,
  alternating_columns,
};

// The shape of a checkpoint's tensor, in which the values are in the same order as here. Dimensions
// of 1 are not compared: [rows, 1, columns] is a matrix, too.
enum class Form {
  same,
  flat,     // [rows * columns]
  heads,    // [heads, columns of a head] of a vector
  stacked,  // a stack, each matrix below the one before: [count * rows, columns]
  // The same values with rows and columns exchanged. An MXFP4 tensor, whose blocks are of rows, is
  // as here.
  transposed,          // [count, columns, rows]
  transposed_stacked,  // [count * columns, rows]
};

// How values change.
enum class Change {
  none,
  norm,   // the weight of a norm, to which 1 is added where the family's lack it
  decay,  // the logarithm of a decay becomes the negative decay
};

// Numbers that the rows are multiplied with; one alone is for all rows.
using Scales = std::vector<float> (*)(const Config& config, const Sizes& sizes);

// One tensor of a layer: its name there ("self_attn.q_proj.weight", after "model.layers.N.") and
// here ("attn_q.weight", after "blk.N."). Without rows it is a vector.
struct Part {
  std::string_view theirs, ours;
  Size columns = nullptr;
  Size rows = nullptr;
  Order order = Order::same;
  Size unit = nullptr;  // of a value head
  Form form = Form::same;
  Change change = Change::none;
  Scales scales = nullptr;
  Size all_rows = nullptr;  // of their tensor, where ours is a part of it
  Size all_columns = nullptr;
  Size first_row = nullptr;  // of ours in theirs; null: 0
  // Matrices that are stacked here: so many tensors there, whose name has {} in place of their
  // number, or of their letter; or without that a stack there too. Vectors so stacked have two
  // dimensions of 1 between.
  Size count = nullptr;
  std::string_view letters = {};
  Size when = nullptr;       // the tensor exists where this is not 0
  bool is_optional = false;  // a checkpoint may leave it out
  // How many rows a checkpoint has of it, where not all; those behind are 0.
  Size stored_rows = nullptr;
  const Part* older = nullptr;  // holds where a checkpoint has the name that it had before
};

constexpr Part norm(std::string_view theirs, std::string_view ours, Size size) {
  return {.theirs = theirs, .ours = ours, .columns = size, .change = Change::norm};
}

// Parts whose names there begin alike.
struct Block {
  std::span<const Part> parts;
  std::string_view prefix;

  template <std::size_t count>
  constexpr Block(const Part (&list)[count], std::string_view begin = "")
      : parts(list), prefix(begin) {}
};

// The layers of some kinds. A kind is a letter:
// * attention   ~ attention in a window   M a recurrent mixer   - feed-forward alone
// and others that a family has for itself.
struct LayerKind {
  std::string_view kinds;
  std::span<const Block> blocks;
};

// Tensors that are left out of the GGUF file, with a warning: those for images, for example. Their
// names begin with `prefix` and have `part` in them.
struct Aside {
  std::string_view prefix, what, part = {};
};

inline constexpr Part plain_globals[] = {
    {"embed_tokens.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("norm.weight", "output_norm.weight", &Sizes::embedding),
};
inline constexpr Part plain_head = {"lm_head.weight", "output.weight", &Sizes::embedding,
                                    &Sizes::vocabulary};
inline constexpr Part head_bias = {"lm_head.bias", "output.bias", &Sizes::vocabulary};

// A setting that a family has under a name of its own.
struct RenamedSetting {
  const char *theirs, *usual;
};

// A number of each layer that is a tensor there, and here an entry of a list in the metadata.
struct LayerNumber {
  std::string_view theirs, key;
};

struct Family {
  std::string_view architecture;  // of config.json: "Qwen3ForCausalLM"
  std::string_view ours;          // general.architecture
  std::span<const LayerKind> layers;

  // Whether neighbours rotate together, where a checkpoint has the halves of a head.
  bool interleaves_heads = false;

  // Whether the checkpoint has weights of norms without the 1 that they are added to.
  bool norms_lack_one = false;

  // Whether characters are merged by the list of the checkpoint. Elsewhere by scores, as in
  // SentencePiece.
  bool keeps_merges = false;

  // The activation, and its key in config.json, which must not name another one. Empty: the family
  // looks itself.
  const char* activation_key = "hidden_act";
  std::string_view activation = "silu";

  // Whether a window of attention has no place in the file, and is left aside.
  bool ignores_window = false;

  const char* epsilon_key = "rms_norm_eps";  // of config.json
  bool subtracts_means = false;              // its norms do, and have another key of the epsilon
  std::string_view stem = "model.";          // of all names but that of the head
  std::string_view layer_stem = "layers.";  // of a layer's names, behind that and before its number

  // Outside of layers; the first is the table of embeddings. `head` is left out where the table
  // serves as one.
  std::span<const Part> globals = plain_globals;
  Part head = plain_head;
  bool has_head_bias = false;
  std::span<const Aside> aside = {};

  // Encoders have no head. What makes vectors of texts stands in folders of its own
  // (text_vectors.h), and what rates texts in `scores`, whose names have no stem.
  bool is_encoder = false;
  std::span<const Part> scores = {};
  bool rotates = true;  // positions

  // Without attention, heads are those of a recurrence.
  bool has_attention = true;

  std::span<const LayerNumber> layer_numbers = {};
  std::span<const RenamedSetting> renamed = {};

  // The functions below may be null. All throw ModelError on what is not supported.

  // Whether the family is this one, where several have the same architecture; null: yes.
  bool (*applies)(const Config& config) = nullptr;

  // Sets the sizes that only this family has, or that it names otherwise.
  void (*read_sizes)(const Config& config, Sizes& sizes) = nullptr;

  // The kind of each layer; null: all are '*'.
  std::string (*kinds)(const Config& config, const Sizes& sizes) = nullptr;

  // Changes the sizes for layers of a kind. key_heads and feed_forward become 0 in layers without,
  // and are written for each layer where they are not the same in all.
  void (*fit_layer)(const Config& config, char kind, Sizes& sizes) = nullptr;

  // Adds the keys that only this family has.
  void (*add_keys)(const Config& config, const Sizes& sizes, const std::string& prefix,
                   gguf::Writer& writer) = nullptr;
};

// The settings of rotations, under one of their two names: newer configurations keep the base with
// the scaling, and some have one set for each kind of layer. Throws ModelError where both names are
// there and say different things.
std::optional<Config> all_rope_settings(const Config& config);

// The same; of kinds of layers that of layers without a window.
std::optional<Config> rope_settings(const Config& config);

// The list of layers, under one of the names that it has; null without one. Throws ModelError where
// it is no list.
const nlohmann::json* layer_list(const Config& config);

// A number that is the same in all layers: that alone, or a list of it. Throws ModelError.
std::uint64_t same_in_layers(const Config& config, const char* key);

// config.json of a model of several kinds of input has the settings of the text in an object of
// their own: gives these, and those beside them.
nlohmann::json text_settings(nlohmann::json config);

// Throws ModelError that lists the architectures.
const Family& family_by_architecture(const Config& config);

// The settings with those that a family names otherwise under their usual names too.
Config with_usual_names(nlohmann::json config, const std::string& source);

Sizes read_sizes(const Config& config, const Family& family);

}  // namespace sluice::convert
