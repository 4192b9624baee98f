#include "core/convert/families.h"

#include <array>
#include <fmt/format.h>
#include <vector>

#include "core/gguf/quoted.h"

namespace sluice::convert {
namespace {

constexpr Part attention[] = {
    {"input_layernorm.weight", "attn_norm.weight", &Sizes::embedding},
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
constexpr Part feed_forward[] = {
    {"post_attention_layernorm.weight", "ffn_norm.weight", &Sizes::embedding},
    {"mlp.gate_proj.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};

constexpr std::span<const Part> plain_layer[] = {attention, feed_forward};
constexpr std::span<const Part> qwen2_layer[] = {attention, attention_biases, feed_forward};
constexpr std::span<const Part> qwen3_layer[] = {attention, head_norms, feed_forward};

// Which layers do not rotate is a part of the architecture here, not a key.
void check_smollm3(const Config& config, const std::string&, gguf::Writer&) {
  const nlohmann::json* layers = config.find("no_rope_layers");
  if (layers == nullptr) return;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    if ((*layers)[i] != ((i + 1) % 4 != 0 ? 1 : 0)) {
      throw config.error("no_rope_layers", "is not that every fourth layer does not rotate");
    }
  }
}

void add_granite_scales(const Config& config, const std::string& prefix, gguf::Writer& writer) {
  writer.add(prefix + ".attention.scale", config.number("attention_multiplier"));
  writer.add(prefix + ".embedding_scale", config.number("embedding_multiplier"));
  writer.add(prefix + ".residual_scale", config.number("residual_multiplier"));
  writer.add(prefix + ".logit_scale", config.number("logits_scaling"));
}

constexpr Family families[] = {
    {"Qwen3ForCausalLM", "qwen3", qwen3_layer},
    {"Qwen2ForCausalLM", "qwen2", qwen2_layer},
    {"LlamaForCausalLM", "llama", plain_layer, true},
    {"MistralForCausalLM", "llama", plain_layer, true},
    {"SmolLM3ForCausalLM", "smollm3", plain_layer, true, check_smollm3},
    {"GraniteForCausalLM", "granite", plain_layer, true, add_granite_scales},
};

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
  sizes.feed_forward = config.count("intermediate_size");
  sizes.vocabulary = config.count("vocab_size");
  return sizes;
}

}  // namespace sluice::convert
