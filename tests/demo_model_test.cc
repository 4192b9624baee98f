// The demonstration model, which comes with the project: trained weights, so that what should be
// near can be told from what is. What llama.cpp makes of it is recorded in tests/demo
// (scripts/record-demo).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/kernels_support.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace sluice::test;
using nlohmann::json;

namespace {

const std::string source = sluice::test::source_folder;
const std::string demo = source + "/scripts/train-demo/demo.gguf";
const std::string story = source + "/tests/demo/story.txt";

const json& recorded() {
  static const json read = json::parse(std::ifstream(source + "/tests/demo/llama_cpp.json"));
  return read;
}

// The model in the format that was recorded as `kind`.
std::string model_of(const Folder& folder, const std::string& kind) {
  if (kind == "Q8_0") return demo;
  std::string made = folder.file("demo.gguf");
  REQUIRE(shell("sluice quantize " + demo + " " + made + " --quant " + kind).status == 0);
  return made;
}

std::string list(const json& tokens) {
  std::string text;
  for (const auto& token : tokens) {
    if (!text.empty()) text += ',';
    text += std::to_string(token.get<int>());
  }
  return text;
}

// KL(recorded || ours) of the distribution over the tokens that were recorded, and all others as
// one.
double divergence(const json& likeliest, const float* logits, std::size_t vocabulary) {
  const float most = *std::max_element(logits, logits + vocabulary);
  double sum = 0;
  for (std::size_t i = 0; i < vocabulary; ++i) sum += std::exp(double{logits[i]} - most);
  double divergence = 0, their_rest = 1, our_rest = 1;
  for (const auto& entry : likeliest) {
    const double theirs = std::exp(entry[1].get<double>());
    const double ours = std::exp(double{logits[entry[0].get<std::size_t>()]} - most) / sum;
    divergence += theirs * std::log(theirs / ours);
    their_rest -= theirs;
    our_rest -= ours;
  }
  if (their_rest > 1e-5 && our_rest > 1e-5) {
    divergence += their_rest * std::log(their_rest / our_rest);
  }
  return divergence;
}

double perplexity(const std::string& options) {
  const Result result = shell("sluice perplexity " + demo + " -f " + story + " --json " + options);
  REQUIRE(result.status == 0);
  return json::parse(result.output)["perplexity"];
}

}  // namespace

TEST_CASE("the demonstration model has llama.cpp's probabilities, on every tier") {
  const Folder folder;
  const json& tokens = recorded()["tokens"];
  for (const auto& [kind, record] : recorded()["models"].items()) {
    const std::string model = model_of(folder, kind);
    std::string first;
    for (const std::string& isa : tiers_of_models()) {
      INFO(kind << ", " << isa);
      const std::string out = folder.file("logits");
      const Result made = shell("export SLUICE_ISA=" + isa + "; sluice logits " + model +
                                " -q --force --kv f16 --tokens " + list(tokens) + " -o " + out);
      REQUIRE(made.status == 0);
      const std::string bytes = content(out);
      if (first.empty()) first = bytes;
      CHECK(bytes == first);
    }
    std::vector<float> logits(first.size() / sizeof(float));
    std::memcpy(logits.data(), first.data(), first.size());
    const std::size_t vocabulary = logits.size() / tokens.size();
    double mean = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      mean += divergence(record["likeliest"][i], &logits[i * vocabulary], vocabulary) /
              static_cast<double>(tokens.size());
    }
    INFO(kind);
    // Both round activations to 8 bits, each in its own way.
    CHECK(mean < (kind == "Q8_0" ? 1e-3 : 5e-3));
  }
}

TEST_CASE("the demonstration model writes what llama.cpp writes, as far as no tie decides") {
  const Folder folder;
  const json& prompts = recorded()["prompts"];
  for (const auto& [kind, record] : recorded()["models"].items()) {
    const std::string model = model_of(folder, kind);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Result made = shell("sluice run " + model + " -q --temp 0 --kv f16 --ctx 512 -n 80 " +
                                "--prompt-tokens " + list(prompts[i]));
      INFO(kind << ", prompt " << i);
      const json& greedy = record["greedy"][i];
      const auto text = greedy["text"].get<std::string>();
      CHECK(made.output.substr(0, greedy["ended"] ? std::string::npos : text.size()) == text);
    }
  }
}

TEST_CASE("a smaller cache of keys and values costs a trained model next to nothing") {
  const double exact = perplexity("--kv f32");
  CHECK(exact < 1.8);  // a model that knew nothing would be at 2048
  CHECK(perplexity("--kv f16") == Approx(exact).epsilon(1e-3));
  CHECK(perplexity("--kv int8") == Approx(exact).epsilon(5e-3));
}

TEST_CASE("a trained model knows less the less it sees") {
  const double whole = perplexity("--ctx 400");
  const double window = perplexity("--ctx 400 --window 128");
  const double small = perplexity("--ctx 400 --window 16");
  CHECK(window < 1.2 * whole);
  CHECK(small > 1.1 * window);
}

TEST_CASE("the demonstration model goes by its name, wherever a model is asked for") {
  const Folder folder;
  const Result facts = shell("sluice inspect demo --json");
  REQUIRE(facts.status == 0);
  CHECK(json::parse(facts.output)["name"].get<std::string>() == "demo");
  write(folder.file("bodies"), R"({"messages":[{"role":"user","content":"x"}]})");
  for (const std::string& command : std::vector<std::string>{
           "plan demo --ctx 64", "tokenize demo -p x", "template demo " + folder.file("bodies"),
           "quantize demo " + folder.file("q.gguf") + " --quant Q8_0", "inspect -m demo"}) {
    const Result result = shell("sluice " + command);
    INFO(command << "\n" << result.errors);
    CHECK(result.status == 0);
  }
}

TEST_CASE("a question has one answer in run, chat and batch, with a prompt cache and without") {
  const Folder folder;
  const std::string question = "Where is the kite?";
  const Result chat = shell("sluice chat " + demo + " -q --temp 0 -p '" + question + "'");
  REQUIRE(chat.status == 0);
  CHECK(chat.output.find("hill") != std::string::npos);  // a fact of its world

  const std::string run = "sluice run " + demo + " -q --temp 0 -p '" + question + "'";
  CHECK(shell(run).output + "\n" == chat.output);
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(shell(run + " --prompt-cache " + folder.file("cache")).output + "\n" == chat.output);
  }

  write(folder.file("in.jsonl"),
        json{{"messages", {{{"role", "user"}, {"content", question}}}}, {"temperature", 0}}.dump());
  REQUIRE(shell("sluice batch " + demo + " -q " + folder.file("in.jsonl") + " -o " +
                folder.file("out.jsonl"))
              .status == 0);
  const json row = json::parse(content(folder.file("out.jsonl")));
  CHECK(row["text"].get<std::string>() + "\n" == chat.output);
}

TEST_CASE("samples of the demonstration model repeat with their seed and end by themselves") {
  const std::string sample = "sluice chat " + demo + " -q --temp 0.8 -p 'Tell me a story.' --seed ";
  std::vector<std::string> texts;
  for (const char* seed : {"1", "2", "3"}) texts.push_back(shell(sample + seed).output);
  CHECK(shell(sample + "1").output == texts[0]);
  CHECK(texts[0] != texts[1]);
  CHECK(texts[1] != texts[2]);
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(text.size() > 200);
    CHECK(text.size() < 3000);
  }
}

TEST_CASE("a grown model computes what the small one computes, bit for bit") {
  if (shell("python3 --version").status != 0) SLUICE_SKIP("no python3");
  const Folder folder;
  const std::string grown = folder.file("grown.gguf");
  const auto made =
      shell("python3 -B " + source + "/scripts/grow-model " + demo + " " + grown + " --to tiny");
  INFO(made.errors);
  REQUIRE(made.status == 0);
  int outputs = 0;
  const auto logits = [&](const std::string& model) {
    const std::string out = folder.file("logits") + std::to_string(++outputs);
    const auto result = shell("sluice logits " + model + " --tokens 5,9,200,77,1000,3,3 -o " + out);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    return sluice::test::content(out);
  };
  CHECK(logits(grown) == logits(demo));
  // With fewer layers it is another model, for drafts: the text with it is the same.
  const std::string draft = folder.file("draft.gguf");
  REQUIRE(shell("python3 -B " + source + "/scripts/grow-model " + demo + " " + draft +
                " --to small --layers 3")
              .status == 0);
  CHECK(logits(draft) != logits(demo));
  const std::string run = "sluice run " + demo + " --raw -q -n 40 -p Once --temp 0 --speculate ";
  const auto drafted = shell(run + "draft --draft " + draft);
  INFO(drafted.errors);
  CHECK(drafted.status == 0);
  CHECK(drafted.output == shell(run + "off").output);
}

TEST_CASE("a draft model guesses behind a prompt that is longer than the window") {
  const Folder folder;
  const std::string report = folder.file("report.json"), text = folder.file("text");
  std::string words;
  for (int i = 0; i < 15; ++i) words += "Once there was a fox. ";
  write(text, words);
  const Result result = shell("sluice run " + demo + " --raw -q -n 40 --temp 0 --window 64 -f " +
                              text + " --speculate draft --draft " + demo + " --report " + report);
  INFO(result.errors);
  REQUIRE(result.status == 0);
  CHECK(json::parse(content(report)).at("drafted_tokens").get<std::uint64_t>() > 0);
}

TEST_CASE(
    "guesses change no text of a trained model, and are often right where it repeats itself") {
  const Folder folder;
  const std::string report = folder.file("report.json");
  const std::string prompt = "'One morning'";
  std::uint64_t accepted = 0;
  for (const std::string options : {"--temp 0", "--temp 0.9 --seed 3", "--temp 0 --window 64",
                                    "--temp 0.7 --seed 5 --repeat-penalty 1.1 --kv f16"}) {
    INFO(options);
    const std::string run =
        "sluice run " + demo + " --raw -q -n 150 -p " + prompt + " " + options + " --speculate ";
    const Result plain = shell(run + "off");
    REQUIRE(plain.status == 0);
    const Result eager = shell(run + "suffix --draft-max 5 --report " + report);
    CHECK(eager.output == plain.output);
    CHECK(shell(run + "auto").output == plain.output);
    const json counts = json::parse(content(report));
    CHECK(counts.at("drafted_tokens").get<std::uint64_t>() >=
          counts.at("accepted_tokens").get<std::uint64_t>());
    CHECK((counts.at("tokens_per_step").get<double>() > 1) ==
          (counts.at("accepted_tokens").get<std::uint64_t>() > 0));
    CHECK(counts.at("speculation").at("suffix").at("drafted") == counts.at("drafted_tokens"));
    accepted += counts.at("accepted_tokens").get<std::uint64_t>();
  }
  CHECK(accepted > 0);
  for (const char* kind : {"mtp", "draft"}) {
    check_fails("sluice run " + demo + " -q -p x --speculate " + kind, 2, kind);
  }
}
