// Texts that grow beyond the context that a model was first trained for, on phi3 with two sets of
// factors (LongRoPE): what a token gives depends on the tokens before it and on nothing else.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/rows/task_maker.h"
#include "core/serve/scheduler.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/model_content.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/sequence_text.h"
#include "tests/small_shapes.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using engine::Engine;
using engine::EngineOptions;
using Tokens = std::vector<tokenizer::Token>;
using Logits = std::vector<float>;

constexpr std::uint32_t limit = 8;  // tokens of a short text
constexpr std::uint32_t length = 21;

Tokens some_tokens(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens(count);
  for (auto& token : tokens) token = static_cast<tokenizer::Token>(3 + random() % 290);
  return tokens;
}

EngineOptions options_for(std::uint32_t context, std::uint32_t chunk = 5) {
  EngineOptions options;
  options.context = context;
  options.threads = 1;
  options.chunk = chunk;
  options.logits_columns = chunk;
  return options;
}

Logits copied(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

// A model, and the same with one set of factors for all texts.
class Files {
 public:
  Files() {
    synth::SyntheticModel(small_shape("tiny-phi3"), "F32").write(two_sets(), 3, {});
    for (const bool is_long : {false, true}) {
      Content content(two_sets());
      const std::string kept = is_long ? "long" : "short", other = is_long ? "short" : "long";
      const auto from = content.values("rope_factors_" + kept + ".weight");
      const auto to = content.values("rope_factors_" + other + ".weight");
      std::copy(from.begin(), from.end(), to.begin());
      content.write(one_set(is_long));
    }
  }

  fs::path two_sets() const { return folder_.path() / "two.gguf"; }
  fs::path one_set(bool is_long) const {
    return folder_.path() / (is_long ? "long.gguf" : "short.gguf");
  }
  fs::path cache() const { return folder_.path() / "cache"; }

  // The logits after each beginning of the tokens, by models that know one set of factors.
  std::vector<Logits> expected(const Tokens& tokens) const {
    std::vector<Logits> out;
    for (const bool is_long : {false, true}) {
      const auto engine = Engine::open(one_set(is_long), options_for(64));
      engine->session().evaluate_all(tokens, [&](std::size_t i, std::span<const float> logits) {
        if ((i >= limit) == is_long) out.push_back(copied(logits));
      });
    }
    return out;
  }

 private:
  TemporaryFolder folder_;
};

// What a row of a batch wrote.
using Texts = std::map<std::uint64_t, std::vector<tokenizer::Token>>;

Texts run_rows(Engine& engine, const serve::SchedulerOptions& options,
               const std::vector<rows::Task>& tasks, serve::SchedulerCounts* counts = nullptr) {
  Texts out;
  std::size_t next = 0;
  serve::Scheduler scheduler(
      engine, options,
      [&](rows::Priority) {
        return next < tasks.size() ? std::optional(tasks[next++]) : std::nullopt;
      },
      [&](const rows::Task& task, const rows::Outcome& outcome) {
        if (outcome.end != rows::Outcome::End::completed) out[task.id] = {-1};
      },
      [&](const rows::Task& task, const rows::TokenEvent& event) {
        if (event.token) out[task.id].push_back(*event.token);
      });
  while (scheduler.step()) {
  }
  if (counts != nullptr) *counts = scheduler.counts();
  return out;
}

}  // namespace

TEST_CASE("a short text has the short factors and a longer one the long ones, in any context") {
  const Files files;
  const Tokens tokens = some_tokens(length, 1);
  const std::vector<Logits> expected = files.expected(tokens);
  REQUIRE(expected.size() == length);
  for (const std::uint32_t context : {length, 40u, 2000u}) {
    for (const std::uint32_t chunk : {1u, 3u, 7u, 32u}) {
      INFO("context " << context << ", chunk " << chunk);
      const auto engine = Engine::open(files.two_sets(), options_for(context, chunk));
      engine->session().evaluate_all(tokens, [&](std::size_t i, std::span<const float> logits) {
        CHECK(are_same_bits(copied(logits), expected[i]));
      });
      for (std::uint32_t n = 1; n <= length; ++n) {
        engine->session().clear();
        CHECK(are_same_bits(copied(engine->session().evaluate(std::span(tokens).first(n))),
                            expected[n - 1]));
      }
    }
  }
}

TEST_CASE("logits are those of a text however it was written, cut back, forked and kept on disk") {
  const Files files;
  const Tokens tokens = some_tokens(length, 2);
  const std::vector<Logits> expected = files.expected(tokens);
  std::mt19937_64 random(random_seed());
  EngineOptions options = options_for(40);
  options.parallel = 4;
  const auto engine = Engine::open(files.two_sets(), options);
  std::vector<std::unique_ptr<engine::Sequence>> sequences;
  sequences.push_back(engine->new_sequence(length));
  for (int round = 0; round < (is_sanitized ? 100 : 600); ++round) {
    const std::size_t at = random() % sequences.size();
    engine::Sequence& sequence = *sequences[at];
    const std::uint32_t position = sequence.position();
    switch (random() % 5) {
      case 0:
        sequence.truncate(static_cast<std::uint32_t>(random() % (position + 1)));
        break;
      case 1:
        if (sequences.size() == 4) sequences.erase(sequences.begin() + static_cast<int>(at));
        sequences.push_back(engine->fork(
            *sequences.front(),
            static_cast<std::uint32_t>(random() % (sequences.front()->position() + 1)), length));
        REQUIRE(sequences.back() != nullptr);
        break;
      default:
        if (position == 0) sequence.expect(static_cast<std::uint32_t>(random() % length));
        if (position == length) break;
        const auto count = std::min<std::size_t>(1 + random() % 5, length - position);
        const engine::SequenceWork work{&sequence, std::span(tokens).subspan(position, count),
                                        random() % 2 == 0};
        const auto logits = engine->step({&work, 1});
        if (!work.wants_logits) break;
        CHECK(are_same_bits(copied(logits[0]), expected[position + count - 1]));
    }
  }
}

TEST_CASE("a prompt that is told to be long is evaluated once, with the same bits") {
  const Files files;
  const Tokens tokens = some_tokens(length, 3);
  const std::vector<Logits> expected = files.expected(tokens);
  std::size_t products = 0;
  EngineOptions options = options_for(40);
  options.watch = [&](const model::MatrixInput&) { ++products; };
  const auto engine = Engine::open(files.two_sets(), options);
  const auto evaluate = [&](bool tells) {
    SequenceText text(*engine, tells ? length : 0);
    products = 0;
    Logits last;
    for (std::size_t done = 0; done < length; done += 3) {
      const bool is_last = done + 3 == length;
      last = text.append(std::span(tokens).subspan(done, 3), is_last || !tells);
    }
    CHECK(are_same_bits(last, expected.back()));
    return products;
  };
  const std::size_t twice = evaluate(false);
  CHECK(evaluate(true) < twice);
}

TEST_CASE("a prompt cache keeps short and long texts apart") {
  const Files files;
  const Tokens tokens = some_tokens(80, 4);
  EngineOptions options = options_for(100, 32);
  const std::uint32_t original = 50;
  Content content(files.two_sets());
  content.set("phi3.rope.scaling.original_context_length", original);
  const TemporaryFolder folder;
  const fs::path model = folder.path() / "model.gguf";
  content.write(model);
  std::map<std::size_t, Logits> computed;
  for (const std::size_t n : {40, 80}) {
    const auto engine = Engine::open(model, options);
    computed[n] = copied(engine->session().evaluate(std::span(tokens).first(n)));
  }
  options.prompt_cache.folder = files.cache();
  for (const std::size_t n : {40, 80, 40, 80}) {
    const auto engine = Engine::open(model, options);
    SequenceText text(*engine, n);
    const auto part = std::span(tokens).first(n);
    const std::uint32_t restored = text.restore(part.first(n - 1));
    CHECK(are_same_bits(text.append(part.subspan(restored)), computed[n]));
    text.save(part);
  }
}

TEST_CASE("a row writes the same alone and beside short and long ones, in little room") {
  const Files files;
  std::mt19937_64 random(random_seed());
  EngineOptions roomy = options_for(64, 16);
  const auto single = Engine::open(files.two_sets(), roomy);
  rows::TaskOptions task_options;
  task_options.positions_max = 64;
  const rows::TaskMaker maker(single->tokenizer(), task_options);
  serve::SchedulerCounts all;
  for (int round = 0; round < (is_sanitized ? 2 : 8); ++round) {
    std::vector<rows::Task> tasks;
    const Tokens common = some_tokens(4, random());
    for (std::uint64_t id = 1; id <= 9; ++id) {
      Tokens prompt = random() % 2 == 0 ? common : Tokens{};
      const Tokens own = some_tokens(1 + random() % 14, random());
      prompt.insert(prompt.end(), own.begin(), own.end());
      const std::string body =
          fmt::format(R"({{"prompt":[{}],"max_tokens":{},"seed":{},"ignore_eos":true}})",
                      fmt::join(prompt, ","), 1 + random() % 12, id);
      auto made = maker.make(
          rows::parse_body(body, rows::Form::completions, id, maker.options().defaults), id);
      tasks.push_back(std::get<rows::Task>(std::move(made)));
      tasks.back().id = id;
    }
    EngineOptions tight = options_for(64, 7);
    tight.parallel = 3;
    tight.logits_columns = 3;
    const auto engine = Engine::open(files.two_sets(), tight);
    serve::SchedulerCounts counts;
    const Texts together =
        run_rows(*engine, {.parallel = 3, .shared_tokens_min = 2}, tasks, &counts);
    all.prefix_hits += counts.prefix_hits;
    all.tokens_evaluated_again += counts.tokens_evaluated_again;
    for (const rows::Task& task : tasks) {
      const Texts alone = run_rows(*single, {.kept_max = 0}, {task});
      INFO("row " << task.id << " of " << task.prompt.size() << " tokens");
      CHECK(alone.at(task.id).size() == task.tokens_max);
      CHECK(together.at(task.id) == alone.at(task.id));
    }
  }
  CHECK(all.prefix_hits > 0);
  CHECK(all.tokens_evaluated_again > 0);
}

}  // namespace sluice::test
