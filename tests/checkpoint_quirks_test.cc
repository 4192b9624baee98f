// Oddities of checkpoints as they are published: what is no matter is left aside, what changes a
// model or its tokens is followed, named or refused.
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/convert/config.h"
#include "core/convert/import.h"
#include "core/convert/json_file.h"
#include "core/convert/pretokenizer_name.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/pretokenizer.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"
#include "tests/tensor_values.h"
#include "tests/tiny_checkpoint.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TinyCheckpoint;
using test::values_of;
using test::write;

// A folder with a checkpoint, and what comes of importing it.
struct Imported {
  explicit Imported(const TinyCheckpoint& checkpoint) { checkpoint.write_to(folder.path()); }

  gguf::Model model(const std::string& quant = "") {
    report = import_checkpoint(folder.path(), output, {quant});
    return gguf::Model::open(output);
  }

  // The line with which it is refused; empty if it is not.
  std::string refusal() {
    fs::remove(output);
    try {
      import_checkpoint(folder.path(), output, {"F32"});
    } catch (const Error& error) {
      CHECK_FALSE(fs::exists(output));
      const std::string line = error.what();
      CHECK(line.find('\n') == std::string::npos);
      return line;
    }
    return "";
  }

  const test::TemporaryFolder folder;
  const fs::path output = folder / "out.gguf";
  ImportReport report;
};

// How Llama 3 and Qwen 2 split text.
const std::string llama3_regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string qwen2_regex = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json split_by(const std::string& regex) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}},
            {{"type", "ByteLevel"}, {"use_regex", false}}}}};
}

void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a tensor of a dtype that is not read matters only where it is used") {
  // As older BERT checkpoints have it; here in a family without a place for it.
  TinyCheckpoint checkpoint;
  checkpoint.add("embeddings.position_ids", "I64", {1, 2}, std::string(16, '\1'));
  const std::string line = Imported(checkpoint).refusal();
  has(line, "model.safetensors: tensor 'embeddings.position_ids' has dtype 'I64'");
  checkpoint.header["model.layers.0.self_attn.rotary_emb.inv_freq"] =
      checkpoint.header["embeddings.position_ids"];
  checkpoint.header.erase("embeddings.position_ids");
  CHECK(Imported(checkpoint).refusal().empty());
  // Bytes that are no half of a tensor in MXFP4, of which a matrix may be made elsewhere.
  checkpoint.header["model.norm.weight"].update({{"dtype", "U8"}, {"shape", {128}}});
  has(Imported(checkpoint).refusal(), "model.safetensors: tensor 'model.norm.weight' has dtype U8");
}

TEST_CASE("model.safetensors goes before an index beside it, as in transformers") {
  Imported made{TinyCheckpoint()};
  write(made.folder / "model.safetensors.index.json",
        json({{"weight_map", {{"a", "model-00001-of-00002.safetensors"}}}}).dump());
  CHECK(made.model().tensors().size() == 11);
}

TEST_CASE("weights that are cut off say what to do") {
  TinyCheckpoint checkpoint;
  checkpoint.data.resize(checkpoint.data.size() - 4);
  has(Imported(checkpoint).refusal(), "get it again");
}

// Of which readers take for granted that a text begins with BOS.
TEST_CASE("a text begins with BOS only where a checkpoint says so, also as Llama 3 splits text") {
  TinyCheckpoint checkpoint;
  checkpoint.tokenizer["pre_tokenizer"] = split_by(llama3_regex);
  checkpoint.tokenizer["model"]["ignore_merges"] = true;
  const auto tokens = [&](const json& settings) {
    Imported made(checkpoint);
    write(made.folder / "tokenizer_config.json", settings.dump());
    const gguf::Model model = made.model();
    CHECK(model.metadata().require_string("tokenizer.ggml.pre") == "llama-bpe");
    CHECK(model.metadata().find_bool("tokenizer.ggml.add_eos_token") == false);
    return tokenizer::Tokenizer::from_metadata(model.metadata())->encode("ab", {});
  };
  using Tokens = std::vector<tokenizer::Token>;
  CHECK(tokens({{"bos_token", nullptr}}) == Tokens{0, 1});
  CHECK(tokens({{"add_bos_token", true}}) == Tokens{0, 1});  // there is none
  checkpoint.config["bos_token_id"] = 1;
  CHECK(tokens({{"bos_token", nullptr}}) == Tokens{0, 1});
  CHECK(tokens({{"bos_token", "b"}, {"add_bos_token", true}}) == Tokens{1, 0, 1});
}

TEST_CASE("a head that is stored is dropped only where it is the table of embeddings") {
  TinyCheckpoint checkpoint;
  const auto place = checkpoint.header["model.embed_tokens.weight"]["data_offsets"];
  std::string head =
      checkpoint.data.substr(place[0], place[1].get<std::size_t>() - place[0].get<std::size_t>());
  checkpoint.add("lm_head.weight", "F32", {256, 32}, head);
  for (const bool differs : {false, true}) {
    INFO(differs);
    if (differs) checkpoint.data.back() ^= 1;
    Imported made(checkpoint);
    const gguf::Model model = made.model();
    CHECK((model.find_tensor("output.weight") != nullptr) == differs);
    CHECK(made.report.warnings.size() == (differs ? 1 : 0));
    if (differs) {
      CHECK(values_of(model, "output.weight") != values_of(model, "token_embd.weight"));
      has(made.report.warnings.front(), "lm_head.weight differs");
    }
  }
}

TEST_CASE("without a format each matrix keeps the one in which it is stored") {
  // Values with more bits than F16 has, and beyond its range.
  TinyCheckpoint checkpoint;
  std::string halves(256 * 32 * 2, '\0');
  for (std::size_t i = 0; i < halves.size(); i += 2) halves[i] = static_cast<char>(i / 2);
  checkpoint.header.erase("model.embed_tokens.weight");
  checkpoint.add("model.embed_tokens.weight", "F16", {256, 32}, halves);
  const auto at = checkpoint.header["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0];
  const float odd = 1e5f + 0.0078125f;
  std::memcpy(checkpoint.data.data() + at.get<std::size_t>(), &odd, sizeof odd);
  Imported made(checkpoint);
  const gguf::Model model = made.model();
  CHECK(values_of(model, "blk.0.ffn_up.weight")[0] == odd);
  CHECK(model.require_tensor("token_embd.weight").type == 1);
  CHECK(model.require_tensor("blk.0.ffn_up.weight").type == 0);
  CHECK(made.report.quant == "F32");  // of most bytes
  CHECK(model.metadata().require_u32("general.file_type") == 0);
}

TEST_CASE("settings of rotations have two names, and must not say different things") {
  TinyCheckpoint checkpoint;
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}};
  const auto factor = [&](const json& scaling, const json& parameters) {
    checkpoint.config["rope_scaling"] = scaling;
    checkpoint.config["rope_parameters"] = parameters;
    return Imported(checkpoint).model().metadata().find_f32("llama.rope.scaling.factor");
  };
  json with_base = linear;
  with_base["rope_theta"] = 7e5;
  CHECK(factor(linear, nullptr) == 4.0f);
  CHECK(factor(nullptr, linear) == 4.0f);
  CHECK(factor(json::object(), linear) == 4.0f);
  CHECK(factor(linear, json::object()) == 4.0f);
  CHECK(factor(linear, with_base) == 4.0f);
  CHECK(Imported(checkpoint).model().metadata().find_f32("llama.rope.freq_base") == 7e5f);
  CHECK(factor(nullptr, {{"rope_type", "default"}}) == std::nullopt);
  checkpoint.config["rope_scaling"] = linear;
  has(Imported(checkpoint).refusal(), "'rope_scaling' is not as rope_parameters");
}

TEST_CASE("a window that no reader follows is named, where it would change something") {
  TinyCheckpoint checkpoint;
  const auto warnings = [&](const char* architecture, const json& settings) {
    checkpoint.config["architectures"] = {architecture};
    checkpoint.config.update(settings);
    Imported made(checkpoint);
    made.model();
    return made.report.warnings;
  };
  CHECK(warnings("LlamaForCausalLM", {{"sliding_window", 8}}).empty());  // Llama has none
  const auto lines = warnings("MistralForCausalLM", {{"sliding_window", 8}});
  REQUIRE(lines.size() == 1);
  has(lines.front(), "the window of 8 tokens");
  CHECK(warnings("MistralForCausalLM", {{"use_sliding_window", true}}).size() == 1);
  CHECK(warnings("MistralForCausalLM", {{"use_sliding_window", false}}).empty());
  checkpoint.config.erase("use_sliding_window");
  CHECK(warnings("MistralForCausalLM", {{"sliding_window", 128}}).empty());  // as any text
  CHECK(warnings("MistralForCausalLM", {{"sliding_window", nullptr}}).empty());
}

TEST_CASE("what prepares text in front of BPE on bytes is named, or refused") {
  struct Case {
    std::string part;
    json value;
    std::string refused, warned;
  };
  const json steps = {{{"type", "Strip"}}, {{"type", "NFC"}}};
  for (const Case& one : {
           Case{"normalizer", nullptr, "", ""},
           Case{"normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}, "", ""},
           Case{"normalizer", {{"type", "NFC"}}, "", ""},
           Case{"normalizer", {{"type", "Lowercase"}}, "'normalizer' changes", ""},
           Case{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}, "'normalizer'", ""},
           Case{"pre_tokenizer",
                {{"type", "ByteLevel"}, {"add_prefix_space", true}},
                "add_prefix_space",
                ""},
           Case{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}, "", ""},
       }) {
    INFO(one.value);
    TinyCheckpoint checkpoint;
    checkpoint.tokenizer[one.part] = one.value;
    Imported made(checkpoint);
    if (!one.refused.empty()) {
      has(made.refusal(), one.refused);
      continue;
    }
    made.model();
    CHECK(made.report.warnings.size() == (one.warned.empty() ? 0 : 1));
    if (!one.warned.empty()) has(made.report.warnings.front(), one.warned);
  }
}

// Where merges make all tokens, as tiktoken has it, looking words up first changes nothing.
TEST_CASE("words that are looked up before they are merged are named where it matters") {
  TinyCheckpoint checkpoint;
  checkpoint.tokenizer["model"]["vocab"].update({{"ab", 2}, {"\u0120", 3}});
  checkpoint.tokenizer["model"]["merges"] = {"a b"};
  checkpoint.tokenizer["model"]["ignore_merges"] = true;
  checkpoint.tokenizer["pre_tokenizer"] = split_by(qwen2_regex);
  const auto warnings = [&] {
    Imported made(checkpoint);
    made.model();
    return made.report.warnings;
  };
  CHECK(warnings().empty());
  checkpoint.tokenizer["model"]["vocab"]["aba"] = 4;
  REQUIRE(warnings().size() == 1);
  has(warnings().front(), "no merge makes 1 tokens, such as 'aba'");
  checkpoint.tokenizer["pre_tokenizer"] = split_by(llama3_regex);
  CHECK(warnings().empty());  // readers look words up
  checkpoint.tokenizer["model"]["ignore_merges"] = false;
  CHECK(warnings().empty());
}

TEST_CASE("of very many warnings of a tokenizer the first ones are told") {
  TinyCheckpoint checkpoint;
  json added = json::array();
  for (int id = 100'000; id < 100'500; ++id) {
    added.push_back({{"id", id}, {"content", "<" + std::to_string(id) + ">"}, {"special", true}});
  }
  checkpoint.tokenizer["added_tokens"] = added;
  Imported made(checkpoint);
  made.model();
  REQUIRE(made.report.warnings.size() == 101);
  has(made.report.warnings.front(), "'<100000>'");
  has(made.report.warnings.back(), "there are more warnings");
}

TEST_CASE("an integer beyond 64 bits in a checkpoint's settings is a number") {
  const json settings =
      convert::parse_json(R"({"model_max_length": 1000000000000000019884624838656})", "file");
  CHECK(settings["model_max_length"] == 1e30);
}

TEST_CASE("a vocabulary that no reader would take is refused before weights are written") {
  TinyCheckpoint checkpoint;
  // Names of unused ids make room for tokens that are called so.
  checkpoint.tokenizer["model"]["vocab"]["[PAD201]"] = 200;
  const gguf::Model model = Imported(checkpoint).model();
  const auto tokens = model.metadata().require_strings("tokenizer.ggml.tokens");
  const std::vector<std::string_view> texts(tokens.begin(), tokens.end());
  CHECK(texts[200] == "[PAD201]");
  CHECK(texts[201] == "[[PAD201]");
  CHECK(texts[202] == "[PAD202]");
  checkpoint.tokenizer["added_tokens"] = {{{"id", 7}, {"content", "a"}, {"special", true}}};
  has(Imported(checkpoint).refusal(), "token 7 is 'a', as token 0 is already");
  checkpoint.tokenizer["added_tokens"] = json::array();
  checkpoint.tokenizer["model"]["merges"] = json::array({json::array({"a b", "a"})});
  has(Imported(checkpoint).refusal(), "tokenizer.ggml.merges");
}

TEST_CASE("an added token without a row of the table is left aside, and named") {
  TinyCheckpoint checkpoint;
  const std::uint64_t rows = checkpoint.config["vocab_size"];
  checkpoint.tokenizer["added_tokens"] = {
      {{"id", rows}, {"content", "<image_soft_token>"}, {"special", true}}};
  Imported made(checkpoint);
  CHECK(made.model().metadata().require_strings("tokenizer.ggml.tokens").size() == rows);
  has(made.report.warnings.at(0), "'<image_soft_token>'");
}

TEST_CASE("pre-tokenizers are known by their expressions") {
  const std::map<std::string, std::string> known = {
      {"seed-coder",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)"
       R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"bailingmoe2",
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
       R"(\s*[\r\n]|\s+(?!\S)|\s+)"}};
  for (const auto& [name, regex] : known) {
    const json tokenizer = {
        {"pre_tokenizer",
         {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}}};
    CHECK(pretokenizer_name(Config(tokenizer, "tokenizer.json"), false) == name);
    CHECK(tokenizer::find_pretokenizer(name).has_value());
  }
}

TEST_CASE("members that nothing needs do not stop an import, and are named") {
  const auto lines = [](const json& config, const json& generation, const json& settings) {
    TinyCheckpoint checkpoint;
    checkpoint.config.update(config);
    Imported made(checkpoint);
    write(made.folder / "generation_config.json", generation.dump());
    write(made.folder / "tokenizer_config.json", settings.dump());
    const gguf::Model model = made.model();
    CHECK_FALSE(model.metadata().contains("tokenizer.ggml.padding_token_id"));
    CHECK_FALSE(model.metadata().contains("general.sampling.top_k"));
    CHECK(model.metadata().require_u32("tokenizer.ggml.eos_token_id") == 1);
    return made.report.warnings;
  };
  const json none = json::object();
  struct Case {
    json config, generation, settings;
    std::string expected;
  };
  for (const Case& one : {
           Case{{{"pad_token_id", -1}}, none, none, "'pad_token_id' is -1"},
           Case{{{"pad_token_id", 256}}, none, none, "'pad_token_id' is 256"},
           Case{none, {{"pad_token_id", -1}}, none, "generation_config.json: 'pad_token_id'"},
           Case{{{"bos_token_id", -1}}, none, none, "'bos_token_id' is -1"},
           Case{none, {{"eos_token_id", -1}}, none, "generation_config.json: 'eos_token_id'"},
           Case{none, none, {{"pad_token", "<pad>"}}, "'pad_token' is no token"},
           Case{none, {{"top_k", -1}}, none, "generation_config.json: 'top_k' is below 0"},
       }) {
    const auto found = lines(one.config, one.generation, one.settings);
    REQUIRE(found.size() == 1);
    has(found.front(), one.expected);
  }
  TinyCheckpoint checkpoint;
  checkpoint.config["eos_token_id"] = 256;  // what ends an answer is needed
  has(Imported(checkpoint).refusal(), "'eos_token_id' is no id of the 256 tokens");
}

// Magnitudes around the largest that formats hold, which is that of rounding to nearest.
TEST_CASE("a value that a format would make infinite is refused") {
  const auto written = [](float value, const std::string& quant) -> std::optional<float> {
    TinyCheckpoint checkpoint;
    const auto at = checkpoint.header["model.layers.0.mlp.up_proj.weight"]["data_offsets"][0];
    std::memcpy(checkpoint.data.data() + at.get<std::size_t>(), &value, sizeof value);
    try {
      return values_of(Imported(checkpoint).model(quant), "blk.0.ffn_up.weight")[0];
    } catch (const ModelError& error) {
      has(error.what(), "more than " + quant + " can; choose F32");
      return std::nullopt;
    }
  };
  const float largest = std::bit_cast<float>(0x7F7F0000u);  // BF16
  for (const float sign : {1.0f, -1.0f}) {
    CHECK(written(sign * std::numeric_limits<float>::max(), "BF16") == std::nullopt);
    CHECK(written(sign * std::bit_cast<float>(0x7F7F8000u), "BF16") == std::nullopt);
    CHECK(written(sign * std::bit_cast<float>(0x7F7F7FFFu), "BF16") == sign * largest);
    CHECK(written(sign * 65504.0f, "F16") == sign * 65504.0f);
    CHECK(written(sign * 65536.0f, "F16") == std::nullopt);
  }
}

}  // namespace sluice::convert
