// Families with latent attention: DeepSeek V2 and V3, and what is built like them. The matrix that
// makes keys and values of a latent is two here, for queries and for what is read: that of keys has
// rows and columns exchanged.
#include <cstdint>
#include <span>
#include <string>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

constexpr Part latent_attention[] = {
    {.theirs = "self_attn.q_proj.weight",
     .ours = "attn_q.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::latent_queries,
     .when = &Sizes::plain_queries},
    {.theirs = "self_attn.q_a_proj.weight",
     .ours = "attn_q_a.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::query_rank,
     .when = &Sizes::query_rank},
    {.theirs = "self_attn.q_a_layernorm.weight",
     .ours = "attn_q_a_norm.weight",
     .columns = &Sizes::query_rank,
     .when = &Sizes::query_rank},
    {.theirs = "self_attn.q_b_proj.weight",
     .ours = "attn_q_b.weight",
     .columns = &Sizes::query_rank,
     .rows = &Sizes::latent_queries,
     .when = &Sizes::query_rank},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", &Sizes::embedding,
     &Sizes::latent_keys},
    norm("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", &Sizes::latent),
    // Of each head the rows that make its key, then those that make its value.
    {.theirs = "self_attn.kv_b_proj.weight",
     .ours = "attn_k_b.weight",
     .columns = &Sizes::unrotated,
     .rows = &Sizes::latent,
     .form = Form::transposed_stacked,
     .all_columns = &Sizes::key_and_value,
     .count = &Sizes::query_heads},
    {.theirs = "self_attn.kv_b_proj.weight",
     .ours = "attn_v_b.weight",
     .columns = &Sizes::latent,
     .rows = &Sizes::latent_value,
     .form = Form::stacked,
     .all_rows = &Sizes::key_and_value,
     .first_row = &Sizes::unrotated,
     .count = &Sizes::query_heads},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::latent_values, &Sizes::embedding},
};

// --- DeepSeek V2 and V3, Moonlight, GLM 4.7 Flash ---

constexpr Part optional_choice_bias[] = {{.theirs = "mlp.gate.e_score_correction_bias",
                                          .ours = "exp_probs_b.bias",
                                          .columns = &Sizes::experts,
                                          .is_optional = true}};
constexpr Block deepseek_dense_blocks[] = {norm_of_attention, latent_attention,
                                           norm_of_feed_forward, feed_forward};
constexpr Block deepseek_blocks[] = {
    norm_of_attention, latent_attention, norm_of_feed_forward, router,
    experts,           shared_experts,   optional_choice_bias};
constexpr LayerKind deepseek_layers[] = {{"d", deepseek_dense_blocks}, {"*", deepseek_blocks}};

bool has_sigmoid(const Config& config) {
  // That of V3 and GLM is a part of their architecture.
  const bool is_v2 =
      config.find_list("architectures")->front().get<std::string>() == "DeepseekV2ForCausalLM";
  const char* usual = is_v2 ? "softmax" : "sigmoid";
  const std::string scores = config.find_text("scoring_func").value_or(usual);
  if (scores != "softmax" && scores != "sigmoid") {
    throw config.error("scoring_func", "is neither softmax nor sigmoid");
  }
  return scores == "sigmoid";
}

void read_latent_attention(const Config& config, Sizes& sizes) {
  sizes.latent = config.count("kv_lora_rank");
  sizes.query_rank = config.find_whole("q_lora_rank").value_or(0);
  sizes.unrotated = config.count("qk_nope_head_dim");
  sizes.rotated = config.count("qk_rope_head_dim");
  sizes.latent_value = config.count("v_head_dim");
  if (sizes.rotated % 2 != 0) throw config.error("qk_rope_head_dim", "is odd, but pairs rotate");
  // What is cached of a token: keys of one head, whose latent is the value too.
  sizes.key_heads = 1;
  sizes.head = sizes.latent + sizes.rotated;
}

void read_deepseek(const Config& config, Sizes& sizes) {
  require_text(config, "hidden_act", "silu");
  require_flag(config, "attention_bias", false);
  require_flag(config, "rope_interleave", true);
  read_latent_attention(config, sizes);
  read_experts(config, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("first_k_dense_replace").value_or(0);
  sizes.shared_expert = sizes.expert * config.count("n_shared_experts");
  if (config.find_count("moe_layer_freq").value_or(1) != 1) {
    throw config.error("moe_layer_freq", "is not 1");
  }
  if (config.find_count("n_group").value_or(1) != 1 && !has_sigmoid(config)) {
    throw config.error("n_group", "is not 1, which is supported with scoring_func sigmoid only");
  }
}

void add_latent_attention(const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  const auto add = [&](const char* key, std::uint64_t value) {
    if (value != 0) writer.add(prefix + key, static_cast<std::uint32_t>(value));
  };
  add(".attention.q_lora_rank", sizes.query_rank);
  add(".attention.kv_lora_rank", sizes.latent);
  add(".attention.key_length_mla", sizes.unrotated + sizes.rotated);
  add(".attention.value_length_mla", sizes.latent_value);
}

void add_deepseek(const Config& config, const Sizes& sizes, const std::string& prefix,
                  gguf::Writer& writer) {
  add_latent_attention(sizes, prefix, writer);
  add_experts(sizes, prefix, writer);
  const bool is_sigmoid = has_sigmoid(config);
  writer.add(prefix + ".expert_shared_count",
             static_cast<std::uint32_t>(sizes.shared_expert / sizes.expert));
  writer.add(prefix + ".expert_gating_func", std::uint32_t{is_sigmoid ? 2u : 1u});
  writer.add(prefix + ".expert_weights_norm",
             config.find_flag("norm_topk_prob").value_or(is_sigmoid));
  writer.add(prefix + ".expert_weights_scale",
             config.find_number("routed_scaling_factor").value_or(1));
  if (const auto groups = config.find_count("n_group"); groups && *groups > 1) {
    writer.add(prefix + ".expert_group_count", *groups);
    writer.add(prefix + ".expert_group_used_count", config.count("topk_group"));
  }
}

constexpr Family deepseek(std::string_view architecture) {
  return {.architecture = architecture,
          .ours = "deepseek2",
          .layers = deepseek_layers,
          .read_sizes = read_deepseek,
          .kinds = leading_kinds,
          .add_keys = add_deepseek};
}

constexpr Family latent_family_table[] = {
    deepseek("DeepseekV2ForCausalLM"),
    deepseek("DeepseekV3ForCausalLM"),
    deepseek("Glm4MoeLiteForCausalLM"),
};

}  // namespace

std::span<const Family> latent_families() {
  return latent_family_table;
}

}  // namespace sluice::convert
