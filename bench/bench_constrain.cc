// The cost of structured output: compiling a schema, and the mask of a token.
//
//   build/release/bench/bench_constrain
//   build/release/bench/bench_constrain --vocab MODEL.gguf     # the vocabulary of a model
//
// Without --vocab the vocabulary is synthetic: 32,000 tokens of one to twelve bytes, as they occur
// in words, numbers and JSON. "token" writes one text after another, and counts the time of all
// masks, found and kept; "fresh" begins each text without anything kept.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bench/support.h"
#include "core/constrain/constraint.h"
#include "core/constrain/json_schema.h"
#include "core/gguf/gguf.h"
#include "core/synth/toy_vocabulary.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::bench {
namespace {

using constrain::Constraint;
using constrain::Matcher;
using constrain::TokenTrie;
using tokenizer::Token;

constexpr const char* schema_text = R"({"type": "object", "properties": {
  "name": {"type": "string"}, "kind": {"enum": ["person", "place", "thing"]},
  "age": {"type": "integer", "minimum": 0, "maximum": 150},
  "code": {"type": "string", "maxLength": 40}, "score": {"type": "number"},
  "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 8},
  "parent": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
  "required": ["name", "kind", "age", "tags"], "additionalProperties": false})";

std::unique_ptr<tokenizer::Tokenizer> synthetic_tokenizer() {
  constexpr std::size_t tokens = 32000;
  std::mt19937_64 random(1);
  tokenizer::Vocabulary vocabulary;
  vocabulary.source = "synthetic";
  vocabulary.kind = tokenizer::VocabularyKind::sentencepiece;
  std::set<std::string> seen;
  const auto add = [&](const std::string& text, tokenizer::TokenType type) {
    if (!seen.insert(text).second) return;
    vocabulary.tokens.push_back(text);
    vocabulary.types.push_back(type);
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.tokens.size()));
  };
  add("</s>", tokenizer::TokenType::control);
  vocabulary.eos = 0;
  for (int byte = 0; byte < 256; ++byte) {
    add(fmt::format("<0x{:02X}>", byte), tokenizer::TokenType::byte);
  }
  const std::string letters = "etaoinshrdlucmfwypvbgk";
  const std::vector<std::string> ends = {"", "", "", "", "\"", "\":", "\",", "}", "]", ",", ":"};
  while (vocabulary.tokens.size() < tokens) {
    std::string text = random() % 2 == 0 ? "\u2581" : "";
    for (std::size_t i = 1 + random() % 8; i > 0; --i) text += letters[random() % letters.size()];
    add(text + ends[random() % ends.size()], tokenizer::TokenType::normal);
  }
  return tokenizer::make_tokenizer(std::move(vocabulary));
}

struct Setting {
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<const std::vector<Token>> ends;
};

// Writes a text at random; returns its tokens.
std::size_t write_text(const Setting& setting, const std::shared_ptr<const Constraint>& constraint,
                       std::mt19937_64& random) {
  Matcher matcher(constraint, setting.ends);
  constexpr std::size_t tokens_max = 200;
  std::size_t tokens = 0;
  for (; tokens < tokens_max && !matcher.is_complete(); ++tokens) {
    const std::span<const std::uint64_t> words = matcher.allowed();
    std::size_t at = random() % (64 * words.size());
    while ((words[at / 64] >> (at % 64) & 1U) == 0) at = (at + 1) % (64 * words.size());
    if (!matcher.accept(static_cast<Token>(at))) break;  // the end of the text
  }
  return std::max<std::size_t>(tokens, 1);
}

void compile(benchmark::State& state) {
  const auto schema = nlohmann::ordered_json::parse(schema_text);
  for (auto _ : state) benchmark::DoNotOptimize(constrain::compile_json_schema(schema));
}

void masks(benchmark::State& state, const Setting& setting, bool fresh) {
  const constrain::Grammar grammar =
      constrain::compile_json_schema(nlohmann::ordered_json::parse(schema_text));
  auto constraint = std::make_shared<const Constraint>(grammar, setting.trie);
  std::mt19937_64 random(1);
  double tokens = 0;
  for (auto _ : state) {
    if (fresh) constraint = std::make_shared<const Constraint>(grammar, setting.trie);
    tokens += static_cast<double>(write_text(setting, constraint, random));
  }
  state.counters["time/token"] =
      benchmark::Counter(tokens, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["trie MiB"] = static_cast<double>(setting.trie->bytes()) / (1 << 20);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice;
  std::string model;
  bench::Program program;
  program.description = "Measures what structured output costs.";
  program.add_options = [&](CLI::App& app) {
    app.add_option("--vocab", model, "use the vocabulary of this model");
  };
  program.register_benchmarks = [&] {
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;
    if (model.empty()) {
      tokenizer = bench::synthetic_tokenizer();
    } else {
      const gguf::Model header = gguf::Model::open(model, {.header_only = true});
      tokenizer = tokenizer::Tokenizer::from_metadata(header.metadata());
    }
    auto ends = std::make_shared<std::vector<tokenizer::Token>>();
    for (std::size_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
      const auto token = static_cast<tokenizer::Token>(id);
      if (tokenizer->is_end_of_generation(token)) ends->push_back(token);
    }
    const bench::Setting setting{std::make_shared<const constrain::TokenTrie>(*tokenizer), ends};
    bench::add("compile", bench::compile);
    bench::add("token", [=](benchmark::State& state) { bench::masks(state, setting, false); });
    bench::add("fresh", [=](benchmark::State& state) { bench::masks(state, setting, true); });
  };
  return bench::run_program(program, argc, argv);
}
