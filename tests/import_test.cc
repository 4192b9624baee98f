// Checkpoints of every architecture that `import` knows: synthetic models are written as Hugging
// Face would have them, come in again, and give the same logits and tokens bit for bit.
#include "core/convert/import.h"

#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/convert/json_file.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "core/synth/synthetic_model.h"
#include "core/synth/toy_vocabulary.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::write;

struct Family {
  std::string shape;   // of synth
  std::string theirs;  // of config.json
  std::map<std::string, std::string> names;
  bool has_halves = false;  // of heads, which take turns in a GGUF file
  bool norms_lack_one = false;
};

const std::map<std::string, std::string> projections = {
    {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
    {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},  {"attn_norm", "input_layernorm"}};

std::map<std::string, std::string> with(std::map<std::string, std::string> more) {
  more.insert(projections.begin(), projections.end());
  return more;
}

std::vector<Family> all_families() {
  const auto plain = with({{"ffn_norm", "post_attention_layernorm"}});
  const auto qwen3 = with({{"ffn_norm", "post_attention_layernorm"},
                           {"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"}});
  const auto gemma = with({{"ffn_norm", "pre_feedforward_layernorm"},
                           {"post_attention_norm", "post_attention_layernorm"},
                           {"post_ffw_norm", "post_feedforward_layernorm"},
                           {"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"}});
  const auto phi3 = with({{"attn_qkv", "self_attn.qkv_proj"},
                          {"ffn_up", "mlp.gate_up_proj"},
                          {"ffn_norm", "post_attention_layernorm"}});
  const auto glm4 = with({{"ffn_up", "mlp.gate_up_proj"},
                          {"post_attention_norm", "post_self_attn_layernorm"},
                          {"ffn_norm", "post_attention_layernorm"},
                          {"post_ffw_norm", "post_mlp_layernorm"}});
  const auto olmo = with({{"attn_q_norm", "self_attn.q_norm"},
                          {"attn_k_norm", "self_attn.k_norm"},
                          {"post_attention_norm", "post_attention_layernorm"},
                          {"post_ffw_norm", "post_feedforward_layernorm"}});
  return {{"tiny-llama", "LlamaForCausalLM", plain, true},
          {"tiny-qwen2", "Qwen2ForCausalLM", plain},
          {"tiny-qwen3", "Qwen3ForCausalLM", qwen3},
          {"tiny-smollm3", "SmolLM3ForCausalLM", plain, true},
          {"tiny-granite", "GraniteForCausalLM", plain, true},
          {"tiny-gemma2", "Gemma2ForCausalLM", gemma, false, true},
          {"tiny-gemma3", "Gemma3ForCausalLM", gemma, false, true},
          {"tiny-phi3", "Phi3ForCausalLM", phi3},
          {"tiny-glm4", "Glm4ForCausalLM", glm4},
          {"tiny-olmo2", "Olmo2ForCausalLM", olmo},
          {"tiny-olmo3", "Olmo3ForCausalLM", olmo},
          {"tiny-mistral3", "Ministral3ForCausalLM", plain, true}};
}

// A synthetic model as a checkpoint.
class Checkpoint {
 public:
  Checkpoint(const Family& family, const fs::path& gguf)
      : family_(family), model_(gguf::Model::open(gguf)), bytes_(gguf) {
    prefix_ = std::string(model_.metadata().require_string("general.architecture")) + ".";
  }

  void write_to(const fs::path& folder) {
    write(folder / "config.json", config().dump());
    write(folder / "tokenizer.json", tokenizer().dump());
    write(folder / "tokenizer_config.json",
          json({{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}}).dump());
    json header;
    std::string data;
    for (const gguf::TensorInfo& tensor : model_.tensors()) {
      if (tensor.name.starts_with("rope_f")) continue;
      const std::string values = values_of(tensor);
      std::vector<std::uint64_t> shape;
      for (std::uint32_t i = tensor.rank; i-- > 0;) shape.push_back(tensor.dims[i]);
      header[name_of(std::string(tensor.name))] = {
          {"dtype", "F32"},
          {"shape", shape},
          {"data_offsets", {data.size(), data.size() + values.size()}}};
      data += values;
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    write(folder / "model.safetensors",
          std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
  }

  json config() const {
    const auto heads = number("attention.head_count"), e = number("embedding_length");
    const float head = number("attention.key_length", e / heads);
    json rope = {{"rope_theta", number("rope.freq_base", 10000)}};
    if (model_.find_tensor("rope_freqs.weight") != nullptr) {  // as synth makes it
      rope.update({{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 8192}});
    }
    if (const auto kind = text("rope.scaling.type"); !kind.empty()) {
      rope["rope_type"] = kind;
      rope["factor"] = number("rope.scaling.factor", 1);
      rope["original_max_position_embeddings"] =
          static_cast<int>(number("rope.scaling.original_context_length", 1));
      if (kind == "yarn") {
        rope["beta_fast"] = number("rope.scaling.yarn_beta_fast");
        rope["beta_slow"] = number("rope.scaling.yarn_beta_slow");
        rope["mscale"] = 1.0;
        rope["mscale_all_dim"] = number("rope.scaling.yarn_log_multiplier");
        rope["llama_4_scaling_beta"] = number("attention.temperature_scale");
      }
      if (kind == "longrope") {
        rope["attention_factor"] = number("rope.scaling.attn_factor");
        rope["long_factor"] = floats_of("rope_factors_long.weight");
        rope["short_factor"] = floats_of("rope_factors_short.weight");
      }
    }
    json config = {{"architectures", {family_.theirs}},
                   {"hidden_size", count(e)},
                   {"num_hidden_layers", count(number("block_count"))},
                   {"num_attention_heads", count(heads)},
                   {"num_key_value_heads", count(number("attention.head_count_kv"))},
                   {"head_dim", count(head)},
                   {"intermediate_size", count(number("feed_forward_length"))},
                   {"vocab_size", count(number("vocab_size"))},
                   {"max_position_embeddings", count(number("context_length"))},
                   {"rms_norm_eps", number("attention.layer_norm_rms_epsilon")},
                   {"partial_rotary_factor", number("rope.dimension_count", head) / head},
                   {"tie_word_embeddings", model_.find_tensor("output.weight") == nullptr},
                   {"rope_parameters", rope}};
    if (number("attention.sliding_window") > 0) {
      config["sliding_window"] = count(number("attention.sliding_window"));
    }
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (number(key) > 0) config[key] = number(key);
    }
    const std::map<std::string, std::string> scales = {{"attention_multiplier", "attention.scale"},
                                                       {"embedding_multiplier", "embedding_scale"},
                                                       {"residual_multiplier", "residual_scale"},
                                                       {"logits_scaling", "logit_scale"}};
    for (const auto& [theirs, ours] : scales) config[theirs] = number(ours);
    return config;
  }

  // The toy vocabulary as SentencePiece's BPE: all pairs that make a token, the likeliest first.
  json tokenizer() const {
    const auto size = static_cast<std::size_t>(number("vocab_size"));
    const synth::Vocabulary vocabulary = synth::toy_vocabulary(size);
    std::map<std::string, std::size_t> ids;
    for (std::size_t i = 0; i < size; ++i) ids[vocabulary.tokens[i]] = i;
    const auto is_normal = [&](const std::string& token) {
      return ids.contains(token) && vocabulary.types[ids[token]] == 1;
    };
    json merges = json::array(), added = json::array();
    for (std::size_t i = 0; i < size; ++i) {
      const std::string& token = vocabulary.tokens[i];
      if (i < 3) added.push_back({{"id", i}, {"content", token}, {"special", true}});
      for (std::size_t at = 1; vocabulary.types[i] == 1 && at < token.size(); ++at) {
        const std::string left = token.substr(0, at), right = token.substr(at);
        if (is_normal(left) && is_normal(right)) merges.push_back({left, right});
      }
    }
    return {
        {"added_tokens", added},
        {"normalizer",
         {{"type", "Sequence"},
          {"normalizers",
           {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}},
            {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}}}}}},
        {"model",
         {{"type", "BPE"},
          {"byte_fallback", true},
          {"unk_token", "<unk>"},
          {"vocab", ids},
          {"merges", merges}}}};
  }

 private:
  static int count(float value) { return static_cast<int>(value); }

  float number(const std::string& key, float otherwise = 0) const {
    const gguf::Metadata& metadata = model_.metadata();
    const gguf::Value* value = metadata.find(prefix_ + key);
    if (value == nullptr) return otherwise;
    if (value->type() == gguf::ValueType::f32) return metadata.require_f32(prefix_ + key);
    return static_cast<float>(metadata.require_u32(prefix_ + key));
  }
  std::string text(const std::string& key) const {
    return std::string(model_.metadata().find_string(prefix_ + key).value_or(""));
  }

  std::string read(const gguf::TensorInfo& tensor) const {
    std::string values(tensor.bytes, '\0');
    bytes_.read(tensor.offset, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<float> floats_of(const std::string& name) const {
    const std::string bytes = read(model_.require_tensor(name));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  std::string name_of(const std::string& ours) const {
    if (ours == "token_embd.weight") return "model.embed_tokens.weight";
    if (ours == "output_norm.weight") return "model.norm.weight";
    if (ours == "output.weight") return "lm_head.weight";
    const std::size_t layer = ours.find('.') + 1, name = ours.find('.', layer) + 1;
    const std::size_t end = ours.find('.', name);
    return fmt::format("model.layers.{}{}{}", ours.substr(layer, name - layer),
                       family_.names.at(ours.substr(name, end - name)), ours.substr(end));
  }

  std::string values_of(const gguf::TensorInfo& tensor) const {
    std::string values = read(tensor);
    const bool rotates =
        tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight");
    if (family_.has_halves && rotates) {
      const std::size_t row = tensor.dims[0] * sizeof(float);
      const auto head = static_cast<std::size_t>(number(
          "attention.key_length", number("embedding_length") / number("attention.head_count")));
      const std::string ours = values;
      for (std::size_t i = 0; i < tensor.dims[1]; ++i) {
        const std::size_t place = i % head, half = place / (head / 2), pair = place % (head / 2);
        const std::size_t from = i - place + 2 * pair + half;
        std::memcpy(values.data() + i * row, ours.data() + from * row, row);
      }
    }
    if (family_.norms_lack_one && tensor.rank == 1) {
      for (std::size_t i = 0; i < values.size(); i += sizeof(float)) {
        float value;
        std::memcpy(&value, &values[i], sizeof value);
        value -= 1;
        std::memcpy(&values[i], &value, sizeof value);
      }
    }
    return values;
  }

  const Family& family_;
  gguf::Model model_;
  model::FileBytes bytes_;
  std::string prefix_;
};

engine::EngineOptions small_engine() {
  engine::EngineOptions options;
  options.context = 64;
  options.kv = kvcache::ElementType::f32;
  options.logits_columns = engine::logits_columns_for_all;
  return options;
}

struct Answer {
  std::vector<std::vector<tokenizer::Token>> tokens;
  std::vector<std::vector<float>> logits;
};

Answer answer_of(const fs::path& model) {
  const auto engine = engine::Engine::open(model, small_engine());
  Answer answer;
  for (const char* text : {"A river runs", "  two  spaces ", "\xC3\xA4\xE2\x82\xAC\n\n",
                           "nato lima", "<s>tasute</s> ne"}) {
    answer.tokens.push_back(engine->tokenizer().encode(text, {}));
  }
  std::vector<tokenizer::Token> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back(1 + i * 37 % 300);
  engine->session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    answer.logits.emplace_back(logits.begin(), logits.end());
  });
  return answer;
}

double largest_difference(const Answer& a, const Answer& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    for (std::size_t k = 0; k < a.logits[i].size(); ++k) {
      largest = std::max(largest, std::abs(static_cast<double>(a.logits[i][k]) - b.logits[i][k]));
    }
  }
  return largest;
}

// A checkpoint that imports, to be spoilt.
struct Spoilt {
  json config, tokenizer;

  std::string refusal() const {
    const test::TemporaryFolder folder;
    const fs::path gguf = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
    const Family family = all_families()[5];
    synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
    Checkpoint(family, gguf).write_to(folder.path());
    write(folder.path() / "config.json", config.dump());
    write(folder.path() / "tokenizer.json", tokenizer.dump());
    try {
      import_checkpoint(folder.path(), output, {"F32"});
    } catch (const Error& error) {
      CHECK_FALSE(fs::exists(output));
      CHECK(error.code() == ExitCode::model);
      return error.what();
    }
    return "";
  }
};

}  // namespace

TEST_CASE("a checkpoint of every architecture gives the logits and tokens of its GGUF file") {
  for (const Family& family : all_families()) {
    INFO(family.theirs);
    const test::TemporaryFolder folder;
    const fs::path gguf = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
    synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
    Checkpoint(family, gguf).write_to(folder.path());
    const ImportReport report = import_checkpoint(folder.path(), output, {"F32"});
    CHECK(report.tensors == gguf::Model::open(gguf).tensors().size());
    const Answer expected = answer_of(gguf), found = answer_of(output);
    CHECK(found.tokens == expected.tokens);
    REQUIRE(found.logits.size() == expected.logits.size());
    // Where 1 is taken away from norms and added again, they are rounded.
    CHECK(largest_difference(found, expected) <= (family.norms_lack_one ? 1e-4 : 0));
  }
}

TEST_CASE("what a checkpoint says beyond what its architecture can do is refused") {
  const test::TemporaryFolder folder;
  const fs::path gguf = folder.path() / "in.gguf";
  const Family family = all_families()[5];
  REQUIRE(family.theirs == "Gemma2ForCausalLM");
  synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
  const Checkpoint whole(family, gguf);
  const Spoilt good{whole.config(), whole.tokenizer()};
  CHECK(good.refusal() == "");
  struct Case {
    std::string expected;
    std::function<void(Spoilt&)> spoil;
  };
  const std::vector<Case> cases = {
      {"hidden_activation", [](Spoilt& c) { c.config["hidden_activation"] = "silu"; }},
      {"query_pre_attn_scalar", [](Spoilt& c) { c.config["query_pre_attn_scalar"] = 17; }},
      {"layer_types", [](Spoilt& c) { c.config["layer_types"] = {"full_attention"}; }},
      {"sliding_window", [](Spoilt& c) { c.config.erase("sliding_window"); }},
      {"partial_rotary", [](Spoilt& c) { c.config["partial_rotary_factor"] = 0.01; }},
      {"partial_rotary", [](Spoilt& c) { c.config["partial_rotary_factor"] = 2; }},
      {"long_factor",
       [](Spoilt& c) {
         c.config["rope_parameters"]["rope_type"] = "longrope";
         c.config["rope_parameters"]["long_factor"] = {1, 2};
       }},
      {"attention_factor",
       [](Spoilt& c) {
         c.config["rope_parameters"] = {
             {"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 3.0}};
       }},
      {"rope_type", [](Spoilt& c) { c.config["rope_parameters"]["rope_type"] = "spiral"; }},
      {"normalizer",
       [](Spoilt& c) {
         c.tokenizer["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer", [](Spoilt& c) { c.tokenizer.erase("normalizer"); }},
      {"normalizer", [](Spoilt& c) { c.tokenizer["normalizer"]["normalizers"] = "all"; }},
      {"pre_tokenizer", [](Spoilt& c) { c.tokenizer["pre_tokenizer"] = 7; }},
      {"tokens for bytes", [](Spoilt& c) { c.tokenizer["model"]["vocab"].erase("<0x41>"); }},
      {"unk_token", [](Spoilt& c) { c.tokenizer["model"]["unk_token"] = "<none>"; }},
      {"no SentencePiece", [](Spoilt& c) { c.tokenizer["model"]["merges"] = json::array(); }},
      {"makes no token",
       [](Spoilt& c) {
         c.tokenizer["model"]["merges"].push_back({"t", "\xE2\x82\xAC"});
       }},
  };
  for (const Case& one : cases) {
    INFO(one.expected);
    Spoilt spoilt = good;
    one.spoil(spoilt);
    const std::string line = spoilt.refusal();
    INFO(line);
    CHECK(line.find(one.expected) != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("JSON in which a name comes twice is refused, at any depth") {
  for (const char* text : {R"({"a": 1, "a": 2})", R"({"b": [{"a": 1, "c": {}, "a": 1}]})",
                           R"({"a": {"a": {"x": 0, "x": 0}}})"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_json(text, "file"), ModelError);
  }
  CHECK(parse_json(R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": 1})", "file").size() == 2);
}

}  // namespace sluice::convert
