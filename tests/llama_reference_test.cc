// The llama forward pass against the same model computed in double arithmetic from the equations,
// over everything in which models of this kind differ; and the refusal of models that are broken.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/model/families.h"
#include "tests/catch.h"
#include "tests/gguf_support.h"
#include "tests/llama_oracle.h"
#include "tests/temporary_folder.h"
#include "tests/tiny_llama.h"

namespace sluice::test {
namespace {

using gguf::contains;
using Tokens = std::vector<tokenizer::Token>;
using Logits = std::vector<std::vector<float>>;  // [token][vocabulary]

constexpr std::size_t sequence_length = 24;

std::vector<LlamaShape> shapes() {
  return {
      {.name = "plain", .seed = 11},
      {.name = "a key head for every query head", .seed = 12, .layers = 1, .kv_heads = 4},
      {.name = "one key head for four", .seed = 13, .heads = 4, .kv_heads = 1},
      {.name = "two groups of four", .seed = 14, .layers = 1, .heads = 8, .kv_heads = 2},
      {.name = "a single head", .seed = 15, .layers = 1, .heads = 1, .kv_heads = 1},
      {.name = "heads wider than the embedding", .seed = 16, .key_length = 24, .value_length = 24},
      {.name = "long keys and short values", .seed = 17, .key_length = 20, .value_length = 12},
      {.name = "short keys and long values", .seed = 18, .key_length = 8, .value_length = 36},
      {.name = "only values have a length", .seed = 19, .layers = 1, .value_length = 24},
      {.name = "partial rotation", .seed = 20, .rotated = 6},
      {.name = "frequency factors", .seed = 21, .has_rope_factors = true},
      {.name = "partial rotation, factors", .seed = 22, .rotated = 10, .has_rope_factors = true},
      {.name = "linear scaling", .seed = 23, .scaling = "linear", .factor = 4},
      {.name = "legacy linear", .seed = 24, .factor_key = "rope.scale_linear", .factor = 4},
      {.name = "a factor without a type", .seed = 25, .factor = 2.5f},
      {.name = "scaling of type none", .seed = 26, .scaling = "none", .factor = 4},
      {.name = "YaRN", .seed = 27, .scaling = "yarn", .factor = 4, .original_context = 32},
      {.name = "YaRN, all its keys and frequency factors",
       .seed = 28,
       .rope_base = 500,
       .scaling = "yarn",
       .factor = 4,
       .original_context = 32,
       .attention_factor = 0.75f,
       .beta_fast = 4,
       .beta_slow = 0.25f,
       .has_rope_factors = true},
      {.name = "YaRN within the context, base 1e6",
       .seed = 29,
       .rope_base = 1e6f,
       .scaling = "yarn",
       .factor = 8},
      {.name = "biases", .seed = 30, .has_biases = true},
      {.name = "tied head", .seed = 31, .is_tied = true},
      {.name = "odd sizes, three layers",
       .seed = 32,
       .layers = 3,
       .embedding = 96,
       .heads = 6,
       .kv_heads = 3,
       .feed_forward = 160},
      {.name = "nothing divides by sixteen",
       .seed = 33,
       .layers = 3,
       .embedding = 39,
       .heads = 3,
       .kv_heads = 1,
       .key_length = 14,
       .value_length = 7,
       .feed_forward = 61,
       .tokens = 301},
      {.name = "padded vocabulary", .seed = 34, .layers = 1, .padding = 20},
      {.name = "padded and tied", .seed = 35, .layers = 1, .padding = 3, .is_tied = true},
      {.name = "large norm epsilon", .seed = 36, .norm_epsilon = 0.3f},
      {.name = "no norm epsilon", .seed = 37, .layers = 1, .norm_epsilon = 0},
      {.name = "everything at once",
       .seed = 38,
       .layers = 3,
       .embedding = 72,
       .heads = 8,
       .kv_heads = 2,
       .key_length = 22,
       .value_length = 10,
       .feed_forward = 100,
       .padding = 11,
       .norm_epsilon = 0.02f,
       .rope_base = 300,
       .rotated = 16,
       .scaling = "yarn",
       .factor = 4,
       .original_context = 32,
       .attention_factor = 1.25f,
       .beta_fast = 3,
       .beta_slow = 0.5f,
       .has_biases = true,
       .has_rope_factors = true,
       .is_tied = true},
  };
}

Tokens some_tokens(const LlamaShape& shape) {
  Tokens tokens(sequence_length);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<tokenizer::Token>((i * 7919 + shape.seed * 31) % shape.tokens);
  }
  tokens[9] = tokens[2];  // the same token at two places
  return tokens;
}

engine::EngineOptions options() {
  engine::EngineOptions options;
  options.context = sequence_length;
  options.threads = 1;
  options.kv = kvcache::ElementType::f32;
  options.chunk = 10;  // so that a sequence takes three steps
  return options;
}

Logits engine_logits(const TinyLlama& model, const Tokens& tokens) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  model.write(path);
  Logits out;
  const auto engine = engine::Engine::open(path, options());
  engine->session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    out.emplace_back(logits.begin(), logits.end());
  });
  return out;
}

// How far a logit may be from the oracle's, in units of |row of the head| |its input|: an epsilon
// for each rounded operation on the way, as if no two errors cancelled. A layer has eight of them
// (queries, keys, scores, values, output, gate, up, down), and the head is one more. In a sum of
// products the errors do cancel: the whole sum is off by less than an epsilon of the product of
// the norms.
double tolerance(const LlamaShape& s) {
  return (1 + 8.0 * s.layers) * static_cast<double>(std::numeric_limits<float>::epsilon());
}

// The largest difference between the logits and those of the oracle of `model`, in units of the
// tolerance. Infinite when logits are not finite.
double worst_difference(const Logits& logits, const TinyLlama& model, const Tokens& tokens) {
  LlamaOracle oracle(model);
  double worst = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Numbers expected = oracle.next(tokens[i]);
    for (std::size_t r = 0; r < model.shape.tokens; ++r) {
      const double difference = std::abs(static_cast<double>(logits[i][r]) - expected[r]) /
                                (oracle.logit_bound(r) * tolerance(model.shape));
      if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, difference);
    }
  }
  return worst;
}

// The message with which the engine refuses the model.
std::string refusal(const TinyLlama& model) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "broken.gguf";
  model.write(path);
  const std::string message =
      gguf::lookup_error([&] { static_cast<void>(engine::Engine::open(path, options())); });
  CHECK(contains(message, path.string()));
  CHECK_FALSE(contains(message, "\n"));
  return message;
}

// A model that has every tensor that a llama can have.
TinyLlama complete_model() {
  return TinyLlama({.name = "complete",
                    .seed = 50,
                    .key_length = 12,
                    .value_length = 20,
                    .has_biases = true,
                    .has_rope_factors = true});
}

std::string text(const std::vector<std::uint64_t>& dims) {
  std::string out;
  for (const std::uint64_t dim : dims) out += (out.empty() ? "" : " x ") + std::to_string(dim);
  return out;
}

}  // namespace

TEST_CASE("logits are those of the equations in double arithmetic") {
  for (const LlamaShape& shape : shapes()) {
    INFO(shape.name << ", seed " << shape.seed);
    const TinyLlama model(shape);
    const Tokens tokens = some_tokens(shape);
    const Logits logits = engine_logits(model, tokens);
    REQUIRE(logits.size() == tokens.size());
    for (const auto& of_token : logits) REQUIRE(of_token.size() == shape.vocabulary());
    CHECK(worst_difference(logits, model, tokens) < 1);
  }
}

TEST_CASE("hidden states are those of the equations, and asking for them changes no logit") {
  for (const LlamaShape& shape : shapes()) {
    INFO(shape.name << ", seed " << shape.seed);
    const TinyLlama model(shape);
    const Tokens tokens = some_tokens(shape);
    const TemporaryFolder folder;
    const auto path = folder.path() / "tiny.gguf";
    model.write(path);
    engine::EngineOptions two = options();
    two.parallel = 2;
    const auto engine = engine::Engine::open(path, two);
    CHECK(engine->facts().embedding == shape.embedding);
    const auto asked = engine->new_sequence(sequence_length);
    const auto other = engine->new_sequence(sequence_length);
    std::vector<std::vector<float>> hidden, logits;
    const auto take = [&](std::size_t i, std::span<const float> state) {
      CHECK(i == hidden.size() % 5);
      hidden.emplace_back(state.begin(), state.end());
    };
    for (std::size_t at = 0; at < tokens.size(); at += 5) {
      const std::span<const tokenizer::Token> part =
          std::span(tokens).subspan(at, std::min<std::size_t>(5, tokens.size() - at));
      const engine::SequenceWork works[] = {{other.get(), part, true},
                                            {asked.get(), part, false, take}};
      const auto results = engine->step(works);
      logits.emplace_back(results[0].begin(), results[0].end());
      CHECK(results[1].empty());
    }
    REQUIRE(hidden.size() == tokens.size());
    LlamaOracle oracle(model);
    double worst = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      static_cast<void>(oracle.next(tokens[i]));
      REQUIRE(hidden[i].size() == shape.embedding);
      const double most = oracle.hidden_length() * tolerance(shape);
      for (std::size_t d = 0; d < shape.embedding; ++d) {
        const double difference = std::abs(static_cast<double>(hidden[i][d]) - oracle.hidden()[d]);
        REQUIRE(std::isfinite(difference));
        worst = std::max(worst, difference / most);
      }
    }
    CHECK(worst < 1);
    CHECK(logits.back() == engine_logits(model, tokens).back());
  }
}

TEST_CASE("rows of the head that stand for no token are never likely") {
  for (const bool is_tied : {false, true}) {
    const LlamaShape shape{.name = "padded", .seed = 41, .padding = 37, .is_tied = is_tied};
    const TinyLlama model(shape);
    for (const auto& logits : engine_logits(model, some_tokens(shape))) {
      REQUIRE(logits.size() == 337);
      CHECK(std::all_of(logits.begin(), logits.begin() + 300,
                        [](float x) { return std::isfinite(x); }));
      CHECK(std::all_of(logits.begin() + 300, logits.end(),
                        [](float x) { return x == -std::numeric_limits<float>::infinity(); }));
    }
  }
}

// What the comparison is worth: an oracle with one number changed must disagree by far.
TEST_CASE("the comparison notices a change of any number of the model") {
  const LlamaShape original = shapes().back();
  const TinyLlama model(original);
  const Tokens tokens = some_tokens(original);
  const Logits logits = engine_logits(model, tokens);
  REQUIRE(worst_difference(logits, model, tokens) < 1);

  struct Change {
    const char* name;
    std::function<void(LlamaShape&)> apply;
  };
  const Change changes[] = {
      {"norm epsilon", [](LlamaShape& s) { s.norm_epsilon *= 1.01f; }},
      {"rope base", [](LlamaShape& s) { s.rope_base *= 1.01f; }},
      {"rotated dimensions", [](LlamaShape& s) { s.rotated -= 2; }},
      {"scaling", [](LlamaShape& s) { s.scaling = "linear"; }},
      {"factor", [](LlamaShape& s) { s.factor *= 1.01f; }},
      {"original context", [](LlamaShape& s) { s.original_context = 64; }},
      {"attention factor", [](LlamaShape& s) { s.attention_factor *= 1.01f; }},
      {"beta fast", [](LlamaShape& s) { s.beta_fast = 1.5f; }},
      {"beta slow", [](LlamaShape& s) { s.beta_slow = 0.25f; }},
  };
  for (const Change& change : changes) {
    INFO(change.name);
    TinyLlama changed = model;
    change.apply(changed.shape);
    CHECK(worst_difference(logits, changed, tokens) > 10);
  }
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    if (model.tensors[i].name == "token_embd.weight") continue;  // most rows are not looked at
    INFO(model.tensors[i].name);
    TinyLlama changed = model;
    for (float& value : changed.tensors[i].values) value *= 1.01f;
    CHECK(worst_difference(logits, changed, tokens) > 10);
  }
}

TEST_CASE("a missing tensor is named") {
  const TinyLlama complete = complete_model();
  const std::set<std::string> optional = {"output.weight", "rope_freqs.weight"};
  for (std::size_t i = 0; i < complete.tensors.size(); ++i) {
    const std::string name = complete.tensors[i].name;
    if (optional.contains(name) || name.ends_with(".bias")) continue;
    INFO(name);
    TinyLlama model = complete;
    model.tensors.erase(model.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string message = refusal(model);
    CHECK(contains(message, "'" + name + "'"));
    CHECK(contains(message, "is missing"));
    if (name == "token_embd.weight") continue;  // looked up when the vocabulary is not yet known
    CHECK(contains(message, "expected with shape " + text(complete.tensors[i].dims)));
  }
}

TEST_CASE("a tensor of another shape is named, with the shape found and the one expected") {
  const TinyLlama complete = complete_model();
  for (std::size_t i = 0; i < complete.tensors.size(); ++i) {
    for (std::size_t d = 0; d < complete.tensors[i].dims.size(); ++d) {
      const std::string name = complete.tensors[i].name;
      if (name == "token_embd.weight" && d == 1) continue;  // says how large the vocabulary is
      for (const int delta : {-1, +1}) {
        INFO(name << ", dimension " << d << ", " << delta);
        TinyLlama model = complete;
        TinyTensor& tensor = model.tensors[i];
        tensor.dims[d] += static_cast<std::uint64_t>(delta);
        std::uint64_t size = 1;
        for (const std::uint64_t dim : tensor.dims) size *= dim;
        tensor.values.resize(size);
        const std::string message = refusal(model);
        CHECK(contains(message, "'" + name + "'"));
        CHECK(contains(message, "has shape " + text(tensor.dims)));
        // The expected rows of the embedding are whatever the file has.
        const auto& expected = complete.tensors[i].dims;
        CHECK(contains(message,
                       "expected " + (name == "token_embd.weight" ? std::to_string(expected[0])
                                                                  : text(expected))));
      }
    }
  }
}

TEST_CASE("heads and lengths whose product is beyond all bounds are refused") {
  // 65536 times 65537 is 65536 in 32 bits, so the matrices seem to fit.
  TinyLlama model({.name = "overflow",
                   .layers = 1,
                   .embedding = 1,
                   .heads = 1,
                   .kv_heads = 1,
                   .key_length = 65536,
                   .value_length = 16,
                   .feed_forward = 1,
                   .rotated = 16});
  model.tensor("blk.0.attn_output.weight").dims[0] *= 65536;
  model.tensor("blk.0.attn_output.weight").values.resize(65536 * 16);
  model.tensor("blk.0.attn_k.weight").dims[1] = 65537;
  model.tensor("blk.0.attn_k.weight").values.resize(65537);
  model.shape.heads = 65536;
  model.shape.key_length = 65537;
  const std::string message = refusal(model);
  CHECK(contains(message, "'blk.0.attn_q.weight'"));
  CHECK(contains(message, "has shape 1 x 65536"));
  CHECK(contains(message, "expected 1 x 4295032832"));
}

TEST_CASE("a tensor of a type that is not computed with is named, with its type") {
  TinyLlama complete({.name = "complete", .layers = 1, .embedding = 256, .feed_forward = 256});
  for (const char* name :
       {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight", "blk.0.ffn_down.weight"}) {
    INFO(name);
    TinyLlama model = complete;
    model.tensor(name).type = 15;
    const std::string message = refusal(model);
    CHECK(contains(message, "'" + std::string(name) + "'"));
    CHECK(contains(message, "Q8_K"));
    CHECK(contains(message, "Q4_K_M"));  // what to use instead
  }
}

TEST_CASE("a tensor that the architecture does not know is named, not passed over") {
  const TinyLlama complete({.name = "complete", .layers = 1});
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.1.attn_q.weight", "output.scale"}) {
    INFO(name);
    TinyLlama model = complete;
    model.tensors.push_back({name, {4}, {1, 2, 3, 4}});
    const std::string message = refusal(model);
    CHECK(contains(message, "'" + std::string(name) + "'"));
    CHECK(contains(message, "not one that sluice knows"));
  }
}

TEST_CASE("parts of a file that are not of its text model are left aside, and said so") {
  TinyLlama model({.name = "with vision", .layers = 1});
  for (const char* name : {"v.patch_embd.weight", "mm.0.weight", "a.conv1.weight"}) {
    model.tensors.push_back({name, {4}, {1, 2, 3, 4}});
  }
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  model.write(path);
  const std::vector<std::string> notes = engine::Engine::open(path, options())->facts().notes;
  for (const char* what : {"vision", "audio"}) {
    const std::string line = "this file's " + std::string(what) + " part is not used";
    CHECK(std::ranges::count(notes, line) == 1);
  }
}

TEST_CASE("an architecture or a kind of scaling that is not known is named, with what is nearest") {
  TinyLlama model({.name = "plain"});
  model.shape.architecture = "mamba17";
  std::string message = refusal(model);
  CHECK(contains(message, "'mamba17'"));
  CHECK(contains(message, "'llama'"));

  model = TinyLlama({.name = "scaled", .scaling = "longcat", .factor = 2});
  message = refusal(model);
  CHECK(contains(message, "llama.rope.scaling.type"));
  CHECK(contains(message, "'longcat'"));
  CHECK(contains(message, "none, linear, yarn and longrope"));
}

TEST_CASE("numbers of a model that make no sense are named") {
  struct Bad {
    const char* key;
    const char* found;
    LlamaShape shape;
  };
  const Bad all[] = {
      {"attention.head_count_kv", "is 3", {.name = "three of four", .kv_heads = 3}},
      {"rope.dimension_count", "is 5", {.name = "odd", .rotated = 5}},
      {"rope.dimension_count", "is 18", {.name = "beyond the head", .rotated = 18}},
      {"rope.scaling.factor", "negative", {.name = "negative", .factor = -4}},
      {"rope.freq_base", "expected more than 0", {.name = "no base", .rope_base = 0}},
      {"attention.layer_norm_rms_epsilon", "is -1", {.name = "epsilon", .norm_epsilon = -1}},
  };
  for (const Bad& bad : all) {
    INFO(bad.shape.name);
    const std::string message = refusal(TinyLlama(bad.shape));
    CHECK(contains(message, std::string("llama.") + bad.key));
    CHECK(contains(message, bad.found));
  }
}

}  // namespace sluice::test
