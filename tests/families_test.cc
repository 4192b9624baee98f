// Every architecture, on tiny models of odd shapes: logits are the same bits however the tokens of
// a sequence are cut into steps, whatever else is in a step, and in however little memory.
#include "core/model/families.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/gguf_support.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::SequenceWork;
using tokenizer::Token;
using Tokens = std::vector<Token>;
using Logits = std::vector<std::vector<float>>;  // [token][vocabulary]
namespace fs = std::filesystem;

constexpr std::uint32_t length = 41;  // longer than the windows of tiny models
constexpr std::uint64_t first_seed = 20261;

bool is_known(const std::string& architecture) {
  for (const model::Family& family : model::families()) {
    if (family.architecture == architecture) return true;
  }
  return false;
}

// A model of each architecture that runs, of an odd shape: of those that write texts, or of the
// encoders.
std::vector<synth::Shape> odd_shapes(std::uint64_t seed, bool are_encoders = false) {
  std::vector<synth::Shape> out;
  for (const synth::Shape& shape : synth::shapes()) {
    if (!shape.name.starts_with("tiny-") || !is_known(shape.architecture)) continue;
    if (shape.is_encoder() != are_encoders) continue;
    out.push_back(synth::odd_shape(shape, seed));
  }
  return out;
}

Tokens some_tokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(3 + random() % 290);
  return tokens;
}

EngineOptions options_with_chunk(std::uint32_t chunk) {
  EngineOptions options;
  options.context = 64;
  options.threads = 2;
  options.chunk = chunk;
  options.logits_columns = chunk;
  return options;
}

Logits evaluate(const fs::path& model, const EngineOptions& options, const Tokens& tokens) {
  Logits out;
  const auto engine = Engine::open(model, options);
  engine->session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    out.emplace_back(logits.begin(), logits.end());
  });
  return out;
}

// The same in steps of varying length, which two other sequences share.
Logits evaluate_among_others(const fs::path& model, const Tokens& tokens) {
  EngineOptions options = options_with_chunk(24);
  options.parallel = 3;
  const auto engine = Engine::open(model, options);
  std::vector<std::unique_ptr<engine::Sequence>> sequences;
  std::vector<Tokens> others;
  for (std::uint64_t i = 0; i < 3; ++i) {
    sequences.push_back(engine->new_sequence(64));
    REQUIRE(sequences.back() != nullptr);
    others.push_back(some_tokens(64, 77 + i));
  }
  Logits out;
  std::size_t other_done = 0;
  for (std::size_t done = 0, count = 1; done < tokens.size();
       done += count, count = count % 5 + 1) {
    count = std::min(count, tokens.size() - done);
    std::vector<SequenceWork> works;
    const std::size_t others_count = 1 + done % 2;
    works.push_back(
        {sequences[1].get(), std::span(others[1]).subspan(other_done, others_count), true});
    works.push_back({sequences[0].get(), std::span(tokens).subspan(done, count), true});
    works.push_back(
        {sequences[2].get(), std::span(others[2]).subspan(other_done, others_count), false});
    other_done += others_count;
    const auto logits = engine->step(works);
    out.resize(done + count);
    out.back().assign(logits[1].begin(), logits[1].end());
  }
  return out;
}

// Whether two runs agree in every bit, at the tokens that both have logits of.
bool agree(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t t = 0; t < a.size(); ++t) {
    if (a[t].empty() || b[t].empty()) continue;
    if (std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("logits do not depend on how a sequence is cut into steps, or on what shares them") {
  const Tokens tokens = some_tokens(length, 5);
  constexpr std::uint64_t seeds = is_sanitized ? 1 : 2;
  for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    for (const synth::Shape& shape : odd_shapes(seed)) {
      INFO(shape.name << ", seed " << seed);
      const TemporaryFolder folder;
      const fs::path model = folder.path() / "model.gguf";
      synth::SyntheticModel(shape, seed % 2 == 0 ? "Q8_0" : "Q4_K_M").write(model, seed, {});
      const Logits whole = evaluate(model, options_with_chunk(64), tokens);
      REQUIRE(whole.size() == length);
      if (!is_sanitized) {  // to which many short steps are one
        CHECK(agree(whole, evaluate(model, options_with_chunk(7), tokens)));
        CHECK(agree(whole, evaluate(model, options_with_chunk(1), tokens)));
      }
      CHECK(agree(whole, evaluate_among_others(model, tokens)));
    }
  }
}

TEST_CASE("logits do not depend on the budget") {
  const Tokens tokens = some_tokens(length, 6);
  const std::vector<synth::Shape> shapes = odd_shapes(first_seed + 2);
  // The case above takes every shape through the sanitizers.
  for (std::size_t i = 0; i < shapes.size(); i += sample_step) {
    const synth::Shape& shape = shapes[i];
    INFO(shape.name);
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model.gguf";
    synth::SyntheticModel(shape, "Q4_0").write(model, 1, {});
    EngineOptions options = options_with_chunk(16);
    const Logits whole = evaluate(model, options, tokens);
    const std::uint64_t least = engine::plan_run(model, options).plan.least_budget_bytes;
    options.budget_bytes = least + (std::uint64_t{4} << 20);  // the process grows with its tests
    CHECK(agree(whole, evaluate(model, options, tokens)));
  }
}

// The state of each token of texts that an encoder reads in one step.
std::vector<Logits> states_of(Engine& engine, const std::vector<Tokens>& texts) {
  std::vector<Logits> out(texts.size());
  std::vector<std::unique_ptr<engine::Sequence>> sequences;
  std::vector<SequenceWork> works;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sequences.push_back(engine.new_sequence(static_cast<std::uint32_t>(texts[i].size())));
    REQUIRE(sequences.back() != nullptr);
    works.push_back(
        {sequences.back().get(), texts[i], false, [&out, i](std::size_t, std::span<const float> x) {
           out[i].emplace_back(x.begin(), x.end());
         }});
  }
  engine.step(works);
  return out;
}

TEST_CASE(
    "what an encoder makes of a text depends neither on others in its step nor on the budget") {
  const std::vector<Tokens> texts = {some_tokens(1, 8), some_tokens(length, 9), some_tokens(7, 10)};
  for (const synth::Shape& shape : odd_shapes(first_seed + 4, true)) {
    INFO(shape.name);
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model.gguf";
    synth::SyntheticModel(shape, "Q4_0").write(model, 1, {});
    EngineOptions options = options_with_chunk(64);
    options.parallel = 3;
    const std::vector<Logits> together = states_of(*Engine::open(model, options), texts);
    options.parallel = 1;
    const std::uint64_t least = engine::plan_run(model, options).plan.least_budget_bytes;
    options.budget_bytes = least + (std::uint64_t{4} << 20);  // the process grows with its tests
    const auto alone = Engine::open(model, options);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      REQUIRE(together[i].size() == texts[i].size());
      CHECK(agree(states_of(*alone, {texts[i]}).front(), together[i]));
    }
    // A token sees what comes after it.
    Tokens other = texts[1];
    other.back() ^= 1;
    CHECK_FALSE(agree(states_of(*alone, {other}).front(), together[1]));
  }
}

TEST_CASE("a plan is made from the header of every architecture alone") {
  std::vector<synth::Shape> shapes = odd_shapes(first_seed + 3);
  for (synth::Shape& shape : odd_shapes(first_seed + 3, true)) shapes.push_back(std::move(shape));
  for (const synth::Shape& shape : shapes) {
    INFO(shape.name);
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model.gguf";
    synth::SyntheticModel(shape, "Q6_K").write_header(model);
    const engine::PlannedRun planned = engine::plan_run(model, options_with_chunk(16));
    CHECK(planned.plan.fits());
    CHECK(planned.plan.total_bytes() >= planned.work.hot_bytes);
  }
}

// What planning a model of this shape fails with; empty when it does not.
std::string refusal(const synth::Shape& shape) {
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model.gguf";
  synth::SyntheticModel(shape, "Q8_0").write_header(model);
  try {
    engine::plan_run(model, options_with_chunk(16));
  } catch (const ModelError& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("sizes of recurrent layers that contradict each other are refused, by their keys") {
  for (const std::string name : {"qwen35", "granitehybrid", "nemotron_h", "falcon-h1"}) {
    INFO(name);
    const synth::Shape good = synth::shape_by_name("tiny-" + name);
    CHECK(refusal(good) == "");
    synth::Shape heads = good;
    heads.recurrence.inner += 1;
    CHECK(gguf::contains(refusal(heads), "'" + name + ".ssm.time_step_rank'"));
    synth::Shape taps = good;
    taps.recurrence.taps = 9;
    CHECK(gguf::contains(refusal(taps), "'" + name + ".ssm.conv_kernel': is 9, expected 1 to 8"));
    if (name == "qwen35") continue;  // its value heads may share key heads unevenly
    synth::Shape groups = good;
    groups.recurrence.groups = groups.recurrence.heads + 1;
    CHECK(gguf::contains(refusal(groups), "'" + name + ".ssm.group_count'"));
  }
  synth::Shape taps = synth::shape_by_name("tiny-lfm2");
  taps.short_convolution = 9;
  CHECK(gguf::contains(refusal(taps), "'lfm2.shortconv.l_cache': is 9, expected 1 to 8"));
}

TEST_CASE("a token cannot take more experts than there are") {
  synth::Shape shape = synth::shape_by_name("tiny-qwen3moe");
  CHECK(refusal(shape) == "");
  shape.experts.used = shape.experts.count + 1;
  CHECK(gguf::contains(refusal(shape), "'qwen3moe.expert_used_count': is 9, expected 1 to 8"));
}

}  // namespace sluice::test
