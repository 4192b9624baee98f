#include "core/convert/families.h"

#include <array>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <vector>

#include "core/gguf/quoted.h"

namespace sluice::convert {
namespace {

constexpr Part norm_of_attention[] = {
    {"input_layernorm.weight", "attn_norm.weight", &Sizes::embedding},
};
constexpr Part attention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries,
     &Sizes::query_heads},
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys,
     &Sizes::key_heads},
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part head_norms[] = {
    {"self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::head},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::head},
};
constexpr Part attention_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", &Sizes::queries},
    {"self_attn.k_proj.bias", "attn_k.bias", &Sizes::keys},
    {"self_attn.v_proj.bias", "attn_v.bias", &Sizes::keys},
};
constexpr Part norm_of_feed_forward[] = {
    {"post_attention_layernorm.weight", "ffn_norm.weight", &Sizes::embedding},
};
constexpr Part feed_forward[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};

constexpr Part fused_attention[] = {
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", &Sizes::embedding, &Sizes::fused_attention},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part fused_gate_and_up[] = {
    {"mlp.gate_up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::fused_feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Part gemma_norms[] = {
    {"input_layernorm.weight", "attn_norm.weight", &Sizes::embedding},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", &Sizes::embedding},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding},
};
constexpr Part glm_norms[] = {
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding},
    {"post_attention_layernorm.weight", "ffn_norm.weight", &Sizes::embedding},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding},
};
constexpr Part olmo_norms[] = {
    {"self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::queries},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::keys},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding},
};

constexpr std::span<const Part> plain_layer[] = {norm_of_attention, attention, norm_of_feed_forward,
                                                 feed_forward};
constexpr std::span<const Part> qwen2_layer[] = {norm_of_attention, attention, attention_biases,
                                                 norm_of_feed_forward, feed_forward};
constexpr std::span<const Part> qwen3_layer[] = {norm_of_attention, attention, head_norms,
                                                 norm_of_feed_forward, feed_forward};
constexpr std::span<const Part> gemma2_layer[] = {gemma_norms, attention, feed_forward};
constexpr std::span<const Part> gemma3_layer[] = {gemma_norms, head_norms, attention, feed_forward};
constexpr std::span<const Part> phi3_layer[] = {norm_of_attention, fused_attention,
                                                norm_of_feed_forward, fused_gate_and_up};
constexpr std::span<const Part> glm4_layer[] = {norm_of_attention, attention, attention_biases,
                                                glm_norms, fused_gate_and_up};
constexpr std::span<const Part> olmo_layer[] = {olmo_norms, attention, feed_forward};

// Which layers do not rotate is a part of the architecture here, not a key.
void check_smollm3(const Config& config, const Sizes&, const std::string&, gguf::Writer&) {
  const nlohmann::json* layers = config.find("no_rope_layers");
  if (layers == nullptr) return;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    if ((*layers)[i] != ((i + 1) % 4 != 0 ? 1 : 0)) {
      throw config.error("no_rope_layers", "is not that every fourth layer does not rotate");
    }
  }
}

void add_granite_scales(const Config& config, const Sizes&, const std::string& prefix,
                        gguf::Writer& writer) {
  writer.add(prefix + ".attention.scale", config.number("attention_multiplier"));
  writer.add(prefix + ".embedding_scale", config.number("embedding_multiplier"));
  writer.add(prefix + ".residual_scale", config.number("residual_multiplier"));
  writer.add(prefix + ".logit_scale", config.number("logits_scaling"));
}

// Which layers have a window is a part of the architecture here: all but every n-th one.
void check_windows(const Config& config, std::uint64_t period) {
  const nlohmann::json* kinds = config.find("layer_types");
  for (std::size_t i = 0; kinds != nullptr && i < kinds->size(); ++i) {
    const bool slides = (i + 1) % period != 0;
    if ((*kinds)[i] != (slides ? "sliding_attention" : "full_attention")) {
      throw config.error("layer_types",
                         fmt::format("is not that every layer has a window but each {}th", period));
    }
  }
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (config.find_count(key).value_or(period) != period) {
      throw config.error(key, fmt::format("is not {}", period));
    }
  }
}

// `odd_depth`: layers of the one size that scales by the embedding of a head and not by its size.
void check_gemma(const Config& config, const Sizes& sizes, std::uint64_t odd_depth) {
  const auto activation = config.find_text("hidden_activation");
  if (activation.value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh") {
    throw config.error("hidden_activation", "is not gelu_pytorch_tanh");
  }
  const auto expected = static_cast<float>(
      sizes.layers == odd_depth ? sizes.embedding / sizes.query_heads : sizes.head);
  if (config.find_number("query_pre_attn_scalar").value_or(expected) != expected) {
    throw config.error("query_pre_attn_scalar", fmt::format("is not {}", expected));
  }
}

void add_gemma2(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  check_gemma(config, sizes, 46);
  check_windows(config, 2);
  writer.add(prefix + ".attention.sliding_window", config.count("sliding_window"));
  writer.add(prefix + ".attn_logit_softcapping", config.number("attn_logit_softcapping"));
  writer.add(prefix + ".final_logit_softcapping", config.number("final_logit_softcapping"));
}

void add_gemma3(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  check_gemma(config, sizes, 62);
  check_windows(config, 6);
  if (config.contains("attn_logit_softcapping")) {
    throw config.error("attn_logit_softcapping", "is given; Gemma 3 has none");
  }
  writer.add(prefix + ".attention.sliding_window", config.count("sliding_window"));
  if (const auto cap = config.find_number("final_logit_softcapping")) {
    writer.add(prefix + ".final_logit_softcapping", *cap);
  }
  std::optional<float> base = config.find_number("rope_local_base_freq");
  if (const auto by_kind = config.find_object("rope_parameters")) {
    const auto local = by_kind->find_object("sliding_attention");
    if (local) base = local->find_number("rope_theta");
  }
  writer.add(prefix + ".rope.freq_base_swa", base.value_or(10000));
}

void add_phi3(const Config& config, const Sizes&, const std::string& prefix, gguf::Writer& writer) {
  // Readers use none, but some insist on the key.
  if (const auto window = config.find_count("sliding_window")) {
    writer.add(prefix + ".attention.sliding_window", *window);
  }
}

void add_olmo3(const Config& config, const Sizes& sizes, const std::string& prefix,
               gguf::Writer& writer) {
  check_windows(config, 4);
  writer.add(prefix + ".attention.sliding_window", config.count("sliding_window"));
  const auto slides = std::make_unique<bool[]>(sizes.layers);  // a vector of bool has no data()
  for (std::size_t i = 0; i < sizes.layers; ++i) slides[i] = (i + 1) % 4 != 0;
  writer.add_array(prefix + ".attention.sliding_window_pattern",
                   std::span<const bool>(slides.get(), sizes.layers));
}

void add_mistral3(const Config& config, const Sizes&, const std::string& prefix,
                  gguf::Writer& writer) {
  const auto settings = rope_settings(config);
  if (!settings) return;
  const auto add = [&](const char* theirs, const char* ours) {
    if (const auto value = settings->find_number(theirs)) writer.add(prefix + ours, *value);
  };
  add("beta_fast", ".rope.scaling.yarn_beta_fast");
  add("beta_slow", ".rope.scaling.yarn_beta_slow");
  add("mscale_all_dim", ".rope.scaling.yarn_log_multiplier");
  add("llama_4_scaling_beta", ".attention.temperature_scale");
  if (settings->find_number("mscale").value_or(1) != 1) throw settings->error("mscale", "is not 1");
}

constexpr Family families[] = {
    {"Qwen3ForCausalLM", "qwen3", qwen3_layer},
    {"Qwen2ForCausalLM", "qwen2", qwen2_layer},
    {"LlamaForCausalLM", "llama", plain_layer, true},
    {"MistralForCausalLM", "llama", plain_layer, true},
    {"SmolLM3ForCausalLM", "smollm3", plain_layer, true, false, check_smollm3},
    {"GraniteForCausalLM", "granite", plain_layer, true, false, add_granite_scales},
    {"Gemma2ForCausalLM", "gemma2", gemma2_layer, false, true, add_gemma2},
    {"Gemma3ForCausalLM", "gemma3", gemma3_layer, false, true, add_gemma3},
    {"Phi3ForCausalLM", "phi3", phi3_layer, false, false, add_phi3},
    {"Glm4ForCausalLM", "glm4", glm4_layer},
    {"Olmo2ForCausalLM", "olmo2", olmo_layer},
    {"Olmo3ForCausalLM", "olmo2", olmo_layer, false, false, add_olmo3},
    {"Ministral3ForCausalLM", "mistral3", plain_layer, true, false, add_mistral3},
};

// How much of a head rotates.
std::uint64_t rotated_of(const Config& config, std::uint64_t head) {
  std::optional<float> share = config.find_number("partial_rotary_factor");
  const auto settings = rope_settings(config);
  if (!share && settings) share = settings->find_number("partial_rotary_factor");
  const auto rotated = static_cast<double>(share.value_or(1)) * static_cast<double>(head);
  if (!(rotated >= 2 && rotated <= static_cast<double>(head) && std::fmod(rotated, 2) == 0)) {
    throw config.error("partial_rotary_factor",
                       fmt::format("is no share of pairs of a head of {}", head));
  }
  return static_cast<std::uint64_t>(rotated);
}

}  // namespace

const Family& family_by_architecture(const Config& config) {
  const nlohmann::json* list = config.find("architectures");
  const bool is_one =
      list != nullptr && list->is_array() && list->size() == 1 && list->front().is_string();
  if (!is_one) throw config.error("architectures", "is not a list of one name");
  const auto name = list->front().get<std::string>();
  std::vector<std::string_view> known;
  for (const Family& family : families) {
    if (family.architecture == name) return family;
    known.push_back(family.architecture);
  }
  throw config.error("architectures", fmt::format("is {}; supported are {}", gguf::quoted(name),
                                                  fmt::join(known, ", ")));
}

std::optional<Config> rope_settings(const Config& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto settings = config.find_object(key);
    if (!settings) continue;
    const auto of_full_layers = settings->find_object("full_attention");
    return of_full_layers ? of_full_layers : settings;
  }
  return std::nullopt;
}

Sizes read_sizes(const Config& config) {
  Sizes sizes;
  sizes.embedding = config.count("hidden_size");
  sizes.layers = config.count("num_hidden_layers");
  sizes.query_heads = config.count("num_attention_heads");
  sizes.key_heads =
      config.find_count("num_key_value_heads").value_or(config.count("num_attention_heads"));
  const auto head = config.find_count("head_dim");
  if (!head && sizes.embedding % sizes.query_heads != 0) {
    throw config.error("num_attention_heads", "does not divide hidden_size");
  }
  sizes.head = head ? *head : sizes.embedding / sizes.query_heads;
  if (sizes.head % 2 != 0) throw config.error("head_dim", "is odd, but halves of a head rotate");
  if (sizes.query_heads % sizes.key_heads != 0) {
    throw config.error("num_key_value_heads", "does not divide num_attention_heads");
  }
  sizes.queries = sizes.query_heads * sizes.head;
  sizes.keys = sizes.key_heads * sizes.head;
  sizes.rotated = rotated_of(config, sizes.head);
  sizes.fused_attention = sizes.queries + 2 * sizes.keys;
  sizes.feed_forward = config.count("intermediate_size");
  sizes.fused_feed_forward = 2 * sizes.feed_forward;
  sizes.vocabulary = config.count("vocab_size");
  return sizes;
}

}  // namespace sluice::convert
