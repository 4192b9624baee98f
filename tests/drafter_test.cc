// Drafts of a second model: they change no byte, and what it has read follows the text.
#include "core/serve/drafter.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/plan/memory_plan.h"
#include "core/serve/guesser.h"
#include "core/serve/scheduler.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/fake_drafts.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "tests/written_texts.h"

namespace sluice::test {
namespace {

using serve::Drafter;
using speculate::Draft;
using Tokens = std::vector<Token>;

// What a model writes by itself behind a text, of what may come there; null: of all tokens.
Tokens greedy(engine::Engine& engine, const Tokens& text, std::size_t count,
              FakeChoices* choices = nullptr) {
  const auto sequence = engine.new_sequence(static_cast<std::uint32_t>(text.size() + count));
  REQUIRE(sequence);
  Tokens out;
  std::span<const Token> next = text;
  while (out.size() < count) {
    const std::size_t columns = std::min<std::size_t>(next.size(), engine.step_columns());
    const engine::SequenceWork work{sequence.get(), next.first(columns), columns == next.size()};
    const std::span<const float> logits = engine.step({&work, 1}).front();
    next = next.subspan(columns);
    if (!next.empty()) continue;
    const auto known = logits.first(engine.tokenizer().vocabulary_size());
    Token best = -1;
    for (Token token = 0; static_cast<std::size_t>(token) < known.size(); ++token) {
      if (choices != nullptr && !choices->may_come(token)) continue;
      if (best < 0 ||
          known[static_cast<std::size_t>(token)] > known[static_cast<std::size_t>(best)])
        best = token;
    }
    out.push_back(best);
    if (choices != nullptr) choices->take(best);
    next = std::span(out).last(1);
  }
  return out;
}

// Tells a source of a text that goes on in any way, perhaps kept to a grammar, and compares its
// drafts with what the model writes. `oracle` is another engine of the same model.
void check_follows(const std::shared_ptr<Drafter>& drafter, engine::Engine& oracle,
                   std::mt19937_64& random, Token vocabulary, std::size_t tokens_max) {
  const auto source = serve::make_draft_source(drafter);
  Tokens text;
  const auto tell = [&](const Tokens& more) {
    source->accepted(more);
    text.insert(text.end(), more.begin(), more.end());
  };
  const auto any = [&] {
    return static_cast<Token>(3 + random() % static_cast<std::uint64_t>(vocabulary - 3));
  };
  const auto known = static_cast<Token>(oracle.tokenizer().vocabulary_size());
  const bool has_choices = random() % 2 == 0;
  const auto choices = [&] { return FakeChoices(text.size(), known); };
  const auto propose = [&](std::size_t most) {
    std::vector<Draft> drafts;
    FakeChoices here = choices();
    source->propose({.most = most, .choices = has_choices ? &here : nullptr}, drafts);
    return drafts;
  };
  Tokens prompt(1 + random() % 20);
  for (Token& token : prompt) token = any();
  tell(prompt);
  while (text.size() + 12 < tokens_max) {
    if (random() % 16 == 0) {  // after a preemption
      source->forget();
      source->accepted(text);
    }
    std::vector<Draft> drafts;
    const std::size_t most = 1 + random() % 6;
    for (int tries = 0; drafts.empty() && tries < 300; ++tries) drafts = propose(most);
    REQUIRE(drafts.size() <= most);
    FakeChoices here = choices();
    const Tokens expected = greedy(oracle, text, most, has_choices ? &here : nullptr);
    for (std::size_t i = 0; i < drafts.size(); ++i) REQUIRE(drafts[i].token == expected[i]);
    const auto ends = [&](Token token) { return oracle.tokenizer().is_end_of_generation(token); };
    if (std::ranges::none_of(expected, ends)) REQUIRE(drafts.size() == most);
    if (random() % 4 == 0) {  // the step is tried again
      REQUIRE(propose(most).size() == drafts.size());
    }
    Tokens more;
    for (std::size_t i = 0; i < random() % (drafts.size() + 1); ++i) {
      more.push_back(drafts[i].token);
    }
    more.push_back(random() % 3 == 0 ? any() : expected[std::min(more.size(), most - 1)]);
    tell(more);
  }
}

std::filesystem::path model_of(const TemporaryFolder& folder, const char* shape,
                               std::uint32_t seed) {
  const auto path = folder.path() / (std::string(shape) + std::to_string(seed) + ".gguf");
  synth::SyntheticModel(synth::shape_by_name(shape), "Q8_0").write(path, seed, {});
  return path;
}

engine::EngineOptions settings_of(std::uint32_t window) {
  engine::EngineOptions settings;
  settings.threads = 1;
  settings.context = 128;
  settings.window = window;
  settings.chunk = 16;
  settings.parallel = 2;
  return settings;
}

// The model, as one that helps another.
std::unique_ptr<engine::Engine> open_helper(const std::filesystem::path& path,
                                            const engine::Engine& helped, std::uint32_t window) {
  engine::EngineOptions settings = settings_of(window);
  settings.is_helper = true;
  settings.helped = &helped;
  return engine::Engine::open(path, settings);
}

}  // namespace

TEST_CASE("a drafter says what its model would write, whatever becomes of its drafts") {
  std::mt19937_64 random(random_seed());
  for (int round = 0; round < (is_sanitized ? 10 : 60); ++round) {
    FakeLimits limits;
    limits.window = random() % 3 == 0 ? 60 : 0;
    limits.columns = 1 + static_cast<std::uint32_t>(random() % 20);
    const auto drafter = std::make_shared<Drafter>(std::make_unique<FakeEngine>(limits), 300);
    FakeEngine oracle;
    check_follows(drafter, oracle, random, 127, 280);
  }
}

TEST_CASE("a drafter follows texts with models of every kind, with windows and without") {
  std::mt19937_64 random(random_seed());
  for (const char* shape : {"tiny-llama", "tiny-gemma3", "tiny-gpt-oss", "tiny-qwen35",
                            "tiny-granitehybrid", "tiny-falcon-h1", "tiny-lfm2"}) {
    for (const std::uint32_t window : {0U, 40U}) {
      INFO(shape << ", window " << window);
      const TemporaryFolder folder;
      const auto path = model_of(folder, shape, 7);
      const auto oracle = engine::Engine::open(path, settings_of(window));
      const auto drafter = std::make_shared<Drafter>(open_helper(path, *oracle, window), 128);
      check_follows(drafter, *oracle, random, 290, 110);
      CHECK(drafter->seconds_each() > 0);
    }
  }
}

TEST_CASE("a text that is too long for the draft model goes on without drafts") {
  const auto drafter = std::make_shared<Drafter>(std::make_unique<FakeEngine>(), 40);
  const auto source = serve::make_draft_source(drafter);
  const Tokens text(39, 'a');
  source->accepted(text);
  std::vector<Draft> drafts;
  while (drafts.empty()) source->propose({.most = 5}, drafts);
  CHECK(drafts.size() == 2);  // one behind the text, one behind its last place
  source->accepted(Tokens(3, 'b'));
  drafts.clear();
  for (int i = 0; i < 5; ++i) source->propose({.most = 5}, drafts);
  CHECK(drafts.empty());
  source->forget();
  source->accepted(Tokens(3, 'b'));
  source->propose({.most = 5}, drafts);
  CHECK(drafts.size() == 5);
}

TEST_CASE("what a model guesses has its own probability, and improbable guesses end the search") {
  const Tokens text = {'a', 'b', 'c'};
  const speculate::Likeliest first = speculate::likeliest_of(fake_logits(text));
  CHECK(first.probability > 0);
  CHECK(first.probability < 1);
  const auto drafter = std::make_shared<Drafter>(std::make_unique<FakeEngine>(), 40);
  const auto source = serve::make_draft_source(drafter);
  source->accepted(text);
  std::vector<Draft> drafts;
  source->propose({.most = 5, .least = 1}, drafts);
  REQUIRE(drafts.size() == 1);
  CHECK(drafts[0].token == first.token);
  CHECK(drafts[0].grade == speculate::grade_of(first.probability));

  FakeEngine engine({.predicts = true});
  serve::Guesser guesser(engine);
  const auto sequence = engine.new_sequence(40);
  const engine::SequenceWork work{sequence.get(), std::span(text).first(2), true};
  engine.step({&work, 1});
  const std::vector<Draft> guesses = guesser.guess(*sequence, text.back(), 5, 1);
  REQUIRE(guesses.size() == 1);
  CHECK(guesses[0].token == first.token);
  CHECK(guesses[0].grade == drafts[0].grade);
  CHECK(guesser.guess(*sequence, text.back(), 5, 0).size() > 1);
}

TEST_CASE("rows that find no sequence of the draft model get no drafts") {
  const auto drafter =
      std::make_shared<Drafter>(std::make_unique<FakeEngine>(FakeLimits{.pages = 4}), 64);
  std::vector<std::unique_ptr<speculate::Source>> sources;
  std::size_t drafting = 0;
  for (int i = 0; i < 5; ++i) {
    sources.push_back(serve::make_draft_source(drafter));
    sources.back()->accepted(Tokens(3, 'a'));
    std::vector<Draft> drafts;
    sources.back()->propose({.most = 4}, drafts);
    drafting += drafts.empty() ? 0 : 1;
  }
  CHECK(drafting == 2);
  sources.clear();
  const auto source = serve::make_draft_source(drafter);
  source->accepted(Tokens(3, 'a'));
  std::vector<Draft> drafts;
  source->propose({.most = 4}, drafts);
  CHECK(drafts.size() == 4);
}

namespace {

// Writes some texts with these drafts, on an engine whose steps fail now and then.
Written write(engine::Engine& engine, const serve::DraftOptions& drafts, std::uint64_t seed,
              float temperature) {
  std::vector<Tokens> prompts;
  for (std::size_t i = 0; i < 3; ++i) prompts.emplace_back(10 + i, static_cast<Token>(40 + 9 * i));
  return write_texts(engine, drafts, prompts, seed, temperature);
}

serve::DraftOptions drafts_of(const std::shared_ptr<Drafter>& drafter, bool is_eager) {
  serve::DraftOptions drafts;
  drafts.row_max = 5;
  drafts.is_eager = is_eager;
  drafts.make_sources = [drafter](const rows::Task&) {
    serve::DraftOptions::Sources sources;
    sources.push_back(serve::make_draft_source(drafter));
    return sources;
  };
  return drafts;
}

}  // namespace

TEST_CASE("texts are the same with a draft model, be it the same model or another one") {
  for (const char* shape : {"tiny-llama", "tiny-gemma3", "tiny-qwen35", "tiny-lfm2"}) {
    for (const std::uint32_t window : {0U, 40U}) {
      INFO(shape << ", window " << window);
      const TemporaryFolder folder;
      const auto path = model_of(folder, shape, 7), other = model_of(folder, shape, 8);
      engine::EngineOptions settings = settings_of(window);
      settings.drafts = 10;
      const auto engine = engine::Engine::open(path, settings);
      REQUIRE(engine->facts().takes_drafts);
      const std::uint32_t free = engine->free_positions();
      for (const float temperature : {0.0F, 0.9F}) {
        const Written expected = write(*engine, {}, 5, temperature);
        for (const auto& draft_model : {path, other}) {
          const auto drafter =
              std::make_shared<Drafter>(open_helper(draft_model, *engine, window), 128);
          const Written eager = write(*engine, drafts_of(drafter, true), 5, temperature);
          CHECK(eager.texts == expected.texts);
          CHECK(write(*engine, drafts_of(drafter, false), 5, temperature).texts == expected.texts);
          const speculate::DraftCounts& counts =
              eager.counts.drafts_by_kind[static_cast<std::size_t>(speculate::Kind::draft)];
          CHECK(counts.drafted == eager.counts.tokens_drafted);
          CHECK(counts.drafted > 0);
          if (draft_model == other) {
            CHECK(counts.accepted < counts.drafted / 2);
          } else if (temperature == 0) {
            CHECK(counts.accepted == counts.drafted);
            CHECK(eager.counts.steps < expected.counts.steps / 2);
          }
        }
      }
      CHECK(engine->free_positions() == free);
    }
  }
}

TEST_CASE("the plan has a draft model, whole, and refuses what does not fit with it") {
  const TemporaryFolder folder;
  const auto path = model_of(folder, "tiny-llama", 7);
  engine::EngineOptions helper = settings_of(0);
  helper.is_helper = true;
  const plan::MemoryPlan own = engine::plan_run(path, helper).plan;
  CHECK(own.fits());
  CHECK(own.tape.streamed_segments == 0);
  const std::vector<plan::Line> lines = plan::helper_lines(own);
  std::uint64_t helper_bytes = 0;
  for (const plan::Line& line : lines) {
    CHECK(line.name.starts_with("draft model, "));
    CHECK(line.bytes > 0);
    helper_bytes += line.bytes;
  }

  engine::EngineOptions settings = settings_of(0);
  settings.drafts = 5;
  settings.budget_bytes = std::uint64_t{1} << 30;
  const plan::MemoryPlan alone = engine::plan_run(path, settings).plan;
  settings.helper = lines;
  const plan::MemoryPlan both = engine::plan_run(path, settings).plan;
  CHECK(both.bytes_of("draft model, weights") == lines.front().bytes);
  CHECK(both.helper_bytes == helper_bytes);
  CHECK(both.total_bytes() >= alone.total_bytes() + helper_bytes);
  CHECK(both.least_budget_bytes >= alone.least_budget_bytes + helper_bytes);

  if (is_sanitized) return;  // whose own memory would be another in each plan
  // With the least budget it fits, and has room for drafts; with less it is refused by name.
  settings.budget_bytes = both.least_budget_bytes;
  const plan::MemoryPlan least = engine::plan_run(path, settings).plan;
  CHECK(least.fits());
  CHECK(least.logits_columns == both.logits_columns);
  settings.budget_bytes = both.least_budget_bytes - (std::uint64_t{3} << 20);
  const plan::MemoryPlan refused = engine::plan_run(path, settings).plan;
  REQUIRE_FALSE(refused.fits());
  const std::string message = plan::budget_error(refused).what();
  INFO(message);
  CHECK(message.find("draft model") != std::string::npos);
  CHECK(message.find("MiB are missing") != std::string::npos);
}

}  // namespace sluice::test
