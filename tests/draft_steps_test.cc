// Steps with drafts: logits are those of the same tokens without, whatever is accepted, and nothing
// is left of what is not.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using tokenizer::Token;
using Tokens = std::vector<Token>;
using Logits = std::vector<std::vector<float>>;

constexpr Token vocabulary = 290;  // tokens that all of these models have

// The logits after each token of a text, one step each.
Logits one_by_one(engine::Engine& engine, const Tokens& tokens) {
  Logits out;
  const auto sequence = engine.new_sequence(static_cast<std::uint32_t>(tokens.size()));
  for (const Token& token : tokens) {
    const engine::SequenceWork work{sequence.get(), {&token, 1}, true};
    const std::span<const float> logits = engine.step({&work, 1}).front();
    out.emplace_back(logits.begin(), logits.end());
  }
  return out;
}

bool are_same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Evaluates `tokens` in steps with drafts of which only the first ones are right, or are accepted.
void check_drafts(engine::Engine& engine, const Tokens& tokens, const Logits& expected,
                  std::mt19937_64& random) {
  const auto sequence = engine.new_sequence(static_cast<std::uint32_t>(tokens.size()));
  while (sequence->position() < tokens.size()) {
    const std::size_t at = sequence->position(), left = tokens.size() - at;
    std::size_t certain = 1 + random() % std::min<std::size_t>(left, 3);
    const std::size_t drafts = random() % std::min<std::size_t>(left - certain + 1, 8);
    if (drafts != 0 && engine.facts().has_states) certain = 1;
    const std::size_t right = random() % (drafts + 1);
    Tokens columns(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                   tokens.begin() + static_cast<std::ptrdiff_t>(at + certain + drafts));
    for (std::size_t i = right; i < drafts; ++i) {
      columns[certain + i] = static_cast<Token>(random() % vocabulary);
    }
    const engine::SequenceWork work{sequence.get(), columns, true, {}, drafts};
    const std::span<const float> logits = engine.step({&work, 1}).front();
    const std::size_t size = expected[0].size();
    REQUIRE(logits.size() == (1 + drafts) * size);
    for (std::size_t i = 0; i <= right; ++i) {
      REQUIRE(are_same(logits.subspan(i * size, size), expected[at + certain - 1 + i]));
    }
    REQUIRE(sequence->position() == (drafts == 0 ? at + certain : at));
    if (drafts == 0) continue;
    const std::size_t accepted = random() % (right + 1);
    switch (random() % 8) {
      case 0:  // the next step gives this one up
        break;
      case 1:
        sequence->truncate(sequence->position());
        break;
      case 2:
        REQUIRE(sequence->reserve(0));
        REQUIRE(sequence->reserve(static_cast<std::uint32_t>(tokens.size())));
        break;
      default:
        sequence->accept(accepted);
        REQUIRE(sequence->position() == at + certain + accepted);
    }
  }
}

}  // namespace

TEST_CASE("drafts are columns like others, and what is not accepted leaves nothing behind") {
  std::mt19937_64 random(random_seed());
  const auto seed = static_cast<std::uint32_t>(random());
  const auto file = [&](const TemporaryFolder& folder, const char* shape) {
    const auto path = folder.path() / "model.gguf";
    synth::SyntheticModel(synth::odd_shape(synth::shape_by_name(shape), seed), "Q4_K_M")
        .write(path, seed, {});
    return path;
  };
  for (const char* shape : {"tiny-llama", "tiny-gemma3", "tiny-gpt-oss", "tiny-qwen35",
                            "tiny-granitehybrid", "tiny-falcon-h1", "tiny-jamba", "tiny-lfm2"}) {
    for (const std::uint32_t window : {0U, 20U}) {
      INFO(shape << ", seed " << seed << ", window " << window);
      const TemporaryFolder folder;
      engine::EngineOptions settings;
      settings.threads = 1;
      settings.context = 96;
      settings.window = window;
      settings.chunk = 16;
      settings.drafts = 7;
      settings.parallel = 2;
      const auto engine = engine::Engine::open(file(folder, shape), settings);
      REQUIRE(engine->facts().takes_drafts);
      Tokens tokens(90);
      for (Token& token : tokens) {
        token = static_cast<Token>(random() % static_cast<std::uint64_t>(vocabulary));
      }
      const std::uint32_t free = engine->free_positions();
      const Logits expected = one_by_one(*engine, tokens);
      for (int round = 0; round < 3; ++round) check_drafts(*engine, tokens, expected, random);
      CHECK(engine->free_positions() == free);
    }
  }
}

TEST_CASE("where there are states, drafts stand behind one token") {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model.gguf";
  synth::SyntheticModel(synth::shape_by_name("tiny-lfm2"), "Q8_0").write(model, 1, {});
  engine::EngineOptions settings;
  settings.threads = 1;
  settings.context = 64;
  settings.drafts = 4;
  const auto engine = engine::Engine::open(model, settings);
  CHECK(engine->facts().takes_drafts);
  const auto sequence = engine->new_sequence(10);
  const Tokens tokens = {3, 4, 5};
  const engine::SequenceWork work{sequence.get(), tokens, true, {}, 1};
  CHECK_THROWS_AS(engine->step({&work, 1}), UsageError);
  CHECK(sequence->position() == 0);
}

TEST_CASE("drafts get memory where there is some, and a small budget stays as small as it was") {
  const TemporaryFolder folder;
  const auto model = folder.path() / "model.gguf";
  synth::SyntheticModel("tiny", "Q8_0").write(model, 1, {});
  engine::EngineOptions settings;
  settings.threads = 1;
  settings.context = 64;
  const auto plan = [&](std::uint32_t drafts) {
    settings.drafts = drafts;
    return engine::plan_run(model, settings).plan;
  };
  CHECK(plan(7).logits_columns == 8);
  if (!sluice::test::is_sanitized) {  // whose own memory would be another in each plan
    const std::uint64_t least = plan(0).least_budget_bytes;
    CHECK(plan(7).least_budget_bytes <= least + (std::uint64_t{1} << 20));
    settings.budget_bytes = least;
    CHECK(plan(200).fits());
    settings.budget_bytes.reset();
  }
  settings.parallel = 3;
  CHECK(plan(7).logits_columns == 3 + 3 * 7);
  settings.parallel = 30;
  CHECK(plan(7).logits_columns == 30 + 4 * 7);
}

}  // namespace sluice::test
