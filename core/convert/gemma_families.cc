// Gemma 2 to 4. The norms of the first two lack 1. Gemma 4 has heads of two sizes, layers that
// share the keys and values of earlier ones, and embeddings for each layer. Gemma 3n has the last
// two of these, and several residual streams.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

constexpr const char* gemma_activation_key = "hidden_activation";
constexpr std::string_view gemma_activation = "gelu_pytorch_tanh";

constexpr Part gemma_norms[] = {
    norm("input_layernorm.weight", "attn_norm.weight", &Sizes::embedding),
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
    norm("pre_feedforward_layernorm.weight", "ffn_norm.weight", &Sizes::embedding),
    norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &Sizes::embedding),
};
constexpr Block gemma2_blocks[] = {gemma_norms, attention, feed_forward};
constexpr Block gemma3_blocks[] = {gemma_norms, head_norms, attention, feed_forward};
constexpr LayerKind gemma2_layers[] = {{"*", gemma2_blocks}};
constexpr LayerKind gemma3_layers[] = {{"*", gemma3_blocks}};

// Keys and values. Layers that share those of others may have some, which nobody reads.
constexpr Part keys_of_layer[] = {
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &Sizes::head),
};
constexpr Part values_of_layer[] = {
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
};
constexpr Part unread_keys_and_values[] = {
    {.theirs = "self_attn.k_proj.weight",
     .ours = "attn_k.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .is_optional = true},
    {.theirs = "self_attn.k_norm.weight",
     .ours = "attn_k_norm.weight",
     .columns = &Sizes::head,
     .is_optional = true},
    {.theirs = "self_attn.v_proj.weight",
     .ours = "attn_v.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .is_optional = true},
};
constexpr Part queries_and_output[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries},
    norm("self_attn.q_norm.weight", "attn_q_norm.weight", &Sizes::head),
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part layer_scale[] = {{"layer_scalar", "layer_output_scale.weight", &Sizes::one}};
constexpr Part layer_embedding[] = {
    {.theirs = "per_layer_input_gate.weight",
     .ours = "inp_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::layer_embedding,
     .when = &Sizes::layer_embedding},
    {.theirs = "per_layer_projection.weight",
     .ours = "proj.weight",
     .columns = &Sizes::layer_embedding,
     .rows = &Sizes::embedding,
     .when = &Sizes::layer_embedding},
    {.theirs = "post_per_layer_input_norm.weight",
     .ours = "post_norm.weight",
     .columns = &Sizes::embedding,
     .when = &Sizes::layer_embedding},
};

constexpr Block gemma4_blocks[] = {gemma_norms,  queries_and_output, keys_of_layer, values_of_layer,
                                   feed_forward, layer_embedding,    layer_scale};
constexpr Block gemma4_blocks_of_keys[] = {gemma_norms,  queries_and_output, keys_of_layer,
                                           feed_forward, layer_embedding,    layer_scale};
constexpr Block gemma4_sharing_blocks[] = {gemma_norms,  queries_and_output, unread_keys_and_values,
                                           feed_forward, layer_embedding,    layer_scale};
// = attention whose values are its keys; the last layers share keys and values: f attention,
// w attention in a window
constexpr LayerKind gemma4_layers[] = {
    {"*~", gemma4_blocks}, {"=", gemma4_blocks_of_keys}, {"fw", gemma4_sharing_blocks}};

constexpr Part gemma4_globals[] = {
    plain_globals[0],
    plain_globals[1],
    {.theirs = "embed_tokens_per_layer.weight",
     .ours = "per_layer_token_embd.weight",
     .columns = &Sizes::layer_embeddings,
     .rows = &Sizes::vocabulary,
     .when = &Sizes::layer_embedding},
    {.theirs = "per_layer_model_projection.weight",
     .ours = "per_layer_model_proj.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::layer_embeddings,
     .when = &Sizes::layer_embedding},
    {.theirs = "per_layer_projection_norm.weight",
     .ours = "per_layer_proj_norm.weight",
     .columns = &Sizes::layer_embedding,
     .when = &Sizes::layer_embedding},
};
constexpr Aside gemma4_aside[] = {{"model.vision_tower.", "the vision encoder"},
                                  {"model.embed_vision.", "the vision encoder"},
                                  {"model.audio_tower.", "the audio encoder"},
                                  {"model.embed_audio.", "the audio encoder"}};

// `odd_depth`: layers of the one size that scales by the embedding of a head and not by its size.
void check_gemma(const Config& config, const Sizes& sizes, std::uint64_t odd_depth) {
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
  writer.add(prefix + ".rope.freq_base_swa", window_rope_base(config));
}

void read_gemma_embedding(const Config& config, Sizes&) {
  if (config.find_flag("use_bidirectional_attention") != true) {
    throw config.error("use_bidirectional_attention", "is not true, so this is no EmbeddingGemma");
  }
}

// The sizes of attention without a window, with whole heads: a table of frequencies says which
// pairs do not rotate.
void read_gemma4(const Config& config, Sizes& sizes) {
  require_flag(config, "enable_moe_block", false);
  if (config.find_text("use_bidirectional_attention").value_or("vision") != "vision") {
    throw config.error("use_bidirectional_attention", "is not that text sees what is before it");
  }
  sizes.head = config.count("global_head_dim");
  sizes.rotated = sizes.head;
  if (sizes.head % 2 != 0) throw config.error("global_head_dim", "is odd");
  sizes.layer_embedding = config.find_whole("hidden_size_per_layer_input").value_or(0);
  const auto rope = rope_settings(config);
  if (!rope || rope->find_text("rope_type").value_or("") != "proportional") {
    throw config.error("rope_parameters", "of full_attention are not proportional");
  }
}

std::string sharing_kinds(const Config& config, const Sizes& sizes) {
  std::string kinds = kinds_from(config, window_names, sizes);
  const std::uint64_t sharing = config.find_whole("num_kv_shared_layers").value_or(0);
  if (sharing >= sizes.layers) throw config.error("num_kv_shared_layers", "is that of all layers");
  if (config.find_flag("attention_k_eq_v").value_or(false)) {
    std::replace(kinds.begin(), kinds.end(), '*', '=');
  }
  for (std::size_t i = sizes.layers - sharing; i < sizes.layers; ++i) {
    kinds[i] = kinds[i] == '~' ? 'w' : 'f';
  }
  return kinds;
}

void fit_gemma4_layer(const Config& config, char kind, Sizes& sizes) {
  const bool is_shared = kind == 'w' || kind == 'f';
  if (is_windowed(kind)) {
    sizes.head = config.count("head_dim");
  } else if (config.find_flag("attention_k_eq_v").value_or(false)) {
    sizes.key_heads = config.find_count("num_global_key_value_heads")
                          .value_or(static_cast<std::uint32_t>(sizes.key_heads));
  }
  if (is_shared && config.find_flag("use_double_wide_mlp").value_or(false)) {
    sizes.feed_forward *= 2;
  }
}

// Windows, what layers share, and embeddings for each.
void add_sharing_layers(const Config& config, const Sizes& sizes, const std::string& prefix,
                        gguf::Writer& writer) {
  add_windows(sharing_kinds(config, sizes), config.count("sliding_window"), prefix, writer);
  writer.add(prefix + ".rope.freq_base_swa", window_rope_base(config));
  writer.add(prefix + ".attention.shared_kv_layers",
             config.find_whole("num_kv_shared_layers").value_or(0));
  writer.add(prefix + ".embedding_length_per_layer_input",
             static_cast<std::uint32_t>(sizes.layer_embedding));
  if (const auto cap = config.find_number("final_logit_softcapping")) {
    writer.add(prefix + ".final_logit_softcapping", *cap);
  }
}

void add_gemma4(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  const std::uint32_t head = config.count("head_dim");
  for (const char* key :
       {".attention.key_length_swa", ".attention.value_length_swa", ".rope.dimension_count_swa"}) {
    writer.add(prefix + key, head);
  }
  add_sharing_layers(config, sizes, prefix, writer);
}

constexpr Family gemma4(std::string_view architecture, std::string_view stem) {
  return {.architecture = architecture,
          .ours = "gemma4",
          .layers = gemma4_layers,
          .keeps_merges = true,
          .activation_key = gemma_activation_key,
          .activation = gemma_activation,
          .stem = stem,
          .globals = gemma4_globals,
          .aside = gemma4_aside,
          .read_sizes = read_gemma4,
          .kinds = sharing_kinds,
          .fit_layer = fit_gemma4_layer,
          .add_keys = add_gemma4};
}

// --- Gemma 3n ---

constexpr Part streams_of_layer[] = {
    norm("altup.router_norm.weight", "altup_router_norm.weight", &Sizes::embedding),
    {"altup.modality_router.weight", "altup_router.weight", &Sizes::embedding, &Sizes::streams},
    {"altup.prediction_coefs.weight", "altup_predict_coef.weight", &Sizes::streams,
     &Sizes::stream_pairs},
    {"altup.correction_coefs.weight", "altup_correct_coef.weight", &Sizes::streams,
     &Sizes::streams},
    {"altup.correct_output_scale", "altup_correct_scale.weight", &Sizes::embedding},
};
constexpr Part side_path[] = {
    {"laurel.linear_left.weight", "laurel_l.weight", &Sizes::embedding, &Sizes::side_rank},
    {"laurel.linear_right.weight", "laurel_r.weight", &Sizes::side_rank, &Sizes::embedding},
    norm("laurel.post_laurel_norm.weight", "laurel_post_norm.weight", &Sizes::embedding),
};
constexpr Block gemma3n_blocks[] = {gemma_norms,      queries_and_output, keys_of_layer,
                                    values_of_layer,  feed_forward,       layer_embedding,
                                    streams_of_layer, side_path};
constexpr Block gemma3n_sharing_blocks[] = {
    gemma_norms,      queries_and_output, unread_keys_and_values, feed_forward, layer_embedding,
    streams_of_layer, side_path};
constexpr LayerKind gemma3n_layers[] = {{"*~", gemma3n_blocks}, {"fw", gemma3n_sharing_blocks}};

// Matrices of all streams but the first.
constexpr Part of_other_streams(std::string_view theirs, std::string_view ours) {
  return {.theirs = theirs,
          .ours = ours,
          .columns = &Sizes::embedding,
          .rows = &Sizes::embedding,
          .count = &Sizes::other_streams};
}
// Tokens of images and sounds have no embeddings of layers.
constexpr Part gemma3n_globals[] = {
    plain_globals[0],
    plain_globals[1],
    {.theirs = "embed_tokens_per_layer.weight",
     .ours = "per_layer_token_embd.weight",
     .columns = &Sizes::layer_embeddings,
     .rows = &Sizes::vocabulary,
     .stored_rows = &Sizes::layer_vocabulary},
    gemma4_globals[3],
    gemma4_globals[4],
    of_other_streams("altup_projections.{}.weight", "altup_proj.weight"),
    of_other_streams("altup_unembed_projections.{}.weight", "altup_unembd_proj.weight"),
};

void read_gemma3n(const Config& config, Sizes& sizes) {
  require_flag(config, "altup_correct_scale", true);
  require_rope_base(config);
  if (config.find_whole("altup_active_idx").value_or(0) != 0) {
    throw config.error("altup_active_idx", "is not 0");
  }
  sizes.layer_embedding = config.count("hidden_size_per_layer_input");
  sizes.layer_vocabulary = config.count("vocab_size_per_layer_input");
  if (sizes.layer_vocabulary > sizes.vocabulary) {
    throw config.error("vocab_size_per_layer_input", "is more than vocab_size");
  }
  sizes.streams = config.count("altup_num_inputs");
  if (sizes.streams < 2 || sizes.streams > 8) {
    throw config.error("altup_num_inputs", "is not from 2 to 8");
  }
  sizes.side_rank = config.count("laurel_rank");
}

// The value below which so much of a normal distribution lies.
double normal_quantile(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::numbers::sqrt2) / 2;
    (below < share ? low : high) = middle;
  }
  return high;
}

// Which share of its gates a layer leaves out becomes how many standard deviations a gate has to
// lie above their mean.
void add_sparsity(const Config& config, const Sizes& sizes, const std::string& prefix,
                  gguf::Writer& writer) {
  constexpr const char* key = "activation_sparsity_pattern";
  const nlohmann::json* list = config.find_list(key);
  if (list == nullptr || list->size() != sizes.layers) {
    throw config.error(key, "is not a list with a number of each layer");
  }
  std::vector<float> scales;
  for (const nlohmann::json& one : *list) {
    const double share = one.is_number() ? one.get<double>() : -1;
    if (!(share >= 0 && share < 1)) throw config.error(key, "holds what is no share");
    scales.push_back(share > 0 ? static_cast<float>(normal_quantile(share)) : -INFINITY);
  }
  writer.add_array(prefix + ".activation_sparsity_scale", std::span<const float>(scales));
}

void add_gemma3n(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_sharing_layers(config, sizes, prefix, writer);
  writer.add(prefix + ".altup.active_idx", std::uint32_t{0});
  writer.add(prefix + ".altup.num_inputs", static_cast<std::uint32_t>(sizes.streams));
  add_sparsity(config, sizes, prefix, writer);
}

constexpr Family gemma3n(std::string_view architecture, std::string_view stem) {
  return {.architecture = architecture,
          .ours = "gemma3n",
          .layers = gemma3n_layers,
          .activation_key = gemma_activation_key,
          .activation = gemma_activation,
          .stem = stem,
          .globals = gemma3n_globals,
          .aside = gemma4_aside,
          .read_sizes = read_gemma3n,
          .kinds = sharing_kinds,
          .add_keys = add_gemma3n};
}

constexpr Family gemma_family_table[] = {
    {.architecture = "Gemma2ForCausalLM",
     .ours = "gemma2",
     .layers = gemma2_layers,
     .norms_lack_one = true,
     .activation_key = gemma_activation_key,
     .activation = gemma_activation,
     .add_keys = add_gemma2},
    {.architecture = "Gemma3ForCausalLM",
     .ours = "gemma3",
     .layers = gemma3_layers,
     .norms_lack_one = true,
     .activation_key = gemma_activation_key,
     .activation = gemma_activation,
     .add_keys = add_gemma3},
    {.architecture = "Gemma3TextModel",
     .ours = "gemma-embedding",
     .layers = gemma3_layers,
     .norms_lack_one = true,
     .activation_key = gemma_activation_key,
     .activation = gemma_activation,
     .stem = "",
     .is_encoder = true,
     .read_sizes = read_gemma_embedding,
     .add_keys = add_gemma3},
    gemma3n("Gemma3nForCausalLM", "model."),
    gemma3n("Gemma3nForConditionalGeneration", "model.language_model."),
    gemma4("Gemma4ForCausalLM", "model."),
    gemma4("Gemma4ForConditionalGeneration", "model.language_model."),
};

}  // namespace

std::span<const Family> gemma_families() {
  return gemma_family_table;
}

}  // namespace sluice::convert
