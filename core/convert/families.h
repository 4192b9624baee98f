// The architectures of Hugging Face checkpoints that can be imported: a table.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/convert/config.h"
#include "core/gguf/gguf_writer.h"

namespace sluice::convert {

// The numbers that shapes are made of.
struct Sizes {
  std::uint64_t embedding = 0;
  std::uint64_t layers = 0;
  std::uint64_t query_heads = 0, key_heads = 0, head = 0;
  std::uint64_t queries = 0, keys = 0;  // heads times their size
  std::uint64_t rotated = 0;            // of a head, from its beginning
  std::uint64_t fused_attention = 0;    // rows of queries, keys and values
  std::uint64_t feed_forward = 0;
  std::uint64_t fused_feed_forward = 0;  // rows of gate and up
  std::uint64_t vocabulary = 0;
};

using Size = std::uint64_t Sizes::*;

// One tensor of a layer: its name there ("self_attn.q_proj.weight", after "model.layers.N.") and
// here ("attn_q.weight", after "blk.N."). Without rows it is a vector.
struct Part {
  std::string_view theirs, ours;
  Size columns = nullptr;
  Size rows = nullptr;
  Size rotated_heads = nullptr;  // how many heads its rows are, where these rotate
};

struct Family {
  std::string_view architecture;  // of config.json: "Qwen3ForCausalLM"
  std::string_view ours;          // general.architecture
  std::span<const std::span<const Part>> layer;

  // Whether neighbours rotate together, where a checkpoint has the halves of a head: then the rows
  // of a head take turns from its halves.
  bool interleaves_heads = false;

  // Whether the checkpoint has weights of norms without the 1 that they are added to.
  bool norms_lack_one = false;

  // Adds what only this family has; throws ModelError on what is not supported. May be null.
  void (*add_keys)(const Config& config, const Sizes& sizes, const std::string& prefix,
                   gguf::Writer& writer) = nullptr;
};

// The settings of rotations: newer configurations keep its base with its scaling, and some have one
// set for each kind of layer; then it is that of layers without a window.
std::optional<Config> rope_settings(const Config& config);

// Throws ModelError that lists the architectures.
const Family& family_by_architecture(const Config& config);

Sizes read_sizes(const Config& config);

}  // namespace sluice::convert
