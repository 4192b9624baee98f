// Sequences of an engine: logits depend on the tokens before them and on nothing else, whatever
// shares a step or a page; windows slide without end; what does not fit is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/model_file.h"

namespace sluice::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::Sequence;
using engine::SequenceWork;
using kvcache::ElementType;
using tokenizer::Token;
using Tokens = std::vector<Token>;
using Logits = std::vector<float>;
namespace fs = std::filesystem;

constexpr std::uint32_t no_limit = 0xffffffff;

EngineOptions options_for(std::uint32_t context, std::uint32_t parallel) {
  EngineOptions options;
  options.context = context;
  options.parallel = parallel;
  options.threads = 1;
  options.chunk = 24;
  return options;
}

Tokens random_tokens(std::size_t count, std::mt19937_64& rng) {
  Tokens tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(rng() % 500);
  return tokens;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool are_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); });
}

// The logits after the last of the tokens, evaluated from the start in an engine of their own.
Logits alone(Engine& engine, const Tokens& tokens) {
  engine.session().clear();
  const std::span<const float> logits = engine.session().evaluate(tokens);
  return {logits.begin(), logits.end()};
}

struct Tracked {
  std::unique_ptr<Sequence> sequence;
  Tokens tokens;
};

TEST_CASE("what shares a step or a prefix does not change a bit") {
  for (const std::uint32_t window : {0u, 20u}) {
    EngineOptions options = options_for(window == 0 ? 96 : 0, 4);
    options.window = window;
    const auto engine = Engine::open(model_file(), options);
    options.parallel = 1;
    const auto lone = Engine::open(model_file(), options);
    std::mt19937_64 rng(81);
    std::vector<Tracked> all(4);
    for (Tracked& t : all) {
      t.sequence = engine->new_sequence(96);
      REQUIRE(t.sequence);
      CHECK(t.sequence->capacity() == (window == 0 ? 96 : no_limit));
    }
    CHECK_FALSE(engine->new_sequence(96));
    for (int turn = 0; turn < 12; ++turn) {
      if (turn == 4) {  // one ends, and another goes on from two thirds of its neighbour
        const Tokens& source = all[0].tokens;
        const auto prefix = static_cast<std::uint32_t>(source.size());
        all[1].sequence.reset();
        all[1].sequence = engine->fork(*all[0].sequence, prefix, 96);
        REQUIRE(all[1].sequence);
        CHECK(all[1].sequence->position() == prefix);
        all[1].tokens = source;
      }
      std::vector<Tokens> parts;
      std::vector<SequenceWork> works;
      std::shuffle(all.begin() + 2, all.end(), rng);
      for (Tracked& t : all) {
        const std::size_t room = std::min<std::size_t>(6, 96 - t.tokens.size());
        parts.push_back(random_tokens(1 + rng() % room, rng));
        t.tokens.insert(t.tokens.end(), parts.back().begin(), parts.back().end());
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        works.push_back({all[i].sequence.get(), parts[i], rng() % 3 != 0});
      }
      const auto results = engine->step(works);
      REQUIRE(results.size() == works.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        INFO("window " << window << ", turn " << turn << ", sequence " << i);
        CHECK(all[i].sequence->position() == all[i].tokens.size());
        if (!works[i].wants_logits) {
          CHECK(results[i].empty());
        } else {
          CHECK(same_bits(results[i], alone(*lone, all[i].tokens)));
        }
      }
    }
  }
}

// Without an output norm too (qwen4exp): the head takes its columns to the front of the states.
TEST_CASE("a state is told as it is, whoever wants logits in the same step") {
  for (const char* const shape : {"tiny-qwen4exp", "tiny-qwen3"}) {
    const auto engine = Engine::open(model_file(shape, "Q8_0"), options_for(64, 2));
    const auto states = [&](bool is_in_company) {
      const auto told = engine->new_sequence(16), other = engine->new_sequence(16);
      const Tokens tokens = {3, 1, 4}, others = {2, 7, 1, 8};
      std::vector<float> all;
      const auto take = [&](std::size_t, std::span<const float> state) {
        all.insert(all.end(), state.begin(), state.end());
      };
      std::vector<SequenceWork> works = {{told.get(), tokens, false, take}};
      if (is_in_company) works.push_back({other.get(), others, true});
      engine->step(works);
      return all;
    };
    INFO(shape);
    const std::vector<float> alone = states(false);
    CHECK(alone.size() == 3 * engine->facts().embedding);
    CHECK(same_bits(states(true), alone));
  }
}

TEST_CASE("a sequence goes back and on as if nothing had been") {
  const auto engine = Engine::open(model_file(), options_for(64, 1));
  const auto lone = Engine::open(model_file(), options_for(64, 1));
  const auto sequence = engine->new_sequence(64);
  std::mt19937_64 rng(82);
  Tokens tokens;
  for (const std::uint32_t back_to : {20u, 33u, 32u, 0u, 5u}) {
    while (tokens.size() < 45) {
      const Tokens more = random_tokens(9, rng);
      tokens.insert(tokens.end(), more.begin(), more.end());
      const SequenceWork work{sequence.get(), more, true};
      CHECK(same_bits(engine->step({&work, 1})[0], alone(*lone, tokens)));
    }
    sequence->truncate(back_to);
    tokens.resize(back_to);
    CHECK(sequence->position() == back_to);
  }
}

TEST_CASE("room is set aside and comes back") {
  const auto engine = Engine::open(model_file(), options_for(64, 3));
  CHECK(engine->free_positions() == 64);
  CHECK_FALSE(engine->new_sequence(65));  // longer than a sequence may be
  auto a = engine->new_sequence(64), b = engine->new_sequence(32);
  CHECK(engine->free_positions() == 64);
  auto c = engine->new_sequence(64);
  CHECK(engine->free_positions() == 32);
  CHECK_THROWS_AS(engine->session(), UsageError);
  CHECK_FALSE(engine->new_sequence(33));
  a.reset();
  CHECK(engine->session().capacity() == 64);
  CHECK(engine->free_positions() == 32);
  CHECK(engine->new_sequence(32));
  CHECK(engine->free_positions() == 32);
}

TEST_CASE("a step that cannot be done is refused and changes nothing") {
  const auto engine = Engine::open(model_file(), options_for(64, 2));
  CHECK(engine->step_columns() == 24);
  CHECK(engine->step_logits() == 2);
  const auto a = engine->new_sequence(30), b = engine->new_sequence(64);
  std::mt19937_64 rng(83);
  const Tokens many = random_tokens(25, rng), some = random_tokens(12, rng), none;
  const Tokens unknown = {1, 4096};
  const auto refused = [&](const std::vector<SequenceWork>& works) {
    CHECK_THROWS_AS(engine->step(works), UsageError);
    CHECK(a->position() == 0);
    CHECK(b->position() == 0);
  };
  refused({{a.get(), many, true}});
  refused({{a.get(), some, true}, {b.get(), random_tokens(13, rng), true}});
  refused({{a.get(), some, true}, {a.get(), some, true}});
  refused({{a.get(), some, true}, {b.get(), none, true}});
  refused({{a.get(), some, true}, {b.get(), unknown, true}});
  CHECK(engine->step({}).empty());
  CHECK_THROWS_AS(engine->fork(*a, 1, 10), UsageError);
  for (int i = 0; i < 2; ++i) {
    const SequenceWork work{a.get(), some, false};
    engine->step({&work, 1});
  }
  const SequenceWork work{a.get(), some, false};
  CHECK_THROWS_AS(engine->step({&work, 1}), UsageError);
  CHECK_THROWS_AS(engine->fork(*a, 20, 10), UsageError);
  CHECK(a->position() == 24);
}

std::vector<Logits> all_logits(Engine& engine, const Tokens& tokens) {
  std::vector<Logits> out;
  engine.session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    out.emplace_back(logits.begin(), logits.end());
  });
  return out;
}

TEST_CASE("as long as nothing has slid out, a window changes no bit") {
  const auto model = fixture("models/stories260K.gguf");
  if (!model) SLUICE_SKIP("models/stories260K.gguf is absent");
  std::mt19937_64 rng(84);
  const Tokens tokens = random_tokens(300, rng);
  for (const ElementType kv : {ElementType::int8, ElementType::f32}) {
    EngineOptions options = options_for(300, 1);
    options.kv = kv;
    const auto whole = all_logits(*Engine::open(*model, options), tokens);
    options.context = 0;
    options.window = 256;
    const auto slid = all_logits(*Engine::open(*model, options), tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      INFO("token " << i);
      CHECK(same_bits(whole[i], slid[i]) == (i < 256));
    }
    options.sinks = 0;
    const auto without = all_logits(*Engine::open(*model, options), tokens);
    CHECK(same_bits(without[255], slid[255]));
    CHECK_FALSE(same_bits(without[256], slid[256]));
  }
}

TEST_CASE("a text goes on past the window for ever, in the memory that was planned") {
  const auto model = fixture("models/stories260K.gguf");
  if (!model) SLUICE_SKIP("models/stories260K.gguf is absent");
  EngineOptions options = options_for(0, 1);
  options.window = 256;
  const auto engine = Engine::open(*model, options);
  options.chunk = 1;
  const auto by_ones = Engine::open(*model, options);
  std::mt19937_64 rng(85);
  CHECK(engine->session().capacity() == no_limit);
  // Far beyond the 2048 positions of the model; also cut into steps in another way.
  while (engine->session().position() < 4000) {
    const Tokens tokens = random_tokens(1 + rng() % 60, rng);
    const std::span<const float> logits = engine->session().evaluate(tokens);
    REQUIRE(are_finite(logits.first(512)));
    CHECK(same_bits(logits, by_ones->session().evaluate(tokens)));
  }
}

TEST_CASE("a window costs memory for its own length only") {
  EngineOptions options = options_for(0, 1);
  options.window = 64;
  const auto bytes_of = [](const plan::MemoryPlan& plan) {
    std::uint64_t bytes = 0;
    for (const plan::Line& line : plan.lines) {
      if (line.name == "keys and values") bytes += line.bytes;
    }
    return bytes;
  };
  const std::uint64_t windowed = bytes_of(engine::plan_run(model_file(), options).plan);
  options.window = 0;
  options.context = 160;
  CHECK(windowed > 0);
  CHECK(windowed <= bytes_of(engine::plan_run(model_file(), options).plan));
  // --ctx bounds a window.
  options.window = 4096;
  options.context = 64;
  CHECK(bytes_of(engine::plan_run(model_file(), options).plan) == windowed);
  options.sinks = 64;
  CHECK_THROWS_AS(engine::plan_run(model_file(), options), UsageError);
}

TEST_CASE("the context that nobody asked for is what the budget allows") {
  EngineOptions options;
  options.threads = 1;
  options.budget_bytes = std::uint64_t{1} << 30;
  const plan::MemoryPlan ample = engine::plan_run(model_file(), options).plan;
  const auto header = gguf::Model::open(model_file(), {.header_only = true});
  CHECK(ample.context == *header.metadata().find_u32("llama.context_length"));
  CHECK(ample.fits());
  for (std::uint64_t spare = 0; spare <= 8; ++spare) {
    // What this process holds grows from one plan to the next, under a sanitizer by much.
    options.budget_bytes = std::uint64_t{1} << 30;
    const std::uint64_t least = engine::plan_run(model_file(), options).plan.least_budget_bytes;
    options.budget_bytes = least + ((spare + 8) << 20);
    const plan::MemoryPlan plan = engine::plan_run(model_file(), options).plan;
    INFO("spare " << spare << " MiB");
    CHECK(plan.fits());
    CHECK(plan.context >= 256);
    CHECK(plan.context <= ample.context);
  }
}

}  // namespace
}  // namespace sluice::test
