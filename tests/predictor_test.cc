// The block that predicts further tokens: against llama.cpp's probabilities of it; and that it
// changes nothing but the time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/serve/guesser.h"
#include "core/serve/scheduler.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/golden_support.h"
#include "tests/model_file.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "tests/written_texts.h"

namespace sluice::test {
namespace {

using tokenizer::Token;

constexpr std::size_t guesses = 3;  // that the goldens have behind the text

std::unique_ptr<engine::Engine> open_predicting(const std::filesystem::path& model) {
  engine::EngineOptions settings;
  settings.threads = 2;
  settings.context = 64;
  settings.kv = kvcache::ElementType::f16;
  settings.predicts = true;
  return engine::Engine::open(model, settings);
}

Token likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

// The block's logits behind each token of the text, as each was not evaluated yet, and then those
// of some guesses behind it.
std::vector<float> predictions(const std::filesystem::path& model) {
  const auto engine = open_predicting(model);
  const auto sequence = engine->new_sequence(64);
  std::vector<float> out;
  const auto record = [&](std::span<const float> logits) -> std::optional<Token> {
    out.insert(out.end(), logits.begin(), logits.end());
    return likeliest(logits);
  };
  Token next = 0;
  for (const Token token : golden_tokens) {
    engine->predict(*sequence, token, 1, record);
    const engine::SequenceWork work{sequence.get(), {&token, 1}, true};
    next = likeliest(engine->step({&work, 1}).front());
  }
  engine->predict(*sequence, next, guesses, record);
  return out;
}

struct Case {
  std::filesystem::path golden, model;
};

// Nothing when the reference model cannot be made.
std::optional<Case> make_case(const TemporaryFolder& folder, const std::string& model,
                              const std::string& kind) {
  const std::string name = "tiny-" + model + "-" + kind;
  const auto golden = fixture("goldens/" + name + ".mtp.f32");
  if (!golden || !make_tiny(folder.path(), model, kind)) return std::nullopt;
  return Case{*golden, folder / (name + ".gguf")};
}

}  // namespace

TEST_CASE("the predicting block of F32 models has llama.cpp's probabilities, guesses included") {
  for (const std::string model :
       {"qwen35-mtp", "qwen35moe-mtp", "glm4moe-mtp", "bailingmoe3-mtp"}) {
    const TemporaryFolder folder;
    const auto made = make_case(folder, model, "f32");
    if (!made) SLUICE_SKIP("the reference model of " + model + " is absent");
    INFO(model);
    const std::vector<float> logits = predictions(made->model);
    REQUIRE(logits.size() == (golden_tokens.size() + guesses) * vocabulary);
    const auto kl = divergence(read_floats(made->golden), probabilities(logits, true));
    CHECK(*std::ranges::max_element(kl) < 1e-4);
  }
}

// As with the models themselves (golden_test.cc), the formats are taken together, and of mixtures
// the medians. Guesses are left out: they may be others.
TEST_CASE("the predicting block of quantised models is as close to exact as llama.cpp's is") {
  for (const std::string model : {"qwen35-mtp", "qwen35moe-mtp", "glm4moe-mtp"}) {
    double ours = 0, theirs = 0;
    for (const std::string kind : {"q8_0", "q4_k", "q6_k"}) {
      const TemporaryFolder folder;
      const auto twin = fixture("goldens/tiny-" + model + "-" + kind + "-twin.mtp.f32");
      const auto made = make_case(folder, model, kind);
      if (!twin || !made) SLUICE_SKIP("the reference model of " + model + " is absent");
      std::vector<float> logits = predictions(made->model), golden = read_floats(made->golden);
      logits.resize(golden_tokens.size() * vocabulary);
      golden.resize(golden_tokens.size() * vocabulary);
      const std::vector<float> exact = read_floats(*twin);
      ours += median(divergence(exact, probabilities(logits, true)));
      theirs += median(divergence(exact, probabilities(golden, false)));
    }
    INFO(model << ": " << ours << " beside " << theirs);
    CHECK(ours < 1.3 * theirs);
  }
}

namespace {

using Tokens = std::vector<Token>;
using Floats = std::vector<float>;

constexpr Token known_tokens = 290;  // that all of these models have

// A model of odd sizes with such a block.
std::filesystem::path predicting_model(const TemporaryFolder& folder, const char* shape,
                                       std::uint64_t seed) {
  synth::Shape odd = synth::odd_shape(synth::shape_by_name(shape), seed);
  odd.predictors = 1;
  const auto path = folder / "model.gguf";
  synth::SyntheticModel(odd, "Q4_K_M").write(path, seed, {});
  return path;
}

engine::EngineOptions settings_of(std::uint32_t window) {
  engine::EngineOptions settings;
  settings.threads = 1;
  settings.context = 128;
  settings.window = window;
  settings.chunk = 16;
  settings.parallel = 2;
  settings.drafts = 7;
  settings.predicts = true;
  return settings;
}

// The logits of some guesses, each chosen at random.
std::vector<Floats> guesses_of(engine::Engine& engine, engine::Sequence& sequence, Token next,
                               std::size_t most, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Floats> out;
  engine.predict(sequence, next, most, [&](std::span<const float> logits) -> std::optional<Token> {
    out.emplace_back(logits.begin(), logits.end());
    return static_cast<Token>(random() % known_tokens);
  });
  return out;
}

struct Expected {
  std::vector<Floats> logits;                // behind each token of a text
  std::vector<std::vector<Floats>> guesses;  // behind each token, before it is evaluated
};

// The text token by token. Its guesses are made by a second sequence, so that nothing that guessing
// did wrong can be in the logits.
Expected expected_of(engine::Engine& engine, const Tokens& tokens) {
  Expected expected;
  const auto room = static_cast<std::uint32_t>(tokens.size() + 3);
  const auto first = engine.new_sequence(room), second = engine.new_sequence(room);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    expected.guesses.push_back(guesses_of(engine, *second, tokens[i], 3, i));
    for (engine::Sequence* sequence : {second.get(), first.get()}) {
      const engine::SequenceWork work{sequence, {&tokens[i], 1}, true};
      const std::span<const float> logits = engine.step({&work, 1}).front();
      if (sequence == first.get()) expected.logits.emplace_back(logits.begin(), logits.end());
    }
  }
  return expected;
}

// Cuts the text into steps in any way, with drafts that are right or wrong and guesses in between.
void check_guesses(engine::Engine& engine, const Tokens& tokens, const Expected& expected,
                   std::mt19937_64& random) {
  const auto sequence = engine.new_sequence(static_cast<std::uint32_t>(tokens.size() + 3));
  while (sequence->position() < tokens.size()) {
    const std::size_t at = sequence->position(), left = tokens.size() - at;
    if (random() % 2 == 0) {
      REQUIRE(guesses_of(engine, *sequence, tokens[at], 3, at) == expected.guesses[at]);
    }
    const std::size_t drafts = random() % std::min<std::size_t>(left, 8);
    const std::size_t certain = drafts != 0 ? 1 : 1 + random() % std::min<std::size_t>(left, 12);
    const std::size_t right = random() % (drafts + 1);
    Tokens columns(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                   tokens.begin() + static_cast<std::ptrdiff_t>(at + certain + drafts));
    for (std::size_t i = right; i < drafts; ++i) {
      columns[certain + i] = static_cast<Token>(random() % known_tokens);
    }
    const engine::SequenceWork work{sequence.get(), columns, true, {}, drafts};
    const std::span<const float> logits = engine.step({&work, 1}).front();
    const std::size_t size = expected.logits[0].size();
    for (std::size_t i = 0; i <= right; ++i) {
      const std::span<const float> of = logits.subspan(i * size, size);
      REQUIRE(std::ranges::equal(of, expected.logits[at + certain - 1 + i]));
    }
    if (drafts != 0 && random() % 8 != 0) sequence->accept(random() % (right + 1));
  }
}

}  // namespace

TEST_CASE("guesses follow from the text alone, and leave nothing behind") {
  const std::uint64_t seed = random_seed();
  std::mt19937_64 random(seed);
  for (const char* shape : {"tiny-qwen35", "tiny-qwen35moe", "tiny-glm4moe"}) {
    for (const std::uint32_t window : {0U, 40U}) {
      INFO(shape << ", window " << window);
      const TemporaryFolder folder;
      const auto engine = engine::Engine::open(predicting_model(folder, shape, random() % 1000),
                                               settings_of(window));
      REQUIRE(engine->facts().predicts);
      REQUIRE(engine->facts().takes_drafts);
      for (const std::string& note : engine->facts().notes) {
        CHECK(note.find("token-predicting") == std::string::npos);
      }
      Tokens tokens(70);
      for (Token& token : tokens) token = static_cast<Token>(random() % known_tokens);
      const std::uint32_t free = engine->free_positions();
      const Expected expected = expected_of(*engine, tokens);
      for (int round = 0; round < 3; ++round) check_guesses(*engine, tokens, expected, random);
      CHECK(engine->free_positions() == free);
    }
  }
}

namespace {

Written write(engine::Engine& engine, const serve::DraftOptions& drafts, float temperature) {
  std::vector<Tokens> prompts(3, Tokens(40, static_cast<Token>(40)));  // which all of them share
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].push_back(static_cast<Token>(50 + i));
  return write_texts(engine, drafts, prompts, 0, temperature);
}

}  // namespace

TEST_CASE("texts are the same with a model's own guesses, all in memory or streamed") {
  for (const char* shape : {"tiny-qwen35", "tiny-qwen35moe", "tiny-glm4moe"}) {
    const TemporaryFolder folder;
    const auto model = predicting_model(folder, shape, 3);
    engine::EngineOptions without = settings_of(0);
    without.predicts = false;
    const auto plain = engine::Engine::open(model, without);
    engine::EngineOptions settings = settings_of(0);
    for (const bool is_streamed : {false, true}) {
      settings.budget_bytes = std::uint64_t{1} << 30;
      if (is_streamed) {
        if (is_sanitized) continue;  // the sanitizer's own memory leaves too little of the budget
        // Planned anew: a plan counts what the program holds, and that grows from engine to engine.
        const plan::MemoryPlan whole = engine::plan_run(model, settings).plan;
        settings.budget_bytes = whole.total_bytes() - whole.tape.pinned_bytes / 2;
      }
      const auto engine = engine::Engine::open(model, settings);
      INFO(shape << (is_streamed ? ", streamed" : ""));
      REQUIRE(engine->facts().takes_drafts);
      if (!is_sanitized) CHECK((engine->facts().work.streamed_bytes != 0) == is_streamed);
      for (const float temperature : {0.0F, 0.9F}) {
        const Written expected = write(*plain, {}, temperature);
        serve::DraftOptions drafts;
        drafts.row_max = 4;
        drafts.make_sources = [](const rows::Task&) { return serve::DraftOptions::Sources(); };
        drafts.uses_predictor = true;
        CHECK(write(*plain, drafts, temperature).counts.tokens_drafted == 0);
        CHECK(write(*engine, drafts, temperature).texts == expected.texts);
        drafts.is_eager = true;
        const Written eager = write(*engine, drafts, temperature);
        CHECK(eager.texts == expected.texts);
        const speculate::DraftCounts& counts =
            eager.counts.drafts_by_kind[static_cast<std::size_t>(speculate::Kind::mtp)];
        CHECK(counts.drafted > 0);
        CHECK(counts.drafted == eager.counts.tokens_drafted);
      }
    }
  }
}

TEST_CASE("the plan has the predicting block, and models without one refuse it") {
  const TemporaryFolder folder;
  const auto model = predicting_model(folder, "tiny-glm4moe", 5);
  engine::EngineOptions settings = settings_of(0);
  settings.budget_bytes = std::uint64_t{1} << 30;
  const plan::MemoryPlan with = engine::plan_run(model, settings).plan;
  settings.predicts = false;
  const plan::MemoryPlan without = engine::plan_run(model, settings).plan;
  CHECK(with.bytes_of("keys and values") > without.bytes_of("keys and values"));
  CHECK(with.bytes_of("states of guesses") > 0);
  CHECK(without.bytes_of("states of guesses") == 0);
  CHECK(with.tape.pinned_bytes > without.tape.pinned_bytes);

  settings.predicts = true;
  CHECK_THROWS_AS(engine::plan_run(model_file(), settings), UsageError);
  // An architecture that has no such block here.
  const auto other = predicting_model(folder, "tiny-glm4", 5);
  CHECK_THROWS_AS(engine::plan_run(other, settings), UsageError);
}

}  // namespace sluice::test
