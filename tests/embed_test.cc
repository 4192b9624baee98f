// Models that make vectors of texts, and rerankers: against llama.cpp's vectors on every
// instruction set this CPU has, and the same bits whatever else is in a step and in however little
// memory. The models are written by the reference generator beside the fixtures.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <vector>

#include "base/descriptor.h"
#include "core/cli/vector_file.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/rows/pooling.h"
#include "tests/catch.h"
#include "tests/forgetful_disk.h"
#include "tests/kernels_support.h"
#include "tests/program.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"

namespace sluice::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using tokenizer::Token;
using Tokens = std::vector<Token>;
using Vector = std::vector<float>;

const Tokens golden_tokens = {1,  300, 301, 500, 7,   44,  260, 259, 410, 12,
                              13, 400, 333, 288, 310, 499, 3,   90,  91,  302};

// Models whose vectors llama.cpp has recorded, as the reference generator calls them.
const std::vector<std::string> vector_models = {
    "bert",         "nomic-bert",        "nomic-bert-moe", "modern-bert",
    "jina-bert-v2", "jina-bert-v2-code", "jina-bert-v3",   "gemma-embedding",
    "llama-embed",  "eurobert",          "qwen3-embed"};
const std::vector<std::string> rank_models = {"bert-rank", "modern-bert-rank", "qwen3-rerank"};

// The path of tiny-MODEL-KIND.gguf in the folder; empty when it cannot be made here.
fs::path make_tiny(const Folder& folder, const std::string& model, const std::string& kind) {
  const fs::path script = fixture_root().parent_path() / "oracle" / "tiny_embed.py";
  const fs::path made = folder.file("tiny-" + model + "-" + kind + ".gguf");
  const std::string command = "/usr/bin/python3 '" + script.string() + "' '" +
                              folder.path().string() + "' " + model + " --kind " + kind +
                              " >/dev/null 2>&1";
  if (!fs::exists(script) || std::system(command.c_str()) != 0 || !fs::exists(made)) return {};
  return made;
}

Vector golden(const std::string& name) {
  const std::string bytes = content(fixture_root() / "goldens" / (name + ".embed.f32"));
  Vector values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// 1 - the cosine of the angle between two vectors.
double distance(const Vector& a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return 1 - ab / std::sqrt(aa * bb);
}

EngineOptions options_for_texts(std::uint32_t context = 64, std::uint32_t parallel = 4) {
  EngineOptions options;
  options.context = context;
  options.threads = 2;
  options.parallel = parallel;
  options.kv = kvcache::ElementType::f16;
  return options;
}

// What the model makes of texts that are evaluated in one step, in their order.
std::vector<Vector> vectors_together(Engine& engine, const std::vector<Tokens>& texts) {
  const engine::EngineFacts& facts = engine.facts();
  const rows::Pooling pooling = rows::pooling_of(facts.pooling_type, facts.is_encoder);
  std::vector<rows::Pool> pools(texts.size(), rows::Pool(pooling));
  std::vector<std::unique_ptr<engine::Sequence>> sequences;
  std::vector<engine::SequenceWork> works;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sequences.push_back(engine.new_sequence(static_cast<std::uint32_t>(texts[i].size())));
    REQUIRE(sequences.back() != nullptr);
    works.push_back(
        {sequences.back().get(), texts[i], false,
         [&pools, i](std::size_t, std::span<const float> hidden) { pools[i].add(hidden); }});
  }
  engine.step(works);
  std::vector<Vector> out;
  for (const rows::Pool& pool : pools) out.push_back(engine.text_vector(pool.pooled()));
  return out;
}

Vector vector_alone(const fs::path& model, const EngineOptions& options, const Tokens& text) {
  return vectors_together(*Engine::open(model, options), {text}).front();
}

Tokens some_tokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(5 + random() % 500);
  return tokens;
}

bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("vectors are llama.cpp's, and the same bits on every instruction set") {
  const Folder folder;
  if (make_tiny(folder, "bert", "f32").empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  nlohmann::json row;
  row["input"] = golden_tokens;
  std::ofstream(folder.file("in.jsonl")) << row.dump() << "\n";
  for (const std::string& model : vector_models) {
    const fs::path path = make_tiny(folder, model, "f32");
    REQUIRE_FALSE(path.empty());
    Vector first;
    for (const std::string& isa : tiers_of_models()) {
      INFO(model << " " << isa);
      const Result result = shell("SLUICE_ISA=" + isa + " sluice embed '" + path.string() +
                                  "' -f '" + folder.file("in.jsonl") + "' --kv f16 --quiet");
      INFO(result.errors);
      REQUIRE(result.status == 0);
      const Vector made = nlohmann::json::parse(result.output)["embedding"].get<Vector>();
      if (first.empty()) first = made;
      CHECK(same_bits(made, first));
    }
    INFO(model);
    CHECK(distance(first, golden("tiny-" + model + "-f32")) < 1e-5);
  }
}

TEST_CASE("quantised models are as near to exact weights as llama.cpp's") {
  const Folder folder;
  if (make_tiny(folder, "bert", "f32").empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  double ours = 0, theirs = 0;
  for (const std::string& model : vector_models) {
    for (const std::string kind : {"q8_0", "q4_k", "q6_k"}) {
      const std::string name = "tiny-" + model + "-" + kind;
      const Vector exact = golden(name + "-twin"), other = golden(name);
      const fs::path path = make_tiny(folder, model, kind);
      REQUIRE_FALSE(path.empty());
      const Vector made = vector_alone(path, options_for_texts(), golden_tokens);
      INFO(name << ": " << distance(made, exact) << ", llama.cpp " << distance(other, exact));
      // Where two experts are nearly alike, the least rounding decides between them.
      const double ratio = model.ends_with("moe") ? 12 : 3;
      CHECK(distance(made, exact) < ratio * distance(other, exact) + 1e-5);
      ours += distance(made, exact);
      theirs += distance(other, exact);
    }
  }
  INFO("in sum " << ours << ", llama.cpp " << theirs);
  CHECK(ours < 1.1 * theirs);
}

TEST_CASE("scores of rerankers are llama.cpp's") {
  const Folder folder;
  if (make_tiny(folder, "bert", "f32").empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  for (const std::string& model : rank_models) {
    const fs::path path = make_tiny(folder, model, "f32");
    const auto engine = Engine::open(path, options_for_texts());
    CHECK(engine->facts().makes_scores);
    const Vector made = vectors_together(*engine, {golden_tokens}).front();
    const Vector expected = golden("tiny-" + model + "-f32");
    INFO(model << " " << made.front() << " " << expected.front());
    REQUIRE(made.size() == engine->facts().text_numbers);
    REQUIRE(expected.size() >= made.size());
    for (std::size_t i = 0; i < made.size(); ++i) CHECK(std::abs(made[i] - expected[i]) < 2e-3);
  }
}

TEST_CASE("a vector depends neither on the texts that share a step nor on the memory") {
  const Folder folder;
  if (make_tiny(folder, "bert", "f32").empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  std::vector<std::string> models = vector_models;
  models.insert(models.end(), rank_models.begin(), rank_models.end());
  for (const std::string& model : models) {
    INFO(model);
    const fs::path path = make_tiny(folder, model, "q8_0");
    EngineOptions options = options_for_texts();
    const std::vector<Tokens> texts = {some_tokens(1, 1), some_tokens(37, 2), some_tokens(64, 3),
                                       some_tokens(13, 4)};
    const std::vector<Vector> together = vectors_together(*Engine::open(path, options), texts);
    options.parallel = 1;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CHECK(same_bits(vector_alone(path, options, texts[i]), together[i]));
    }
    if (is_sanitized) continue;
    options.parallel = 4;
    const std::uint64_t least = engine::plan_run(path, options).plan.least_budget_bytes;
    options.budget_bytes = least + (std::uint64_t{4} << 20);  // the process grows with its tests
    CHECK(
        same_bits(vectors_together(*Engine::open(path, options), {texts[1]}).front(), together[1]));
  }
}

TEST_CASE("embed goes on where it was stopped, and gives the same bytes") {
  const Folder folder;
  const fs::path path = make_tiny(folder, "nomic-bert", "q8_0");
  if (path.empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  std::mt19937 random(5);
  std::string texts;
  for (int i = 0; i < 300; ++i) {
    for (std::size_t n = 1 + random() % 30; n > 0; --n) texts += n % 3 == 0 ? "water " : "the ";
    texts += i % 7 == 0 ? "\n\n" : "\n";
  }
  std::ofstream(folder.file("in.txt")) << texts;
  const std::string command =
      "sluice embed '" + path.string() + "' -f " + folder.file("in.txt") + " --quiet -o ";
  for (const std::string name : {"out.jsonl", "out.npy"}) {
    INFO(name);
    const std::string out = folder.file(name);
    REQUIRE(shell(command + out + " --parallel 4").status == 0);
    const std::string whole = content(out);
    REQUIRE_FALSE(whole.empty());
    // As an interruption leaves it: blocks, and a piece of a row or of the header.
    for (const std::size_t bytes : {whole.size() * 2 / 3 + 1, std::size_t{5}, std::size_t{0}}) {
      fs::resize_file(out, bytes);
      REQUIRE(shell(command + out + " --parallel 4").status == 0);
      CHECK(content(out) == whole);
    }
    REQUIRE(shell(command + out + " --restart --parallel 1 --budget 256MiB").status == 0);
    CHECK(content(out) == whole);
    std::ofstream(folder.file("in.txt"), std::ios::app) << "more\n";
    check_fails(command + out, 2, "was begun with other settings");
    std::ofstream(folder.file("in.txt")) << texts;
  }
  const std::string array = content(folder.file("out.npy"));
  CHECK(array.starts_with("\x93NUMPY"));
  CHECK(array.size() == 128 + 300 * 256 * sizeof(float));
  CHECK(array.find("'shape': (300, 256)") != std::string::npos);
  // Another array in its place, of the same size.
  std::string changed = array;
  changed.replace(changed.find("(300, 256)"), 10, "(600, 128)");
  std::ofstream(folder.file("out.npy")) << changed;
  check_fails(command + folder.file("out.npy"), 2, "no array of 300 rows of 256 numbers");
  CHECK(content(folder.file("out.npy")) == changed);
  std::ofstream(folder.file("other")) << "mine";
  check_fails(command + folder.file("other"), 2, "--restart");
  CHECK(content(folder.file("other")) == "mine");
  check_fails(command + folder.file("in.txt"), 2, "the input");
}

TEST_CASE("embed goes on after what was written, and not after what others have changed") {
  const Folder folder;
  const std::string model = folder.file("m.gguf");
  REQUIRE(shell("sluice synth tiny-qwen3 " + model + " --quant Q8_0").status == 0);
  std::string texts;
  for (int i = 0; i < 600; ++i) texts += "the water and the night " + std::to_string(i) + "\n";
  std::ofstream(folder.file("in.txt")) << texts;
  const std::string command =
      "sluice embed " + model + " -f " + folder.file("in.txt") + " --quiet -o ";
  for (const std::string name : {"out.jsonl", "out.npy"}) {
    INFO(name);
    const std::string out = folder.file(name);
    REQUIRE(shell(command + out).status == 0);
    const std::string whole = content(out);
    // A loss of power has left zeros where the last block was to be.
    for (const std::size_t zeros : {std::size_t{100}, std::size_t{4096}}) {
      std::string torn = whole;
      const std::size_t begin = (whole.size() - whole.size() / 10) / 64 * 64;
      std::fill_n(torn.begin() + static_cast<std::ptrdiff_t>(begin), zeros, '\0');
      std::ofstream(out, std::ios::binary) << torn;
      REQUIRE(shell(command + out).status == 0);
      CHECK(content(out) == whole);
    }
  }
  const std::string out = folder.file("out.jsonl"), whole = content(out);
  std::string fewer = whole;
  fewer.erase(fewer.find("{\"row\":3,"), fewer.find("{\"row\":4,") - fewer.find("{\"row\":3,"));
  std::ofstream(out) << fewer;
  check_fails(command + out, 2, "line 3: not the vector of row 3 of 600");
  CHECK(content(out) == fewer);
}

TEST_CASE("vectors that a failed sync has lost are not taken for durable by the next process") {
  const batch::JobState state{1, 2, 3, {}, nlohmann::ordered_json::object()};
  const std::vector<cli::RowVector> rows(3, {"", 1, Vector(32, 0.5F), "", ""});
  for (const char* name : {"out.jsonl", "out.npy"}) {
    INFO(name);
    const Folder folder;
    const fs::path path = folder.file(name);
    ForgetfulDisk disk(folder.path(), random_seed());
    const auto rows_found = [&] {
      return cli::VectorFile(path, state, 32, false, disk).rows_done();
    };
    {
      cli::VectorFile file(path, state, 32, false, disk);
      file.append(std::span(rows).first(1));
      disk.fail_syncs(1);
      CHECK_THROWS_AS(file.append(std::span(rows).subspan(1)), std::system_error);
    }
    CHECK(rows_found() == 1);
    {
      cli::VectorFile file(path, state, 32, false, disk);
      file.append(std::span(rows).subspan(1, 1));
    }
    // The next one was killed before it synchronised.
    const std::string before = content(path);
    const base::Descriptor file(disk.open(path.c_str(), O_RDWR | O_CLOEXEC, 0));
    const std::string more = name == std::string("out.npy") ? before.substr(before.size() - 128)
                                                            : cli::vector_line(3, rows[2]);
    REQUIRE(disk.pwrite(file.number(), more.data(), more.size(),
                        static_cast<off_t>(before.size())) > 0);
    disk.fail_syncs(1);
    CHECK(rows_found() == 2);
    CHECK(content(path) == before);
  }
}

TEST_CASE("embed does not go on with other settings, nor beside another process") {
  const Folder folder;
  const std::string model = folder.file("m.gguf"), out = folder.file("out.npy");
  REQUIRE(shell("sluice synth tiny-qwen3 " + model + " --quant Q8_0").status == 0);
  std::ofstream(folder.file("in.txt")) << "the water and the night and the old city\nwar\n";
  const std::string command =
      "sluice embed " + model + " -f " + folder.file("in.txt") + " --quiet -o " + out;
  REQUIRE(shell(command + " --window 12 --sinks 2").status == 0);
  for (const char* other : {"", " --window 11 --sinks 2", " --window 12 --sinks 3"}) {
    check_fails(command + other, 2, "was begun with other settings");
  }
  // The same bytes under another name are other texts.
  fs::copy_file(folder.file("in.txt"), folder.file("in.jsonl"));
  check_fails("sluice embed " + model + " -f " + folder.file("in.jsonl") + " --quiet -o " + out +
                  " --window 12 --sinks 2",
              2, "the form of the texts");
  fs::rename(folder.file("in.jsonl"), out + ".state");
  check_fails("sluice embed " + model + " -q -f " + out + ".state -o " + out, 2, "the input");
  CHECK(content(out + ".state") == content(folder.file("in.txt")));
  const std::string whole = content(out);
  base::Descriptor writer(::open(out.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(writer.number(), LOCK_EX | LOCK_NB) == 0);
  check_fails(command + " --restart", 2, "another process is writing");
  CHECK(content(out) == whole);
  writer = {};
  CHECK(shell(command + " --restart").status == 0);
}

TEST_CASE("the ends of lines and the byte order mark of other systems are no text") {
  const Folder folder;
  const std::string model = folder.file("m.gguf");
  REQUIRE(shell("sluice synth tiny-qwen3 " + model + " --quant Q8_0").status == 0);
  const std::string command = "sluice embed " + model + " --quiet -f " + folder.file("in.txt");
  std::ofstream(folder.file("in.txt")) << "the water\n\nwar\n";
  const Result plain = shell(command);
  REQUIRE(plain.status == 0);
  std::ofstream(folder.file("in.txt")) << "\xef\xbb\xbfthe water\r\n\r\nwar\r\n";
  CHECK(shell(command).output == plain.output);
}

TEST_CASE("a row that cannot be computed is an error of its own") {
  const Folder folder;
  const fs::path path = make_tiny(folder, "bert", "f32");
  if (path.empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  nlohmann::json too_long;
  too_long["input"] = some_tokens(65, 1);
  std::ofstream(folder.file("in.jsonl")) << R"({"id":"a","input":"the water"})"
                                         << "\n{\n"
                                         << R"({"input":[512]})"
                                         << "\n"
                                         << R"({"input":[]})"
                                         << "\n"
                                         << too_long.dump() << "\n"
                                         << R"({"input":"x","wish":1})"
                                         << "\n"
                                         << R"({"id":2,"input":""})"
                                         << "\n"
                                         << R"({"id":null,"input":"x"})"
                                         << "\n";
  const Result result =
      shell("sluice embed '" + path.string() + "' -f " + folder.file("in.jsonl") + " --quiet");
  REQUIRE(result.status == 0);
  std::istringstream lines(result.output);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  REQUIRE(rows.size() == 8);
  CHECK(rows[0]["id"].get<std::string>() == "a");
  CHECK(rows[0]["tokens"].get<int>() == 4);  // [CLS] the water [SEP]
  CHECK(rows[0]["embedding"].size() == 256);
  for (const std::size_t bad : {1, 2, 3, 4, 5}) {
    CHECK(rows[bad]["error"]["message"].get<std::string>().starts_with(
        "line " + std::to_string(bad + 1) + ": "));
  }
  CHECK(rows[4]["error"]["code"].get<std::string>() == "prompt_too_long");
  CHECK(rows[6]["tokens"].get<int>() == 2);  // an empty text is one
  CHECK(rows[7].contains("embedding"));      // null is as good as no id
}

TEST_CASE("an array of vectors has no place for errors, so the end names one") {
  const Folder folder;
  const std::string model = folder.file("m.gguf"), rows = folder.file("in.jsonl");
  REQUIRE(shell("sluice synth tiny-bert " + model).status == 0);
  std::ofstream(rows) << "{\"input\":\"a\"}\n{\"input\":\"a\"}\n{\"input\":7}\n{\n";
  const Result result =
      shell("sluice embed " + model + " -f " + rows + " -o " + folder.file("out.npy"));
  CHECK(result.status == 0);
  CHECK(result.errors.find("2 have an error in place of a vector, such as line 3: \"input\"") !=
        std::string::npos);
}

TEST_CASE("errors that an earlier process has written count too") {
  const Folder folder;
  const std::string model = folder.file("m.gguf"), rows = folder.file("in.jsonl");
  REQUIRE(shell("sluice synth tiny-bert " + model).status == 0);
  std::ofstream(rows) << R"({"id":",\"error\":{","input":"a"})"
                      << "\n{\"id\":\"b\",\"input\":7}\n{\"input\":\"a\"}\n{\n";
  for (const auto& [name, example] :
       {std::pair("out.jsonl", "line 2: \"input\""), std::pair("out.npy", "row 2: ")}) {
    const std::string command =
        "sluice embed " + model + " -f " + rows + " -o " + folder.file(name);
    REQUIRE(shell(command).status == 0);
    const Result again = shell(command);
    INFO(again.errors);
    CHECK(again.errors.find(std::string("4 of 4 texts are done, 0 of them now; 2 have an error in "
                                        "place of a vector, such as ") +
                            example) != std::string::npos);
  }
}

TEST_CASE("rerank prints the best text first") {
  const Folder folder;
  const fs::path path = make_tiny(folder, "bert-rank", "f32");
  if (path.empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  std::ofstream(folder.file("in.txt")) << "the water\n\nold city\nwar and night\n";
  const std::string command =
      "sluice rerank '" + path.string() + "' --query 'who?' --quiet -f " + folder.file("in.txt");
  const Result result = shell(command + " --json");
  REQUIRE(result.status == 0);
  const nlohmann::json all = nlohmann::json::parse(result.output)["results"];
  REQUIRE(all.size() == 3);
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(all[i - 1]["relevance_score"].get<float>() >= all[i]["relevance_score"].get<float>());
  }
  const Result best = shell(command + " --top 1");
  REQUIRE(best.status == 0);
  CHECK(std::ranges::count(best.output, '\n') == 1);
  CHECK(best.output.find("\t" + std::to_string(all[0]["line"].get<int>()) + "\t") !=
        std::string::npos);
  check_fails("sluice embed '" + path.string() + "' -f " + folder.file("in.txt"), 2,
              "sluice rerank");
}

TEST_CASE("rerank reads a long file in blocks, within its memory") {
  const Folder folder;
  const std::string model = folder.file("m.gguf");
  REQUIRE(shell("sluice synth tiny-bert-scores " + model + " --quant Q8_0").status == 0);
  const std::string command =
      "sluice rerank " + model + " --query 'who?' --quiet -f " + folder.file("in.txt");
  // More than a block. Each score is that of its text alone, and equal scores keep their order.
  std::ofstream texts(folder.file("in.txt"));
  for (int i = 0; i < 600; ++i) texts << "text " << i % 3 << "\n\n";
  texts.close();
  const Result all = shell(command + " --json");
  REQUIRE(all.status == 0);
  const nlohmann::json results = nlohmann::json::parse(all.output)["results"];
  REQUIRE(results.size() == 600);
  for (std::size_t i = 0; i < 600; ++i) {
    CHECK(results[i]["line"].get<int>() == 2 * results[i]["index"].get<int>() + 1);
    if (i % 200 == 0) continue;
    CHECK(results[i]["relevance_score"] == results[i - 1]["relevance_score"]);
    CHECK(results[i]["index"].get<int>() == results[i - 1]["index"].get<int>() + 3);
  }
  std::ofstream(folder.file("in.txt")) << "text " << results[400]["index"].get<int>() % 3 << "\n";
  const nlohmann::json alone = nlohmann::json::parse(shell(command + " --json").output);
  CHECK(alone["results"][0]["relevance_score"] == results[400]["relevance_score"]);
}

TEST_CASE("a text that cannot be rated is an error of its own") {
  const Folder folder;
  const std::string model = folder.file("m.gguf"), lines = folder.file("in.txt"),
                    rows = folder.file("in.jsonl");
  REQUIRE(shell("sluice synth tiny-bert-scores " + model + " --quant Q8_0").status == 0);
  std::string too_long;
  for (int i = 0; i < 2500; ++i) too_long += "word ";
  std::ofstream(lines) << "the water\n\n" << too_long << "\nold city\n";
  std::ofstream(rows)
      << "{\"input\":\"the water\"}\n\n{\"input\":\"" << too_long
      << "\"}\n{\"id\":4,\"input\":\"old city\"}\n{\"text\":\"\"}\n{\"input\":[1]}\n";
  const std::string command = "sluice rerank " + model + " --query 'who?' -f ";
  const Result of_lines = shell(command + lines + " --json"), of_rows = shell(command + rows);
  REQUIRE(of_lines.status == 0);
  CHECK(of_lines.errors.find("of 3 texts 1 has an error in place of a score, such as line 3: ") !=
        std::string::npos);
  const nlohmann::json all = nlohmann::json::parse(of_lines.output);
  REQUIRE(all["results"].size() == 2);
  REQUIRE(all["errors"].size() == 1);
  CHECK(all["errors"][0]["index"] == 1);
  CHECK(all["errors"][0]["line"] == 3);
  CHECK(all["errors"][0]["code"] == "prompt_too_long");
  CHECK(all["errors"][0]["message"].get<std::string>().starts_with("line 3: "));
  // In a file of JSON the text is a member, and what is printed is the line.
  REQUIRE(of_rows.status == 0);
  CHECK(of_rows.errors.find("of 5 texts 3 have an error in place of a score, such as line 3: ") !=
        std::string::npos);
  CHECK(std::ranges::count(of_rows.output, '\n') == 2);
  CHECK(of_rows.output.find("\t{\"id\":4,\"input\":\"old city\"}\n") != std::string::npos);
  const nlohmann::json same = nlohmann::json::parse(shell(command + rows + " --json").output);
  CHECK(same["results"] == all["results"]);
  // Nothing is dropped in silence.
  CHECK(shell(command + rows + " -q").errors.find("3 have an error") != std::string::npos);
  CHECK(shell(command + rows + " -q --json").errors.empty());
}

TEST_CASE("an encoder says what it does not do") {
  const Folder folder;
  const fs::path path = make_tiny(folder, "bert", "f32");
  if (path.empty()) SLUICE_SKIP("no oracle/tiny_embed.py");
  const std::string model = "'" + path.string() + "'";
  check_fails("sluice run " + model + " -p x -n 4 --raw", 2, "writes no text");
  check_fails("sluice logits " + model + " --tokens 1,2 -o " + folder.file("out"), 2,
              "writes no text");
  check_fails("sluice chat " + model + " </dev/null", 2, "writes no text");
  REQUIRE(shell("echo '{\"prompt\": \"x\"}' >" + folder.file("rows.jsonl")).status == 0);
  check_fails(
      "sluice batch " + model + " " + folder.file("rows.jsonl") + " -o " + folder.file("out.jsonl"),
      2, "writes no text");
  check_fails("sluice plan " + model + " --ctx 65", 2, "texts of up to 64 tokens");
  check_fails("sluice plan " + model + " --window 32", 2, "--window");
  check_fails("sluice rerank " + model + " --query x -f " + folder.file("none"), 5);
  CHECK(shell("sluice plan " + model).status == 0);
  CHECK(shell("sluice inspect " + model).status == 0);
}

TEST_CASE("encoders with random weights are planned, quantised and computed") {
  const Folder folder;
  const std::string in = folder.file("in.txt");
  std::ofstream(in) << "a river\nnato lima\n";
  for (const std::string shape : {"tiny-bert", "tiny-modern-bert", "tiny-gemma-embedding"}) {
    INFO(shape);
    const std::string model = folder.file(shape), small = folder.file(shape + "-small");
    REQUIRE(shell("sluice synth " + shape + " " + model + " --quant F32").status == 0);
    REQUIRE(shell("sluice quantize " + model + " " + small + " --quant Q8_0 --quiet").status == 0);
    std::vector<Vector> made;
    for (const std::string& file : {model, small}) {
      const Result result = shell("sluice embed " + file + " -f " + in + " --quiet");
      INFO(result.errors);
      REQUIRE(result.status == 0);
      const std::string line = result.output.substr(0, result.output.find('\n'));
      made.push_back(nlohmann::json::parse(line)["embedding"].get<Vector>());
    }
    CHECK(made[0].size() == 256);
    CHECK(distance(made[0], made[1]) < 1e-2);

    const auto plan = nlohmann::json::parse(shell("sluice plan " + small + " --json -q").output);
    CHECK(plan["for"].get<std::string>() == "embed");
    CHECK(plan["predicted_decode_tokens_per_s"].is_null());
    for (const nlohmann::json& line : plan["lines"]) {
      CHECK_FALSE(line["name"].get<std::string>().starts_with("keys and values"));
    }
    if (!is_sanitized) {  // what a sanitizer keeps varies by more
      const std::uint64_t kib = (plan["least_budget_bytes"].get<std::uint64_t>() >> 10) + 1024;
      const Result least = shell("sluice embed " + small + " -f " + in + " --quiet --budget " +
                                 std::to_string(kib) + "KiB");
      INFO(least.errors);
      CHECK(least.status == 0);
    }
    const std::string text = shell("sluice plan " + small + " -q").output;
    CHECK(text.find("fits for embed") != std::string::npos);
    CHECK(text.find("texts: about") != std::string::npos);

    // Tables of positions and types stay as exact as they are.
    const auto inspected = nlohmann::json::parse(shell("sluice inspect --json " + small).output);
    CHECK(inspected["runs_here"].get<bool>());
    for (const nlohmann::json& tensor : inspected["tensors"]) {
      const auto name = tensor["name"].get<std::string>();
      if (name != "position_embd.weight" && name != "token_types.weight") continue;
      CHECK(tensor["type"].get<std::string>() == "F32");
    }
  }
  const std::string model = folder.file("scores");
  REQUIRE(shell("sluice synth tiny-modern-bert-scores " + model).status == 0);
  const auto plan = nlohmann::json::parse(shell("sluice plan " + model + " --json -q").output);
  CHECK(plan["for"].get<std::string>() == "rerank");
  CHECK(shell("sluice rerank " + model + " --query x -f " + in + " --quiet").status == 0);
}

}  // namespace sluice::test
