// Drafts change no byte: whatever is guessed, by whomever, a text and its log probabilities are
// those that it has without, and nothing is left of a draft that was wrong.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/families.h"
#include "core/rows/answer_body.h"
#include "core/rows/request.h"
#include "core/serve/scheduler.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/drafted_rows.h"
#include "tests/fake_drafts.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/serve_support.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using rows::Outcome;
using rows::Task;
using serve::Scheduler;
using serve::SchedulerCounts;
using serve::SchedulerOptions;
using Tokens = std::vector<Token>;

serve::DraftOptions::Sources alone(std::unique_ptr<speculate::Source> source) {
  serve::DraftOptions::Sources sources;
  sources.push_back(std::move(source));
  return sources;
}

// Options that draft with sources of all kinds, which know what was given without drafts.
SchedulerOptions drafting(const std::vector<Task>& tasks, const std::vector<Given>& given,
                          Token vocabulary, std::uint64_t seed) {
  SchedulerOptions options;
  options.drafts.row_max = static_cast<std::uint32_t>(1 + seed % 9);
  options.drafts.is_eager = seed % 4 != 0;
  const auto shared = std::make_shared<speculate::SharedTexts>();
  options.drafts.make_sources = [&, shared, seed, vocabulary](const Task& task) {
    Tokens text = tasks[task.id - 1].prompt;
    const Tokens& written = given[task.id - 1].tokens;
    text.insert(text.end(), written.begin(), written.end());
    return alone(any_source(std::move(text), seed + task.id, vocabulary, shared));
  };
  return options;
}

// Parts of it can be written in one way only, and others not.
constexpr const char* half_fixed =
    R"("root ::= ((\"yes\" | \"no\") \" is the answer to it; \" [a-z]{1,3} \". \")*")";

// A row with some of the settings that choose tokens.
Task any_task(const Maker& maker, std::mt19937_64& random) {
  std::string body = R"({"prompt":")" + std::string(random() % 100, 'q') +
                     std::string(random() % 20, static_cast<char>('a' + random() % 3)) + '"';
  const auto add = [&](const std::string& setting) { body += "," + setting; };
  add("\"max_tokens\":" + std::to_string(random() % 120));
  add("\"seed\":" + std::to_string(random() % 1000));
  add("\"temperature\":" + std::to_string(static_cast<double>(random() % 3) / 2));
  if (random() % 3 == 0) add(R"("stop":["e","xy"])");
  if (random() % 3 == 0) add(R"("repeat_penalty":1.3)");
  if (random() % 3 == 0) add(R"("presence_penalty":0.7,"frequency_penalty":0.5)");
  if (random() % 3 == 0) add(R"("logit_bias":{"101":-100,"113":3})");
  if (random() % 3 == 0) add("\"logprobs\":" + std::to_string(random() % 4));
  if (random() % 3 == 0) add(std::string(R"("grammar":)") + half_fixed);
  const rows::Priority priorities[] = {rows::Priority::interactive, rows::Priority::background};
  return maker.task(body + "}", 1, priorities[random() % 2]);
}

}  // namespace

TEST_CASE("a model that knows what it will write needs a fraction of the steps") {
  const Maker maker;
  std::vector<Task> tasks;
  for (const char* body :
       {R"({"prompt":"abc","max_tokens":60,"temperature":0})",
        R"({"prompt":"xy","max_tokens":50,"temperature":0,"ignore_eos":true})"}) {
    tasks.push_back(maker.task(body, 1, rows::Priority::background));
  }
  FakeEngine quiet;
  Rows without(quiet, {.parallel = 2, .kept_max = 0}, tasks);
  const std::vector<Given> expected = without.run();
  FakeEngine engine({.predicts = true});
  SchedulerOptions options{.parallel = 2, .kept_max = 0};
  options.drafts.row_max = 3;
  options.drafts.is_eager = true;
  options.drafts.uses_predictor = true;
  options.drafts.make_sources = [](const Task&) { return serve::DraftOptions::Sources(); };
  Rows rows(engine, options, tasks);
  CHECK(rows.run() == expected);
  const SchedulerCounts& counts = rows.scheduler().counts();
  CHECK(counts.steps < without.scheduler().counts().steps / 2);
  CHECK(counts.tokens_accepted > counts.tokens_drafted / 2);
  CHECK(counts.drafts_by_kind[static_cast<std::size_t>(speculate::Kind::mtp)].drafted ==
        counts.tokens_drafted);
}

TEST_CASE("drafts change no text and no log probability, whatever they are") {
  std::mt19937_64 random(random_seed());
  const Maker maker;
  SchedulerCounts all;
  const int rounds = is_sanitized ? 15 : 120;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Task> tasks;
    for (std::size_t rows = 1 + random() % 20; tasks.size() < rows;) {
      tasks.push_back(any_task(maker, random));
    }
    // The last task that is taken must not wait behind others of its kind.
    std::ranges::stable_sort(tasks, {}, &Task::priority);
    FakeEngine quiet;
    const std::vector<Given> expected = plain(quiet, tasks);
    FakeLimits limits;
    limits.window = random() % 3 == 0 ? 100 : 0;
    limits.columns = 1 + static_cast<std::uint32_t>(random() % 64);
    limits.logits = 1 + static_cast<std::uint32_t>(random() % 40);
    limits.pages = 10 + static_cast<std::uint32_t>(random() % 20);
    FakeEngine engine(limits);
    {
      SchedulerOptions options = drafting(tasks, expected, 127, random());
      options.parallel = 1 + static_cast<std::uint32_t>(random() % 12);
      options.shared_tokens_min = 1 + static_cast<std::uint32_t>(random() % 40);
      options.kept_max = random() % 6;
      options.prompt_columns_beside = static_cast<std::uint32_t>(random() % 20);
      Rows rows(engine, options, tasks);
      engine.stop_check = [&] {
        if (random() % 60 == 0 && rows.admitted() != 0) {
          rows.scheduler().cancel(1 + random() % rows.admitted(), "enough");
        }
        if (random() % 50 == 0) throw StepFault();
      };
      const std::vector<Given>& given = rows.run();
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        REQUIRE(given[i].outcome);
        if (given[i].outcome->end == Outcome::End::cancelled) {
          CHECK((expected[i].streamed + "x").starts_with(given[i].streamed));
        } else {
          CHECK(given[i] == expected[i]);
        }
      }
      const SchedulerCounts& counts = rows.scheduler().counts();
      all.tokens_drafted += counts.tokens_drafted;
      all.tokens_accepted += counts.tokens_accepted;
      all.preemptions += counts.preemptions;
    }
    CHECK(engine.free_pages() == limits.pages);
  }
  CHECK(all.tokens_accepted > 0);
  CHECK(all.tokens_accepted < all.tokens_drafted);
  if (!is_sanitized) CHECK(all.preemptions > 0);  // few rounds may have none
}

TEST_CASE("a text that is known needs a step for each handful of tokens") {
  const Maker maker;
  std::vector<Task> tasks = {
      maker.task(R"({"prompt":"q","max_tokens":80,"seed":3,"ignore_eos":true})")};
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 10});
  const std::vector<Given> expected = plain(engine, tasks);
  REQUIRE(expected[0].tokens.size() > 16);
  SchedulerOptions options;
  options.drafts.is_eager = true;
  options.drafts.make_sources = [&](const Task& task) {
    Tokens text = task.prompt;
    text.insert(text.end(), expected[0].tokens.begin(), expected[0].tokens.end());
    return alone(std::make_unique<ToldSource>(text, ToldSource::Manner::right, 1, 127));
  };
  Rows rows(engine, options, tasks);
  CHECK(rows.run()[0] == expected[0]);
  const SchedulerCounts& counts = rows.scheduler().counts();
  CHECK(counts.steps <= 3 + expected[0].tokens.size() / 8);
  CHECK(expected[0].outcome->completion.drafted_tokens == 0);
  CHECK(counts.tokens_accepted <= counts.tokens_drafted);
}

TEST_CASE("a text that was written before is a source of drafts for its group alone") {
  const Maker maker;
  std::vector<Task> tasks;
  for (int i = 0; i < 3; ++i) {
    tasks.push_back(
        maker.task(R"({"prompt":"what is it","max_tokens":80,"seed":3,"ignore_eos":true})"));
  }
  tasks[2].drafts_group = 1;
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 10});
  const std::vector<Given> expected = plain(engine, tasks);
  SchedulerOptions options{.parallel = 1};
  options.drafts.is_eager = true;
  const auto drafts = [&](const std::shared_ptr<speculate::SharedTexts>& shared) {
    options.drafts.make_sources = [shared](const Task& task) {
      return alone(
          std::make_unique<speculate::SuffixSource>(task.prediction, shared, task.drafts_group));
    };
    Rows rows(engine, options, tasks);
    CHECK(rows.run() == expected);
    return rows.scheduler().counts();
  };
  const SchedulerCounts alone = drafts(nullptr);
  const SchedulerCounts shared = drafts(std::make_shared<speculate::SharedTexts>());
  // The second of three texts takes a handful of tokens a step, and the others what they took.
  CHECK(shared.tokens_accepted > alone.tokens_accepted * 2 / 3 + 80 / 2);
  CHECK(shared.steps < alone.steps * 2 / 3 + 80 / 2);
  tasks[1].drafts_group = 2;
  CHECK(drafts(std::make_shared<speculate::SharedTexts>()).tokens_accepted ==
        alone.tokens_accepted);
}

TEST_CASE("a prediction is a source of drafts, and no part of the text") {
  const Maker maker;
  const Tokens abc = {'a', 'b', 'c'};
  const auto prediction_of = [&](const std::string& prediction) {
    return maker
        .task(R"({"prompt":"q","max_tokens":80,"seed":3,"ignore_eos":true,"prediction":)" +
              prediction + "}")
        .prediction;
  };
  CHECK(prediction_of(R"({"type":"content","content":"abc"})") == abc);
  CHECK(prediction_of(
            R"({"type":"content","content":[{"type":"text","text":"a"},{"text":"bc"}]})") == abc);
  CHECK(prediction_of("null").empty());
  for (const char* bad : {R"("abc")", R"({"content":"abc"})", R"({"type":"content"})",
                          R"({"type":"content","content":3})",
                          R"({"type":"content","content":[{"type":"image"}]})"}) {
    const std::string body = std::string(R"({"prompt":"q","prediction":)") + bad + "}";
    const rows::ParsedRow parsed =
        rows::parse_body(body, rows::Form::completions, 1, rows::RowDefaults());
    INFO(bad);
    CHECK_FALSE(parsed.request);
    CHECK(parsed.reason.find("prediction") != std::string::npos);
  }

  std::vector<Task> tasks = {
      maker.task(R"({"prompt":"q","max_tokens":80,"seed":3,"ignore_eos":true})")};
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 10});
  const std::vector<Given> expected = plain(engine, tasks);
  tasks[0].prediction = expected[0].tokens;
  SchedulerOptions options;
  options.drafts.is_eager = true;
  options.drafts.make_sources = [](const Task& task) {
    return alone(std::make_unique<speculate::SuffixSource>(task.prediction));
  };
  Rows rows(engine, options, tasks);
  const std::vector<Given>& given = rows.run();
  CHECK(given[0] == expected[0]);
  CHECK(rows.scheduler().counts().tokens_accepted > expected[0].tokens.size() / 2);

  const auto usage = [](const Given& row) {
    return rows::usage_of(std::span(&row.outcome->completion, 1)).dump();
  };
  CHECK(usage(expected[0]).find("prediction") == std::string::npos);
  CHECK(usage(given[0]).find("accepted_prediction_tokens") != std::string::npos);
  const auto details =
      rows::usage_of(std::span(&given[0].outcome->completion, 1)).at("completion_tokens_details");
  const SchedulerCounts& counts = rows.scheduler().counts();
  CHECK(details.at("accepted_prediction_tokens").get<std::uint64_t>() == counts.tokens_accepted);
  CHECK(details.at("rejected_prediction_tokens").get<std::uint64_t>() ==
        counts.tokens_drafted - counts.tokens_accepted);
}

namespace {

// A model of each architecture that runs, of an odd shape.
std::vector<synth::Shape> odd_shapes(std::uint64_t seed) {
  std::vector<synth::Shape> out;
  for (const synth::Shape& shape : synth::shapes()) {
    const auto runs = [&](const model::Family& family) {
      return family.architecture == shape.architecture;
    };
    if (!shape.name.starts_with("tiny-") || std::ranges::none_of(model::families(), runs)) continue;
    if (shape.is_encoder()) continue;
    out.push_back(synth::odd_shape(shape, seed));
  }
  return out;
}

constexpr Token vocabulary = 290;  // tokens that all of these models have

std::vector<Task> some_tasks(std::mt19937_64& random) {
  std::vector<Task> tasks(3);
  for (Task& task : tasks) {
    task.prompt.assign(12, 7);  // that they share
    for (std::size_t i = 1 + random() % 8; i > 0; --i) {
      task.prompt.push_back(static_cast<Token>(3 + random() % (vocabulary - 3)));
    }
    task.end_tokens = std::make_shared<const Tokens>();
    task.tokens_max = 30;
    task.top_logprobs = 2;
    task.sampler.seed = random();
    task.sampler.temperature = random() % 2 == 0 ? 0 : 0.9;
    task.sampler.repeat_penalty = random() % 2 == 0 ? 1 : 1.2;
  }
  return tasks;
}

}  // namespace

TEST_CASE("drafts change no bit of any architecture, nor what is kept of a text") {
  std::mt19937_64 random(random_seed());
  const auto seed = static_cast<std::uint32_t>(random());
  std::uint64_t accepted = 0, rejected = 0;
  for (const synth::Shape& shape : odd_shapes(seed)) {
    INFO(shape.name << ", seed " << seed);
    const TemporaryFolder folder;
    const auto model = folder.path() / "model.gguf";
    synth::SyntheticModel(shape, "Q8_0").write(model, seed, {});
    engine::EngineOptions settings;
    settings.threads = 1;
    settings.chunk = 16;
    settings.context = 64;
    settings.window = random() % 2 == 0 ? 24 : 0;
    settings.sinks = 2;
    settings.kv = random() % 2 == 0 ? kvcache::ElementType::int8 : kvcache::ElementType::f16;
    settings.drafts = 12;
    settings.parallel = 3;
    const auto engine = engine::Engine::open(model, settings);
    const std::uint32_t free = engine->free_positions();
    const std::vector<Task> tasks = some_tasks(random);
    const std::vector<Given> expected = plain(*engine, tasks);
    SchedulerOptions options = drafting(tasks, expected, vocabulary, 4 * random() + 1);
    options.parallel = 3;
    options.shared_tokens_min = 4;
    options.kept_max = 0;
    {
      Rows rows(*engine, options, tasks);
      const std::vector<Given>& given = rows.run();
      for (std::size_t i = 0; i < tasks.size(); ++i) CHECK(given[i] == expected[i]);
      accepted += rows.scheduler().counts().tokens_accepted;
      rejected += rows.scheduler().counts().tokens_drafted;
    }
    CHECK(engine->free_positions() == free);
  }
  CHECK(accepted > 0);
  CHECK(rejected > accepted);
}

}  // namespace sluice::test
