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

// --- Kimi Linear: Kimi delta attention, and latent attention that does not rotate ---

constexpr RenamedSetting kimi_settings[] = {{"model_max_length", "max_position_embeddings"},
                                            {"num_experts_per_token", "num_experts_per_tok"}};

constexpr Part convolution(std::string_view theirs, std::string_view ours) {
  return {.theirs = theirs,
          .ours = ours,
          .columns = &Sizes::taps,
          .rows = &Sizes::one,
          .count = &Sizes::inner};
}
constexpr Part kimi_delta[] = {
    {"q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::inner},
    {"k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::inner},
    {"v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::inner},
    convolution("q_conv1d.weight", "ssm_conv1d_q.weight"),
    convolution("k_conv1d.weight", "ssm_conv1d_k.weight"),
    convolution("v_conv1d.weight", "ssm_conv1d_v.weight"),
    {"f_a_proj.weight", "ssm_f_a.weight", &Sizes::embedding, &Sizes::state},
    {"f_b_proj.weight", "ssm_f_b.weight", &Sizes::state, &Sizes::inner},
    {"g_a_proj.weight", "ssm_g_a.weight", &Sizes::embedding, &Sizes::state},
    {"g_b_proj.weight", "ssm_g_b.weight", &Sizes::state, &Sizes::inner},
    {"b_proj.weight", "ssm_beta.weight", &Sizes::embedding, &Sizes::recurrent_heads},
    {"dt_bias", "ssm_dt.bias", &Sizes::inner},
    {.theirs = "A_log",
     .ours = "ssm_a",
     .columns = &Sizes::one,
     .rows = &Sizes::recurrent_heads,
     .change = Change::decay},
    norm("o_norm.weight", "ssm_norm.weight", &Sizes::state),
    {"o_proj.weight", "attn_output.weight", &Sizes::inner, &Sizes::embedding},
};
constexpr Part kimi_router_and_shared_expert[] = {
    {"gate.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {"gate.e_score_correction_bias", "exp_probs_b.bias", &Sizes::experts},
    {"shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"shared_experts.up_proj.weight", "ffn_up_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"shared_experts.down_proj.weight", "ffn_down_shexp.weight", &Sizes::shared_expert,
     &Sizes::embedding},
};
constexpr Block kimi_mixture = {kimi_router_and_shared_expert, "block_sparse_moe."};
constexpr Block kimi_blocks[] = {norm_of_attention, latent_attention, norm_of_feed_forward,
                                 kimi_mixture, sparse_experts};
constexpr Block kimi_delta_blocks[] = {norm_of_attention,
                                       {kimi_delta, "self_attn."},
                                       norm_of_feed_forward,
                                       kimi_mixture,
                                       sparse_experts};
constexpr Block kimi_dense_blocks[] = {norm_of_attention, latent_attention, norm_of_feed_forward,
                                       feed_forward};
constexpr Block kimi_dense_delta_blocks[] = {
    norm_of_attention, {kimi_delta, "self_attn."}, norm_of_feed_forward, feed_forward};
// The first layers, which have no experts: f latent attention, m delta attention
constexpr LayerKind kimi_layers[] = {{"*", kimi_blocks},
                                     {"M", kimi_delta_blocks},
                                     {"f", kimi_dense_blocks},
                                     {"m", kimi_dense_delta_blocks}};

Config kimi_delta_settings(const Config& config) {
  auto settings = config.find_object("linear_attn_config");
  if (!settings) throw config.error("linear_attn_config", "is missing");
  return *settings;
}

void read_kimi(const Config& config, Sizes& sizes) {
  require_text(config, "moe_router_activation_func", "sigmoid");
  require_flag(config, "moe_renormalize", true);
  if (config.find_flag("mla_use_nope") != true) {
    throw config.error("mla_use_nope", "is not true, but latent attention does not rotate here");
  }
  for (const char* key : {"moe_layer_freq", "num_expert_group", "topk_group"}) {
    if (config.find_count(key).value_or(1) != 1) throw config.error(key, "is not 1");
  }
  read_latent_attention(config, sizes);
  read_experts(config, "num_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("first_k_dense_replace").value_or(0);
  sizes.shared_expert = sizes.expert * config.count("num_shared_experts");
  const Config delta = kimi_delta_settings(config);
  require_flag(delta, "use_full_rank_gate", false);
  if (delta.contains("gate_lower_bound")) {
    throw delta.error("gate_lower_bound", "is given, which is not supported");
  }
  sizes.taps = delta.count("short_conv_kernel_size");
  sizes.recurrent_heads = delta.count("num_heads");
  sizes.state = delta.count("head_dim");
  sizes.inner = sizes.recurrent_heads * sizes.state;
  if (sizes.recurrent_heads != sizes.query_heads) {
    throw delta.error("num_heads", "is not num_attention_heads");
  }
}

std::string kimi_kinds(const Config& config, const Sizes& sizes) {
  const Config delta = kimi_delta_settings(config);
  const nlohmann::json* full = delta.find_list("full_attn_layers");
  if (full == nullptr) throw delta.error("full_attn_layers", "is missing");
  std::string kinds(sizes.layers, 'M');
  for (const nlohmann::json& one : *full) {  // counted from 1
    const std::uint64_t layer = one.is_number_unsigned() ? one.get<std::uint64_t>() : 0;
    if (layer == 0 || layer > sizes.layers) {
      throw delta.error("full_attn_layers", "has an entry that is no layer");
    }
    kinds[layer - 1] = '*';
  }
  if (sizes.leading_dense > sizes.layers) {
    throw config.error("first_k_dense_replace", "is more than all layers");
  }
  for (std::size_t i = 0; i < sizes.leading_dense; ++i) kinds[i] = kinds[i] == '*' ? 'f' : 'm';
  return kinds;
}

void add_kimi(const Config& config, const Sizes& sizes, const std::string& prefix,
              gguf::Writer& writer) {
  add_latent_attention(sizes, prefix, writer);
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".expert_shared_count",
             static_cast<std::uint32_t>(sizes.shared_expert / sizes.expert));
  writer.add(prefix + ".expert_gating_func", std::uint32_t{2});
  writer.add(prefix + ".expert_weights_norm", true);
  writer.add(prefix + ".expert_weights_scale",
             config.find_number("routed_scaling_factor").value_or(1));
  writer.add(prefix + ".ssm.conv_kernel", static_cast<std::uint32_t>(sizes.taps));
  writer.add(prefix + ".kda.head_dim", static_cast<std::uint32_t>(sizes.state));
}

constexpr Family latent_family_table[] = {
    {.architecture = "KimiLinearForCausalLM",
     .ours = "kimi-linear",
     .layers = kimi_layers,
     .renamed = kimi_settings,
     .read_sizes = read_kimi,
     .kinds = kimi_kinds,
     .fit_layer = fit_recurrent_layer,
     .add_keys = add_kimi},
    deepseek("DeepseekV2ForCausalLM"),
    deepseek("DeepseekV3ForCausalLM"),
    deepseek("Glm4MoeLiteForCausalLM"),
};

}  // namespace

std::span<const Family> latent_families() {
  return latent_family_table;
}

}  // namespace sluice::convert
