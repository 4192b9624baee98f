// `quantize` and `import` as libraries: what they write loads and holds the weights that it should,
// whatever the number of threads; what is malformed is refused and leaves no file.
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/convert/import.h"
#include "core/convert/json_file.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/quant/imatrix.h"
#include "core/quant/quantise_model.h"
#include "core/sampling/model_defaults.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/model_content.h"
#include "tests/temporary_folder.h"
#include "tests/tensor_values.h"
#include "tests/tiny_checkpoint.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::content;
using test::TinyCheckpoint;
using test::values_of;
using test::write;

// The line with which the import refuses `folder`; the output must not appear.
std::string refusal(const fs::path& folder) {
  const fs::path output = folder / "out.gguf";
  try {
    import_checkpoint(folder, output, {"F32"});
  } catch (const Error& error) {
    CHECK_FALSE(fs::exists(output));
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a checkpoint comes in with its weights, heads in the order of their pairs") {
  const test::TemporaryFolder folder;
  TinyCheckpoint().write_to(folder.path());
  const fs::path output = folder.path() / "out.gguf";
  CHECK(import_checkpoint(folder.path(), output, {}).tensors == 11);
  const gguf::Model model = gguf::Model::open(output);
  CHECK(model.metadata().require_string("general.architecture") == "llama");
  CHECK(model.metadata().require_u32("llama.attention.key_length") == 8);
  const std::vector<float> v = values_of(model, "blk.0.attn_v.weight");
  const std::vector<float> k = values_of(model, "blk.0.attn_k.weight");
  for (std::size_t row = 0; row < 16; ++row) {
    // Row 2 j + a of a head of 8 rows is row j of its half a.
    const std::size_t from = row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
    CHECK(v[row * 32] == static_cast<float>(row) / 2);
    CHECK(k[row * 32] == static_cast<float>(from) / 2);
  }
}

TEST_CASE("how text is split, and what it begins with, come from the steps of the tokenizer") {
  const auto imported = [](const json& pre_tokenizer, const json& post_processor) {
    const test::TemporaryFolder folder;
    TinyCheckpoint checkpoint;
    checkpoint.config["bos_token_id"] = 0;
    checkpoint.tokenizer["pre_tokenizer"] = pre_tokenizer;
    checkpoint.tokenizer["post_processor"] = post_processor;
    checkpoint.write_to(folder.path());
    const fs::path output = folder.path() / "out.gguf";
    import_checkpoint(folder.path(), output, {});
    const gguf::Model model = gguf::Model::open(output);
    return std::pair(std::string(model.metadata().require_string("tokenizer.ggml.pre")),
                     model.metadata().find_bool("tokenizer.ggml.add_bos_token").value_or(false));
  };
  const json bytes = {{"type", "ByteLevel"}};
  const json digits = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, bytes}}};
  const auto begins_with = [](const char* token) -> json {
    return {{"type", "Sequence"},
            {"processors",
             {{{"type", "ByteLevel"}},
              {{"type", "TemplateProcessing"},
               {"single", {{{"SpecialToken", {{"id", token}}}}, {{"Sequence", {{"id", "A"}}}}}}}}}};
  };
  CHECK(imported(bytes, nullptr) == std::pair(std::string("gpt-2"), false));
  CHECK(imported(digits, begins_with("b")) == std::pair(std::string("smollm"), false));
  CHECK(imported(bytes, begins_with("a")) == std::pair(std::string("gpt-2"), true));
  // DeepSeek's files have line ends themselves in their regexes.
  const auto steps = [&](const std::vector<std::string>& regexes, bool splits_digits) {
    json list = json::array();
    for (const std::string& regex : regexes) {
      list.push_back({{"type", "Split"}, {"pattern", {{"Regex", regex}}}});
    }
    if (splits_digits) list.push_back({{"type", "Digits"}, {"individual_digits", true}});
    list.push_back({{"type", "ByteLevel"}, {"use_regex", false}});
    return json{{"type", "Sequence"}, {"pretokenizers", list}};
  };
  const std::string han = "[一-龥ࠀ-一가-퟿]+";
  const std::vector<std::string> coder = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", han};
  CHECK(imported(steps(coder, true), nullptr).first == "deepseek-coder");
  CHECK_THROWS_AS(imported(steps(coder, false), nullptr), ModelError);
  CHECK(imported(steps({"[\r\n]", R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿ]+)",
                        R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", han},
                       true),
                 nullptr)
            .first == "deepseek-llm");
  CHECK(imported(steps({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                        "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                        "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
                       false),
                 nullptr)
            .first == "deepseek-v3");
}

TEST_CASE("all chat templates of a checkpoint come along, by their names") {
  using Templates = std::map<std::string, std::string>;
  const auto imported = [](const std::function<void(const fs::path& folder)>& add) {
    const test::TemporaryFolder folder;
    TinyCheckpoint().write_to(folder.path());
    add(folder.path());
    const fs::path output = folder.path() / "out.gguf";
    import_checkpoint(folder.path(), output, {});
    const gguf::Model model = gguf::Model::open(output);
    Templates found;
    for (const gguf::Metadata::Entry& entry : model.metadata().entries()) {
      const std::string key(entry.key), prefix = "tokenizer.chat_template";
      if (!key.starts_with(prefix)) continue;
      if (key == "tokenizer.chat_templates") {
        for (const auto name : model.metadata().require_strings(key)) {
          found["names"] += std::string(name) + " ";
        }
        continue;
      }
      found[key.substr(prefix.size())] = model.metadata().require_string(key);
    }
    return found;
  };
  const json list = {{{"name", "default"}, {"template", "one"}},
                     {{"name", "tool_use"}, {"template", "two"}},
                     {{"name", "a b"}, {"template", "three"}}};
  const Templates all = {
      {"", "one"}, {".tool_use", "two"}, {".a_b", "three"}, {"names", "a_b tool_use "}};
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    INFO(file);
    CHECK(imported([&](const fs::path& folder) {
            write(folder / file, json({{"chat_template", "text"}}).dump());
          }) == Templates{{"", "text"}});
    CHECK(imported([&](const fs::path& folder) {
            write(folder / file, json({{"chat_template", list}}).dump());
          }) == all);
  }
  CHECK(imported([&](const fs::path& folder) {
          write(folder / "chat_template.jinja", "file");
          fs::create_directory(folder / "additional_chat_templates");
          write(folder / "additional_chat_templates" / "rag.jinja", "more");
          write(folder / "additional_chat_templates" / "README.md", "none");
          write(folder / "tokenizer_config.json", json({{"chat_template", list}}).dump());
          write(folder / "chat_template.json", json({{"chat_template", "text"}}).dump());
        }) == Templates{{"", "file"},
                        {".rag", "more"},
                        {".tool_use", "two"},
                        {".a_b", "three"},
                        {"names", "a_b rag tool_use "}});
  const test::TemporaryFolder folder;
  TinyCheckpoint().write_to(folder.path());
  write(folder.path() / "tokenizer_config.json", json({{"chat_template", {{{"name", 7}}}}}).dump());
  CHECK(refusal(folder.path()).find("without a name") != std::string::npos);
}

TEST_CASE("an answer ends with each end that the files name") {
  const auto ends = [](const json& settings, const json& generation) {
    const test::TemporaryFolder folder;
    TinyCheckpoint().write_to(folder.path());
    write(folder.path() / "tokenizer_config.json", settings.dump());
    write(folder.path() / "generation_config.json", generation.dump());
    const fs::path output = folder.path() / "out.gguf";
    import_checkpoint(folder.path(), output, {});
    const gguf::Model model = gguf::Model::open(output);
    std::vector<std::int64_t> found{model.metadata().require_u32("tokenizer.ggml.eos_token_id")};
    const auto list = model.metadata().find_integers("tokenizer.ggml.eos_token_ids");
    for (std::size_t i = 0; list && i < list->size(); ++i) found.push_back((*list)[i]);
    return found;
  };
  using Ends = std::vector<std::int64_t>;
  CHECK(ends(json::object(), json::object()) == Ends{1});
  CHECK(ends({{"eos_token", "a"}}, json::object()) == Ends{0, 1, 0});
  CHECK(ends({{"eos_token", "b"}}, {{"eos_token_id", 0}}) == Ends{1, 0, 1});
  CHECK(ends({{"eos_token", "b"}}, {{"eos_token_id", 1}}) == Ends{1});
  CHECK(ends({{"eos_token", "b"}}, {{"eos_token_id", {0, 1}}}) == Ends{1, 0, 1});
}

TEST_CASE("how the makers of a model sample is what its file recommends") {
  const auto recommended = [](const json& generation) {
    const test::TemporaryFolder folder;
    TinyCheckpoint().write_to(folder.path());
    write(folder.path() / "generation_config.json", generation.dump());
    const fs::path output = folder.path() / "out.gguf";
    import_checkpoint(folder.path(), output, {});
    const sampling::ModelDefaults defaults =
        sampling::model_defaults(gguf::Model::open(output).metadata());
    CHECK(defaults.warnings.empty());
    return defaults.recommended;
  };
  using Texts = std::vector<std::string>;
  CHECK(recommended(json::object()) == Texts{});
  CHECK(recommended({{"do_sample", true},
                     {"temperature", 0.6},
                     {"top_k", 20},
                     {"top_p", 0.95},
                     {"min_p", 0},
                     {"repetition_penalty", 1.05}}) ==
        Texts{"temperature 0.6", "top-k 20", "top-p 0.95", "min-p 0", "repeat penalty 1.05"});
  CHECK(recommended({{"top_k", 0}, {"temperature", nullptr}}) == Texts{"top-k 0"});
  CHECK(recommended({{"do_sample", false}, {"temperature", 0.6}}) == Texts{});
  const test::TemporaryFolder folder;
  TinyCheckpoint().write_to(folder.path());
  write(folder.path() / "generation_config.json", R"({"temperature": "warm"})");
  CHECK(refusal(folder.path()).find("temperature") != std::string::npos);
}

TEST_CASE("a folder without a whole model says what is missing and what to do") {
  struct Case {
    std::vector<const char*> expected;
    std::function<void(const fs::path& folder)> spoil;
  };
  const auto move_weights = [](const fs::path& folder, const char* name) {
    fs::rename(folder / "model.safetensors", folder / name);
  };
  const std::vector<Case> cases = {
      {{"config.json is missing"}, [](const fs::path& f) { fs::remove(f / "config.json"); }},
      {{"model.safetensors is missing"},
       [](const fs::path& f) { fs::remove(f / "model.safetensors"); }},
      {{"model.safetensors.index.json is missing"},
       [&](const fs::path& f) { move_weights(f, "model-00001-of-00002.safetensors"); }},
      {{"tokenizer.json is missing; get it too"},
       [](const fs::path& f) { fs::remove(f / "tokenizer.json"); }},
      {{"tokenizer.json is missing", "tokenizer.model alone", "save_pretrained"},
       [](const fs::path& f) { fs::rename(f / "tokenizer.json", f / "tokenizer.model"); }},
      {{"pytorch_model", "save_pretrained"},
       [&](const fs::path& f) { move_weights(f, "pytorch_model.bin"); }},
      {{"'model-00002-of-00002.safetensors'", "missing", "get it again"},
       [&](const fs::path& f) {
         move_weights(f, "model-00001-of-00002.safetensors");
         write(f / "model.safetensors.index.json",
               json({{"weight_map",
                      {{"a", "model-00001-of-00002.safetensors"},
                       {"b", "model-00002-of-00002.safetensors"}}}})
                   .dump());
       }},
      {{"adapter", "merge_and_unload"},
       [&](const fs::path& f) {
         move_weights(f, "adapter_model.safetensors");
         fs::rename(f / "config.json", f / "adapter_config.json");
       }},
      {{"adapter", "merge_and_unload"},
       [&](const fs::path& f) {
         move_weights(f, "adapter_model.safetensors");
         fs::copy(f / "config.json", f / "adapter_config.json");
       }},
  };
  for (const Case& one : cases) {
    const test::TemporaryFolder folder;
    TinyCheckpoint().write_to(folder.path());
    one.spoil(folder.path());
    const std::string line = refusal(folder.path());  // an Error, so not one of reading
    INFO(line);
    for (const char* part : one.expected) CHECK(line.find(part) != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("what is not finite is refused also where a tensor is copied") {
  const test::TemporaryFolder folder;
  TinyCheckpoint checkpoint;
  for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFFFFFFFu}) {
    std::string whole = checkpoint.data;
    for (const std::size_t at : {std::size_t{0}, whole.size() / 2 / 4 * 4, whole.size() - 4}) {
      checkpoint.data = whole;
      std::memcpy(checkpoint.data.data() + at, &bits, sizeof bits);
      checkpoint.write_to(folder.path());
      CHECK(refusal(folder.path()).find("not finite") != std::string::npos);
    }
    checkpoint.data = whole;
  }
  // The norms of a file that is quantised are copied; so is all of one that has the format already.
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "again.gguf";
  for (const auto& [quant, tensor] :
       {std::pair("F16", "blk.1.ffn_norm.weight"), std::pair("Q8_0", "blk.1.ffn_down.weight"),
        std::pair("Q6_K", "blk.1.ffn_down.weight")}) {
    INFO(quant);
    synth::SyntheticModel("tiny-qwen3", quant).write(input, 1, {});
    quant::quantise_model(input, output, {quant});
    fs::remove(output);
    std::string bytes = content(input);
    const gguf::Model model = gguf::Model::open(input);
    const gguf::TensorInfo& found = model.require_tensor(tensor);
    std::memset(bytes.data() + found.offset, 0xFF, found.bytes / 2);
    write(input, bytes);
    CHECK_THROWS_AS(quant::quantise_model(input, output, {quant}), ModelError);
    CHECK_FALSE(fs::exists(output));
  }
}

TEST_CASE("a malformed checkpoint is refused in one line, and nothing is written") {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  struct Case {
    std::string expected;
    std::function<void(TinyCheckpoint&)> spoil;
  };
  const std::vector<Case> cases = {
      {"is missing", [&](TinyCheckpoint& c) { c.header.erase(q); }},
      {"no place",
       [](TinyCheckpoint& c) {
         c.header["extra"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
       }},
      {"bytes of data", [&](TinyCheckpoint& c) { c.header[q]["data_offsets"][1] = 1u << 30; }},
      {"bytes of data",
       [&](TinyCheckpoint& c) {
         c.header[q]["data_offsets"] = {8, 4};
       }},
      {"overlap",
       [&](TinyCheckpoint& c) {
         c.header[q]["data_offsets"] = {4, 4100};
       }},
      {"dtype 'I64'", [&](TinyCheckpoint& c) { c.header[q]["dtype"] = "I64"; }},
      {"has no dtype", [&](TinyCheckpoint& c) { c.header[q]["dtype"] = 7; }},
      {"asks for",
       [&](TinyCheckpoint& c) {
         c.header[q]["shape"] = {16, 64};
       }},
      {"of shape",
       [&](TinyCheckpoint& c) {
         c.header[q]["shape"] = {1ull << 40, 1ull << 40};
       }},
      {"counts",
       [&](TinyCheckpoint& c) {
         c.header[q]["shape"] = {-32, 32};
       }},
      {"is not an object", [&](TinyCheckpoint& c) { c.header[q] = 1; }},
      {"'Other', which is not supported",
       [](TinyCheckpoint& c) { c.config["architectures"] = json::array({"Other"}); }},
      {"is missing", [](TinyCheckpoint& c) { c.config["num_hidden_layers"] = 2; }},
      {"only", [](TinyCheckpoint& c) { c.config["num_hidden_layers"] = 2000000000; }},
      {"does not divide", [](TinyCheckpoint& c) { c.config["num_key_value_heads"] = 3; }},
      {"not a number", [](TinyCheckpoint& c) { c.config["hidden_size"] = -1; }},
      {"id outside", [](TinyCheckpoint& c) { c.tokenizer["model"]["vocab"]["c"] = 256; }},
      {"the id 1", [](TinyCheckpoint& c) { c.tokenizer["model"]["vocab"]["c"] = 1; }},
      {"no pair", [](TinyCheckpoint& c) { c.tokenizer["model"]["merges"] = json::array({"ab"}); }},
      {"not BPE", [](TinyCheckpoint& c) { c.tokenizer["model"]["type"] = "WordLevel"; }},
      {"byte-level", [](TinyCheckpoint& c) { c.tokenizer.erase("pre_tokenizer"); }},
      {"'Punctuation'",
       [](TinyCheckpoint& c) {
         c.tokenizer["pre_tokenizer"] = {
             {"type", "Sequence"},
             {"pretokenizers", {{{"type", "Punctuation"}}, {{"type", "ByteLevel"}}}}};
       }},
      {"splits digits",
       [](TinyCheckpoint& c) {
         c.tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                         {"pretokenizers",
                                          {{{"type", "Digits"}, {"individual_digits", true}},
                                           {{"type", "ByteLevel"}, {"use_regex", false}}}}};
       }},
  };
  for (const Case& one : cases) {
    INFO(one.expected);
    const test::TemporaryFolder folder;
    TinyCheckpoint checkpoint;
    one.spoil(checkpoint);
    checkpoint.write_to(folder.path());
    const std::string line = refusal(folder.path());
    INFO(line);
    CHECK(line.find(one.expected) != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
}

TEST_CASE("a header longer than its file, JSON of great depth and shards elsewhere are refused") {
  const test::TemporaryFolder folder;
  const TinyCheckpoint checkpoint;
  checkpoint.write_to(folder.path());
  const std::string whole = content(folder.path() / "model.safetensors");
  for (const std::uint64_t length : {std::uint64_t{1} << 62, std::uint64_t{whole.size()}}) {
    std::string damaged = whole;
    std::memcpy(damaged.data(), &length, sizeof length);
    write(folder.path() / "model.safetensors", damaged);
    CHECK(refusal(folder.path()).find("a header of") != std::string::npos);
  }
  for (std::size_t size = 0; size < 400; size += 7) {
    write(folder.path() / "model.safetensors", whole.substr(0, size));
    CHECK_FALSE(refusal(folder.path()).empty());
  }
  write(folder.path() / "config.json", std::string(100000, '['));
  CHECK(refusal(folder.path()).find("levels deep") != std::string::npos);

  checkpoint.write_to(folder.path());
  fs::remove(folder.path() / "model.safetensors");  // it goes before an index
  for (const char* name : {"../model.safetensors", "/etc/passwd", "", "config.json"}) {
    const json index = {{"weight_map", {{"a", name}}}};
    write(folder.path() / "model.safetensors.index.json", index.dump());
    CHECK(refusal(folder.path()).find("is not the name of") != std::string::npos);
  }
}

TEST_CASE("a quantised file is the same bytes for any number of threads, and loads") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf";
  synth::Shape shape = synth::shape_by_name("tiny-qwen3");
  shape.layers = 2;
  synth::SyntheticModel(shape, "F16").write(input, 1, {});
  const gguf::Model before = gguf::Model::open(input);
  for (const char* name :
       {"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "IQ4_NL", "MXFP4", "BF16",
        "Q2_K", "Q3_K_M", "IQ3_M", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"}) {
    INFO(name);
    const fs::path one = folder.path() / "one.gguf", two = folder.path() / "two.gguf";
    quant::quantise_model(input, one, {name, {}, {1, {}}});
    const quant::QuantiseReport report = quant::quantise_model(input, two, {name, {}, {2, {}}});
    const bool has_few_values =
        std::set<std::string>{"TQ1_0", "TQ2_0", "Q1_0", "Q2_0"}.contains(name);
    REQUIRE(report.warnings.size() == (has_few_values ? 1 : 0));
    CHECK(content(one) == content(two));
    if (has_few_values) {
      CHECK(report.warnings.front().starts_with(std::string(name) + " is for weights that are"));
      // Weights that have few values already are what these formats are for.
      const fs::path exact = folder.path() / "exact.gguf";
      quant::quantise_model(two, exact, {"F32"});
      CHECK(quant::quantise_model(exact, one, {name}).warnings.empty());
    }
    const gguf::Model after = gguf::Model::open(two);
    CHECK((after.tensors().size() == before.tensors().size()) == (std::string(name) != "NVFP4"));
    CHECK(values_of(after, "output_norm.weight") == values_of(before, "output_norm.weight"));
    CHECK(quant::quantise_model(two, one, {"Q4_0"}).warnings.size() ==
          (std::string(name) == "BF16" || std::string(name) == "Q4_0" ? 0 : 1));
  }
  CHECK_THROWS_AS(quant::quantise_model(input, input, {"Q4_0"}), UsageError);
  // With less than three bits, columns have to be weighted.
  for (const char* name : {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS"}) {
    INFO(name);
    CHECK_THROWS_AS(quant::quantise_model(input, folder.path() / "x", {name}), UsageError);
  }
  CHECK_THROWS_AS(quant::quantise_model(input, folder.path() / "x", {"Q9"}), UsageError);
  CHECK_FALSE(fs::exists(folder.path() / "x"));
}

TEST_CASE("tables have no scale beside them, also those of blocks that predict") {
  const auto scale_of = [](const std::string& name) {
    return quant::tensor_scale_of(
        {name, {64, 256}, kernels::BlockType::f32, kernels::BlockType::nvfp4, {}});
  };
  CHECK(scale_of("blk.3.attn_q.weight") == "blk.3.attn_q.scale");
  CHECK(scale_of("output.weight") == "output.scale");
  CHECK_FALSE(scale_of("token_embd.weight").has_value());
  CHECK_FALSE(scale_of("blk.3.nextn.embed_tokens.weight").has_value());
}

TEST_CASE("NVFP4 has scales of whole matrices beside them, whatever the range of values") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel("tiny-qwen3moe", "F32").write(input, 1, {});
  for (const float size : {1.0f, 1e-4f, 3e4f}) {
    INFO(size);
    test::Content content(input);
    for (const char* name : {"blk.0.attn_q.weight", "blk.1.ffn_up_exps.weight"}) {
      for (float& value : content.values(name)) value *= size;
    }
    std::ranges::fill(content.values("blk.0.attn_k.weight"), 0.0f);
    content.write(folder.path() / "changed.gguf");
    const gguf::Model before = gguf::Model::open(folder.path() / "changed.gguf");
    quant::quantise_model(folder.path() / "changed.gguf", output, {"NVFP4"});
    const gguf::Model after = gguf::Model::open(output);
    std::size_t scaled = 0;
    for (const gguf::TensorInfo& tensor : after.tensors()) {
      if (tensor.type != static_cast<std::uint32_t>(kernels::BlockType::nvfp4)) continue;
      INFO(tensor.name);
      const std::string name(tensor.name);
      const std::string stem = name.substr(0, name.size() - std::string(".weight").size());
      const std::vector<float> scales = values_of(after, stem + ".scale");
      REQUIRE(scales.size() == tensor.dims[2]);
      const std::vector<float> wanted = values_of(before, name), found = values_of(after, name);
      const std::size_t each = found.size() / scales.size();
      double error = 0, energy = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double rest = double{scales[i / each]} * double{found[i]} - double{wanted[i]};
        error += rest * rest;
        energy += double{wanted[i]} * double{wanted[i]};
      }
      CHECK(error <= 0.012 * energy);
      ++scaled;
    }
    CHECK(scaled > 10);
    CHECK(after.find_tensor("token_embd.scale") == nullptr);
    // What has its scales beside it already keeps them.
    const fs::path again = folder.path() / "again.gguf";
    quant::quantise_model(output, again, {"Q8_0"});
    CHECK(values_of(gguf::Model::open(again), "blk.0.attn_q.scale") ==
          values_of(after, "blk.0.attn_q.scale"));
  }
}

TEST_CASE("a tensor of a type that quantize cannot copy is named with its file") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  gguf::Writer writer;
  const std::vector<std::uint64_t> dims = {4};
  writer.add("general.architecture", "llama");
  writer.add_tensor("extra.ids", dims, 26);  // I32
  const std::vector<std::byte> ids(16);
  writer.write(input, [&](std::size_t, const gguf::Writer::Sink& sink) { sink(ids); });
  CHECK_THROWS_WITH(quant::quantise_model(input, output, {"Q8_0"}),
                    test::Contains("in.gguf: tensor 'extra.ids' is of type I32"));
}

TEST_CASE("a damaged model is refused by quantize, and nothing is written") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel("tiny-qwen3", "F16").write(input, 1, {});
  const std::string whole = content(input);
  const auto refusal = [&](const std::string& bytes) -> std::string {
    write(input, bytes);
    try {
      quant::quantise_model(input, output, {"Q4_K_M"});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::model);
      CHECK_FALSE(fs::exists(output));
      return error.what();
    }
    return "";
  };
  CHECK(refusal(whole).empty());
  fs::remove(output);
  for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
    INFO(size);
    const std::string line = refusal(whole.substr(0, size));
    CHECK_FALSE(line.empty());
    CHECK(line.find('\n') == std::string::npos);
  }
  const gguf::Model model = [&] {
    write(input, whole);
    return gguf::Model::open(input);
  }();
  for (const int bits : {0x7C00, 0xFC00, 0x7E00, 0xFFFF}) {  // infinities and NaNs
    std::string damaged = whole;
    const auto at = model.require_tensor("blk.1.ffn_down.weight").offset + 1000;
    std::memcpy(damaged.data() + at, &bits, 2);
    CHECK(refusal(damaged).find("not finite") != std::string::npos);
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("an importance matrix is read as it was written, and only for its own model") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "imatrix.gguf";
  const quant::Imatrix written({{"blk.0.ffn_up.weight", {2, {4, 8, 0, 0}, {2, 0}}}}, "text.txt", 3,
                               512);
  written.write(path);
  const quant::Imatrix read = quant::Imatrix::read(path);
  CHECK(read.dataset() == "text.txt");
  CHECK(read.chunk_count() == 3);
  CHECK(read.chunk_size() == 512);
  const std::vector<std::uint64_t> dims = {2, 7, 2};
  CHECK(read.importance("blk.0.ffn_up.weight", dims) == std::vector<float>{2, 4, 0, 0});
  CHECK(read.importance("other", dims).empty());
  const std::vector<std::uint64_t> others = {2, 7};
  CHECK_THROWS_AS(read.importance("blk.0.ffn_up.weight", others), ModelError);
  const quant::Imatrix huge({{"blk.0.ffn_up.weight", {2, {3e38f, 1}, {1e-3f}}}}, "", 1, 1);
  CHECK_THROWS_AS(huge.importance("blk.0.ffn_up.weight", others), ModelError);
  const quant::Imatrix negative({{"a", {1, {-1}, {1}}}}, "", 1, 1);
  negative.write(path);
  CHECK_THROWS_AS(quant::Imatrix::read(path), ModelError);
}

}  // namespace sluice::convert
