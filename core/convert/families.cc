#include "core/convert/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <vector>

#include "core/convert/family_tables.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

constexpr Part fused_attention[] = {
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", &Sizes::embedding, &Sizes::fused_attention},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part fused_gate_and_up[] = {
    {"mlp.gate_up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::fused_feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Part glm_norms[] = {
    norm("post_self_attn_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
    norm("post_attention_layernorm.weight", "ffn_norm.weight", &Sizes::embedding),
    norm("post_mlp_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding),
};
constexpr Part olmo_norms[] = {
    norm("self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::queries),
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::keys),
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
    norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding),
};

constexpr Block qwen2_blocks[] = {norm_of_attention, attention, attention_biases,
                                  norm_of_feed_forward, feed_forward};
constexpr Block phi3_blocks[] = {norm_of_attention, fused_attention, norm_of_feed_forward,
                                 fused_gate_and_up};
constexpr Block glm4_blocks[] = {norm_of_attention, attention, attention_biases, glm_norms,
                                 fused_gate_and_up};
constexpr Block olmo_blocks[] = {olmo_norms, attention, feed_forward};

constexpr LayerKind qwen2_layers[] = {{"*", qwen2_blocks}};
constexpr LayerKind phi3_layers[] = {{"*", phi3_blocks}};
constexpr LayerKind glm4_layers[] = {{"*", glm4_blocks}};
constexpr LayerKind olmo_layers[] = {{"*", olmo_blocks}};

// Which layers do not rotate is a part of the architecture here, not a key.
void check_smollm3(const Config& config, const Sizes&, const std::string&, gguf::Writer&) {
  const nlohmann::json* layers = config.find_list("no_rope_layers");
  if (layers == nullptr) return;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    if ((*layers)[i] != ((i + 1) % 4 != 0 ? 1 : 0)) {
      throw config.error("no_rope_layers", "is not that every fourth layer does not rotate");
    }
  }
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
  add_windows(sizes, config.count("sliding_window"), 4, prefix, writer);
}

void add_mistral3(const Config& config, const Sizes&, const std::string& prefix,
                  gguf::Writer& writer) {
  const auto settings = rope_settings(config);
  const auto beta = settings ? settings->find_number("llama_4_scaling_beta") : std::nullopt;
  if (beta) writer.add(prefix + ".attention.temperature_scale", *beta);
}

constexpr Family attention_families[] = {
    {.architecture = "Qwen3ForCausalLM",
     .ours = "qwen3",
     .layers = qwen3_layers,
     .ignores_window = true},
    {.architecture = "Qwen2ForCausalLM",
     .ours = "qwen2",
     .layers = qwen2_layers,
     .ignores_window = true},
    {.architecture = "LlamaForCausalLM",
     .ours = "llama",
     .layers = plain_layers,
     .interleaves_heads = true},
    {.architecture = "MistralForCausalLM",
     .ours = "llama",
     .layers = plain_layers,
     .interleaves_heads = true,
     .ignores_window = true},
    {.architecture = "SmolLM3ForCausalLM",
     .ours = "smollm3",
     .layers = plain_layers,
     .interleaves_heads = true,
     .ignores_window = true,
     .add_keys = check_smollm3},
    {.architecture = "GraniteForCausalLM",
     .ours = "granite",
     .layers = plain_layers,
     .interleaves_heads = true,
     .add_keys = add_granite_scales},
    {.architecture = "Phi3ForCausalLM",
     .ours = "phi3",
     .layers = phi3_layers,
     .ignores_window = true,
     .add_keys = add_phi3},
    {.architecture = "Glm4ForCausalLM", .ours = "glm4", .layers = glm4_layers},
    {.architecture = "Olmo2ForCausalLM", .ours = "olmo2", .layers = olmo_layers},
    {.architecture = "Olmo3ForCausalLM",
     .ours = "olmo2",
     .layers = olmo_layers,
     .add_keys = add_olmo3},
    {.architecture = "Ministral3ForCausalLM",
     .ours = "mistral3",
     .layers = plain_layers,
     .interleaves_heads = true,
     .ignores_window = true,
     .add_keys = add_mistral3},
};

// How much of a head rotates.
std::uint64_t rotated_of(const Config& config, std::uint64_t head) {
  std::optional<float> share = config.find_number("partial_rotary_factor");
  const auto settings = rope_settings(config);
  if (!share && settings) share = settings->find_number("partial_rotary_factor");
  // A share such as 0.4 is no number of floats.
  const auto exact = static_cast<double>(share.value_or(1)) * static_cast<double>(head);
  const double rotated = std::round(exact);
  if (!(rotated >= 2 && rotated <= static_cast<double>(head) && std::fmod(rotated, 2) == 0 &&
        std::abs(exact - rotated) < 1e-3)) {
    throw config.error("partial_rotary_factor",
                       fmt::format("is no share of pairs of a head of {}", head));
  }
  return static_cast<std::uint64_t>(rotated);
}

std::uint64_t layers_of(const Config& config) {
  const auto count = config.find_count("num_hidden_layers");
  const nlohmann::json* list = layer_list(config);
  if (!count && list != nullptr && !list->empty()) return list->size();
  return count ? *count : config.count("num_hidden_layers");
}

std::uint64_t head_of(const Config& config, const Sizes& sizes) {
  // The last is that of latent attention, of whose heads only so much rotates.
  for (const char* key : {"head_dim", "attention_head_dim", "qk_rope_head_dim"}) {
    if (const auto head = config.find_count(key)) return *head;
  }
  if (sizes.embedding % sizes.query_heads != 0) {
    throw config.error("num_attention_heads", "does not divide hidden_size");
  }
  return sizes.embedding / sizes.query_heads;
}

}  // namespace

const nlohmann::json* layer_list(const Config& config) {
  for (const char* key : {"layer_types", "layers_block_type"}) {
    if (const nlohmann::json* list = config.find_list(key)) return list;
  }
  return nullptr;
}

void Sizes::derive() {
  queries = query_heads * head;
  keys = key_heads * head;
  gated_queries = 2 * queries;
  fused_attention = queries + 2 * keys;
  all_positions = unused_positions + positions;
  fused_feed_forward = 2 * feed_forward;
  gates_and_value = 3 * embedding;
  group = groups > 0 ? inner / groups : 0;
  channels = inner + 2 * groups * state;
  mixer_input = inner + channels + recurrent_heads;
  values_and_gates = 2 * inner;
  steps_and_keys = recurrent_heads + 2 * state;
  layer_embeddings = layers * layer_embedding;
  other_streams = streams > 0 ? streams - 1 : 0;
  stream_pairs = streams * streams;
  fused_expert = 2 * expert;
  fused_shared_expert = 2 * shared_expert;
  betas_and_alphas = 2 * recurrent_heads;
  delta_input = channels + inner;
  queries_and_keys = queries + keys;
  latent_queries = query_heads * (unrotated + rotated);
  latent_keys = latent + rotated;
  latent_values = query_heads * latent_value;
  key_and_value = unrotated + latent_value;
  plain_queries = query_rank == 0 ? 1 : 0;
}

const Family& family_by_architecture(const Config& config) {
  const nlohmann::json* list = config.find_list("architectures");
  const bool is_one = list != nullptr && list->size() == 1 && list->front().is_string();
  if (!is_one) throw config.error("architectures", "is not a list of one name");
  const auto name = list->front().get<std::string>();
  const std::span<const Family> tables[] = {
      attention_families, dense_families(),  gemma_families(),     encoder_families(),
      mixture_families(), latent_families(), recurrent_families(), mamba_families()};
  for (const std::span<const Family> families : tables) {
    for (const Family& family : families) {
      const bool is_named = family.architecture == name;
      if (is_named && (family.applies == nullptr || family.applies(config))) return family;
    }
  }
  throw config.error("architectures", fmt::format("is {}, which is not supported; docs/quantize.md "
                                                  "lists those that are",
                                                  text::quoted(name)));
}

std::optional<Config> all_rope_settings(const Config& config) {
  auto scaling = config.find_object("rope_scaling");
  auto parameters = config.find_object("rope_parameters");
  if (!scaling || config.find("rope_scaling")->empty()) return parameters;
  if (!parameters || config.find("rope_parameters")->empty()) return scaling;
  // transformers would follow rope_scaling, and a base that only the other has would be lost.
  nlohmann::json expected = *config.find("rope_parameters");
  if (!scaling->contains("rope_theta")) expected.erase("rope_theta");
  if (*config.find("rope_scaling") != expected) {
    throw config.error("rope_scaling", "is not as rope_parameters; leave one of the two out");
  }
  return parameters;
}

std::optional<Config> rope_settings(const Config& config) {
  const auto settings = all_rope_settings(config);
  const auto of_full_layers = settings ? settings->find_object("full_attention") : std::nullopt;
  return of_full_layers ? of_full_layers : settings;
}

std::uint64_t same_in_layers(const Config& config, const char* key) {
  const nlohmann::json* list = config.find(key);
  if (list == nullptr || !list->is_array()) return config.count(key);
  std::uint64_t same = 0;
  for (const nlohmann::json& one : *list) {
    const std::uint64_t count = one.is_number_unsigned() ? one.get<std::uint64_t>() : 0;
    if (count == 0 || count > (1U << 20) || (same != 0 && count != same)) {
      throw config.error(key, "is not the same number in all layers");
    }
    same = count;
  }
  if (same == 0) throw config.error(key, "is an empty list");
  return same;
}

nlohmann::json text_settings(nlohmann::json config) {
  const auto text = config.is_object() ? config.find("text_config") : config.end();
  if (text != config.end() && text->is_object()) {
    nlohmann::json merged = *text;
    for (const auto& [key, value] : config.items()) {
      const bool is_of_text = merged.contains(key) && !merged[key].is_null();
      if (key == "architectures" || !is_of_text) merged[key] = value;
    }
    config = std::move(merged);
  }
  return config;
}

Config with_usual_names(nlohmann::json config, const std::string& source) {
  for (const auto& [theirs, usual] : family_by_architecture(Config(config, source)).renamed) {
    const auto found = config.find(theirs);
    if (found != config.end() && !config.contains(usual)) config[usual] = nlohmann::json(*found);
  }
  return {std::move(config), source};
}

Sizes read_sizes(const Config& config, const Family& family) {
  Sizes sizes;
  sizes.embedding = config.count("hidden_size");
  sizes.layers = layers_of(config);
  if (family.has_attention) {
    sizes.query_heads = config.count("num_attention_heads");
    sizes.key_heads =
        config.find_count("num_key_value_heads").value_or(config.count("num_attention_heads"));
    sizes.head = head_of(config, sizes);
  } else {
    sizes.head = config.count("head_dim");
    if (sizes.embedding % sizes.head != 0) {
      throw config.error("head_dim", "does not divide hidden_size");
    }
    sizes.query_heads = sizes.key_heads = sizes.embedding / sizes.head;
  }
  if (sizes.head % 2 != 0) throw config.error("head_dim", "is odd, but halves of a head rotate");
  sizes.rotated = rotated_of(config, sizes.head);
  if (config.contains("intermediate_size")) {
    sizes.feed_forward = same_in_layers(config, "intermediate_size");
  }
  sizes.vocabulary = config.count("vocab_size");
  if (!family.activation.empty()) require_text(config, family.activation_key, family.activation);
  if (family.read_sizes != nullptr) family.read_sizes(config, sizes);
  // Tables for a head are made before anything is compared with a tensor.
  constexpr std::uint64_t head_max = 1 << 16;
  if (sizes.head > head_max) {
    throw config.error("head_dim", fmt::format("is {}, the most is {}", sizes.head, head_max));
  }
  if (sizes.query_heads % sizes.key_heads != 0) {
    throw config.error("num_key_value_heads", "does not divide num_attention_heads");
  }
  if (sizes.feed_forward == 0) throw config.error("intermediate_size", "is missing");
  sizes.derive();
  return sizes;
}

void fit_recurrent_layer(const Config&, char kind, Sizes& sizes) {
  if (kind == 'M' || kind == 'm') sizes.key_heads = 0;
}

void add_recurrence(const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  const auto add = [&](const char* key, std::uint64_t value) {
    writer.add(prefix + key, static_cast<std::uint32_t>(value));
  };
  add(".ssm.conv_kernel", sizes.taps);
  add(".ssm.inner_size", sizes.inner);
  add(".ssm.state_size", sizes.state);
  add(".ssm.time_step_rank", sizes.recurrent_heads);
  if (sizes.groups != 0) add(".ssm.group_count", sizes.groups);
}

void add_granite_scales(const Config& config, const Sizes&, const std::string& prefix,
                        gguf::Writer& writer) {
  writer.add(prefix + ".attention.scale", config.number("attention_multiplier"));
  writer.add(prefix + ".embedding_scale", config.number("embedding_multiplier"));
  writer.add(prefix + ".residual_scale", config.number("residual_multiplier"));
  writer.add(prefix + ".logit_scale", config.number("logits_scaling"));
}

void add_windows(const Sizes& sizes, std::uint32_t window, std::uint64_t period,
                 const std::string& prefix, gguf::Writer& writer) {
  std::string kinds;
  for (std::size_t i = 0; i < sizes.layers; ++i) kinds += (i + 1) % period != 0 ? '~' : '*';
  add_windows(kinds, window, prefix, writer);
}

void add_windows(const std::string& kinds, std::uint32_t window, const std::string& prefix,
                 gguf::Writer& writer) {
  const auto slides = std::make_unique<bool[]>(kinds.size());  // a vector of bool has no data()
  std::transform(kinds.begin(), kinds.end(), slides.get(), is_windowed);
  writer.add(prefix + ".attention.sliding_window", window);
  writer.add_array(prefix + ".attention.sliding_window_pattern",
                   std::span<const bool>(slides.get(), kinds.size()));
}

float window_rope_base(const Config& config) {
  const auto by_kind = all_rope_settings(config);
  const auto local = by_kind ? by_kind->find_object("sliding_attention") : std::nullopt;
  if (!local) return config.find_number("rope_local_base_freq").value_or(10000);
  require_text(*local, "rope_type", "default");
  if (local->find_number("partial_rotary_factor").value_or(1) != 1) {
    throw local->error("partial_rotary_factor", "is not 1");
  }
  return local->find_number("rope_theta").value_or(10000);
}

// The comparison of nlohmann makes a temporary value, of which g++ 12 warns.
bool is_text(const nlohmann::json& value, std::string_view text) {
  const auto* own = value.get_ptr<const std::string*>();
  return own != nullptr && *own == text;
}

void check_windows(const Config& config, std::uint64_t period) {
  const nlohmann::json* kinds = config.find_list("layer_types");
  for (std::size_t i = 0; kinds != nullptr && i < kinds->size(); ++i) {
    const bool slides = (i + 1) % period != 0;
    if (!is_text((*kinds)[i], slides ? "sliding_attention" : "full_attention")) {
      throw config.error("layer_types",
                         fmt::format("is not that every layer has a window but each {}th", period));
    }
  }
  // A number, or a letter of each layer: "LLLG".
  const std::string letters = std::string(period - 1, 'L') + "G";
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    const nlohmann::json* pattern = config.find(key);
    if (pattern != nullptr && is_text(*pattern, letters)) continue;
    if (config.find_count(key).value_or(period) != period) {
      throw config.error(key, fmt::format("is not {}", period));
    }
  }
}

void require_rope_base(const Config& config) {
  const auto settings = rope_settings(config);
  if (config.contains("rope_theta") || (settings && settings->contains("rope_theta"))) return;
  throw config.error("rope_theta", "is missing");
}

void require_text(const Config& config, const char* key, std::string_view expected) {
  if (config.find_text(key).value_or(std::string(expected)) != expected) {
    throw config.error(key, fmt::format("is not {}", expected));
  }
}

void require_flag(const Config& config, const char* key, bool expected) {
  if (config.find_flag(key).value_or(expected) != expected) {
    throw config.error(key, fmt::format("is not {}", expected));
  }
}

std::string kinds_from(const Config& config,
                       std::span<const std::pair<std::string_view, char>> names,
                       const Sizes& sizes) {
  const nlohmann::json* list = layer_list(config);
  if (list == nullptr) throw config.error("layer_types", "is missing");
  std::string kinds;
  for (const nlohmann::json& one : *list) {
    const std::string name = one.is_string() ? one.get<std::string>() : "";
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const auto& pair) { return pair.first == name; });
    if (found == names.end()) {
      throw config.error("layer_types", fmt::format("has {} for layer {}, which is not supported",
                                                    text::quoted(name), kinds.size()));
    }
    kinds += found->second;
  }
  if (kinds.size() != sizes.layers) {
    throw config.error("layer_types",
                       fmt::format("has {} entries for {} layers", kinds.size(), sizes.layers));
  }
  return kinds;
}

}  // namespace sluice::convert
