// Llama models of a few thousand random weights, made to differ in everything that the metadata and
// the presence of tensors can say; and files of them, whole or broken on purpose.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "core/synth/random_blocks.h"
#include "core/synth/toy_vocabulary.h"

namespace sluice::test {

// What distinguishes one model from another. A zero, or an empty string, stands for a key that is
// not in the file.
struct LlamaShape {
  std::string name;
  std::uint64_t seed = 1;
  std::uint32_t layers = 2;
  std::uint32_t embedding = 64;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t key_length = 0;
  std::uint32_t value_length = 0;
  std::uint32_t feed_forward = 96;
  std::uint32_t tokens = 300;
  std::uint32_t padding = 0;  // rows of the vocabulary matrices beyond the tokens
  float norm_epsilon = 1e-5f;
  float rope_base = 10000;
  std::uint32_t rotated = 0;                       // rope.dimension_count
  std::string factor_key = "rope.scaling.factor";  // or the name that it had once
  std::string scaling = {};                        // rope.scaling.type
  float factor = 0;
  std::uint32_t original_context = 0;
  float attention_factor = 0;  // rope.scaling.attn_factor
  float beta_fast = 0;
  float beta_slow = 0;
  bool has_biases = false;
  bool has_rope_factors = false;
  bool is_tied = false;
  std::string architecture = "llama";
  std::string chat_template = {};
  std::vector<std::string> control_tokens = {};                 // the last ones of the vocabulary
  std::vector<std::pair<std::string, float>> recommended = {};  // in general.sampling

  std::uint32_t key_dim() const { return key_length != 0 ? key_length : embedding / heads; }
  std::uint32_t value_dim() const { return value_length != 0 ? value_length : embedding / heads; }
  std::uint32_t rotated_dims() const { return rotated != 0 ? rotated : key_dim(); }
  std::uint32_t vocabulary() const { return tokens + padding; }
};

struct TinyTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the contiguous one first
  std::vector<float> values;
  std::uint32_t type = 0;  // F32; the data of any other type is written as zeros
};

class TinyLlama {
 public:
  static constexpr std::uint32_t context = 64;

  explicit TinyLlama(LlamaShape shape_) : shape(std::move(shape_)) {
    const std::uint64_t e = shape.embedding, v = shape.vocabulary();
    add_matrix("token_embd.weight", e, v, 0.5f);
    for (std::uint32_t i = 0; i < shape.layers; ++i) add_layer("blk." + std::to_string(i) + ".");
    add_vector("output_norm.weight", e, 1, 0.2f);
    if (!shape.is_tied) add_matrix("output.weight", e, v, 3 / std::sqrt(static_cast<float>(e)));
    if (shape.has_rope_factors) add_vector("rope_freqs.weight", shape.rotated_dims() / 2, 4, 0.8f);
  }

  // Null when there is no such tensor.
  const TinyTensor* find(std::string_view name) const {
    const auto at = std::ranges::find(tensors, name, &TinyTensor::name);
    return at == tensors.end() ? nullptr : &*at;
  }

  TinyTensor& tensor(std::string_view name) {
    const auto at = std::ranges::find(tensors, name, &TinyTensor::name);
    if (at == tensors.end()) throw std::invalid_argument("no tensor " + std::string(name));
    return *at;
  }

  void write(const std::filesystem::path& path) const {
    gguf::Writer writer;
    add_metadata(writer);
    for (const TinyTensor& t : tensors) writer.add_tensor(t.name, t.dims, t.type);
    writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& sink) {
      const TinyTensor& t = tensors[index];
      if (t.type == 0) return sink(std::as_bytes(std::span<const float>(t.values)));
      sink(std::vector<std::byte>(writer.tensor_bytes(index)));
    });
  }

  LlamaShape shape;
  std::vector<TinyTensor> tensors;

 private:
  void add_layer(const std::string& block) {
    const std::uint64_t e = shape.embedding, f = shape.feed_forward;
    const std::uint64_t q = shape.heads * shape.key_dim(), k = shape.kv_heads * shape.key_dim();
    const std::uint64_t v = shape.kv_heads * shape.value_dim();
    const std::uint64_t a = shape.heads * shape.value_dim();
    add_vector(block + "attn_norm.weight", e, 1, 0.2f);
    add_projection(block + "attn_q", e, q);
    add_projection(block + "attn_k", e, k);
    add_projection(block + "attn_v", e, v);
    add_projection(block + "attn_output", a, e);
    add_vector(block + "ffn_norm.weight", e, 1, 0.2f);
    add_projection(block + "ffn_gate", e, f);
    add_projection(block + "ffn_up", e, f);
    add_projection(block + "ffn_down", f, e);
  }

  void add_projection(const std::string& name, std::uint64_t columns, std::uint64_t rows) {
    add_matrix(name + ".weight", columns, rows);
    if (shape.has_biases) add_vector(name + ".bias", rows, 0, 0.5f);
  }

  // Outputs are about as large as inputs, so that scores and probabilities differ between
  // positions and everything upstream of them shows in the logits.
  void add_matrix(const std::string& name, std::uint64_t columns, std::uint64_t rows) {
    add_matrix(name, columns, rows, 1 / std::sqrt(static_cast<float>(columns)));
  }
  void add_matrix(const std::string& name, std::uint64_t columns, std::uint64_t rows, float scale) {
    tensors.push_back({name, {columns, rows}, random(columns * rows, 0, scale)});
  }
  void add_vector(const std::string& name, std::uint64_t size, float mean, float deviation) {
    tensors.push_back({name, {size}, random(size, mean, deviation)});
  }

  std::vector<float> random(std::uint64_t count, float mean, float deviation) const {
    synth::Random source(shape.seed, tensors.size());
    std::vector<float> values(count);
    for (float& value : values) value = mean + deviation * source.normal();
    return values;
  }

  void add_metadata(gguf::Writer& writer) const {
    const auto add = [&](const std::string& name, auto value) {
      writer.add(shape.architecture + "." + name, value);
    };
    const auto add_given = [&](const std::string& name, auto value) {
      if (value != 0) add(name, value);
    };
    writer.add("general.architecture", shape.architecture);
    add("block_count", shape.layers);
    add("context_length", context);
    add("embedding_length", shape.embedding);
    add("feed_forward_length", shape.feed_forward);
    add("attention.head_count", shape.heads);
    add("attention.head_count_kv", shape.kv_heads);
    add_given("attention.key_length", shape.key_length);
    add_given("attention.value_length", shape.value_length);
    add("attention.layer_norm_rms_epsilon", shape.norm_epsilon);
    add("rope.freq_base", shape.rope_base);
    add_given("rope.dimension_count", shape.rotated);
    if (!shape.scaling.empty()) add("rope.scaling.type", std::string_view(shape.scaling));
    add_given(shape.factor_key, shape.factor);
    add_given("rope.scaling.original_context_length", shape.original_context);
    add_given("rope.scaling.attn_factor", shape.attention_factor);
    add_given("rope.scaling.yarn_beta_fast", shape.beta_fast);
    add_given("rope.scaling.yarn_beta_slow", shape.beta_slow);
    for (const auto& [key, value] : shape.recommended) {
      writer.add("general.sampling." + key, value);
    }
    add_vocabulary(writer);
  }

  void add_vocabulary(gguf::Writer& writer) const {
    synth::Vocabulary vocabulary = synth::toy_vocabulary(shape.tokens);
    constexpr std::int32_t control_type = 3;
    const std::size_t first = vocabulary.tokens.size() - shape.control_tokens.size();
    for (std::size_t i = 0; i < shape.control_tokens.size(); ++i) {
      vocabulary.tokens[first + i] = shape.control_tokens[i];
      vocabulary.types[first + i] = control_type;
    }
    if (!shape.chat_template.empty()) {
      writer.add("tokenizer.chat_template", std::string_view(shape.chat_template));
    }
    writer.add("tokenizer.ggml.model", "llama");
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
    writer.add_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(vocabulary.types));
    writer.add("tokenizer.ggml.bos_token_id", synth::begin_token);
    writer.add("tokenizer.ggml.eos_token_id", synth::end_token);
    writer.add("tokenizer.ggml.unknown_token_id", synth::unknown_token);
  }
};

}  // namespace sluice::test
