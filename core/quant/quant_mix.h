// Which format each tensor of a model gets under a named mix, as llama.cpp's `quantize` chooses it
// (for dense models, and without an importance matrix where it can do without): a base format, and
// a better one where a model is sensitive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/block_formats.h"

namespace sluice::quant {

// The parts of a model that mixes tell apart.
enum class TensorRole {
  embedding,  // token_embd of a model with an output matrix of its own
  head,       // output, or token_embd where the two are one; embeddings of layers
  attn_qk,    // attn_q or attn_k
  attn_v,
  attn_qkv,
  attn_output,
  ffn_down,
  side_projection,  // small matrices that are published in BF16, and that `quantize` leaves as they
                    // are
  other,
};

struct TensorPlace {
  TensorRole role = TensorRole::other;
  std::uint32_t index = 0;         // among the attn_v and attn_qkv, or among the ffn_down
  std::uint32_t count = 0;         // attn_v and attn_qkv; for all others, layers of the model
  std::uint32_t heads_per_kv = 1;  // query heads that share one pair of keys and values
  std::uint64_t columns = 0;       // dims[0]
  bool is_of_experts = false;      // a stack of the matrices of all experts
};

// A choice between two formats by the layer.
struct LayerRule {
  enum class When { always, more, first_two, first_four, first_eighth, first_sixteenth, shared_kv };

  kernels::BlockType type;  // where `when` holds
  When when = When::always;
  kernels::BlockType otherwise = kernels::BlockType::f32;

  kernels::BlockType type_for(const TensorPlace& place) const;
};

// The format itself, or the next in its place whose blocks divide rows of `columns` weights.
kernels::BlockType dividing_type(kernels::BlockType type, std::uint64_t columns);

class QuantMix {
 public:
  // A mix by name, in any case: "Q4_K_M" and so on as llama.cpp names them; "pure-Q4_0" and so on
  // for one format throughout. Throws UsageError that lists the names.
  static QuantMix by_name(std::string_view name);
  static std::vector<std::string> names();

  const std::string& name() const { return name_; }
  std::uint32_t file_type() const { return file_type_; }  // value of general.file_type

  // The format of a weight matrix, after falling back where its rows do not divide into the blocks
  // of the one that the mix asks for.
  kernels::BlockType type_for(const TensorPlace& place) const;

 private:
  QuantMix(std::string name, std::uint32_t file_type, kernels::BlockType base);
  static const std::vector<QuantMix>& all();
  static std::vector<QuantMix> stock();

  std::string name_;
  std::uint32_t file_type_;
  kernels::BlockType base_;
  std::optional<kernels::BlockType> experts_;  // of stacks of experts, whatever their role
  LayerRule embedding_, head_, attn_qk_, attn_v_, attn_qkv_, attn_output_, ffn_down_;
};

}  // namespace sluice::quant
