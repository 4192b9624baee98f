#include "core/synth/metadata.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/synth/architectures.h"
#include "core/synth/tensors.h"
#include "core/synth/toy_vocabulary.h"

namespace sluice::synth {
namespace {

// Adds keys that begin with the name of the architecture.
class Keys {
 public:
  Keys(const Shape& shape, gguf::Writer& writer) : shape_(shape), writer_(writer) {}

  void add_all() {
    add_sizes();
    add_attention();
    add_rope();
    add_window();
    add_scales();
    add_activations();
    add_recurrence();
    add_experts();
    if (shape_.is_encoder()) add_text_vectors();
  }

 private:
  template <typename T>
  void add(std::string_view name, const T& value) {
    writer_.add(fmt::format("{}.{}", shape_.architecture, name), value);
  }

  // A 0 stands for a key that the file does not have.
  template <typename T>
  void add_if_set(std::string_view name, const T& value) {
    if (value != T{}) add(name, value);
  }

  // One value of each layer.
  template <typename T>
  void add_by_layer(std::string_view name, const std::function<T(std::uint32_t)>& value) {
    const auto values = std::make_unique<T[]>(blocks());  // a vector of bool has no data()
    for (std::uint32_t layer = 0; layer < blocks(); ++layer) values[layer] = value(layer);
    writer_.add_array(fmt::format("{}.{}", shape_.architecture, name),
                      std::span<const T>(values.get(), blocks()));
  }

  std::uint32_t blocks() const { return shape_.layers + shape_.predictors; }
  bool is(std::string_view architecture) const { return shape_.architecture == architecture; }
  bool is_qwen35() const { return is("qwen35") || is("qwen35moe"); }
  bool has_delta_nets() const { return is_qwen35() || is("qwen3next") || is("qwen4exp"); }
  bool is_nemotron() const { return is("nemotron_h") || is("nemotron_h_moe"); }
  bool has_kind(char kind) const { return shape_.kinds.find(kind) != std::string::npos; }

  void add_sizes() {
    add("context_length", shape_.context);
    add("embedding_length", shape_.embedding);
    add("block_count", shape_.layers + shape_.predictors);
    add_if_set("nextn_predict_layers", shape_.predictors);
    add("vocab_size", shape_.vocabulary);
    if (has_kind('-') || shape_.shared_feed_forward > 0) {
      add_by_layer<std::int32_t>("feed_forward_length", [&](std::uint32_t layer) {
        const bool is_wide = shape_.is_shared(layer) && shape_.shared_feed_forward > 0;
        const bool has_none = has_kind('-') && shape_.kind(layer) != '-';
        if (has_none) return std::int32_t{0};
        return static_cast<std::int32_t>(is_wide ? shape_.shared_feed_forward
                                                 : shape_.feed_forward);
      });
    } else {
      add("feed_forward_length", shape_.feed_forward);
    }
  }

  void add_attention() {
    if (is("rwkv7")) {
      add("attention.head_count", std::uint32_t{0});
      add("attention.layer_norm_epsilon", shape_.norm_epsilon);
      return;
    }
    if (shape_.window.queries > 0) {
      add_by_layer<std::int32_t>("attention.head_count", [&](std::uint32_t layer) {
        const bool has_window = shape_.kind(layer) == '~';
        return static_cast<std::int32_t>(has_window ? shape_.window.queries : shape_.heads.queries);
      });
    } else {
      add("attention.head_count", shape_.heads.queries);
    }
    if (shape_.latent.rank > 0) return add_latent_attention();
    // The layers of a gated delta net are told by an interval instead.
    if (has_kind('M') && !has_delta_nets()) {
      add_by_layer<std::int32_t>("attention.head_count_kv", [&](std::uint32_t layer) {
        return static_cast<std::int32_t>(shape_.kind(layer) == '*' ? shape_.heads.keys : 0);
      });
    } else if (shape_.window.keys > 0) {
      add_by_layer<std::int32_t>("attention.head_count_kv", [&](std::uint32_t layer) {
        const bool has_window = shape_.kind(layer) == '~';
        return static_cast<std::int32_t>(has_window ? shape_.window.keys : shape_.heads.keys);
      });
    } else {
      add("attention.head_count_kv", shape_.heads.keys);
    }
    if (!has_plain_heads(shape_)) {
      add("attention.key_length", shape_.heads.size);
      add("attention.value_length", shape_.heads.size);
    }
    add(architecture_of(shape_).subtracts_means ? "attention.layer_norm_epsilon"
                                                : "attention.layer_norm_rms_epsilon",
        shape_.norm_epsilon);
    // Of no use, but llama.cpp insists on it.
    if (is_nemotron()) add("attention.layer_norm_epsilon", shape_.norm_epsilon);
    if (is("gemma3n")) add_streams();
    if (is("qwen4exp")) add_hyper_connections();
    if (!is("gemma4") && !is("gemma3n")) return;
    add("attention.shared_kv_layers", shape_.shared_layers);
    add("embedding_length_per_layer_input", shape_.layer_embedding);
  }

  void add_streams() {
    add("altup.active_idx", std::uint32_t{0});
    add("altup.num_inputs", shape_.streams);
    add_by_layer<float>("activation_sparsity_scale", [&](std::uint32_t layer) {
      const float none = -std::numeric_limits<float>::infinity();
      return layer < shape_.sparse_layers ? 1.6448536f : none;
    });
  }

  template <typename T>
  void add_list(std::string_view name, std::span<const T> values) {
    writer_.add_array(fmt::format("{}.{}", shape_.architecture, name), values);
  }

  void add_hyper_connections() {
    add("hyper_connection.count", shape_.streams);
    add("hyper_connection.low_rank", shape_.side_rank);
    const Shape::Indexer& indexer = shape_.indexer;
    add("attention.indexer.head_count", indexer.heads);
    add("attention.indexer.key_length", indexer.size);
    add("attention.indexer.top_k", indexer.top);
    add_by_layer<std::int32_t>("attention.compress_ratios", [&](std::uint32_t layer) {
      return static_cast<std::int32_t>(shape_.kind(layer) == '*' ? indexer.block : 0);
    });

    const Shape::Ngrams& ngrams = shape_.ngrams;
    const std::array layers = {static_cast<std::int32_t>(ngram_layer)};
    add_list<std::int32_t>("ple.layers", layers);
    add("ple.ngram_size", ngrams.tokens);
    add("ple.heads_per_ngram", ngrams.heads);
    add("ple.conv_kernel", ngrams.taps);
    add("embedding_length_per_layer_input", ngrams.width);
    // Those of Qwen 3.8, and one more.
    constexpr std::array<std::uint64_t, 4> multipliers = {23703573157769, 20109073645365,
                                                          8052911324071, 15485863000001};
    add_list<std::uint64_t>("ple.layer_multipliers", std::span(multipliers).first(ngrams.tokens));
    const std::vector<std::uint64_t> sizes = ngram_sizes(shape_);
    std::vector<std::uint64_t> offsets = {0};
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) offsets.push_back(offsets[i] + sizes[i]);
    add_list<std::uint64_t>("ple.head_offsets", offsets);
    add_list<std::uint64_t>("ple.head_vocab_sizes", sizes);
    add("ple.eos_token_id", end_token);
  }

  void add_latent_attention() {
    const Shape::Latent& latent = shape_.latent;
    const std::uint32_t query_size = shape_.heads.size;
    const std::uint32_t row_size = latent.rank + shape_.rope.size;
    if (has_kind('M')) {
      add_by_layer<std::int32_t>("attention.head_count_kv", [&](std::uint32_t layer) {
        return std::int32_t{shape_.kind(layer) == '*'};
      });
    } else {
      add("attention.head_count_kv", latent.is_old_form ? shape_.heads.queries : 1);
    }
    add_if_set("attention.q_lora_rank", latent.query_rank);
    add("attention.kv_lora_rank", latent.rank);
    add("attention.key_length", latent.is_old_form ? query_size : row_size);
    add("attention.value_length", latent.is_old_form ? latent.value_size : latent.rank);
    if (!latent.is_old_form) {
      add("attention.key_length_mla", query_size);
      add("attention.value_length_mla", latent.value_size);
    }
    add("attention.layer_norm_rms_epsilon", shape_.norm_epsilon);
  }

  void add_rope() {
    if (is("rwkv7") || is("jamba") || is("bert") || is("jina-bert-v2")) return;
    const Shape::Rope& rope = shape_.rope;
    add("rope.freq_base", rope.base);
    const std::uint32_t size = rope.size > 0 ? rope.size : shape_.heads.size;
    if (rope.size > 0 || !has_plain_heads(shape_)) add("rope.dimension_count", size);
    if (is_nemotron() || is("granitehybrid")) add("rope.scaling.finetuned", false);
    if (is_qwen35() || is("qwen3vl") || is("qwen3vlmoe") || is("qwen4exp")) {
      const auto half = static_cast<std::int32_t>(size / 2);
      const std::int32_t first = (half + 2) / 3, second = (half + 1) / 3;
      const std::array<std::int32_t, 4> sections = {first, second, half - first - second, 0};
      writer_.add_array(fmt::format("{}.rope.dimension_sections", shape_.architecture),
                        std::span<const std::int32_t>(sections));
    }
    if (!rope.scaling.empty()) add("rope.scaling.type", std::string_view(rope.scaling));
    add_if_set("rope.scaling.factor", rope.factor);
    add_if_set("rope.scaling.original_context_length", rope.original_context);
    add_if_set("rope.scaling.attn_factor", rope.attention_factor);
    add_if_set("rope.scaling.yarn_beta_fast", rope.beta_fast);
    add_if_set("rope.scaling.yarn_beta_slow", rope.beta_slow);
    add_if_set("rope.scaling.yarn_log_multiplier", rope.log_multiplier);
  }

  void add_window() {
    const Shape::Window& window = shape_.window;
    add_if_set("attention.sliding_window", window.positions);
    add_if_set("rope.freq_base_swa", window.rope_base);
    for (const char* name :
         {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"}) {
      add_if_set(name, window.head_size);
    }
    if (is("laguna") && window.positions > 0) add("rope.dimension_count_swa", shape_.heads.size);
    // The pattern of the older Gemmas is a part of their architecture.
    if ((is("gemma4") || architecture_of(shape_).has_window_pattern) && has_kind('~')) {
      add_by_layer<bool>("attention.sliding_window_pattern",
                         [&](std::uint32_t layer) { return shape_.kind(layer) == '~'; });
    }
  }

  void add_scales() {
    const Shape::Scales& scales = shape_.scales;
    add_if_set("attention.scale", scales.attention);
    add_if_set("embedding_scale", scales.embedding);
    add_if_set("residual_scale", scales.residual);
    add_if_set("logit_scale", scales.logit);
    add_if_set("attention.temperature_scale", scales.temperature);
    if (is("mistral4")) add("attention.temperature_length", shape_.rope.original_context);
    add_if_set("attn_logit_softcapping", scales.attention_cap);
    add_if_set("final_logit_softcapping", scales.logit_cap);
  }

  // Numbers of the activations of each layer.
  void add_activations() {
    if (is("apertus")) {
      const auto add_numbers = [&](const char* name, float first, float step) {
        std::vector<float> values(shape_.layers);
        for (std::uint32_t i = 0; i < shape_.layers; ++i) {
          values[i] = first + step * static_cast<float>(i % 3);
        }
        writer_.add_array(fmt::format("xielu.{}", name), std::span<const float>(values));
      };
      add_numbers("alpha_p", 0.3f, 0.4f);
      add_numbers("alpha_n", 0.6f, -0.5f);
      add_numbers("beta", 0.5f, 0.1f);
      add_numbers("eps", -1e-6f, 0);
    }
    if (is("step35")) {
      add_by_layer<float>("swiglu_clamp_exp",
                          [](std::uint32_t layer) { return layer % 2 == 0 ? 1.2f : 0.0f; });
      add_by_layer<float>("swiglu_clamp_shexp",
                          [](std::uint32_t layer) { return layer % 3 == 0 ? 0.0f : 0.9f; });
    }
  }

  void add_recurrence() {
    const Shape::Recurrence& recurrence = shape_.recurrence;
    if (is("rwkv7")) {
      add("wkv.head_size", recurrence.state);
      add("attention.decay_lora_rank", shape_.ranks.decay);
      add("attention.iclr_lora_rank", shape_.ranks.rate);
      add("attention.value_residual_mix_lora_rank", shape_.ranks.value);
      add("attention.gate_lora_rank", shape_.ranks.gate);
      return;
    }
    if (is("kimi-linear") || is("bailingmoe3")) {
      add("ssm.conv_kernel", recurrence.taps);
      add("kda.head_dim", recurrence.state);
      if (is("bailingmoe3")) add("kda.gate_lower_bound", -2.0f);
      return;
    }
    add_if_set("ssm.inner_size", recurrence.inner);
    add_if_set("ssm.time_step_rank", recurrence.heads);
    add_if_set("ssm.state_size", recurrence.state);
    add_if_set("ssm.group_count", recurrence.groups);
    add_if_set("ssm.conv_kernel", recurrence.taps);
    add_if_set("shortconv.l_cache", shape_.short_convolution);
    if (has_delta_nets()) {
      add("full_attention_interval", static_cast<std::uint32_t>(shape_.kinds.size()));
    }
  }

  void add_text_vectors() {
    const Shape::TextVectors& vectors = shape_.vectors;
    add("pooling_type", vectors.pooling);
    add("attention.causal", false);
    if (is("nomic-bert-moe")) add("moe_every_n_layers", shape_.experts.period);
    if (vectors.dense == 0) return;
    add("dense_2_feat_in", shape_.embedding);
    add("dense_2_feat_out", vectors.dense);
    add("dense_3_feat_in", vectors.dense);
    add("dense_3_feat_out", shape_.embedding);
  }

  void add_experts() {
    const Shape::Experts& experts = shape_.experts;
    add_if_set("expert_count", experts.count);
    add_if_set("expert_used_count", experts.used);
    add_if_set("expert_feed_forward_length", experts.feed_forward);
    if (architecture_of(shape_).counts_shared_experts) {
      add("expert_shared_count", experts.shared_feed_forward / experts.feed_forward);
    } else {
      add_if_set("expert_shared_feed_forward_length", experts.shared_feed_forward);
      if (shape_.architecture.starts_with("bailingmoe")) {
        add("expert_shared_count", std::uint32_t{1});
      }
    }
    add_if_set("leading_dense_block_count", experts.leading_dense);
    if (is("llama4")) add_if_set("interleave_moe_layer_step", experts.period);
    if (is("ernie4_5-moe")) add("interleave_moe_layer_step", std::uint32_t{1});
    add_if_set("expert_group_count", experts.groups);
    add_if_set("expert_group_used_count", experts.groups_used);
    add_if_set("expert_weights_scale", experts.weights_scale);
    if (is("deepseek2") || is("mistral4")) {
      add("expert_gating_func", std::uint32_t{experts.is_sigmoid ? 2u : 1u});
      add("expert_weights_norm", experts.is_sigmoid || is("mistral4"));
    } else if (experts.is_sigmoid) {
      add("expert_gating_func", std::uint32_t{2});
      if (!is("minimax-m2") && !is("smallthinker")) add("expert_weights_norm", true);
    } else if (is("smallthinker")) {
      add("expert_gating_func", std::uint32_t{1});
    }
    if (is("lfm2moe")) add("expert_gating_func", std::uint32_t{2});  // the sigmoid
    if (is("nemotron_h_moe")) {
      add("expert_weights_norm", true);
      add("expert_weights_scale", 2.5f);
    }
  }

  const Shape& shape_;
  gguf::Writer& writer_;
};

void add_tokens(const Vocabulary& vocabulary, gguf::Writer& writer) {
  writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
  if (!vocabulary.scores.empty()) {
    writer.add_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
  }
  writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(vocabulary.types));
}

void begin_encoder_tokenizer(const char* model, const Shape& shape, gguf::Writer& writer) {
  writer.add("tokenizer.ggml.model", model);
  writer.add("tokenizer.ggml.pre", "default");
  writer.add("tokenizer.ggml.token_type_count", shape.vectors.token_types);
}

void add_word_pieces(const Shape& shape, gguf::Writer& writer) {
  begin_encoder_tokenizer("bert", shape, writer);
  add_tokens(toy_word_pieces(shape.vocabulary), writer);
  const std::pair<std::string_view, WordPieceMark> marks[] = {
      {"padding", WordPieceMark::padding},     {"unknown", WordPieceMark::unknown},
      {"bos", WordPieceMark::begin},           {"cls", WordPieceMark::begin},
      {"seperator", WordPieceMark::separator}, {"mask", WordPieceMark::mask}};
  for (const auto& [name, mark] : marks) {  // the name of the separator is misspelt in all files
    writer.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<std::uint32_t>(mark));
  }
}

void add_unigram(const Shape& shape, gguf::Writer& writer) {
  begin_encoder_tokenizer("t5", shape, writer);
  add_tokens(toy_unigram(shape.vocabulary), writer);
  const std::pair<std::string_view, UnigramMark> marks[] = {{"bos", UnigramMark::begin},
                                                            {"eos", UnigramMark::end},
                                                            {"seperator", UnigramMark::end},
                                                            {"unknown", UnigramMark::unknown},
                                                            {"padding", UnigramMark::padding}};
  for (const auto& [name, mark] : marks) {
    writer.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<std::uint32_t>(mark));
  }
  for (const char* flag : {"add_space_prefix", "remove_extra_whitespaces", "add_bos_token",
                           "add_eos_token", "add_sep_token"}) {
    writer.add(fmt::format("tokenizer.ggml.{}", flag), true);
  }
}

void add_tokenizer(const Shape& shape, gguf::Writer& writer) {
  if (shape.vectors.is_unigram) return add_unigram(shape, writer);
  if (architecture_of(shape).has_word_pieces) return add_word_pieces(shape, writer);
  writer.add("tokenizer.ggml.model", "llama");
  add_tokens(toy_vocabulary(shape.vocabulary), writer);
  writer.add("tokenizer.ggml.bos_token_id", begin_token);
  writer.add("tokenizer.ggml.eos_token_id", end_token);
  writer.add("tokenizer.ggml.unknown_token_id", unknown_token);
}

}  // namespace

void add_metadata(const Shape& shape, gguf::Writer& writer) {
  writer.add("general.architecture", std::string_view(shape.architecture));
  // Not the name of the shape: llama.cpp looks for those of some models here, and then for their
  // tokens.
  writer.add("general.name", "random weights");
  const Routing routing = shape.experts.routing;
  const std::string description = "the shape of " + shape.name +
                                  (routing == Routing::skewed ? ", skewed routing"
                                   : routing == Routing::real ? ", real routing"
                                                              : "");
  writer.add("general.description", std::string_view(description));
  writer.add("general.alignment", gguf::default_alignment);
  Keys(shape, writer).add_all();
  add_tokenizer(shape, writer);
}

}  // namespace sluice::synth
