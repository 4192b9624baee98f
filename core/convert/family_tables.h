// The tables that families.cc looks in, and what they share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/convert/families.h"

namespace sluice::convert {

std::span<const Family> dense_families();      // dense_families.cc
std::span<const Family> encoder_families();    // encoder_families.cc
std::span<const Family> gemma_families();      // gemma_families.cc
std::span<const Family> latent_families();     // latent_families.cc
std::span<const Family> mamba_families();      // mamba_families.cc
std::span<const Family> mixture_families();    // mixture_families.cc
std::span<const Family> recurrent_families();  // recurrent_families.cc

inline constexpr Part norm_of_attention[] = {
    norm("input_layernorm.weight", "attn_norm.weight", &Sizes::embedding),
};
inline constexpr Part attention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries,
     Order::rotating_rows},
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys,
     Order::rotating_rows},
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
inline constexpr Part attention_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", &Sizes::queries},
    {"self_attn.k_proj.bias", "attn_k.bias", &Sizes::keys},
    {"self_attn.v_proj.bias", "attn_v.bias", &Sizes::keys},
};
inline constexpr Part head_norms[] = {
    norm("self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::head),
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::head),
};
inline constexpr Part norm_of_feed_forward[] = {
    norm("post_attention_layernorm.weight", "ffn_norm.weight", &Sizes::embedding),
};
inline constexpr Part feed_forward[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};

// Experts, as most have them: three matrices of each.
inline constexpr Part router[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts}};
constexpr Part expert(std::string_view theirs, std::string_view ours, Size columns, Size rows) {
  return {
      .theirs = theirs, .ours = ours, .columns = columns, .rows = rows, .count = &Sizes::experts};
}
inline constexpr Part experts[] = {
    expert("mlp.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("mlp.experts.{}.up_proj.weight", "ffn_up_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("mlp.experts.{}.down_proj.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
// The same as MiniMax and Kimi name them.
inline constexpr Part sparse_experts[] = {
    expert("block_sparse_moe.experts.{}.w1.weight", "ffn_gate_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("block_sparse_moe.experts.{}.w3.weight", "ffn_up_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("block_sparse_moe.experts.{}.w2.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
// Stacked experts with gate and up of each in one matrix.
constexpr Part stacked_gate(std::string_view theirs) {
  Part part = expert(theirs, "ffn_gate_exps.weight", &Sizes::embedding, &Sizes::expert);
  part.all_rows = &Sizes::fused_expert;
  return part;
}
constexpr Part stacked_up(std::string_view theirs) {
  Part part = stacked_gate(theirs);
  part.ours = "ffn_up_exps.weight";
  part.first_row = &Sizes::expert;
  return part;
}
// Experts for all tokens, as one that is as wide as all of them.
inline constexpr Part shared_experts[] = {
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", &Sizes::shared_expert,
     &Sizes::embedding},
};
// Qwen's expert for all tokens, with a gate.
inline constexpr Part gated_shared_expert[] = {
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", &Sizes::shared_expert,
     &Sizes::embedding},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", &Sizes::embedding},
};

inline constexpr Block qwen3_blocks[] = {norm_of_attention, attention, head_norms,
                                         norm_of_feed_forward, feed_forward};
inline constexpr LayerKind qwen3_layers[] = {{"*", qwen3_blocks}};

inline constexpr Block plain_blocks[] = {norm_of_attention, attention, norm_of_feed_forward,
                                         feed_forward};
inline constexpr LayerKind plain_layers[] = {{"*", plain_blocks}};

// Names of layers with and without attention in lists of layers, and their kinds.
inline constexpr std::pair<std::string_view, char> mixer_names[] = {
    {"mamba", 'M'}, {"linear_attention", 'M'}, {"attention", '*'}, {"full_attention", '*'}};

// For Family::fit_layer: layers of the kinds M and m are recurrent and have no attention.
void fit_recurrent_layer(const Config& config, char kind, Sizes& sizes);

// Adds the keys "ssm.*"; without groups none for them.
void add_recurrence(const Sizes& sizes, const std::string& prefix, gguf::Writer& writer);

// Sizes of experts under these keys of config.json; without `width` it is that of the network.
void read_experts(const Config& config, const char* count, const char* used, const char* width,
                  Sizes& sizes);
// Those of Qwen: experts in each layer. `divides_by_sum`: whether weights of the chosen ones are.
void read_qwen_experts(const Config& config, bool divides_by_sum, Sizes& sizes);
// Kinds of layers: d for the first ones, which have no experts, * for those behind.
std::string leading_kinds(const Config& config, const Sizes& sizes);
// Adds the keys "expert_*".
void add_experts(const Sizes& sizes, const std::string& prefix, gguf::Writer& writer);

void add_granite_scales(const Config& config, const Sizes& sizes, const std::string& prefix,
                        gguf::Writer& writer);

// The sections of Qwen 3 VL's rotations.
inline constexpr Aside qwen3vl_aside[] = {{"model.visual.", "parts for images"}};
void add_qwen3vl(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer);

// Throws ModelError where nothing says how fast positions rotate: architectures differ in what they
// take for granted.
void require_rope_base(const Config& config);

// Throws ModelError where a setting is there and is another.
void require_text(const Config& config, const char* key, std::string_view expected);
void require_flag(const Config& config, const char* key, bool expected);

// The list of layers with each entry translated to a kind. Throws ModelError where there is none,
// or not one entry of each layer, or one that is not among `names`.
std::string kinds_from(const Config& config,
                       std::span<const std::pair<std::string_view, char>> names,
                       const Sizes& sizes);

// Adds a window and the flag of each layer that has it: all but each `period`th.
void add_windows(const Sizes& sizes, std::uint32_t window, std::uint64_t period,
                 const std::string& prefix, gguf::Writer& writer);

// Kinds of layers with a window; w: those that share keys and values.
constexpr bool is_windowed(char kind) {
  return kind == '~' || kind == 'w';
}
inline constexpr std::pair<std::string_view, char> window_names[] = {{"full_attention", '*'},
                                                                     {"sliding_attention", '~'}};

// Adds a window and the flag of each layer that has it, by its kind.
void add_windows(const std::string& kinds, std::uint32_t window, const std::string& prefix,
                 gguf::Writer& writer);

// How fast positions rotate in layers with a window, which rotate whole heads.
float window_rope_base(const Config& config);

// Throws ModelError unless all layers have a window but each `period`th: where a reader takes that
// from the architecture and not from a key.
void check_windows(const Config& config, std::uint64_t period);

}  // namespace sluice::convert
