// Checkpoints of every architecture that `import` knows: synthetic models are written as Hugging
// Face would have them, come in again, and are the same: weights, logits and tokens.
#include "core/convert/import.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/convert/json_file.h"
#include "core/convert/tiktoken.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "core/synth/synthetic_model.h"
#include "core/text/base64.h"
#include "kernels/block_formats.h"
#include "kernels/dequantise.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/synthetic_checkpoint.h"
#include "tests/temporary_folder.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::CheckpointFolder;
using test::write;

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
  const auto keep = [&](std::size_t, std::span<const float> numbers) {
    answer.logits.emplace_back(numbers.begin(), numbers.end());
  };
  if (!engine->facts().is_encoder) {
    engine->session().evaluate_all(tokens, keep);
    return answer;
  }
  // In place of logits what it makes of each token, and how it would make a vector of these.
  const auto sequence = engine->new_sequence(static_cast<std::uint32_t>(tokens.size()));
  REQUIRE(sequence != nullptr);
  const engine::SequenceWork work{sequence.get(), tokens, false, keep};
  engine->step(std::span(&work, 1));
  answer.logits.push_back(engine->text_vector(answer.logits.front()));
  answer.logits.push_back({static_cast<float>(engine->facts().pooling_type.value_or(-1))});
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

// Of a tensor of any type.
std::vector<float> floats_of(const gguf::Model& model, const gguf::TensorInfo& tensor) {
  const auto type = static_cast<kernels::BlockType>(tensor.type);
  const kernels::BlockTraits& traits = kernels::traits(type);
  std::vector<std::byte> blocks(tensor.bytes);
  model::FileBytes(model.files()[tensor.file].path).read(tensor.offset, blocks);
  std::vector<float> values(tensor.bytes / traits.bytes_per_block * traits.elements_per_block);
  kernels::dequantise(type, blocks.data(), values.size(), values.data());
  return values;
}

// Both in F32. Counts tensors that only `expected` has. `unused`: as in CheckpointFamily.
std::size_t compare_tensors(const gguf::Model& found, const gguf::Model& expected, float tolerance,
                            const std::set<std::string>& unused = {}) {
  std::size_t missing = 0;
  for (const gguf::TensorInfo& tensor : expected.tensors()) {
    INFO(tensor.name);
    const gguf::TensorInfo* same = found.find_tensor(tensor.name);
    if (same == nullptr) {
      ++missing;
      continue;
    }
    CHECK(same->dims == tensor.dims);
    if (unused.contains(std::string(tensor.name))) continue;
    const std::vector<float> a = floats_of(found, *same), b = floats_of(expected, tensor);
    REQUIRE(a.size() == b.size());
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
    CHECK(largest <= tolerance);
  }
  return missing;
}

// The settings of an architecture that only `expected` has: another loader may insist on them.
std::vector<std::string> missing_settings(const gguf::Model& found, const gguf::Model& expected) {
  std::vector<std::string> missing;
  const std::string prefix =
      std::string(expected.metadata().require_string("general.architecture")) + ".";
  for (const gguf::Metadata::Entry& entry : expected.metadata().entries()) {
    if (!entry.key.starts_with(prefix) || found.metadata().contains(entry.key)) continue;
    missing.emplace_back(entry.key);
  }
  return missing;
}

// The texts of a checkpoint, to be spoilt.
struct Spoilt {
  json config, tokenizer;
};

struct SpoiltCase {
  std::string expected;
  std::function<void(Spoilt&)> spoil;
};

// A checkpoint that imports does so no more once it is spoilt.
void check_refusals(const std::string& theirs, const std::vector<SpoiltCase>& cases) {
  const test::CheckpointFamily family = test::checkpoint_family(theirs);
  const CheckpointFolder made(family);
  const Spoilt good{made.checkpoint.config(), made.checkpoint.tokenizer()};
  const auto refusal = [&](const Spoilt& spoilt) -> std::string {
    write(made.path() / "config.json", spoilt.config.dump());
    write(made.path() / "tokenizer.json", spoilt.tokenizer.dump());
    try {
      import_checkpoint(made.path(), made.output, {"F32"});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::model);
      return error.what();
    }
    return "";
  };
  CHECK(refusal(good) == "");
  fs::remove(made.output);
  for (const SpoiltCase& one : cases) {
    INFO(one.expected);
    Spoilt spoilt = good;
    one.spoil(spoilt);
    const std::string line = refusal(spoilt);
    INFO(line);
    CHECK_FALSE(fs::exists(made.output));
    CHECK(line.find(one.expected) != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

json layers(std::size_t count, const char* kind) {
  return json(count, json(kind));
}

}  // namespace

TEST_CASE("a checkpoint of every architecture gives the weights, logits and tokens of its file") {
  std::size_t number = 0;
  for (const test::CheckpointFamily& family : test::checkpoint_families()) {
    INFO(family.theirs << " as " << family.shape.name);
    // The sanitizers see the others in fuzz_convert, and what they compute in families_test.
    if (number++ % test::sample_step != 0) continue;
    const CheckpointFolder made(family);
    const ImportReport report = import_checkpoint(made.path(), made.output, {"F32"});
    CHECK(report.architecture == family.shape.architecture);
    const gguf::Model before = gguf::Model::open(made.gguf), after = gguf::Model::open(made.output);
    CHECK(report.tensors == before.tensors().size());
    CHECK(compare_tensors(after, before, family.tolerance, family.unused) == 0);
    CHECK(missing_settings(after, before) == std::vector<std::string>{});
    const Answer expected = answer_of(made.gguf), found = answer_of(made.output);
    if (family.keeps_merges) {
      CHECK(after.metadata().require_string("tokenizer.ggml.model") == "gemma4");
      const json tokenizer = made.checkpoint.tokenizer();
      std::vector<std::string> merges;
      for (const json& pair : tokenizer["model"]["merges"]) {
        merges.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
      }
      const auto imported = after.metadata().require_strings("tokenizer.ggml.merges");
      CHECK(std::vector<std::string>(imported.begin(), imported.end()) == merges);
    } else {
      CHECK(found.tokens == expected.tokens);
    }
    REQUIRE(found.logits.size() == expected.logits.size());
    // Where numbers are rounded on the way, there and back.
    CHECK(largest_difference(found, expected) <= family.tolerance);
  }
}

// Blocks of 32 values: two of a byte in turn, the lower half first, and a scale 2^(byte - 127).
TEST_CASE("experts in MXFP4 keep their blocks, and their values are those of the format") {
  static constexpr float steps[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  static std::map<std::string, std::vector<float>> expected;  // by the name there
  test::CheckpointFamily family = test::checkpoint_family("GptOssForCausalLM");
  family.adapt = [](const test::SyntheticCheckpoint& model, json& config,
                    test::CheckpointTensors& tensors) {
    test::checkpoint_family("GptOssForCausalLM").adapt(model, config, tensors);
    std::uint32_t state = 1;
    for (int layer = 0; layer < model.count("block_count"); ++layer) {
      for (const char* name : {"gate_up_proj", "down_proj"}) {
        const std::string whole = fmt::format("model.layers.{}.mlp.experts.{}", layer, name);
        const std::vector<std::uint64_t> plain = tensors.at(whole).shape;  // transposed
        const std::uint64_t rows = plain[2], columns = plain[1];
        test::CheckpointTensor blocks{{plain[0], rows, columns / 32, 16}, {}, true};
        test::CheckpointTensor scales{{plain[0], rows, columns / 32}, {}, true};
        std::vector<float>& values = expected[whole];
        for (std::uint64_t i = 0; i < plain[0] * rows * columns / 2; ++i) {
          state = state * 1664525 + 1013904223;
          if (i % 16 == 0) scales.values.push_back(static_cast<float>(118 + state / 65536 % 5));
          const std::uint32_t byte = state >> 24;
          blocks.values.push_back(static_cast<float>(byte));
          const float scale = std::ldexp(1.0f, static_cast<int>(scales.values.back()) - 127);
          for (const std::uint32_t half : {byte % 16, byte / 16}) {
            values.push_back((half < 8 ? scale : -scale) * steps[half % 8]);
          }
        }
        tensors.erase(whole);
        tensors[whole + "_blocks"] = std::move(blocks);
        tensors[whole + "_scales"] = std::move(scales);
      }
    }
  };
  const CheckpointFolder made(family);
  const std::string at = "model.layers.1.mlp.experts.";
  for (const char* quant : {"", "F32"}) {
    INFO(quant);
    import_checkpoint(made.path(), made.output, {quant});
    const gguf::Model model = gguf::Model::open(made.output);
    const auto values = [&](const char* name) {
      return floats_of(model, model.require_tensor(fmt::format("blk.1.ffn_{}_exps.weight", name)));
    };
    const bool is_packed = model.require_tensor("blk.1.ffn_up_exps.weight").type ==
                           static_cast<std::uint32_t>(kernels::BlockType::mxfp4);
    CHECK(is_packed == std::string(quant).empty());
    CHECK(values("down") == expected[at + "down_proj"]);
    const std::vector<float> both = expected[at + "gate_up_proj"];
    const std::vector<float> gate = values("gate"), up = values("up");
    const std::size_t columns = family.shape.embedding;
    REQUIRE(both.size() == gate.size() + up.size());
    bool is_same = true;
    for (std::size_t i = 0; i < both.size(); ++i) {
      const std::size_t row = i / columns, place = row / 2 * columns + i % columns;
      is_same = is_same && both[i] == (row % 2 == 0 ? gate : up)[place];
    }
    CHECK(is_same);
  }
}

TEST_CASE("tokens without an embedding of each layer get zeros for it") {
  static constexpr std::uint64_t missing = 7;
  test::CheckpointFamily family = test::checkpoint_family("Gemma3nForCausalLM");
  family.adapt = [](const test::SyntheticCheckpoint& model, json& config,
                    test::CheckpointTensors& tensors) {
    test::checkpoint_family("Gemma3nForCausalLM").adapt(model, config, tensors);
    test::CheckpointTensor& table = tensors.at("model.embed_tokens_per_layer.weight");
    table.shape[0] -= missing;
    table.values.resize(table.shape[0] * table.shape[1]);
    config["vocab_size_per_layer_input"] = table.shape[0];
  };
  const CheckpointFolder made(family);
  import_checkpoint(made.path(), made.output, {"F32"});
  const auto table_of = [](const fs::path& file) {
    const gguf::Model model = gguf::Model::open(file);
    return floats_of(model, model.require_tensor("per_layer_token_embd.weight"));
  };
  std::vector<float> expected = table_of(made.gguf);
  const std::size_t columns = expected.size() / family.shape.vocabulary;
  std::fill(expected.end() - static_cast<std::ptrdiff_t>(missing * columns), expected.end(), 0.0f);
  CHECK(table_of(made.output) == expected);
}

// "abc" is made of "ab" and "c", and "\xFF a" of "\xFF " and "a": the pair of the lower rank first.
TEST_CASE("the vocabulary of Kimi comes as tiktoken.model, whose ranks become merges") {
  const CheckpointFolder made(test::checkpoint_family("KimiLinearForCausalLM"));
  std::string lines;
  int rank = 0;
  const auto add = [&](const std::string& bytes) {
    lines += fmt::format("{} {}\n", text::to_base64(bytes), rank++);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* token : {"ab", "bc", "abc", "\xFF ", " a", "\xFF a"}) add(token);
  json settings = {
      {"tokenizer_class", "TikTokenTokenizer"},
      {"eos_token", "<|im_end|>"},
      {"added_tokens_decoder", {{"263", {{"content", "<|im_end|>"}, {"special", true}}}}}};
  const auto prepare = [&] {
    write(made.path() / "tiktoken.model", lines);
    write(made.path() / "tokenizer_config.json", settings.dump());
  };
  fs::remove(made.path() / "tokenizer.json");
  prepare();
  import_checkpoint(made.path(), made.output, {"F32"});
  const gguf::Model model = gguf::Model::open(made.output);
  const gguf::Metadata& metadata = model.metadata();
  CHECK(metadata.require_string("tokenizer.ggml.pre") == "kimi-k2");
  CHECK(metadata.require_u32("tokenizer.ggml.eos_token_id") == 263);
  const auto imported = metadata.require_strings("tokenizer.ggml.merges");
  const std::vector<std::string> merges(imported.begin(), imported.end());
  CHECK(merges == std::vector<std::string>{"a b", "b c", "ab c", "\xC3\xBF \xC4\xA0", "\xC4\xA0 a",
                                           "\xC3\xBF\xC4\xA0 a"});
  const auto engine = engine::Engine::open(made.output, small_engine());
  CHECK(engine->tokenizer().encode("abc aab", {}).front() == 258);
  CHECK(engine->tokenizer().decode(engine->tokenizer().encode("abc \xE2\x82\xAC\n", {})) ==
        "abc \xE2\x82\xAC\n");

  const auto refusal = [&]() -> std::string {
    prepare();
    fs::remove(made.output);
    try {
      import_checkpoint(made.path(), made.output, {"F32"});
    } catch (const ModelError& error) {
      return error.what();
    }
    return "";
  };
  const std::string good = lines;
  for (const char* line : {"YQ== 300", "!!! 300", "eHl6", "eHl6 x", " 300"}) {
    INFO(line);
    lines = good + line + "\n";
    CHECK(refusal().find("line 263 is not a token") != std::string::npos);
  }
  lines = good;
  settings["added_tokens_decoder"]["x"] = json::object();
  CHECK(refusal().find("added_tokens_decoder") != std::string::npos);
  settings["tokenizer_class"] = "Other";
  CHECK(refusal().find("TikTokenTokenizer") != std::string::npos);
}

TEST_CASE("the merges of tiktoken.model are those that a plain loop finds") {
  const test::TemporaryFolder folder;
  const Config settings(json::object({{"tokenizer_class", "TikTokenTokenizer"}}), "settings");
  for (unsigned seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::string> tokens = {"a", "b", "c"};
    while (tokens.size() < 150) {
      const std::string made = tokens[random() % tokens.size()] + tokens[random() % tokens.size()];
      const std::string token = random() % 8 == 0 ? made + "ab" : made;
      const bool is_new = std::ranges::find(tokens, token) == tokens.end();
      if (is_new && token.size() < 40) tokens.push_back(token);
    }
    // In the order in which they were made many are merges; in another one few are.
    if (seed % 2 == 0) std::shuffle(tokens.begin() + 3, tokens.end(), random);
    std::string lines;
    std::map<std::string, std::size_t> ranks;
    for (const std::string& token : tokens) {
      lines += fmt::format("{} {}\n", text::to_base64(token), ranks.size());
      ranks.emplace(token, ranks.size());
    }
    json merges = json::array();
    for (const std::string& token : tokens) {
      std::vector<std::string> parts;
      for (const char c : token) parts.emplace_back(1, c);
      for (bool has_merged = true; has_merged;) {
        has_merged = false;
        std::size_t least = ranks.at(token), place = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
          const auto found = ranks.find(parts[i] + parts[i + 1]);
          if (found == ranks.end() || found->second >= least) continue;
          least = found->second;
          place = i;
          has_merged = true;
        }
        if (!has_merged) break;
        parts[place] += parts[place + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
      }
      if (parts.size() == 2) merges.push_back(parts);
    }
    REQUIRE(!merges.empty());
    write(folder.path() / "tiktoken.model", lines);
    CHECK(read_tiktoken(folder.path() / "tiktoken.model", settings)["model"]["merges"] == merges);
  }
}

TEST_CASE("the merges of long tokens are found in a time that grows with their length") {
  // A loop over all pairs for each merge needs longer for this than a test may take.
  std::string lines = fmt::format("{} 0\n", text::to_base64("a")), run = "a";
  int rank = 1;
  for (; run.size() < 512; ++rank) {
    run += run;
    lines += fmt::format("{} {}\n", text::to_base64(run), rank);
  }
  for (int i = 0; i < 8'000; ++i, ++rank) {
    lines += fmt::format("{} {}\n", text::to_base64(run + fmt::format("{:05}", i) + run.substr(5)),
                         rank);
  }
  const test::TemporaryFolder folder;
  write(folder.path() / "tiktoken.model", lines);
  const Config settings(json::object({{"tokenizer_class", "TikTokenTokenizer"}}), "settings");
  const json made = read_tiktoken(folder.path() / "tiktoken.model", settings);
  CHECK(made["model"]["merges"].size() == 9);
  CHECK(made["model"]["vocab"].size() == 8'010);
}

TEST_CASE("a very long token of SentencePiece is no pair of others") {
  const CheckpointFolder made(test::checkpoint_family("Gemma2ForCausalLM"));
  json tokenizer = made.checkpoint.tokenizer();
  json& vocabulary = tokenizer["model"]["vocab"];
  json& merges = tokenizer["model"]["merges"];
  const auto made_by = [](const json& pair) {
    return pair[0].get<std::string>() + pair[1].get<std::string>();
  };
  const std::string leaf = made_by(merges.back());
  json kept = json::array();
  for (const json& pair : merges) {
    REQUIRE((pair[0] != leaf && pair[1] != leaf));
    if (made_by(pair) != leaf) kept.push_back(pair);
  }
  merges = kept;
  // To try all of its pairs takes longer than a test may take.
  const std::string text(4'000'000, 'q');
  vocabulary[text] = vocabulary[leaf];
  vocabulary.erase(leaf);
  write(made.path() / "tokenizer.json", tokenizer.dump());
  import_checkpoint(made.path(), made.output, {"F32"});
  const gguf::Model model = gguf::Model::open(made.output);
  const auto imported = model.metadata().require_strings("tokenizer.ggml.tokens");
  const std::vector<std::string> tokens(imported.begin(), imported.end());
  CHECK(std::ranges::count(tokens, text) == 1);
}

TEST_CASE("WordPiece comes as vocab.txt too") {
  const CheckpointFolder made(test::checkpoint_family("BertModel"));
  const json tokenizer = made.checkpoint.tokenizer();
  std::vector<std::string> lines(tokenizer["model"]["vocab"].size());
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) lines[id] = text;
  write(made.path() / "vocab.txt", fmt::format("{}\n", fmt::join(lines, "\n")));
  fs::remove(made.path() / "tokenizer.json");
  write(made.path() / "tokenizer_config.json", "{}");
  import_checkpoint(made.path(), made.output, {"F32"});
  CHECK(answer_of(made.output).tokens == answer_of(made.gguf).tokens);
}

// Older checkpoints store them, as whole numbers.
TEST_CASE("numbers of positions are left aside, whatever their dtype") {
  for (const char* theirs : {"BertModel", "XLMRobertaModel"}) {
    INFO(theirs);
    static const char* architecture = nullptr;
    architecture = theirs;
    test::CheckpointFamily family = test::checkpoint_family(theirs);
    family.adapt = [](const test::SyntheticCheckpoint& model, json& config,
                      test::CheckpointTensors& tensors) {
      test::checkpoint_family(architecture).adapt(model, config, tensors);
      tensors["embeddings.position_ids"] = {{1, 8}, std::vector<float>(8), true};
    };
    const CheckpointFolder made(family);
    const auto lines = import_checkpoint(made.path(), made.output, {"F32"}).warnings;
    const std::string expected = "left aside: numbers of positions (1 tensors)";
    CHECK(std::ranges::find(lines, expected) != lines.end());
  }
}

TEST_CASE("what an encoder's checkpoint says beyond what can be done is refused") {
  check_refusals("BertModel",
                 {{"position_embedding_type",
                   [](Spoilt& c) { c.config["position_embedding_type"] = "relative_key"; }},
                  {"hidden_act", [](Spoilt& c) { c.config["hidden_act"] = "relu"; }},
                  {"asks for", [](Spoilt& c) { c.config["type_vocab_size"] = 3; }},
                  {"asks for", [](Spoilt& c) { c.config["max_position_embeddings"] = 4096; }},
                  {"normalizer", [](Spoilt& c) { c.tokenizer["normalizer"]["type"] = "NFC"; }},
                  {"handle_chinese_chars",
                   [](Spoilt& c) { c.tokenizer["normalizer"]["handle_chinese_chars"] = false; }},
                  {"[MASK]", [](Spoilt& c) {
                     c.tokenizer["model"]["vocab"].erase("[MASK]");
                     c.tokenizer["added_tokens"].erase(4);
                   }}});
  check_refusals(
      "JinaBertForMaskedLM",
      {{"position_embedding_type",
        [](Spoilt& c) { c.config["position_embedding_type"] = "absolute"; }},
       {"feed_forward_type", [](Spoilt& c) { c.config["feed_forward_type"] = "reglu"; }}});
  check_refusals(
      "XLMRobertaModel",
      {{"max_position_embeddings", [](Spoilt& c) { c.config["max_position_embeddings"] = 2; }},
       {"pad_token_id", [](Spoilt& c) { c.config.erase("pad_token_id"); }},
       {"asks for", [](Spoilt& c) { c.config["max_position_embeddings"] = 4096; }}});
  check_refusals("EuroBertModel", {{"mlp_bias", [](Spoilt& c) { c.config["mlp_bias"] = true; }}});
  check_refusals("NomicBertModel", {{"prenorm", [](Spoilt& c) { c.config["prenorm"] = true; }},
                                    {"activation_function",
                                     [](Spoilt& c) { c.config["activation_function"] = "gelu"; }}});
  check_refusals(
      "Gemma3TextModel",
      {{"bidirectional", [](Spoilt& c) { c.config.erase("use_bidirectional_attention"); }}});
}

TEST_CASE("a text of a SentencePiece vocabulary begins with BOS only by a template or setting") {
  const CheckpointFolder made(test::checkpoint_family("LlamaForCausalLM"));
  json tokenizer = made.checkpoint.tokenizer();
  const auto begins_with_bos = [&](const json& settings) {
    write(made.path() / "tokenizer.json", tokenizer.dump());
    write(made.path() / "tokenizer_config.json", settings.dump());
    import_checkpoint(made.path(), made.output, {"F32"});
    const gguf::Model model = gguf::Model::open(made.output);
    return tokenizer::Tokenizer::from_metadata(model.metadata())->encode("ab", {}).front() == 1;
  };
  CHECK(begins_with_bos({{"bos_token", "<s>"}}));
  tokenizer.erase("post_processor");
  CHECK_FALSE(begins_with_bos({{"bos_token", "<s>"}}));
  CHECK_FALSE(begins_with_bos(json::object()));
  CHECK(begins_with_bos({{"bos_token", "<s>"}, {"add_bos_token", true}}));
}

// Whatever the name of the folder: readers know Phi-3 by that.
TEST_CASE("added tokens take the white space behind them where the checkpoint says so") {
  const CheckpointFolder made(test::checkpoint_family("LlamaForCausalLM"));
  json tokenizer = made.checkpoint.tokenizer();
  const auto import = [&] {
    write(made.path() / "tokenizer.json", tokenizer.dump());
    return import_checkpoint(made.path(), made.output, {"F32"}).warnings;
  };
  const auto tokens = [&](const char* text) {
    const gguf::Model model = gguf::Model::open(made.output);
    return tokenizer::Tokenizer::from_metadata(model.metadata())
        ->encode(text, {.add_bos = false, .parse_special = true});
  };
  CHECK(import().empty());
  CHECK(tokens("</s> \n a") != tokens("</s>a"));
  tokenizer["added_tokens"][2]["rstrip"] = true;
  CHECK(import().empty());
  CHECK(tokens("</s> \n a") == tokens("</s>a"));
  CHECK(tokens("<s> \n a") != tokens("<s>a"));
  tokenizer["added_tokens"][1]["lstrip"] = true;
  const auto lines = import();
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().find("'lstrip' of '<s>' is left aside") != std::string::npos);
  write(made.path() / "tokenizer_config.json", json({{"mask_token", "<s>"}}).dump());
  CHECK(import().empty());
}

TEST_CASE("a space in front of the first word alone is named") {
  const CheckpointFolder made(test::checkpoint_family("LlamaForCausalLM"));
  json tokenizer = made.checkpoint.tokenizer();
  tokenizer.erase("normalizer");
  for (const char* scheme : {"first", "always", "never"}) {
    INFO(scheme);
    tokenizer["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", scheme}};
    write(made.path() / "tokenizer.json", tokenizer.dump());
    const auto lines = import_checkpoint(made.path(), made.output, {"F32"}).warnings;
    CHECK(lines.size() == (scheme == std::string("first") ? 1 : 0));
    for (const std::string& line : lines) {
      CHECK(line.find("prepend_scheme") != std::string::npos);
    }
  }
}

TEST_CASE("a tokenizer of the unigram model comes with its map of characters, or not at all") {
  CheckpointFolder made(test::checkpoint_family("XLMRobertaForSequenceClassification"));
  json tokenizer = made.checkpoint.tokenizer();
  const std::string map("\4\0\0\0\0\0\0\0x", 10);  // a root without children
  const json precompiled = {{"type", "Precompiled"},
                            {"precompiled_charsmap", text::to_base64(map)}};
  const json merge = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
  const auto import_with = [&](const json& normalizer, const json& model) {
    tokenizer["normalizer"] = normalizer;
    tokenizer["model"] = model;
    write(made.path() / "tokenizer.json", tokenizer.dump());
    import_checkpoint(made.path(), made.output, {"F32"});
    return gguf::Model::open(made.output);
  };
  const json model = tokenizer["model"];
  {
    const gguf::Model imported =
        import_with({{"type", "Sequence"}, {"normalizers", {precompiled, merge}}}, model);
    const gguf::Metadata& metadata = imported.metadata();
    const auto bytes = metadata.require_integers("tokenizer.ggml.precompiled_charsmap");
    REQUIRE(bytes.size() == map.size());
    for (std::size_t i = 0; i < map.size(); ++i) CHECK(bytes[i] == map[i]);
    CHECK(metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces") == true);
    CHECK(metadata.find_bool("tokenizer.ggml.add_sep_token") == true);
    CHECK(metadata.require_u32("tokenizer.ggml.seperator_token_id") == 2);
    CHECK(metadata.require_u32("bert.pooling_type") == 4);
  }
  // A query and a text have both ends between them, as those models were trained.
  const auto engine = engine::Engine::open(made.output, small_engine());
  const tokenizer::Tokenizer& tokens = engine->tokenizer();
  std::vector<tokenizer::Token> expected = {0};
  for (const char* text : {"a", "b"}) {
    const auto part = tokens.encode(text, {.add_bos = false});
    expected.insert(expected.end(), part.begin(), part.end());
    if (text == std::string_view("a")) expected.insert(expected.end(), {2, 2});
  }
  expected.push_back(2);
  CHECK(tokens.encode_pair("a", "b") == expected);

  const auto refusal = [&](const json& normalizer, const json& changed) -> std::string {
    try {
      import_with(normalizer, changed);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "accepted";
  };
  for (const json& normalizer :
       {json{{"type", "NFC"}}, json{{"type", "Precompiled"}, {"precompiled_charsmap", "?"}},
        json{{"type", "Replace"}, {"pattern", {{"Regex", "x"}}}, {"content", " "}}}) {
    CHECK(refusal(normalizer, model).find("'normalizer'") != std::string::npos);
  }
  json changed = model;
  changed["unk_id"] = 100000;
  CHECK(refusal(nullptr, changed).find("'unk_id'") != std::string::npos);
  changed = model;
  changed["vocab"][7] = {"x"};
  CHECK(refusal(nullptr, changed).find("'vocab'") != std::string::npos);
  changed["vocab"] = json::object();
  CHECK(refusal(nullptr, changed).find("'vocab'") != std::string::npos);
}

TEST_CASE("steps behind an encoder that a file cannot say are refused") {
  const CheckpointFolder made(test::checkpoint_family("Gemma3TextModel"));
  const auto refusal = [&](const fs::path& file, const json& content) -> std::string {
    const std::string good = read_file(made.path() / file, config_bytes_max);
    write(made.path() / file, content.dump());
    std::string line;
    try {
      import_checkpoint(made.path(), made.output, {"F32"});
    } catch (const ModelError& error) {
      line = error.what();
    }
    write(made.path() / file, good);
    return line;
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal("modules.json", {{{"type", "models.LSTM"}, {"path", "1_LSTM"}}}), "models.LSTM");
  has(refusal("modules.json", {{{"type", "models.Pooling"}, {"path", "../1_Pooling"}}}), "'path'");
  has(refusal("modules.json", json::object()), "not a list");
  has(refusal("1_Pooling/config.json", json::object()), "pooling_mode_mean_tokens");
  has(refusal("1_Pooling/config.json", {{"pooling_mode_max_tokens", true}}), "pooling_mode_max");
  has(refusal("1_Pooling/config.json",
              {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}}),
      "one of several");
  has(refusal("2_Dense/config.json",
              {{"bias", false}, {"activation_function", "torch.nn.modules.activation.Tanh"}}),
      "activation_function");
  fs::remove(made.path() / "modules.json");
  const ImportReport report = import_checkpoint(made.path(), made.output, {"F32"});
  REQUIRE(report.warnings.size() == 1);
  has(report.warnings.front(), "no modules.json");
}

// As Qwen3-Embedding is stored: no head, no "model." in front, and an end of its own.
TEST_CASE("a decoder that makes vectors is stored without its head") {
  test::CheckpointFamily family = test::checkpoint_family("Qwen3ForCausalLM");
  family.adapt = [](const test::SyntheticCheckpoint&, json& config,
                    test::CheckpointTensors& tensors) {
    config["tie_word_embeddings"] = false;
    test::CheckpointTensors bare;
    for (auto& [name, tensor] : tensors) {
      if (name.starts_with("model.")) bare[name.substr(6)] = std::move(tensor);
    }
    tensors = std::move(bare);
  };
  const CheckpointFolder made(family);
  json tokenizer = made.checkpoint.tokenizer();
  const json& mark = tokenizer["added_tokens"].back();
  const std::string end = mark["content"];
  tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", end}}}}}}}}}};
  write(made.path() / "tokenizer.json", tokenizer.dump());
  CHECK_THROWS_AS(import_checkpoint(made.path(), made.output, {"F32"}), ModelError);
  const json pooling = {{"type", "sentence_transformers.models.Pooling"}, {"path", "1_Pooling"}};
  write(made.path() / "modules.json", json::array({pooling}).dump());
  fs::create_directories(made.path() / "1_Pooling");
  write(made.path() / "1_Pooling/config.json", json({{"pooling_mode_lasttoken", true}}).dump());
  import_checkpoint(made.path(), made.output, {"F32"});
  const gguf::Model before = gguf::Model::open(made.gguf), after = gguf::Model::open(made.output);
  CHECK(compare_tensors(after, before, 0) == (before.find_tensor("output.weight") != nullptr));
  CHECK(after.metadata().require_u32("qwen3.pooling_type") == 3);
  CHECK(after.metadata().find_bool("qwen3.attention.causal") == std::nullopt);
  CHECK(after.metadata().find_bool("tokenizer.ggml.add_eos_token") == true);
  CHECK(after.metadata().require_u32("tokenizer.ggml.eos_token_id") == mark["id"]);
}

TEST_CASE("what is for images or predicts more tokens is left aside, with a warning") {
  struct Case {
    const char* theirs;
    std::vector<std::string> warnings;
  };
  const std::string images = "left aside: the vision encoder (1 tensors)";
  const std::string predicting = "left aside: layers that predict several tokens (1 tensors)";
  for (const Case& one :
       {Case{"Qwen3_5ForConditionalGeneration", {predicting, images}},
        Case{"Gemma4ForConditionalGeneration",
             {"left aside: the audio encoder (1 tensors)", images}},
        Case{"NemotronHForCausalLM", {predicting}}, Case{"Lfm2ForCausalLM", {}}}) {
    INFO(one.theirs);
    const test::CheckpointFamily family = test::checkpoint_family(one.theirs);
    const test::TemporaryFolder folder;
    const fs::path gguf = folder.path() / "in.gguf";
    synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
    test::SyntheticCheckpoint(family, gguf).write_to(folder.path());
    CHECK(import_checkpoint(folder.path(), folder.path() / "out.gguf", {"F32"}).warnings ==
          one.warnings);
  }
}

// Newer checkpoints do not have what nobody reads.
TEST_CASE("layers of Gemma 4 that share keys and values need none of their own") {
  test::CheckpointFamily family = test::checkpoint_family("Gemma4ForCausalLM");
  static constexpr std::uint32_t sharing = 3;
  family.adapt = [](const test::SyntheticCheckpoint& model, json& config,
                    test::CheckpointTensors& tensors) {
    test::checkpoint_family("Gemma4ForCausalLM").adapt(model, config, tensors);
    for (int layer = model.count("block_count") - sharing; layer < model.count("block_count");
         ++layer) {
      for (const char* name : {"k_proj", "k_norm", "v_proj"}) {
        tensors.erase(fmt::format("model.layers.{}.self_attn.{}.weight", layer, name));
      }
    }
  };
  REQUIRE(family.shape.shared_layers == sharing);
  const test::TemporaryFolder folder;
  const fs::path gguf = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
  test::SyntheticCheckpoint(family, gguf).write_to(folder.path());
  import_checkpoint(folder.path(), output, {"F32"});
  CHECK(compare_tensors(gguf::Model::open(output), gguf::Model::open(gguf), 0) == 3 * sharing);
  CHECK(largest_difference(answer_of(output), answer_of(gguf)) == 0);
}

TEST_CASE("marks of Gemma 4 that a chat reads are no control tokens, others stay") {
  const test::CheckpointFamily family = test::checkpoint_family("Gemma4ForCausalLM");
  const CheckpointFolder made(family);
  json tokenizer = made.checkpoint.tokenizer();
  const std::map<std::string, int> marks = {{"<|channel>", 510}, {"<|image|>", 511}};
  json& vocabulary = tokenizer["model"]["vocab"];
  for (auto token = vocabulary.begin(); token != vocabulary.end();) {
    token = *token >= 510 ? vocabulary.erase(token) : std::next(token);
  }
  for (const auto& [text, id] : marks) {
    tokenizer["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}});
  }
  write(made.path() / "tokenizer.json", tokenizer.dump());
  import_checkpoint(made.path(), made.output, {"F32"});
  const gguf::Model model = gguf::Model::open(made.output);
  const auto types = model.metadata().require_integers("tokenizer.ggml.token_type");
  CHECK(types[510] == 4);
  CHECK(types[511] == 3);
}

// A table that is multiplied with one number as embeddings and another as head is stored twice.
TEST_CASE("a tied head with a multiplier of its own becomes a tensor") {
  test::CheckpointFamily family = test::checkpoint_family("FalconH1ForCausalLM");
  family.shape.tied = true;
  const test::TemporaryFolder folder;
  const fs::path gguf = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel(family.shape, "F32").write(gguf, 3, {});
  test::SyntheticCheckpoint(family, gguf).write_to(folder.path());
  import_checkpoint(folder.path(), output, {"F32"});
  const gguf::Model before = gguf::Model::open(gguf), after = gguf::Model::open(output);
  CHECK(compare_tensors(after, before, family.tolerance) == 0);
  std::vector<float> expected = floats_of(before, before.require_tensor("token_embd.weight"));
  for (float& value : expected) value *= 0.0625f / 32;
  CHECK(floats_of(after, after.require_tensor("output.weight")) == expected);
}

TEST_CASE("the ramp and the magnitude of YaRN come along for every architecture that has it") {
  for (const char* theirs : {"Qwen3ForCausalLM", "LlamaForCausalLM", "Ministral3ForCausalLM"}) {
    INFO(theirs);
    const test::CheckpointFamily family = test::checkpoint_family(theirs);
    const CheckpointFolder made(family);
    json config = made.checkpoint.config();
    config["rope_parameters"] = {{"rope_theta", 1e4}, {"rope_type", "yarn"},
                                 {"factor", 4.0},     {"original_max_position_embeddings", 16},
                                 {"beta_fast", 20.0}, {"beta_slow", 2.0},
                                 {"mscale", 1.0},     {"mscale_all_dim", 0.5}};
    const auto number = [&](const std::string& key) {
      write(made.path() / "config.json", config.dump());
      import_checkpoint(made.path(), made.output, {"F32"});
      const gguf::Model model = gguf::Model::open(made.output);
      return model.metadata().find_f32(family.shape.architecture + ".rope.scaling." + key);
    };
    CHECK(number("yarn_beta_fast") == 20.0f);
    CHECK(number("yarn_beta_slow") == 2.0f);
    CHECK(number("yarn_log_multiplier") == 0.5f);
    // transformers takes the magnitude that is given, and else both numbers or none.
    config["rope_parameters"].erase("mscale");
    CHECK(number("yarn_log_multiplier") == std::nullopt);
    config["rope_parameters"]["mscale"] = 1.0;
    config["rope_parameters"]["attention_factor"] = 1 + 0.1 * std::log(4.0);
    CHECK(number("yarn_log_multiplier") == std::nullopt);
  }
}

TEST_CASE("what a checkpoint says beyond what its architecture can do is refused") {
  const std::vector<SpoiltCase> cases = {
      {"hidden_activation", [](Spoilt& c) { c.config["hidden_activation"] = "silu"; }},
      {"query_pre_attn_scalar", [](Spoilt& c) { c.config["query_pre_attn_scalar"] = 17; }},
      {"layer_types", [](Spoilt& c) { c.config["layer_types"] = {"full_attention"}; }},
      {"not a list", [](Spoilt& c) { c.config["layer_types"] = "all"; }},
      {"the most is", [](Spoilt& c) { c.config["head_dim"] = 2147483646; }},
      {"rope_type", [](Spoilt& c) { c.config["rope_parameters"]["rope_type"] = "proportional"; }},
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
  check_refusals("Gemma2ForCausalLM", cases);
}

TEST_CASE("an activation that is not that of its architecture is refused") {
  for (const test::CheckpointFamily& family : test::checkpoint_families()) {
    if (family.theirs == "SmallThinkerForCausalLM") continue;  // has no setting for it
    INFO(family.theirs);
    const CheckpointFolder made(family);
    json config = made.checkpoint.config();
    for (const char* key :
         {"hidden_act", "hidden_activation", "mlp_hidden_act", "activation_function"}) {
      config[key] = "tanh";
    }
    write(made.path() / "config.json", config.dump());
    try {
      import_checkpoint(made.path(), made.output, {"F32"});
      FAIL("it is accepted");
    } catch (const ModelError& error) {
      const std::string line = error.what();
      INFO(line);
      CHECK(line.find("act") != std::string::npos);
      CHECK(line.find("is not ") != std::string::npos);
    }
    CHECK_FALSE(fs::exists(made.output));
  }
}

TEST_CASE("settings of experts that do not fit are refused") {
  const auto set = [](const char* key, json value) {
    return [key, value = std::move(value)](Spoilt& c) { c.config[key] = value; };
  };
  check_refusals("Qwen3MoeForCausalLM", {{"num_experts_per_tok", set("num_experts_per_tok", 9)},
                                         {"mlp.gate.weight", set("num_experts", 9)},
                                         {"mlp.gate.weight", set("num_experts", 2147483647)},
                                         {"asks for", set("moe_intermediate_size", 128)},
                                         {"norm_topk_prob", set("norm_topk_prob", false)},
                                         {"norm_topk_prob", set("norm_topk_prob", nullptr)},
                                         {"decoder_sparse_step", set("decoder_sparse_step", 2)},
                                         {"mlp_only_layers", set("mlp_only_layers", {0})}});
  check_refusals("Glm4MoeForCausalLM", {{"n_group", set("n_group", 2)},
                                        {"scoring_func", set("scoring_func", "softmax")},
                                        {"num_hidden_layers", set("first_k_dense_replace", 77)},
                                        {"has no place", set("num_nextn_predict_layers", 0)}});
  check_refusals("Ernie4_5_MoeForCausalLM",
                 {{"moe_layer_interval", set("moe_layer_interval", 2)},
                  {"moe_layer_end_index", set("moe_layer_end_index", 1)}});
  check_refusals("HunYuanMoEV1ForCausalLM", {{"moe_topk", set("moe_topk", {3, 2, 3})},
                                             {"moe_topk", set("moe_topk", json::array())},
                                             {"use_cla", set("use_cla", true)}});
  check_refusals("GraniteMoeForCausalLM", {{"asks for", set("num_local_experts", 4)},
                                           {"asks for", set("intermediate_size", 128)}});
  check_refusals("MiniMaxM2ForCausalLM", {{"rotary_dim", set("rotary_dim", 33)}});
  check_refusals(
      "MellumForCausalLM",
      {{"mlp_layer_types", set("mlp_layer_types", {"sparse", "dense"})},
       {"norm_topk_prob", set("norm_topk_prob", false)},
       {"layer_types", set("layer_types", {"sliding_attention"})},
       {"rope_type",
        [](Spoilt& c) { c.config["rope_parameters"]["sliding_attention"]["rope_type"] = "yarn"; }},
       {"attention_bias", set("attention_bias", true)}});
  check_refusals(
      "SmallThinkerForCausalLM",
      {{"use_qk_norm", set("use_qk_norm", true)},
       {"'sliding_window_size' is missing",
        [](Spoilt& c) {
          c.config["sliding_window_layout"] = c.config["rope_layout"] = {0, 1, 1};
          c.config.erase("sliding_window_size");
        }},
       {"'sliding_window_size' is not 4096",
        [](Spoilt& c) {
          c.config["sliding_window_layout"] = c.config["rope_layout"] = {0, 1, 1};
          c.config["sliding_window_size"] = 512;
        }},
       {"'rope_layout' has 0 for layer 1", set("rope_layout", {1, 0, 1})},
       {"'sliding_window_layout' has 0 for layer 1", set("sliding_window_layout", {0, 0, 1})},
       {"'moe_num_active_primary_experts'", set("moe_num_active_primary_experts", 9)},
       {"asks for", set("moe_num_primary_experts", 4)}});
}

TEST_CASE("settings of recurrent layers that do not fit are refused") {
  check_refusals(
      "Qwen3_5ForCausalLM",
      {{"linear_value_head_dim", [](Spoilt& c) { c.config["linear_value_head_dim"] = 64; }},
       {"linear_num_key_heads", [](Spoilt& c) { c.config["linear_num_key_heads"] = 4; }},
       {"attn_output_gate", [](Spoilt& c) { c.config["attn_output_gate"] = false; }},
       {"rope_theta", [](Spoilt& c) { c.config["rope_parameters"].erase("rope_theta"); }},
       {"partial_rotary_factor", [](Spoilt& c) { c.config.erase("partial_rotary_factor"); }},
       {"mrope_section",
        [](Spoilt& c) {
          c.config["rope_parameters"]["mrope_section"] = {1ull << 62, 1, 2};
        }},
       {"layer_types",
        [](Spoilt& c) {
          c.config["layer_types"] = layers(5, "linear_attention");
          c.config["layer_types"][0] = c.config["layer_types"][3] = "full_attention";
        }},
       {"5 layers", [](Spoilt& c) { c.config["layer_types"] = layers(4, "linear_attention"); }},
       {"sparse", [](Spoilt& c) { c.config["layer_types"] = layers(5, "sparse"); }},
       {"is missing", [](Spoilt& c) { c.config["full_attention_interval"] = 1; }},
       {"only", [](Spoilt& c) { c.config["num_hidden_layers"] = 2000000000; }},
       {"asks for", [](Spoilt& c) { c.config["linear_conv_kernel_dim"] = 3; }}});
  check_refusals(
      "GraniteMoeHybridForCausalLM",
      {{"mixtures", [](Spoilt& c) { c.config["num_local_experts"] = 64; }},
       {"hidden_act", [](Spoilt& c) { c.config["hidden_act"] = "gelu"; }},
       {"time_step_limit",
        [](Spoilt& c) {
          c.config["time_step_limit"] = {0.001, 0.1};
        }},
       {"divide", [](Spoilt& c) { c.config["mamba_n_groups"] = 3; }},
       {"asks for", [](Spoilt& c) { c.config["mamba_d_state"] = 2147483647; }},
       {"position_embedding_type",
        [](Spoilt& c) { c.config["layer_types"] = layers(5, "attention"); }},
       {"shared_intermediate_size", [](Spoilt& c) { c.config["shared_intermediate_size"] = 0; }}});
  check_refusals(
      "NemotronHForCausalLM",
      {{"hybrid_override_pattern", [](Spoilt& c) { c.config["hybrid_override_pattern"] = "ME*"; }},
       {"relu2", [](Spoilt& c) { c.config["mlp_hidden_act"] = "silu"; }},
       {"layer_types", [](Spoilt& c) { c.config.erase("hybrid_override_pattern"); }}});
  check_refusals("FalconH1ForCausalLM",
                 {{"ssm_multipliers",
                   [](Spoilt& c) {
                     c.config["ssm_multipliers"] = {1, 2, 3, 4};
                   }},
                  {"mlp_multipliers",
                   [](Spoilt& c) {
                     c.config["mlp_multipliers"] = {1, "x"};
                   }},
                  {"key_multiplier", [](Spoilt& c) { c.config["key_multiplier"] = "x"; }},
                  {"norm_before_gate", [](Spoilt& c) { c.config.erase("mamba_norm_before_gate"); }},
                  {"no place", [](Spoilt& c) { c.config["mamba_rms_norm"] = false; }},
                  {"asks for", [](Spoilt& c) { c.config["mamba_d_ssm"] = 2147483640; }}});
  check_refusals(
      "Lfm2ForCausalLM",
      {{"ffn_dim_multiplier", [](Spoilt& c) { c.config["block_ffn_dim_multiplier"] = 1e30; }},
       {"full_attn_idxs",
        [](Spoilt& c) {
          c.config.erase("layer_types");
          c.config["full_attn_idxs"] = {1, 6};
        }},
       {"full_attn_idxs' is not a list",
        [](Spoilt& c) {
          c.config.erase("layer_types");
          c.config["full_attn_idxs"] = 1;
        }},
       {"asks for", [](Spoilt& c) { c.config["block_auto_adjust_ff_dim"] = false; }}});
  const auto spoil_delta = [](const char* key, json value) {
    return
        [key, value = std::move(value)](Spoilt& c) { c.config["linear_attn_config"][key] = value; };
  };
  check_refusals("KimiLinearForCausalLM",
                 {{"mla_use_nope", [](Spoilt& c) { c.config.erase("mla_use_nope"); }},
                  {"linear_attn_config", [](Spoilt& c) { c.config.erase("linear_attn_config"); }},
                  {"num_expert_group", [](Spoilt& c) { c.config["num_expert_group"] = 2; }},
                  {"moe_router_activation_func",
                   [](Spoilt& c) { c.config["moe_router_activation_func"] = "softmax"; }},
                  {"full_attn_layers", spoil_delta("full_attn_layers", {0, 3})},
                  {"full_attn_layers", spoil_delta("full_attn_layers", {6})},
                  {"asks for", spoil_delta("full_attn_layers", {2})},
                  {"gate_lower_bound", spoil_delta("gate_lower_bound", -5.0)},
                  {"num_attention_heads", spoil_delta("num_heads", 2)},
                  {"asks for", spoil_delta("head_dim", 2147483647)},
                  {"asks for", spoil_delta("short_conv_kernel_size", 3)}});
  const auto spoil = [](const char* key, json value) {
    return [key, value = std::move(value)](Spoilt& c) { c.config[key] = value; };
  };
  check_refusals("RWKV7ForCausalLM",
                 {{"'hidden_act' is not sqrelu", spoil("hidden_act", "silu")},
                  {"'norm_first' is not true", spoil("norm_first", false)},
                  {"'norm_bias' is not true", spoil("norm_bias", false)},
                  {"'attn' is not null", spoil("attn", {{"layers", {1}}})},
                  {"'value_dim' is not hidden_size", spoil("value_dim", 128)},
                  {"'value_dim' is not the same number", spoil("value_dim", {256, 128})},
                  {"'value_dim' is an empty list", spoil("value_dim", json::array())},
                  {"'norm_eps' times head_dim is not 64e-5", spoil("norm_eps", 1e-6)},
                  {"'head_dim' does not divide", spoil("head_dim", 60)},
                  {"'head_dim' is missing", spoil("head_dim", nullptr)},
                  {"'norm_eps' times head_dim is not 64e-5", spoil("head_dim", 32)},
                  {"'hidden_ratio' gives no width", spoil("hidden_ratio", 1e30)},
                  {"'hidden_ratio' gives no width", spoil("hidden_ratio", 0)},
                  {"asks for [1024, 256]", spoil("hidden_ratio", nullptr)},
                  {"'decay_low_rank_dim' is missing", spoil("decay_low_rank_dim", nullptr)},
                  {"'a_low_rank_dim' is missing", spoil("a_low_rank_dim", nullptr)},
                  {"'v_low_rank_dim' is missing", spoil("v_low_rank_dim", nullptr)},
                  {"'gate_low_rank_dim' is missing", spoil("gate_low_rank_dim", nullptr)},
                  {"layers.0.attn.a_lora.lora.0.weight", spoil("a_low_rank_dim", 48)},
                  {"layers.1.attn.v_lora.lora.0.weight", spoil("v_low_rank_dim", 32)},
                  {"layers.4.attn.x_r", spoil("num_hidden_layers", 5)}});
  check_refusals(
      "Gemma3nForCausalLM",
      {{"is more than vocab_size",
        [](Spoilt& c) { c.config["vocab_size_per_layer_input"] = 100000; }},
       {"asks for", [](Spoilt& c) { c.config["vocab_size_per_layer_input"] = 7; }},
       {"altup_num_inputs", [](Spoilt& c) { c.config["altup_num_inputs"] = 1; }},
       {"altup_projections.3", [](Spoilt& c) { c.config["altup_num_inputs"] = 5; }},
       {"altup_active_idx", [](Spoilt& c) { c.config["altup_active_idx"] = 1; }},
       {"activation_sparsity_pattern",
        [](Spoilt& c) { c.config["activation_sparsity_pattern"][3] = 1.0; }},
       {"activation_sparsity_pattern",
        [](Spoilt& c) { c.config["activation_sparsity_pattern"].erase(0); }},
       {"the same number", [](Spoilt& c) { c.config["intermediate_size"][1] = 7; }},
       {"num_kv_shared_layers", [](Spoilt& c) { c.config["num_kv_shared_layers"] = 10; }}});
  check_refusals(
      "Gemma4ForCausalLM",
      {{"global_head_dim", [](Spoilt& c) { c.config["global_head_dim"] = 127; }},
       {"the most is", [](Spoilt& c) { c.config["global_head_dim"] = 2147483646; }},
       {"enable_moe_block", [](Spoilt& c) { c.config["enable_moe_block"] = true; }},
       {"num_kv_shared_layers", [](Spoilt& c) { c.config["num_kv_shared_layers"] = 8; }},
       {"bidirectional", [](Spoilt& c) { c.config["use_bidirectional_attention"] = "all"; }},
       {"rope_parameters",
        [](Spoilt& c) { c.config["rope_parameters"]["full_attention"]["rope_type"] = "yarn"; }},
       {"no place", [](Spoilt& c) { c.config["hidden_size_per_layer_input"] = 0; }},
       {"asks for", [](Spoilt& c) { c.config["use_double_wide_mlp"] = false; }}});
}

TEST_CASE("JSON in which a name comes twice is refused, at any depth") {
  for (const char* text : {R"({"a": 1, "a": 2})", R"({"b": [{"a": 1, "c": {}, "a": 1}]})",
                           R"({"a": {"a": {"x": 0, "x": 0}}})"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_json(text, "file"), ModelError);
  }
  CHECK(parse_json(R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": 1})", "file").size() == 2);
}

TEST_CASE("a file of many small objects takes time that grows with it") {
  // A quadratic parser needs longer for this than a test may take.
  std::string text = R"({"t": {})";
  for (int i = 0; i < 200000; ++i) text += R"(, "t)" + std::to_string(i) + R"(": {"shape": [1]})";
  CHECK(parse_json(text + "}", "file").size() == 200001);
}

TEST_CASE("numbers that only Python writes are nulls, except in texts") {
  const json parsed = parse_json(
      R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN\"Infinity", "e\\": 1})",
      "file");
  CHECK(parsed == json({{"a", {0.0, nullptr}},
                        {"b", nullptr},
                        {"c", nullptr},
                        {"d", "NaN\"Infinity"},
                        {"e\\", 1}}));
  for (const char* text : {"{\"a\": Infinity2}", "{Infinity: 1}", "\"NaN", "{\"a\": -NaN}"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_json(text, "file"), ModelError);
  }
}

}  // namespace sluice::convert
