#include "tests/synthetic_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <span>
#include <stdexcept>

#include "core/model/file_bytes.h"
#include "core/synth/synthetic_model.h"
#include "core/synth/toy_vocabulary.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A stack whose name has {} in it becomes a tensor for each of its matrices.
void split_experts(CheckpointTensors& tensors) {
  CheckpointTensors apart;
  for (auto at = tensors.begin(); at != tensors.end();) {
    const auto& [name, stack] = *at;
    const std::size_t place = name.find("{}");
    if (place == std::string::npos) {
      ++at;
      continue;
    }
    const std::size_t count = stack.shape.front(), size = stack.values.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = stack.values.begin() + static_cast<std::ptrdiff_t>(i * size);
      apart[std::string(name).replace(place, 2, std::to_string(i))] = {
          {stack.shape[1], stack.shape[2]}, {first, first + static_cast<std::ptrdiff_t>(size)}};
    }
    at = tensors.erase(at);
  }
  tensors.merge(apart);
}

const fs::path& write_model(const CheckpointFamily& family, const fs::path& path) {
  synth::SyntheticModel(family.shape, "F32").write(path, 3, {});
  return path;
}

void write_tensors(const fs::path& folder, const CheckpointTensors& tensors) {
  json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    if (tensor.is_of_bytes) {
      for (const float value : tensor.values) data += static_cast<char>(static_cast<int>(value));
    } else {
      data.append(reinterpret_cast<const char*>(tensor.values.data()),
                  tensor.values.size() * sizeof(float));
    }
    header[name] = {{"dtype", tensor.is_of_bytes ? "U8" : "F32"},
                    {"shape", tensor.shape},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  write(folder / "model.safetensors",
        std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}

// The toy vocabulary of WordPiece: "##x" goes on with a word, where a GGUF file marks beginnings.
json word_piece_tokenizer(std::size_t size) {
  const synth::Vocabulary vocabulary = synth::toy_word_pieces(size);
  json ids = json::object(), added = json::array();
  for (std::size_t i = 0; i < size; ++i) {
    std::string token = vocabulary.tokens[i];
    if (vocabulary.types[i] != 1) {
      added.push_back({{"id", i}, {"content", token}, {"special", true}});
    } else {
      token = token.starts_with("\xE2\x96\x81") ? token.substr(3) : "##" + token;
    }
    ids[token] = i;
  }
  return {{"added_tokens", added},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", ids}}}};
}

// The toy vocabulary of the unigram model, with the template of RoBERTa.
json unigram_tokenizer(std::size_t size) {
  const synth::Vocabulary vocabulary = synth::toy_unigram(size);
  json pairs = json::array(), added = json::array();
  for (std::size_t i = 0; i < size; ++i) {
    pairs.push_back({vocabulary.tokens[i], vocabulary.scores[i]});
    if (vocabulary.types[i] == 1) continue;
    added.push_back({{"id", i}, {"content", vocabulary.tokens[i]}, {"special", true}});
  }
  const json begin = {{"SpecialToken", {{"id", "<s>"}}}},
             end = {{"SpecialToken", {{"id", "</s>"}}}};
  const json first = {{"Sequence", {{"id", "A"}}}}, second = {{"Sequence", {{"id", "B"}}}};
  return {
      {"added_tokens", added},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "WhitespaceSplit"}},
          {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"add_prefix_space", true}}}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {begin, first, end}},
        {"pair", {begin, first, end, end, second, end}}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 3}, {"vocab", pairs}}}};
}

}  // namespace

CheckpointFamily checkpoint_family(const std::string& theirs) {
  for (const CheckpointFamily& family : checkpoint_families()) {
    if (family.theirs == theirs) return family;
  }
  throw std::invalid_argument(theirs);
}

SyntheticCheckpoint::SyntheticCheckpoint(const CheckpointFamily& family, const fs::path& gguf)
    : family_(family), model_(gguf::Model::open(gguf)) {
  prefix_ = std::string(model_.metadata().require_string("general.architecture")) + ".";
  config_ = common_config();
  tensors_ = named_tensors();
  if (family.adapt != nullptr) family.adapt(*this, config_, tensors_);
}

void SyntheticCheckpoint::write_to(const fs::path& folder) const {
  write(folder / "config.json", config_.dump());
  write(folder / "tokenizer.json", tokenizer().dump());
  write(folder / "tokenizer_config.json",
        json({{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}}).dump());
  CheckpointTensors own;
  std::map<std::string, CheckpointTensors> of_modules;
  for (const auto& [name, tensor] : tensors_) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) {
      own[name] = tensor;
    } else {
      of_modules[name.substr(0, slash)][name.substr(slash + 1)] = tensor;
    }
  }
  write_tensors(folder, own);
  if (!family_.shape.is_encoder()) return;
  const auto module = [](const char* type, const std::string& path) {
    return json({{"type", fmt::format("sentence_transformers.models.{}", type)}, {"path", path}});
  };
  json modules = {module("Transformer", ""), module("Pooling", "1_Pooling")};
  fs::create_directories(folder / "1_Pooling");
  write(folder / "1_Pooling" / "config.json",
        json({{"pooling_mode_cls_token", family_.shape.vectors.pooling == 2},
              {"pooling_mode_mean_tokens", family_.shape.vectors.pooling != 2}})
            .dump());
  for (const auto& [name, tensors] : of_modules) {
    fs::create_directories(folder / name);
    write_tensors(folder / name, tensors);
    write(folder / name / "config.json",
          R"({"bias": false, "activation_function": "torch.nn.modules.linear.Identity"})");
    modules.push_back(module("Dense", name));
  }
  modules.push_back(module("Normalize", "9_Normalize"));
  write(folder / "modules.json", modules.dump());
}

json SyntheticCheckpoint::common_config() const {
  const auto heads = number("attention.head_count"), e = number("embedding_length");
  const float head =
      heads > 0 ? number("attention.key_length", e / heads) : number("wkv.head_size");
  json rope = {{"rope_theta", number("rope.freq_base", 10000)}};
  if (has("rope_freqs.weight")) {  // as synth makes it
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
      rope["beta_fast"] = number("rope.scaling.yarn_beta_fast", 32);
      rope["beta_slow"] = number("rope.scaling.yarn_beta_slow", 1);
      rope["mscale"] = 1.0;
      rope["mscale_all_dim"] = number("rope.scaling.yarn_log_multiplier");
      rope["llama_4_scaling_beta"] = number("attention.temperature_scale");
    }
    if (kind == "longrope") {
      rope["attention_factor"] = number("rope.scaling.attn_factor");
      rope["long_factor"] = floats_of(model_.require_tensor("rope_factors_long.weight"));
      rope["short_factor"] = floats_of(model_.require_tensor("rope_factors_short.weight"));
    }
  }
  json config = {{"architectures", {family_.theirs}},
                 {"hidden_size", count("embedding_length")},
                 {"num_hidden_layers", count("block_count")},
                 {"num_attention_heads", count("attention.head_count")},
                 {"num_key_value_heads", count("attention.head_count_kv")},
                 {"head_dim", static_cast<int>(head)},
                 {"intermediate_size", count("feed_forward_length")},
                 {"vocab_size", count("vocab_size")},
                 {"max_position_embeddings", count("context_length")},
                 {"rms_norm_eps", number("attention.layer_norm_rms_epsilon")},
                 {"partial_rotary_factor", number("rope.dimension_count", head) / head},
                 {"tie_word_embeddings", !has("output.weight")},
                 {"rope_parameters", rope}};
  if (const float epsilon = number("attention.layer_norm_epsilon"); epsilon > 0) {
    config["layer_norm_eps"] = config["norm_epsilon"] = epsilon;
  }
  if (number("attention.sliding_window") > 0) {
    config["sliding_window"] = count("attention.sliding_window");
  }
  const std::map<std::string, std::string> scales = {
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"attention_multiplier", "attention.scale"},
      {"embedding_multiplier", "embedding_scale"},
      {"residual_multiplier", "residual_scale"},
      {"logits_scaling", "logit_scale"},
      {"logit_scale", "logit_scale"}};
  for (const auto& [theirs, ours] : scales) {
    if (number(ours) > 0) config[theirs] = number(ours);
  }
  return config;
}

// The toy vocabulary as SentencePiece's BPE: all pairs that make a token, the likeliest first.
json SyntheticCheckpoint::tokenizer() const {
  const auto size = static_cast<std::size_t>(number("vocab_size"));
  if (model_.metadata().require_string("tokenizer.ggml.model") == "bert") {
    return word_piece_tokenizer(size);
  }
  if (model_.metadata().require_string("tokenizer.ggml.model") == "t5") {
    return unigram_tokenizer(size);
  }
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
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}},
      {"model",
       {{"type", "BPE"},
        {"byte_fallback", true},
        {"unk_token", "<unk>"},
        {"vocab", ids},
        {"merges", merges}}}};
}

// Of a list, the greatest: heads and widths are 0 in layers without.
float SyntheticCheckpoint::number(const std::string& key, float otherwise) const {
  const gguf::Metadata& metadata = model_.metadata();
  const gguf::Value* value = metadata.find(prefix_ + key);
  if (value == nullptr) return otherwise;
  if (value->type() == gguf::ValueType::f32) return metadata.require_f32(prefix_ + key);
  if (!value->is_array()) return static_cast<float>(metadata.require_u32(prefix_ + key));
  const std::vector<std::int64_t> values = list(key);
  return static_cast<float>(*std::max_element(values.begin(), values.end()));
}

std::string SyntheticCheckpoint::text(const std::string& key) const {
  return std::string(model_.metadata().find_string(prefix_ + key).value_or(""));
}

std::vector<std::int64_t> SyntheticCheckpoint::list(const std::string& key) const {
  const gguf::IntegerArray array = model_.metadata().require_integers(prefix_ + key);
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < array.size(); ++i) values.push_back(array[i]);
  return values;
}

std::vector<float> SyntheticCheckpoint::numbers(const std::string& whole_key) const {
  const gguf::FloatArray array = model_.metadata().require_floats(whole_key);
  std::vector<float> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array[i];
  return values;
}

CheckpointTensors SyntheticCheckpoint::named_tensors() const {
  CheckpointTensors tensors;
  for (const gguf::TensorInfo& tensor : model_.tensors()) {
    if (tensor.name.starts_with("rope_f")) continue;
    CheckpointTensor& theirs = tensors[name_of(std::string(tensor.name))];
    for (std::uint32_t i = tensor.rank; i-- > 0;) theirs.shape.push_back(tensor.dims[i]);
    theirs.values = values_of(tensor);
  }
  split_experts(tensors);
  return tensors;
}

std::string SyntheticCheckpoint::name_of(const std::string& ours) const {
  if (ours.starts_with("dense_")) return fmt::format("{}_Dense/linear.weight", ours[6]);
  if (ours.starts_with("cls.")) return family_.names.at(ours);
  if (ours.starts_with("output.")) return "lm_head." + ours.substr(ours.find('.') + 1);
  std::string prefix = family_.stem, name = ours;
  if (ours.starts_with("blk.")) {
    const std::size_t layer = ours.find('.') + 1, rest = ours.find('.', layer) + 1;
    prefix += family_.layers + ours.substr(layer, rest - layer);
    name = ours.substr(rest);
  }
  if (const auto whole = family_.names.find(name); whole != family_.names.end()) {
    return prefix + whole->second;
  }
  const std::size_t end = name.find('.');
  return prefix + family_.names.at(name.substr(0, end)) + name.substr(end);
}

std::vector<float> SyntheticCheckpoint::floats_of(const gguf::TensorInfo& tensor) const {
  std::vector<float> values(tensor.bytes / sizeof(float));
  model::FileBytes(model_.files()[tensor.file].path)
      .read(tensor.offset, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> SyntheticCheckpoint::values_of(const gguf::TensorInfo& tensor) const {
  std::vector<float> values = floats_of(tensor);
  const bool rotates =
      tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight");
  if (family_.has_halves && rotates) {
    const std::vector<float> ours = values;
    const auto head = static_cast<std::size_t>(number(
        "attention.key_length", number("embedding_length") / number("attention.head_count")));
    for (std::size_t i = 0; i < tensor.dims[1]; ++i) {
      const std::size_t place = i % head, half = place / (head / 2), pair = place % (head / 2);
      const std::size_t from = i - place + 2 * pair + half;
      std::copy_n(&ours[from * tensor.dims[0]], tensor.dims[0], &values[i * tensor.dims[0]]);
    }
  }
  const bool is_norm = tensor.rank == 1 && tensor.name.ends_with("norm.weight") &&
                       !tensor.name.ends_with("ssm_norm.weight");
  if (family_.norms_lack_one && is_norm) {
    for (float& value : values) value -= 1;
  }
  return values;
}

CheckpointFolder::CheckpointFolder(const CheckpointFamily& family)
    : checkpoint(family, write_model(family, gguf)) {
  checkpoint.write_to(path());
}

}  // namespace sluice::test
