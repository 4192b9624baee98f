// Mixtures of experts. A checkpoint has the matrices of each expert apart, or a stack of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <span>
#include <string>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

void check_experts_used(const Config& config, const char* key, const Sizes& sizes) {
  if (sizes.experts_used > sizes.experts) throw config.error(key, "is more than all experts");
}

void add_plain_experts(const Config&, const Sizes& sizes, const std::string& prefix,
                       gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
}

// --- Qwen 2 and 3 ---

constexpr Block qwen2moe_blocks[] = {norm_of_attention,    attention, attention_biases,
                                     norm_of_feed_forward, router,    experts,
                                     gated_shared_expert};
constexpr LayerKind qwen2moe_layers[] = {{"*", qwen2moe_blocks}};
constexpr Block qwen3moe_blocks[] = {norm_of_attention,    attention, head_norms,
                                     norm_of_feed_forward, router,    experts};
constexpr LayerKind qwen3moe_layers[] = {{"*", qwen3moe_blocks}};

void read_qwen2moe(const Config& config, Sizes& sizes) {
  read_qwen_experts(config, false, sizes);
  sizes.shared_expert = config.count("shared_expert_intermediate_size");
}

void read_qwen3moe(const Config& config, Sizes& sizes) {
  // Without it transformers takes what is not supported.
  if (!config.contains("norm_topk_prob")) throw config.error("norm_topk_prob", "is missing");
  read_qwen_experts(config, true, sizes);
}

// --- OLMoE ---

constexpr Part wide_norms[] = {
    norm("self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::queries),
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::keys),
};
constexpr Block olmoe_blocks[] = {norm_of_attention,    attention, wide_norms,
                                  norm_of_feed_forward, router,    experts};
constexpr LayerKind olmoe_layers[] = {{"*", olmoe_blocks}};

void read_olmoe(const Config& config, Sizes& sizes) {
  require_flag(config, "norm_topk_prob", false);
  if (config.contains("clip_qkv")) throw config.error("clip_qkv", "is given, but not supported");
  read_experts(config, "num_experts", "num_experts_per_tok", nullptr, sizes);
}

// --- GLM 4.5 to 4.7, dots.llm1: the router adds a bias to its scores for the choice ---

constexpr Part choice_bias[] = {
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", &Sizes::experts}};
constexpr Part glm_norm[] = {
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding)};
constexpr Part optional_head_norms[] = {
    {.theirs = "self_attn.q_norm.weight",
     .ours = "attn_q_norm.weight",
     .columns = &Sizes::head,
     .is_optional = true},
    {.theirs = "self_attn.k_norm.weight",
     .ours = "attn_k_norm.weight",
     .columns = &Sizes::head,
     .is_optional = true},
};
constexpr Block glm_dense_blocks[] = {norm_of_attention,   attention, attention_biases,
                                      optional_head_norms, glm_norm,  feed_forward};
constexpr Block glm_blocks[] = {norm_of_attention,   attention, attention_biases,
                                optional_head_norms, glm_norm,  router,
                                choice_bias,         experts,   shared_experts};
constexpr LayerKind glm_layers[] = {{"d", glm_dense_blocks}, {"*", glm_blocks}};
constexpr Block dots_blocks[] = {
    norm_of_attention, attention, head_norms,    norm_of_feed_forward, router,
    choice_bias,       experts,   shared_experts};
constexpr LayerKind dots_layers[] = {{"d", qwen3_blocks}, {"*", dots_blocks}};

void read_sigmoid_mixture(const Config& config, Sizes& sizes) {
  const std::string scores = config.find_text("scoring_func").value_or("sigmoid");
  // dots.llm1 has the name of how it chooses here, which is by the sigmoid and a bias.
  if (scores != "sigmoid" && scores != "noaux_tc") {
    throw config.error("scoring_func", "is not sigmoid");
  }
  read_experts(config, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("first_k_dense_replace").value_or(0);
  sizes.shared_expert = sizes.expert * config.find_count("n_shared_experts").value_or(1);
  for (const char* key : {"n_group", "topk_group"}) {
    if (config.find_count(key).value_or(1) != 1) {
      throw config.error(key, "is not 1: groups of experts are not supported here");
    }
  }
}

void add_sigmoid_mixture(const Config& config, const Sizes& sizes, const std::string& prefix,
                         gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  // Several experts for all tokens are one that is as wide as all of them.
  writer.add(prefix + ".expert_shared_count",
             static_cast<std::uint32_t>(sizes.shared_expert / sizes.expert));
  writer.add(prefix + ".expert_gating_func", std::uint32_t{2});
  writer.add(prefix + ".expert_weights_norm", config.find_flag("norm_topk_prob").value_or(true));
  writer.add(prefix + ".expert_weights_scale",
             config.find_number("routed_scaling_factor").value_or(1));
}

// --- ERNIE 4.5 ---

constexpr Part ernie_choice_bias[] = {
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", &Sizes::experts}};
constexpr Block ernie_blocks[] = {norm_of_attention, attention, norm_of_feed_forward, router,
                                  ernie_choice_bias, experts,   shared_experts};
constexpr LayerKind ernie_layers[] = {{"d", plain_blocks}, {"*", ernie_blocks}};
constexpr Aside ernie_aside[] = {{"model.mtp_", "layers that predict several tokens"}};

void read_ernie_mixture(const Config& config, Sizes& sizes) {
  require_flag(config, "use_bias", false);
  read_experts(config, "moe_num_experts", "moe_k", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("moe_layer_start_index").value_or(0);
  sizes.shared_expert = sizes.expert * config.count("moe_num_shared_experts");
  if (config.find_count("moe_layer_interval").value_or(1) != 1) {
    throw config.error("moe_layer_interval", "is not 1");
  }
  const auto last = config.find_whole("moe_layer_end_index");
  if (last && *last + std::uint64_t{1} != sizes.layers) {
    throw config.error("moe_layer_end_index", "is not that of the last layer");
  }
}

void add_ernie_mixture(const Config&, const Sizes& sizes, const std::string& prefix,
                       gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".interleave_moe_layer_step", std::uint32_t{1});
}

// --- Hunyuan ---

constexpr Part hunyuan_head_norms[] = {
    norm("self_attn.query_layernorm.weight", "attn_q_norm.weight", &Sizes::head),
    norm("self_attn.key_layernorm.weight", "attn_k_norm.weight", &Sizes::head),
};
constexpr Part hunyuan_router[] = {
    {"mlp.gate.wg.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts}};
constexpr Part hunyuan_shared_expert[] = {
    {"mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight", &Sizes::embedding,
     &Sizes::shared_expert},
    {"mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight", &Sizes::shared_expert,
     &Sizes::embedding},
};
constexpr Block hunyuan_blocks[] = {norm_of_attention, attention, hunyuan_head_norms,
                                    norm_of_feed_forward, feed_forward};
constexpr LayerKind hunyuan_layers[] = {{"*", hunyuan_blocks}};
constexpr Block hunyuan_mixture_blocks[] = {
    norm_of_attention, attention, hunyuan_head_norms,   norm_of_feed_forward,
    hunyuan_router,    experts,   hunyuan_shared_expert};
constexpr LayerKind hunyuan_mixture_layers[] = {{"*", hunyuan_mixture_blocks}};

void read_hunyuan(const Config& config, Sizes&) {
  require_flag(config, "use_qk_norm", true);
  require_flag(config, "attention_bias", false);
  require_flag(config, "use_cla", false);  // layers that share keys and values
}

void read_hunyuan_mixture(const Config& config, Sizes& sizes) {
  read_hunyuan(config, sizes);
  sizes.experts = same_in_layers(config, "num_experts");
  sizes.experts_used = same_in_layers(config, "moe_topk");
  check_experts_used(config, "moe_topk", sizes);
  sizes.expert = config.contains("moe_intermediate_size")
                     ? same_in_layers(config, "moe_intermediate_size")
                     : sizes.feed_forward;
  sizes.shared_expert = sizes.feed_forward * same_in_layers(config, "num_shared_expert");
  sizes.feed_forward = sizes.expert;  // no layer is dense, and llama.cpp takes this for an expert's
}

// --- Granite 3, whose experts are stacked, and gate and up of each in one matrix ---

constexpr Part granite_router[] = {{"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight",
                                    &Sizes::embedding, &Sizes::experts}};
constexpr Part granite_experts[] = {
    stacked_gate("block_sparse_moe.input_linear.weight"),
    stacked_up("block_sparse_moe.input_linear.weight"),
    expert("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
constexpr Part granite_shared_expert[] = {
    {.theirs = "shared_mlp.input_linear.weight",
     .ours = "ffn_gate_shexp.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::shared_expert,
     .all_rows = &Sizes::fused_shared_expert},
    {.theirs = "shared_mlp.input_linear.weight",
     .ours = "ffn_up_shexp.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::shared_expert,
     .all_rows = &Sizes::fused_shared_expert,
     .first_row = &Sizes::shared_expert},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", &Sizes::shared_expert,
     &Sizes::embedding},
};
constexpr Block granite_blocks[] = {norm_of_attention, attention, norm_of_feed_forward,
                                    granite_router, granite_experts};
constexpr LayerKind granite_layers[] = {{"*", granite_blocks}};
constexpr Block granite_shared_blocks[] = {norm_of_attention,    attention,
                                           norm_of_feed_forward, granite_router,
                                           granite_experts,      granite_shared_expert};
constexpr LayerKind granite_shared_layers[] = {{"*", granite_shared_blocks}};

void read_granite_mixture(const Config& config, Sizes& sizes) {
  read_experts(config, "num_local_experts", "num_experts_per_tok", nullptr, sizes);
  sizes.shared_expert = config.find_whole("shared_intermediate_size").value_or(0);
}

void add_granite_mixture(const Config& config, const Sizes& sizes, const std::string& prefix,
                         gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  add_granite_scales(config, sizes, prefix, writer);
}

// --- Ling and Ring 2 (BailingMoE) ---

constexpr Part bailing_attention[] = {
    {"attention.query_key_value.weight", "attn_qkv.weight", &Sizes::embedding,
     &Sizes::fused_attention},
    {"attention.dense.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    norm("attention.query_layernorm.weight", "attn_q_norm.weight", &Sizes::head),
    norm("attention.key_layernorm.weight", "attn_k_norm.weight", &Sizes::head),
};
constexpr Part bailing_router[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {"mlp.gate.expert_bias", "exp_probs_b.bias", &Sizes::experts},
};
constexpr Part bailing_globals[] = {
    {"word_embeddings.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("norm.weight", "output_norm.weight", &Sizes::embedding),
};
constexpr Block bailing_dense_blocks[] = {norm_of_attention, bailing_attention,
                                          norm_of_feed_forward, feed_forward};
constexpr Block bailing_blocks[] = {norm_of_attention, bailing_attention, norm_of_feed_forward,
                                    bailing_router,    experts,           shared_experts};
constexpr LayerKind bailing_layers[] = {{"d", bailing_dense_blocks}, {"*", bailing_blocks}};

void read_bailing(const Config& config, Sizes& sizes) {
  require_text(config, "score_function", "sigmoid");
  require_flag(config, "norm_topk_prob", true);
  require_flag(config, "use_qk_norm", true);
  for (const char* key : {"use_qkv_bias", "use_bias"}) require_flag(config, key, false);
  read_experts(config, "num_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("first_k_dense_replace").value_or(0);
  sizes.shared_expert = config.find_count("moe_shared_expert_intermediate_size")
                            .value_or(config.count("moe_intermediate_size"));
  sizes.shared_expert *= config.count("num_shared_experts");
}

void add_bailing(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  // Several experts for all tokens are one that is as wide as all of them.
  writer.add(prefix + ".expert_shared_count", std::uint32_t{1});
  writer.add(prefix + ".expert_gating_func", std::uint32_t{2});
  writer.add(prefix + ".expert_weights_norm", true);
  writer.add(prefix + ".expert_weights_scale",
             config.find_number("routed_scaling_factor").value_or(1));
  writer.add(prefix + ".expert_group_count", config.find_count("n_group").value_or(1));
  writer.add(prefix + ".expert_group_used_count", config.find_count("topk_group").value_or(1));
}

// --- MiniMax-M2 ---

constexpr Part minimax_router[] = {
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", &Sizes::experts},
};
constexpr Block minimax_blocks[] = {norm_of_attention,    attention,      wide_norms,
                                    norm_of_feed_forward, minimax_router, sparse_experts};
constexpr LayerKind minimax_layers[] = {{"*", minimax_blocks}};

void read_minimax(const Config& config, Sizes& sizes) {
  require_text(config, "scoring_func", "sigmoid");
  read_experts(config, "num_local_experts", "num_experts_per_tok", nullptr, sizes);
  if (const auto rotated = config.find_count("rotary_dim")) {
    if (*rotated > sizes.head || *rotated % 2 != 0) {
      throw config.error("rotary_dim", "is no number of pairs of a head");
    }
    sizes.rotated = *rotated;
  }
}

void add_minimax(const Config&, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".expert_gating_func", std::uint32_t{2});
}

// --- SmallThinker, whose router sees what comes into a layer, before attention ---

constexpr Part smallthinker_experts[] = {
    {"block_sparse_moe.primary_router.weight", "ffn_gate_inp.weight", &Sizes::embedding,
     &Sizes::experts},
    expert("block_sparse_moe.experts.{}.gate.weight", "ffn_gate_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("block_sparse_moe.experts.{}.up.weight", "ffn_up_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("block_sparse_moe.experts.{}.down.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
constexpr Block smallthinker_blocks[] = {norm_of_attention, attention, norm_of_feed_forward,
                                         smallthinker_experts};
constexpr LayerKind smallthinker_layers[] = {{"*", smallthinker_blocks}};

// Whether the layers have windows: all but the first of each four, or none. Those with a window
// rotate, and all others only where none has one. Readers know no other models.
bool has_smallthinker_windows(const Config& config) {
  const nlohmann::json* windows = config.find_list("sliding_window_layout");
  const bool has_windows =
      windows != nullptr && std::find(windows->begin(), windows->end(), 1) != windows->end();
  const auto check = [&](const char* key, int usual) {
    const nlohmann::json* list = config.find_list(key);
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if ((*list)[i] == (has_windows ? (i % 4 != 0 ? 1 : 0) : usual)) continue;
      throw config.error(
          key, fmt::format("has {} for layer {}, which is not supported", (*list)[i].dump(), i));
    }
  };
  check("sliding_window_layout", 0);
  check("rope_layout", 1);
  if (has_windows && config.count("sliding_window_size") != 4096) {
    throw config.error("sliding_window_size", "is not 4096");
  }
  return has_windows;
}

void read_smallthinker(const Config& config, Sizes& sizes) {
  for (const char* key : {"use_qk_norm", "moe_enable_secondary_experts"}) {
    require_flag(config, key, false);
  }
  require_flag(config, "moe_enable_early_router", true);
  if (config.find_whole("moe_shared_primary_experts").value_or(0) != 0) {
    throw config.error("moe_shared_primary_experts", "is not 0");
  }
  has_smallthinker_windows(config);
  read_experts(config, "moe_num_primary_experts", "moe_num_active_primary_experts",
               "moe_ffn_hidden_size", sizes);
  sizes.feed_forward = sizes.expert;  // no layer has another network
}

void add_smallthinker(const Config& config, const Sizes& sizes, const std::string& prefix,
                      gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  const bool takes_shares = config.find_flag("moe_primary_router_apply_softmax").value_or(false);
  writer.add(prefix + ".expert_gating_func", std::uint32_t{takes_shares ? 1u : 2u});
  if (has_smallthinker_windows(config)) {
    writer.add(prefix + ".attention.sliding_window", config.count("sliding_window_size"));
  }
}

// --- Mellum 2: Qwen 3 with experts, and windows in some layers ---

constexpr RenamedSetting mellum_settings[] = {{"num_local_experts", "num_experts"}};

void read_mellum(const Config& config, Sizes& sizes) {
  require_flag(config, "attention_bias", false);
  read_qwen_experts(config, true, sizes);
  const nlohmann::json* networks = config.find_list("mlp_layer_types");
  for (std::size_t i = 0; networks != nullptr && i < networks->size(); ++i) {
    if ((*networks)[i] == "sparse") continue;
    throw config.error("mlp_layer_types", fmt::format("has no experts in layer {}", i));
  }
}

void add_mellum(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  const auto window = config.find_count("sliding_window");
  if (!window || !config.contains("layer_types")) return;
  if (!config.find_flag("use_sliding_window").value_or(true)) return;
  add_windows(kinds_from(config, window_names, sizes), *window, prefix, writer);
  writer.add(prefix + ".rope.freq_base_swa", window_rope_base(config));
}

// --- Qwen 3 VL with experts, whose stacks have rows and columns exchanged ---

constexpr Part transposed(Part part) {
  part.form = Form::transposed;
  return part;
}
constexpr Part qwen3vl_experts[] = {
    transposed(stacked_gate("mlp.experts.gate_up_proj")),
    transposed(stacked_up("mlp.experts.gate_up_proj")),
    transposed(
        expert("mlp.experts.down_proj", "ffn_down_exps.weight", &Sizes::expert, &Sizes::embedding)),
};
constexpr Block qwen3vl_mixture_blocks[] = {norm_of_attention,    attention, head_norms,
                                            norm_of_feed_forward, router,    qwen3vl_experts};
constexpr LayerKind qwen3vl_mixture_layers[] = {{"*", qwen3vl_mixture_blocks}};

void read_qwen3vl_mixture(const Config& config, Sizes& sizes) {
  read_qwen_experts(config, true, sizes);
}

void add_qwen3vl_mixture(const Config& config, const Sizes& sizes, const std::string& prefix,
                         gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  add_qwen3vl(config, sizes, prefix, writer);
}

// --- gpt-oss: stacks of experts in MXFP4, or transposed; rows of gate and up take turns ---

constexpr Part gpt_oss_layer[] = {
    {"self_attn.o_proj.bias", "attn_output.bias", &Sizes::embedding},
    {"self_attn.sinks", "attn_sinks.weight", &Sizes::query_heads},
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
    {"mlp.router.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {"mlp.router.bias", "ffn_gate_inp.bias", &Sizes::experts},
};
constexpr Part alternating(std::string_view ours, Size first) {
  Part part = transposed(stacked_gate("mlp.experts.gate_up_proj"));
  part.ours = ours;
  part.order = Order::alternating_rows;
  part.first_row = first;
  return part;
}
constexpr Part alternating_bias(std::string_view ours, Size first) {
  return {.theirs = "mlp.experts.gate_up_proj_bias",
          .ours = ours,
          .columns = &Sizes::expert,
          .rows = &Sizes::experts,
          .order = Order::alternating_columns,
          .all_columns = &Sizes::fused_expert,
          .first_row = first};
}
constexpr Part gpt_oss_experts[] = {
    alternating("ffn_gate_exps.weight", nullptr),
    alternating("ffn_up_exps.weight", &Sizes::one),
    qwen3vl_experts[2],
    alternating_bias("ffn_gate_exps.bias", nullptr),
    alternating_bias("ffn_up_exps.bias", &Sizes::one),
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", &Sizes::embedding, &Sizes::experts},
};
constexpr Block gpt_oss_blocks[] = {norm_of_attention, attention, attention_biases, gpt_oss_layer,
                                    gpt_oss_experts};
constexpr LayerKind gpt_oss_layers[] = {{"*", gpt_oss_blocks}};

void read_gpt_oss(const Config& config, Sizes& sizes) {
  require_flag(config, "attention_bias", true);
  if (config.find_number("swiglu_limit").value_or(7) != 7) {
    throw config.error("swiglu_limit", "is not 7");
  }
  read_experts(config, "num_local_experts", "num_experts_per_tok", nullptr, sizes);
}

void add_gpt_oss(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  check_windows(config, 2);
  writer.add(prefix + ".attention.sliding_window", config.count("sliding_window"));
}

constexpr Family mixture_family_table[] = {
    {.architecture = "GptOssForCausalLM",
     .ours = "gpt-oss",
     .layers = gpt_oss_layers,
     .read_sizes = read_gpt_oss,
     .add_keys = add_gpt_oss},
    {.architecture = "Qwen3VLMoeForConditionalGeneration",
     .ours = "qwen3vlmoe",
     .layers = qwen3vl_mixture_layers,
     .stem = "model.language_model.",
     .aside = qwen3vl_aside,
     .read_sizes = read_qwen3vl_mixture,
     .add_keys = add_qwen3vl_mixture},
    {.architecture = "Qwen3MoeForCausalLM",
     .ours = "qwen3moe",
     .layers = qwen3moe_layers,
     .ignores_window = true,
     .read_sizes = read_qwen3moe,
     .add_keys = add_plain_experts},
    {.architecture = "Qwen2MoeForCausalLM",
     .ours = "qwen2moe",
     .layers = qwen2moe_layers,
     .ignores_window = true,
     .read_sizes = read_qwen2moe,
     .add_keys = add_plain_experts},
    {.architecture = "OlmoeForCausalLM",
     .ours = "olmoe",
     .layers = olmoe_layers,
     .read_sizes = read_olmoe,
     .add_keys = add_plain_experts},
    {.architecture = "Glm4MoeForCausalLM",
     .ours = "glm4moe",
     .layers = glm_layers,
     .read_sizes = read_sigmoid_mixture,
     .kinds = leading_kinds,
     .add_keys = add_sigmoid_mixture},
    {.architecture = "Dots1ForCausalLM",
     .ours = "dots1",
     .layers = dots_layers,
     .read_sizes = read_sigmoid_mixture,
     .kinds = leading_kinds,
     .add_keys = add_sigmoid_mixture},
    {.architecture = "Ernie4_5_MoeForCausalLM",
     .ours = "ernie4_5-moe",
     .layers = ernie_layers,
     .aside = ernie_aside,
     .read_sizes = read_ernie_mixture,
     .kinds = leading_kinds,
     .add_keys = add_ernie_mixture},
    {.architecture = "HunYuanDenseV1ForCausalLM",
     .ours = "hunyuan-dense",
     .layers = hunyuan_layers,
     .read_sizes = read_hunyuan},
    {.architecture = "HunYuanMoEV1ForCausalLM",
     .ours = "hunyuan-moe",
     .layers = hunyuan_mixture_layers,
     .read_sizes = read_hunyuan_mixture,
     .add_keys = add_plain_experts},
    {.architecture = "GraniteMoeForCausalLM",
     .ours = "granitemoe",
     .layers = granite_layers,
     .interleaves_heads = true,
     .read_sizes = read_granite_mixture,
     .add_keys = add_granite_mixture},
    {.architecture = "GraniteMoeSharedForCausalLM",
     .ours = "granitemoe",
     .layers = granite_shared_layers,
     .interleaves_heads = true,
     .read_sizes = read_granite_mixture,
     .add_keys = add_granite_mixture},
    {.architecture = "BailingMoeV2ForCausalLM",
     .ours = "bailingmoe2",
     .layers = bailing_layers,
     .globals = bailing_globals,
     .read_sizes = read_bailing,
     .kinds = leading_kinds,
     .add_keys = add_bailing},
    {.architecture = "MiniMaxM2ForCausalLM",
     .ours = "minimax-m2",
     .layers = minimax_layers,
     .read_sizes = read_minimax,
     .add_keys = add_minimax},
    {.architecture = "MellumForCausalLM",
     .ours = "mellum",
     .layers = qwen3moe_layers,
     .renamed = mellum_settings,
     .read_sizes = read_mellum,
     .add_keys = add_mellum},
    {.architecture = "SmallThinkerForCausalLM",
     .ours = "smallthinker",
     .layers = smallthinker_layers,
     .activation = "",  // that of the code, without a setting
     .read_sizes = read_smallthinker,
     .add_keys = add_smallthinker},
};

}  // namespace

std::string leading_kinds(const Config& config, const Sizes& sizes) {
  if (sizes.leading_dense > sizes.layers) {
    throw config.error("num_hidden_layers", "is less than the layers without experts");
  }
  return std::string(sizes.leading_dense, 'd') +
         std::string(sizes.layers - sizes.leading_dense, '*');
}

void read_experts(const Config& config, const char* count, const char* used, const char* width,
                  Sizes& sizes) {
  sizes.experts = config.count(count);
  sizes.experts_used = config.count(used);
  sizes.expert = width != nullptr ? config.count(width) : sizes.feed_forward;
  check_experts_used(config, used, sizes);
}

void read_qwen_experts(const Config& config, bool divides_by_sum, Sizes& sizes) {
  require_flag(config, "norm_topk_prob", divides_by_sum);
  read_experts(config, "num_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  const nlohmann::json* dense = config.find_list("mlp_only_layers");
  if ((dense != nullptr && !dense->empty()) ||
      config.find_count("decoder_sparse_step").value_or(1) != 1) {
    throw config.error("decoder_sparse_step", "or mlp_only_layers leaves layers without experts");
  }
}

void add_experts(const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  const auto add = [&](const char* key, std::uint64_t value) {
    if (value != 0) writer.add(prefix + key, static_cast<std::uint32_t>(value));
  };
  add(".expert_count", sizes.experts);
  add(".expert_used_count", sizes.experts_used);
  add(".expert_feed_forward_length", sizes.expert);
  add(".expert_shared_feed_forward_length", sizes.shared_expert);
  add(".leading_dense_block_count", sizes.leading_dense);
}

std::span<const Family> mixture_families() {
  return mixture_family_table;
}

}  // namespace sluice::convert
