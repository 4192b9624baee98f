// --speculate draft: a second model in the same budget, as users meet it.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/model/file_bytes.h"
#include "tests/catch.h"
#include "tests/program.h"
#include "tests/sanitized.h"

namespace sluice::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

// A model, one that is the same, and one that says something else.
struct Models {
  Models() {
    REQUIRE(shell("sluice synth tiny-qwen3 " + model + " --seed 1").status == 0);
    REQUIRE(shell("sluice synth tiny-qwen3 " + other + " --seed 2").status == 0);
  }
  Folder folder;
  std::string model = folder.file("model.gguf"), other = folder.file("other.gguf");
};

// A model with as many tokens of padding behind its vocabulary, as converters of Qwen2.5 write
// them. Their rows are those of the first token, so that they are never the likeliest.
void write_padded(const std::string& from, const std::string& to, std::uint64_t count) {
  const gguf::Model model = gguf::Model::open(from);
  const gguf::Metadata& metadata = model.metadata();
  const auto given = metadata.require_strings("tokenizer.ggml.tokens");
  std::vector<std::string> tokens(given.begin(), given.end());
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  const std::size_t before = tokens.size();
  for (std::size_t i = 0; i < before + count; ++i) {
    const bool is_new = i >= before;
    if (is_new) tokens.push_back("[PAD" + std::to_string(i) + "]");
    scores.push_back(is_new ? -1000 : metadata.require_floats("tokenizer.ggml.scores")[i]);
    types.push_back(is_new ? 5
                           : static_cast<std::int32_t>(
                                 metadata.require_integers("tokenizer.ggml.token_type")[i]));
  }
  gguf::Writer writer;
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    if (entry.key == "tokenizer.ggml.tokens") {
      writer.add_array(entry.key, std::span<const std::string>(tokens));
    } else if (entry.key == "tokenizer.ggml.scores") {
      writer.add_array(entry.key, std::span<const float>(scores));
    } else if (entry.key == "tokenizer.ggml.token_type") {
      writer.add_array(entry.key, std::span<const std::int32_t>(types));
    } else {
      writer.add(entry.key, entry.value);
    }
  }
  const auto is_table = [&](const gguf::TensorInfo& tensor) {
    return tensor.name == "token_embd.weight" || tensor.name == "output.weight";
  };
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    std::vector<std::uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + tensor.rank);
    if (is_table(tensor)) dims[1] += count;
    writer.add_tensor(tensor.name, dims, tensor.type);
  }
  const model::FileBytes file(from);
  writer.write(to, [&](std::size_t index, const gguf::Writer::Sink& sink) {
    const gguf::TensorInfo& tensor = model.tensors()[index];
    std::vector<std::byte> bytes(tensor.bytes);
    file.read(tensor.offset, bytes);
    sink(bytes);
    const std::span<const std::byte> first_row(bytes.data(), tensor.bytes / tensor.dims[1]);
    for (std::uint64_t i = 0; is_table(tensor) && i < count; ++i) sink(first_row);
  });
}

const std::string demo = std::string(source_folder) + "/scripts/train-demo/demo.gguf";

}  // namespace

TEST_CASE("a draft model changes no byte of run, chat and batch") {
  const Models models;
  const std::string report = models.folder.file("report.json");
  for (const char* options :
       {"--temp 0", "--seed 5 --temp 0.9 --window 40", "--seed 5 --top-k 3"}) {
    const std::string run =
        "sluice run " + models.model + " -q -n 60 --ctx 128 -p hello " + options;
    const Result plain = shell(run + " --speculate off");
    REQUIRE(plain.status == 0);
    for (const std::string& draft : {models.model, models.other}) {
      INFO(options << ", " << draft);
      const Result eager =
          shell(run + " --speculate draft --draft " + draft + " --force --report " + report);
      INFO(eager.errors);
      CHECK(eager.output == plain.output);
      CHECK(shell(run + " --draft " + draft).output == plain.output);
      const json counts = json::parse(content(report));
      const json& of_draft = counts.at("speculation").at("draft");
      CHECK(of_draft.at("drafted") == counts.at("drafted_tokens"));
      CHECK(of_draft.at("accepted") == counts.at("accepted_tokens"));
      CHECK(of_draft.at("drafted").get<int>() > 0);
      if (draft == models.model && std::string(options) == "--temp 0") {
        CHECK(of_draft.at("accepted") == of_draft.at("drafted"));
      }
    }
  }
  const std::string in = models.folder.file("in.jsonl"), out = models.folder.file("out.jsonl");
  const std::string batch =
      "printf '%s\\n' '{\"prompt\":\"a b\"}' '{\"prompt\":\"c\",\"max_tokens\":50}' "
      "'{\"prompt\":\"a d\",\"temperature\":0}' >" +
      in + " && sluice batch " + models.model + " " + in + " --restart -q -n 40 --parallel 1 -o " +
      out;
  REQUIRE(shell(batch + " --speculate off").status == 0);
  const std::string plain = content(out);
  REQUIRE(shell(batch + " --speculate draft --draft " + models.other).status == 0);
  CHECK(content(out) == plain);
  REQUIRE(shell(batch + " --draft " + models.model).status == 0);
  CHECK(content(out) == plain);
}

TEST_CASE("a draft model is within the budget of the run") {
  const Models models;
  const std::string draft = " --speculate draft --draft " + models.other;
  const auto plan_of = [&](const std::string& options) {
    const Result result =
        shell("sluice plan " + models.model + " --json -q --ctx 128 --budget " + options);
    return json::parse(result.output);
  };
  const json plan = plan_of("256MiB" + draft);
  std::uint64_t draft_bytes = 0;
  for (const json& line : plan.at("lines")) {
    if (line.at("name").get<std::string>().starts_with("draft model")) {
      draft_bytes += line.at("bytes").get<std::uint64_t>();
    }
  }
  CHECK(draft_bytes > 0);
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const auto least = plan.at("least_budget_bytes").get<std::uint64_t>();
  CHECK(least > plan_of("256MiB").at("least_budget_bytes").get<std::uint64_t>());
  const std::string run = "sluice run " + models.model + " -n 30 --ctx 128 -p hello" + draft;
  const std::string report = models.folder.file("report.json");
  for (const std::uint64_t budget : {least + 4 * MiB, least + 64 * MiB}) {
    const Result result =
        shell(run + " --budget " + std::to_string(budget) + " --force --report " + report);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    const json memory = json::parse(content(report));
    const auto planned = memory.at("planned_peak_bytes").get<std::uint64_t>();
    CHECK(planned <= budget);
    if (memory.at("measured_peak_bytes").is_null()) SLUICE_SKIP("the system tells no peak");
    CHECK(memory.at("measured_peak_bytes").get<std::uint64_t>() <= planned);
  }
  check_fails(run + " -q --budget " + std::to_string(least - 4 * MiB), 4, "MiB are missing");
  // Left to itself, the program does without.
  const Result alone = shell("sluice run " + models.model + " -n 30 --ctx 128 -p hello --draft " +
                             models.other + " --budget " + std::to_string(least - 2 * MiB));
  CHECK(alone.status == 0);
  CHECK(alone.errors.find("left out") != std::string::npos);
}

TEST_CASE("a draft model may have more or less padding in its vocabulary") {
  const Models models;
  const std::string padded = models.folder.file("padded.gguf"),
                    report = models.folder.file("report.json");
  write_padded(models.model, padded, 128);
  for (const auto& [model, draft] :
       {std::pair(models.model, padded), std::pair(padded, models.model)}) {
    const std::string run = "sluice run " + model + " -q -n 60 --ctx 128 -p hello --temp 0";
    const Result plain = shell(run + " --speculate off");
    REQUIRE(plain.status == 0);
    const Result drafted =
        shell(run + " --speculate draft --draft " + draft + " --force --report " + report);
    INFO(drafted.errors);
    REQUIRE(drafted.status == 0);
    CHECK(drafted.output == plain.output);
    const json counts = json::parse(content(report));
    CHECK(counts.at("drafted_tokens").get<int>() > 0);
    CHECK(counts.at("accepted_tokens") == counts.at("drafted_tokens"));
  }
}

TEST_CASE("a draft model that is of no use is refused by what is wrong") {
  const Models models;
  const std::string run = "sluice run " + models.model + " -q -n 5 -p hello";
  check_fails(run + " --speculate draft", 2, "--draft MODEL");
  check_fails(run + " --speculate suffix --draft " + models.other, 2, "--draft is of no use");
  check_fails(run + " --speculate off --draft " + models.other, 2, "--draft is of no use");
  check_fails(run + " --draft " + models.folder.file("absent.gguf"), 5, "absent.gguf");
  check_fails("sluice run " + demo + " -q -n 5 -p hello --draft " + models.other, 2, "but token ");
  check_fails("sluice plan " + demo + " -q --draft " + models.other, 2, "but token ");
}

}  // namespace sluice::test
