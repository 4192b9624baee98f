// Encoders: BERT, and what is built like it. Their heads for training are left aside.
#include <cstdint>
#include <span>
#include <string>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

// --- BERT ---

constexpr Part bert_globals[] = {
    {"embeddings.word_embeddings.weight", "token_embd.weight", &Sizes::embedding,
     &Sizes::vocabulary},
    {"embeddings.position_embeddings.weight", "position_embd.weight", &Sizes::embedding,
     &Sizes::positions},
    {"embeddings.token_type_embeddings.weight", "token_types.weight", &Sizes::embedding,
     &Sizes::token_types},
    norm("embeddings.LayerNorm.weight", "token_embd_norm.weight", &Sizes::embedding),
    norm("embeddings.LayerNorm.bias", "token_embd_norm.bias", &Sizes::embedding),
};
constexpr Part bert_attention[] = {
    {"attention.self.query.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries},
    {"attention.self.query.bias", "attn_q.bias", &Sizes::queries},
    {"attention.self.key.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    {"attention.self.key.bias", "attn_k.bias", &Sizes::keys},
    {"attention.self.value.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"attention.self.value.bias", "attn_v.bias", &Sizes::keys},
    {"attention.output.dense.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    {"attention.output.dense.bias", "attn_output.bias", &Sizes::embedding},
    norm("attention.output.LayerNorm.weight", "attn_output_norm.weight", &Sizes::embedding),
    norm("attention.output.LayerNorm.bias", "attn_output_norm.bias", &Sizes::embedding),
};
constexpr Part bert_network[] = {
    {"intermediate.dense.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"intermediate.dense.bias", "ffn_up.bias", &Sizes::feed_forward},
    {"output.dense.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    {"output.dense.bias", "ffn_down.bias", &Sizes::embedding},
    norm("output.LayerNorm.weight", "layer_output_norm.weight", &Sizes::embedding),
    norm("output.LayerNorm.bias", "layer_output_norm.bias", &Sizes::embedding),
};
constexpr Block bert_blocks[] = {bert_attention, bert_network};
constexpr LayerKind bert_layers[] = {{"*", bert_blocks}};
constexpr Aside bert_aside[] = {{"pooler.", "the pooler, which was for training"},
                                {"embeddings.position_ids", "numbers of positions"}};

void read_bert(const Config& config, Sizes& sizes) {
  require_text(config, "position_embedding_type", "absolute");
  sizes.positions = config.count("max_position_embeddings");
  sizes.token_types = config.count("type_vocab_size");
}

constexpr Family bert_family = {.architecture = "BertModel",
                                .ours = "bert",
                                .layers = bert_layers,
                                .activation = "gelu",
                                .epsilon_key = "layer_norm_eps",
                                .subtracts_means = true,
                                .stem = "",
                                .layer_stem = "encoder.layer.",
                                .globals = bert_globals,
                                .aside = bert_aside,
                                .is_encoder = true,
                                .rotates = false,
                                .read_sizes = read_bert};

// --- XLM-RoBERTa (bge-m3, multilingual E5): BERT, whose table of positions begins with rows that
// padding would have ---

constexpr Part roberta_globals[] = {
    bert_globals[0],
    {.theirs = "embeddings.position_embeddings.weight",
     .ours = "position_embd.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::positions,
     .all_rows = &Sizes::all_positions,
     .first_row = &Sizes::unused_positions},
    bert_globals[2],
    bert_globals[3],
    bert_globals[4],
};
constexpr Aside roberta_aside[] = {{"pooler.", "the pooler, which was for training"},
                                   {"roberta.pooler.", "the pooler, which was for training"},
                                   {"roberta.embeddings.position_ids", "numbers of positions"},
                                   {"embeddings.position_ids", "numbers of positions"}};
constexpr Part roberta_scores[] = {
    {"classifier.dense.weight", "cls.weight", &Sizes::embedding, &Sizes::embedding},
    {"classifier.dense.bias", "cls.bias", &Sizes::embedding},
    {"classifier.out_proj.weight", "cls.output.weight", &Sizes::embedding, &Sizes::one},
    {"classifier.out_proj.bias", "cls.output.bias", &Sizes::one},
};

void read_roberta(const Config& config, Sizes& sizes) {
  read_bert(config, sizes);
  sizes.unused_positions = config.count("pad_token_id") + 1;
  if (sizes.positions <= sizes.unused_positions) {
    throw config.error("max_position_embeddings", "leaves no positions behind that of padding");
  }
  sizes.positions -= sizes.unused_positions;
}

bool has_table_of_positions(const Config& config) {
  return config.find_text("position_embedding_type").value_or("absolute") == "absolute";
}

constexpr Family roberta(std::string_view architecture, std::string_view stem) {
  Family family = bert_family;
  family.architecture = architecture;
  family.stem = stem;
  family.globals = roberta_globals;
  family.aside = roberta_aside;
  family.applies = has_table_of_positions;
  family.read_sizes = read_roberta;
  return family;
}

constexpr Family roberta_reranker() {
  Family family = roberta("XLMRobertaForSequenceClassification", "roberta.");
  family.scores = roberta_scores;
  return family;
}

// --- Jina embeddings v3: the same names for another network, whose positions rotate. Adapters for
// tasks lie beside its matrices ---

constexpr Part jina3_globals[] = {
    {"embeddings.word_embeddings.parametrizations.weight.original", "token_embd.weight",
     &Sizes::embedding, &Sizes::vocabulary},
    {"embeddings.token_type_embeddings.parametrizations.weight.original", "token_types.weight",
     &Sizes::embedding, &Sizes::token_types},
    norm("emb_ln.weight", "token_embd_norm.weight", &Sizes::embedding),
    norm("emb_ln.bias", "token_embd_norm.bias", &Sizes::embedding),
};
constexpr Part jina3_layer[] = {
    {"mixer.Wqkv.parametrizations.weight.original", "attn_qkv.weight", &Sizes::embedding,
     &Sizes::fused_attention},
    {"mixer.Wqkv.bias", "attn_qkv.bias", &Sizes::fused_attention},
    {"mixer.out_proj.parametrizations.weight.original", "attn_output.weight", &Sizes::queries,
     &Sizes::embedding},
    {"mixer.out_proj.bias", "attn_output.bias", &Sizes::embedding},
    norm("norm1.weight", "attn_output_norm.weight", &Sizes::embedding),
    norm("norm1.bias", "attn_output_norm.bias", &Sizes::embedding),
    {"mlp.fc1.parametrizations.weight.original", "ffn_up.weight", &Sizes::embedding,
     &Sizes::feed_forward},
    {"mlp.fc1.bias", "ffn_up.bias", &Sizes::feed_forward},
    {"mlp.fc2.parametrizations.weight.original", "ffn_down.weight", &Sizes::feed_forward,
     &Sizes::embedding},
    {"mlp.fc2.bias", "ffn_down.bias", &Sizes::embedding},
    norm("norm2.weight", "layer_output_norm.weight", &Sizes::embedding),
    norm("norm2.bias", "layer_output_norm.bias", &Sizes::embedding),
};
constexpr Block jina3_blocks[] = {jina3_layer};
constexpr LayerKind jina3_layers[] = {{"*", jina3_blocks}};
constexpr RenamedSetting jina3_settings[] = {{"rotary_emb_base", "rope_theta"}};
constexpr Aside jina3_aside[] = {
    {"roberta.pooler.", "the pooler, which was for training"},
    {"roberta.", "adapters for tasks: vectors are those without one", ".lora_"}};

bool rotates_positions(const Config& config) {
  return config.find_text("position_embedding_type").value_or("") == "rotary";
}

void read_jina3(const Config& config, Sizes& sizes) {
  sizes.token_types = config.count("type_vocab_size");
}

// --- Jina embeddings v2: positions by ALiBi, and gate and up in one matrix ---

constexpr Part jina_globals[] = {bert_globals[0], bert_globals[2], bert_globals[3],
                                 bert_globals[4]};
constexpr Part jina_network[] = {
    {.theirs = "mlp.gated_layers.weight",
     .ours = "ffn_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::feed_forward,
     .all_rows = &Sizes::fused_feed_forward},
    {.theirs = "mlp.gated_layers.weight",
     .ours = "ffn_up.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::feed_forward,
     .all_rows = &Sizes::fused_feed_forward,
     .first_row = &Sizes::feed_forward},
    {"mlp.wo.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    {"mlp.wo.bias", "ffn_down.bias", &Sizes::embedding},
    norm("mlp.layernorm.weight", "layer_output_norm.weight", &Sizes::embedding),
    norm("mlp.layernorm.bias", "layer_output_norm.bias", &Sizes::embedding),
};
constexpr Block jina_blocks[] = {bert_attention, jina_network};
constexpr LayerKind jina_layers[] = {{"*", jina_blocks}};
constexpr Aside jina_aside[] = {{"pooler.", "the pooler, which was for training"},
                                {"bert.pooler.", "the pooler, which was for training"},
                                {"cls.", "the head, which was for training"}};

void read_jina(const Config& config, Sizes& sizes) {
  require_text(config, "position_embedding_type", "alibi");
  require_text(config, "feed_forward_type", "geglu");
  sizes.token_types = config.count("type_vocab_size");
}

constexpr Family jina(std::string_view architecture) {
  return {.architecture = architecture,
          .ours = "jina-bert-v2",
          .layers = jina_layers,
          .activation = "gelu",
          .epsilon_key = "layer_norm_eps",
          .subtracts_means = true,
          .stem = "bert.",
          .layer_stem = "encoder.layer.",
          .globals = jina_globals,
          .aside = jina_aside,
          .is_encoder = true,
          .rotates = false,
          .read_sizes = read_jina};
}

// --- EuroBERT, and Llama models that see the whole text ---

constexpr Aside llama_encoder_aside[] = {{"lm_head.", "the head, which was for training"}};

void read_llama_encoder(const Config& config, Sizes&) {
  for (const char* key : {"attention_bias", "mlp_bias"}) require_flag(config, key, false);
}

constexpr Family llama_encoder(std::string_view architecture, std::string_view ours) {
  return {.architecture = architecture,
          .ours = ours,
          .layers = plain_layers,
          .interleaves_heads = ours == "llama-embed",
          .aside = llama_encoder_aside,
          .is_encoder = true,
          .read_sizes = read_llama_encoder};
}

// --- nomic-embed-text v1 and v1.5; v2 has experts in every second layer ---

constexpr RenamedSetting nomic_settings[] = {{"n_embd", "hidden_size"},
                                             {"n_layer", "num_hidden_layers"},
                                             {"n_head", "num_attention_heads"},
                                             {"n_inner", "intermediate_size"},
                                             {"rotary_emb_base", "rope_theta"},
                                             {"rotary_emb_fraction", "partial_rotary_factor"},
                                             {"max_trained_positions", "max_position_embeddings"}};
constexpr Part nomic_globals[] = {
    bert_globals[0],
    bert_globals[2],
    norm("emb_ln.weight", "token_embd_norm.weight", &Sizes::embedding),
    norm("emb_ln.bias", "token_embd_norm.bias", &Sizes::embedding),
};
constexpr Part nomic_layer[] = {
    {"attn.Wqkv.weight", "attn_qkv.weight", &Sizes::embedding, &Sizes::fused_attention},
    {"attn.out_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    norm("norm1.weight", "attn_output_norm.weight", &Sizes::embedding),
    norm("norm1.bias", "attn_output_norm.bias", &Sizes::embedding),
    {"mlp.fc12.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.fc11.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.fc2.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    norm("norm2.weight", "layer_output_norm.weight", &Sizes::embedding),
    norm("norm2.bias", "layer_output_norm.bias", &Sizes::embedding),
};
constexpr Block nomic_blocks[] = {nomic_layer};
constexpr LayerKind nomic_layers[] = {{"*", nomic_blocks}};

bool has_no_experts(const Config& config) {
  return config.find_count("num_experts").value_or(0) == 0;
}

void read_nomic(const Config& config, Sizes& sizes) {
  for (const char* key : {"prenorm", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias",
                          "use_rms_norm", "rotary_emb_interleaved"}) {
    require_flag(config, key, false);
  }
  sizes.token_types = config.count("type_vocab_size");
}

constexpr Part nomic_moe_attention[] = {
    nomic_layer[0], {"attn.Wqkv.bias", "attn_qkv.bias", &Sizes::fused_attention},
    nomic_layer[1], {"attn.out_proj.bias", "attn_output.bias", &Sizes::embedding},
    nomic_layer[2], nomic_layer[3],
    nomic_layer[7], nomic_layer[8],
};
constexpr Part nomic_moe_network[] = {
    {"mlp.fc1.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"mlp.fc1.bias", "ffn_up.bias", &Sizes::feed_forward},
    {"mlp.fc2.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
    {"mlp.fc2.bias", "ffn_down.bias", &Sizes::embedding},
};
constexpr Part nomic_moe_experts[] = {
    {"mlp.router.layer.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {.theirs = "mlp.experts.mlp.w1",
     .ours = "ffn_up_exps.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::expert,
     .form = Form::stacked,
     .count = &Sizes::experts},
    {.theirs = "mlp.experts.mlp.w2",
     .ours = "ffn_down_exps.weight",
     .columns = &Sizes::expert,
     .rows = &Sizes::embedding,
     .form = Form::transposed_stacked,
     .count = &Sizes::experts},
};
constexpr Block nomic_moe_blocks[] = {nomic_moe_attention, nomic_moe_network};
constexpr Block nomic_moe_expert_blocks[] = {nomic_moe_attention, nomic_moe_experts};
// e a layer with experts
constexpr LayerKind nomic_moe_layers[] = {{"*", nomic_moe_blocks}, {"e", nomic_moe_expert_blocks}};
constexpr Aside nomic_moe_aside[] = {
    {"encoder.", "a bias behind the experts, which no reader of GGUF files adds",
     ".mlp.experts.bias"}};

void read_nomic_moe(const Config& config, Sizes& sizes) {
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) {
    require_flag(config, key, true);
  }
  for (const char* key : {"prenorm", "use_rms_norm", "rotary_emb_interleaved",
                          "moe_normalize_expert_weights", "expert_choice_router"}) {
    require_flag(config, key, false);
  }
  if (config.find_whole("num_shared_experts").value_or(0) != 0) {
    throw config.error("num_shared_experts", "is not 0");
  }
  sizes.token_types = config.count("type_vocab_size");
  read_experts(config, "num_experts", "moe_top_k", nullptr, sizes);
}

std::string nomic_moe_kinds(const Config& config, const Sizes& sizes) {
  const std::uint32_t period = config.count("moe_every_n_layers");
  if (period != 2) throw config.error("moe_every_n_layers", "is not 2");
  std::string kinds;
  for (std::size_t i = 0; i < sizes.layers; ++i) kinds += i % period == 1 ? 'e' : '*';
  return kinds;
}

void add_nomic_moe(const Config& config, const Sizes& sizes, const std::string& prefix,
                   gguf::Writer& writer) {
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".moe_every_n_layers", config.count("moe_every_n_layers"));
}

// --- ModernBERT ---

constexpr RenamedSetting modern_settings[] = {{"global_rope_theta", "rope_theta"}};
constexpr Part modern_globals[] = {
    {"embeddings.tok_embeddings.weight", "token_embd.weight", &Sizes::embedding,
     &Sizes::vocabulary},
    norm("embeddings.norm.weight", "token_embd_norm.weight", &Sizes::embedding),
    norm("final_norm.weight", "output_norm.weight", &Sizes::embedding),
};
constexpr Part modern_norm[] = {norm("attn_norm.weight", "attn_norm.weight", &Sizes::embedding)};
constexpr Part modern_layer[] = {
    {"attn.Wqkv.weight", "attn_qkv.weight", &Sizes::embedding, &Sizes::fused_attention},
    {"attn.Wo.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    norm("mlp_norm.weight", "ffn_norm.weight", &Sizes::embedding),
    {"mlp.Wi.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::fused_feed_forward},
    {"mlp.Wo.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block modern_first_blocks[] = {modern_layer};
constexpr Block modern_blocks[] = {modern_norm, modern_layer};
// f the first layer, which has no norm in front
constexpr LayerKind modern_layers[] = {{"f", modern_first_blocks}, {"*", modern_blocks}};
constexpr Aside modern_aside[] = {{"head.", "the head, which was for training"},
                                  {"decoder.", "the head, which was for training"}};
constexpr Part modern_scores[] = {
    {"head.dense.weight", "cls.weight", &Sizes::embedding, &Sizes::embedding},
    norm("head.norm.weight", "cls.norm.weight", &Sizes::embedding),
    {"classifier.weight", "cls.output.weight", &Sizes::embedding, &Sizes::one},
    {"classifier.bias", "cls.output.bias", &Sizes::one},
};

void read_modern(const Config& config, Sizes&) {
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"}) {
    require_flag(config, key, false);
  }
}

std::string modern_kinds(const Config&, const Sizes& sizes) {
  std::string kinds(sizes.layers, '*');
  kinds.front() = 'f';
  return kinds;
}

void add_modern(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  const std::uint32_t period = config.find_count("global_attn_every_n_layers").value_or(3);
  if (const nlohmann::json* kinds = config.find_list("layer_types")) {
    for (std::size_t i = 0; i < sizes.layers && i < kinds->size(); ++i) {
      if ((*kinds)[i] != (i % period == 0 ? "full_attention" : "sliding_attention")) {
        throw config.error("layer_types", "is not that one layer of each period sees all");
      }
    }
  }
  std::optional<float> base = config.find_number("local_rope_theta");
  if (const auto by_kind = all_rope_settings(config)) {
    const auto local = by_kind->find_object("sliding_attention");
    if (local) base = local->find_number("rope_theta");
  }
  writer.add(prefix + ".attention.sliding_window", config.count("local_attention"));
  writer.add(prefix + ".attention.sliding_window_pattern", period);
  writer.add(prefix + ".rope.freq_base_swa", base.value_or(10000));
  const std::string activation = config.find_text("hidden_activation").value_or("gelu");
  if (activation != "gelu" && activation != "gelu_pytorch_tanh" && activation != "silu") {
    throw config.error("hidden_activation", "is not gelu, gelu_pytorch_tanh or silu");
  }
  writer.add(prefix + ".hidden_activation", std::string_view(activation));
}

void add_modern_scores(const Config& config, const Sizes& sizes, const std::string& prefix,
                       gguf::Writer& writer) {
  add_modern(config, sizes, prefix, writer);
  const std::string pooling = config.find_text("classifier_pooling").value_or("cls");
  if (pooling != "cls" && pooling != "mean") {
    throw config.error("classifier_pooling", "is neither cls nor mean");
  }
  writer.add(prefix + ".classifier.pooling_type", std::uint32_t{pooling == "cls" ? 2u : 1u});
  const std::string activation = config.find_text("classifier_activation").value_or("gelu");
  if (activation != "gelu" && activation != "tanh" && activation != "silu") {
    throw config.error("classifier_activation", "is not gelu, tanh or silu");
  }
  writer.add(prefix + ".classifier.activation", std::string_view(activation));
}

constexpr Family modern(std::string_view architecture, std::string_view stem) {
  return {.architecture = architecture,
          .ours = "modern-bert",
          .layers = modern_layers,
          .activation = "",
          .epsilon_key = "norm_eps",
          .subtracts_means = true,
          .stem = stem,
          .globals = modern_globals,
          .aside = modern_aside,
          .is_encoder = true,
          .renamed = modern_settings,
          .read_sizes = read_modern,
          .kinds = modern_kinds,
          .add_keys = add_modern};
}

constexpr Family modern_reranker() {
  Family family = modern("ModernBertForSequenceClassification", "model.");
  family.scores = modern_scores;
  family.add_keys = add_modern_scores;
  return family;
}

constexpr Family encoder_family_table[] = {
    bert_family,
    roberta("XLMRobertaModel", ""),
    roberta_reranker(),
    {.architecture = "XLMRobertaModel",
     .ours = "jina-bert-v3",
     .layers = jina3_layers,
     .activation = "gelu",
     .epsilon_key = "layer_norm_eps",
     .subtracts_means = true,
     .stem = "roberta.",
     .layer_stem = "encoder.layers.",
     .globals = jina3_globals,
     .aside = jina3_aside,
     .is_encoder = true,
     .renamed = jina3_settings,
     .applies = rotates_positions,
     .read_sizes = read_jina3},
    jina("JinaBertModel"),
    jina("JinaBertForMaskedLM"),
    llama_encoder("EuroBertModel", "eurobert"),
    llama_encoder("EuroBertForMaskedLM", "eurobert"),
    llama_encoder("LlamaBidirectionalModel", "llama-embed"),
    {.architecture = "NomicBertModel",
     .ours = "nomic-bert",
     .layers = nomic_layers,
     .activation_key = "activation_function",
     .activation = "swiglu",
     .epsilon_key = "layer_norm_epsilon",
     .subtracts_means = true,
     .stem = "",
     .layer_stem = "encoder.layers.",
     .globals = nomic_globals,
     .is_encoder = true,
     .renamed = nomic_settings,
     .applies = has_no_experts,
     .read_sizes = read_nomic},
    {.architecture = "NomicBertModel",
     .ours = "nomic-bert-moe",
     .layers = nomic_moe_layers,
     .activation_key = "activation_function",
     .activation = "gelu",
     .epsilon_key = "layer_norm_epsilon",
     .subtracts_means = true,
     .stem = "",
     .layer_stem = "encoder.layers.",
     .globals = nomic_globals,
     .aside = nomic_moe_aside,
     .is_encoder = true,
     .renamed = nomic_settings,
     .read_sizes = read_nomic_moe,
     .kinds = nomic_moe_kinds,
     .add_keys = add_nomic_moe},
    modern("ModernBertModel", ""),
    modern("ModernBertForMaskedLM", "model."),
    modern_reranker(),
};

}  // namespace

std::span<const Family> encoder_families() {
  return encoder_family_table;
}

}  // namespace sluice::convert
