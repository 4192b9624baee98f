// Dense models whose tensors differ from Llama's in names, norms, biases and activations.
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

// --- Norms that subtract the mean, and biases ---

constexpr Part bias_of_attention_norm[] = {
    {"input_layernorm.bias", "attn_norm.bias", &Sizes::embedding}};
constexpr Part bias_of_feed_forward_norm[] = {
    {"post_attention_layernorm.bias", "ffn_norm.bias", &Sizes::embedding}};
constexpr Part output_bias[] = {{"self_attn.o_proj.bias", "attn_output.bias", &Sizes::embedding}};
constexpr Part globals_with_bias[] = {
    {"embed_tokens.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("norm.weight", "output_norm.weight", &Sizes::embedding),
    {"norm.bias", "output_norm.bias", &Sizes::embedding},
};

// --- Seed-OSS ---

constexpr Part seed_norm[] = {
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
};
constexpr Block seed_blocks[] = {norm_of_attention, attention, attention_biases, seed_norm,
                                 feed_forward};
constexpr LayerKind seed_layers[] = {{"*", seed_blocks}};

void read_seed(const Config& config, Sizes&) {
  require_flag(config, "attention_out_bias", false);
  require_flag(config, "mlp_bias", false);
}

// --- ERNIE 4.5 ---

void read_ernie(const Config& config, Sizes&) {
  require_flag(config, "use_bias", false);
}

// --- EXAONE 4 ---

constexpr Part exaone_norms[] = {
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
    norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding),
};
constexpr Block exaone_blocks[] = {exaone_norms, attention, head_norms, feed_forward};
constexpr LayerKind exaone_layers[] = {{"*", exaone_blocks}};

void add_exaone(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  const auto window = config.find_count("sliding_window");
  if (!window) return;
  check_windows(config, 4);
  add_windows(sizes, *window, 4, prefix, writer);
}

// --- AFM (Arcee) ---

constexpr Part plain_network[] = {
    {"mlp.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block arcee_blocks[] = {norm_of_attention, attention, norm_of_feed_forward,
                                  plain_network};
constexpr LayerKind arcee_layers[] = {{"*", arcee_blocks}};

// --- Gemma 1 ---

void read_gemma(const Config& config, Sizes&) {
  const char* key = config.contains("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string activation = config.find_text(key).value_or("gelu");
  // Early configurations say "gelu" and mean its tanh form too.
  if (activation != "gelu" && activation != "gelu_pytorch_tanh") {
    throw config.error(key, "is not gelu_pytorch_tanh");
  }
}

// --- Command R and R7B ---

constexpr Block cohere_blocks[] = {norm_of_attention, attention, feed_forward};
constexpr LayerKind cohere_layers[] = {{"*", cohere_blocks}};

void read_cohere(const Config& config, Sizes&) {
  require_flag(config, "use_qk_norm", false);
}

void add_command_r(const Config& config, const Sizes&, const std::string& prefix,
                   gguf::Writer& writer) {
  writer.add(prefix + ".logit_scale", config.number("logit_scale"));
}

void add_cohere2(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_command_r(config, sizes, prefix, writer);
  check_windows(config, 4);  // the pattern is a part of the architecture
  writer.add(prefix + ".attention.sliding_window", config.count("sliding_window"));
}

// --- StarCoder 2 ---

constexpr Part starcoder_network[] = {
    {"mlp.c_fc.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.c_fc.bias", "ffn_up.bias", &Sizes::feed_forward},
    {"mlp.c_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    {"mlp.c_proj.bias", "ffn_down.bias", &Sizes::embedding},
};
constexpr Block starcoder_blocks[] = {norm_of_attention,
                                      bias_of_attention_norm,
                                      attention,
                                      attention_biases,
                                      output_bias,
                                      norm_of_feed_forward,
                                      bias_of_feed_forward_norm,
                                      starcoder_network};
constexpr LayerKind starcoder_layers[] = {{"*", starcoder_blocks}};

void read_starcoder(const Config& config, Sizes&) {
  require_flag(config, "use_bias", true);
}

// --- Phi 1 to 2 ---

constexpr Part phi_output[] = {
    {"self_attn.dense.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    {"self_attn.dense.bias", "attn_output.bias", &Sizes::embedding},
};
constexpr Part phi_projections[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries},
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
};
constexpr Part phi_network[] = {
    {"mlp.fc1.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.fc1.bias", "ffn_up.bias", &Sizes::feed_forward},
    {"mlp.fc2.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    {"mlp.fc2.bias", "ffn_down.bias", &Sizes::embedding},
};
constexpr Block phi_blocks[] = {norm_of_attention, bias_of_attention_norm,
                                phi_projections,   attention_biases,
                                phi_output,        phi_network};
constexpr LayerKind phi_layers[] = {{"*", phi_blocks}};
constexpr Part phi_globals[] = {
    {"embed_tokens.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("final_layernorm.weight", "output_norm.weight", &Sizes::embedding),
    {"final_layernorm.bias", "output_norm.bias", &Sizes::embedding},
};

void read_phi(const Config& config, Sizes&) {
  require_flag(config, "qk_layernorm", false);
}

// --- StableLM ---

constexpr Part optional_attention_biases[] = {
    {.theirs = "self_attn.q_proj.bias",
     .ours = "attn_q.bias",
     .columns = &Sizes::queries,
     .is_optional = true},
    {.theirs = "self_attn.k_proj.bias",
     .ours = "attn_k.bias",
     .columns = &Sizes::keys,
     .is_optional = true},
    {.theirs = "self_attn.v_proj.bias",
     .ours = "attn_v.bias",
     .columns = &Sizes::keys,
     .is_optional = true},
};
constexpr Block stablelm_blocks[] = {
    norm_of_attention,    bias_of_attention_norm,    attention,   optional_attention_biases,
    norm_of_feed_forward, bias_of_feed_forward_norm, feed_forward};
constexpr LayerKind stablelm_layers[] = {{"*", stablelm_blocks}};

void read_stablelm(const Config& config, Sizes&) {
  require_flag(config, "qk_layernorm", false);
  require_flag(config, "use_parallel_residual", false);
}

// --- MiniCPM ---

void add_minicpm(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  const float depth = config.number("scale_depth");
  const auto embedding = static_cast<float>(sizes.embedding);
  writer.add(prefix + ".embedding_scale", config.number("scale_emb"));
  writer.add(prefix + ".residual_scale", depth / std::sqrt(static_cast<float>(sizes.layers)));
  writer.add(prefix + ".logit_scale", embedding / config.number("dim_model_base"));
}

}  // namespace

// --- Qwen 3 VL ---

// Readers of images need the sections; the rotation of texts does not.
void add_qwen3vl(const Config& config, const Sizes&, const std::string& prefix,
                 gguf::Writer& writer) {
  const auto settings = rope_settings(config);
  const nlohmann::json* list = settings ? settings->find_list("mrope_section") : nullptr;
  if (list == nullptr) return;
  std::vector<std::int32_t> sections;
  for (const nlohmann::json& one : *list) {
    if (!one.is_number_integer()) throw config.error("mrope_section", "holds what is no number");
    sections.push_back(one.get<std::int32_t>());
  }
  sections.resize(4);
  writer.add_array(prefix + ".rope.dimension_sections", std::span<const std::int32_t>(sections));
}

namespace {

// --- Apertus: the numbers of its activation are tensors ---

constexpr Part apertus_norm_of_attention[] = {
    norm("attention_layernorm.weight", "attn_norm.weight", &Sizes::embedding)};
constexpr Part apertus_norm_of_feed_forward[] = {
    norm("feedforward_layernorm.weight", "ffn_norm.weight", &Sizes::embedding)};
constexpr Block apertus_blocks[] = {apertus_norm_of_attention, attention, head_norms,
                                    apertus_norm_of_feed_forward, plain_network};
constexpr LayerKind apertus_layers[] = {{"*", apertus_blocks}};
constexpr LayerNumber apertus_numbers[] = {{"mlp.act_fn.alpha_p", "xielu.alpha_p"},
                                           {"mlp.act_fn.alpha_n", "xielu.alpha_n"},
                                           {"mlp.act_fn.beta", "xielu.beta"},
                                           {"mlp.act_fn.eps", "xielu.eps"}};

void read_apertus(const Config& config, Sizes&) {
  for (const char* key : {"attention_bias", "mlp_bias"}) require_flag(config, key, false);
  require_flag(config, "qk_norm", true);
  require_flag(config, "post_norm", false);
}

// --- InternLM 2 ---

constexpr Part internlm_layer[] = {
    norm("attention_norm.weight", "attn_norm.weight", &Sizes::embedding),
    {.theirs = "attention.wqkv.weight",
     .ours = "attn_q.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::queries,
     .order = Order::grouped_rows,
     .all_rows = &Sizes::fused_attention},
    {.theirs = "attention.wqkv.weight",
     .ours = "attn_k.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .order = Order::grouped_rows,
     .all_rows = &Sizes::fused_attention,
     .first_row = &Sizes::queries},
    {.theirs = "attention.wqkv.weight",
     .ours = "attn_v.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .order = Order::grouped_rows,
     .all_rows = &Sizes::fused_attention,
     .first_row = &Sizes::queries_and_keys},
    {"attention.wo.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    norm("ffn_norm.weight", "ffn_norm.weight", &Sizes::embedding),
    {"feed_forward.w1.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.w3.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.w2.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block internlm_blocks[] = {internlm_layer};
constexpr LayerKind internlm_layers[] = {{"*", internlm_blocks}};
constexpr Part internlm_globals[] = {
    {"tok_embeddings.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("norm.weight", "output_norm.weight", &Sizes::embedding),
};

void read_internlm(const Config& config, Sizes&) {
  require_flag(config, "bias", false);
}

constexpr Family dense_family_table[] = {
    {.architecture = "ApertusForCausalLM",
     .ours = "apertus",
     .layers = apertus_layers,
     .activation = "xielu",
     .layer_numbers = apertus_numbers,
     .read_sizes = read_apertus},
    {.architecture = "InternLM2ForCausalLM",
     .ours = "internlm2",
     .layers = internlm_layers,
     .interleaves_heads = true,
     .globals = internlm_globals,
     .head = {"output.weight", "output.weight", &Sizes::embedding, &Sizes::vocabulary},
     .read_sizes = read_internlm},
    {.architecture = "SeedOssForCausalLM",
     .ours = "seed_oss",
     .layers = seed_layers,
     .read_sizes = read_seed},
    {.architecture = "Ernie4_5ForCausalLM",
     .ours = "ernie4_5",
     .layers = plain_layers,
     .read_sizes = read_ernie},
    {.architecture = "Exaone4ForCausalLM",
     .ours = "exaone4",
     .layers = exaone_layers,
     .add_keys = add_exaone},
    {.architecture = "ArceeForCausalLM",
     .ours = "arcee",
     .layers = arcee_layers,
     .interleaves_heads = true,
     .activation = "relu2"},
    {.architecture = "GemmaForCausalLM",
     .ours = "gemma",
     .layers = plain_layers,
     .norms_lack_one = true,
     .activation = "",
     .read_sizes = read_gemma},
    {.architecture = "CohereForCausalLM",
     .ours = "command-r",
     .layers = cohere_layers,
     .epsilon_key = "layer_norm_eps",
     .subtracts_means = true,
     .read_sizes = read_cohere,
     .add_keys = add_command_r},
    {.architecture = "Cohere2ForCausalLM",
     .ours = "cohere2",
     .layers = cohere_layers,
     .epsilon_key = "layer_norm_eps",
     .subtracts_means = true,
     .read_sizes = read_cohere,
     .add_keys = add_cohere2},
    {.architecture = "Starcoder2ForCausalLM",
     .ours = "starcoder2",
     .layers = starcoder_layers,
     .activation = "gelu_pytorch_tanh",
     .ignores_window = true,
     .epsilon_key = "norm_epsilon",
     .subtracts_means = true,
     .globals = globals_with_bias,
     .read_sizes = read_starcoder},
    {.architecture = "PhiForCausalLM",
     .ours = "phi2",
     .layers = phi_layers,
     .activation = "gelu_new",
     .epsilon_key = "layer_norm_eps",
     .subtracts_means = true,
     .globals = phi_globals,
     .has_head_bias = true,
     .read_sizes = read_phi},
    {.architecture = "StableLmForCausalLM",
     .ours = "stablelm",
     .layers = stablelm_layers,
     .epsilon_key = "layer_norm_eps",
     .subtracts_means = true,
     .globals = globals_with_bias,
     .read_sizes = read_stablelm},
    {.architecture = "MiniCPMForCausalLM",
     .ours = "minicpm",
     .layers = plain_layers,
     .interleaves_heads = true,
     .add_keys = add_minicpm},
    {.architecture = "Qwen3VLForConditionalGeneration",
     .ours = "qwen3vl",
     .layers = qwen3_layers,
     .stem = "model.language_model.",
     .aside = qwen3vl_aside,
     .add_keys = add_qwen3vl},
};

}  // namespace

std::span<const Family> dense_families() {
  return dense_family_table;
}

}  // namespace sluice::convert
