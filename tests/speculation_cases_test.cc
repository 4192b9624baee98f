// Random cases of everything that meets in a run with drafts: models of every kind and odd sizes,
// all in memory, streamed, or losing their memory on the way; sources that are right, wrong and
// hostile, the model's own block and a second model; all settings that choose tokens; rows that are
// cancelled, preempted, begun alike and kept; steps and reads that fail. A text and its log
// probabilities are those without drafts, and nothing is lost: no page, no state, no sequence.
//
// SLUICE_SPECULATION_CASES=N runs N cases (scripts/stress-speculation).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/memory_guard.h"
#include "core/error.h"
#include "core/rows/task_maker.h"
#include "core/serve/drafter.h"
#include "core/serve/scheduler.h"
#include "streaming/reader.h"
#include "tests/catch.h"
#include "tests/drafted_rows.h"
#include "tests/fake_drafts.h"
#include "tests/random_models.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using rows::Task;
using tokenizer::Token;
using Tokens = std::vector<Token>;

constexpr std::uint32_t context = 72;
constexpr std::size_t cases_of_a_model = 10;

std::uint32_t below(Random& random, std::uint64_t end) {
  return static_cast<std::uint32_t>(random() % end);
}

// The memory of a machine that others take all of at once.
class LostMemory final : public engine::MemorySource {
 public:
  std::uint64_t usable_bytes() override { return is_lost_ ? 0 : std::uint64_t{1} << 40; }
  engine::MemorySigns signs() override { return {}; }
  void wait(std::chrono::milliseconds time) override { (void)woken_.try_acquire_for(time); }
  void wake() override { woken_.release(); }

  void lose() {
    is_lost_ = true;
    wake();
  }

 private:
  std::atomic<bool> is_lost_ = false;
  std::counting_semaphore<> woken_{0};
};

// A reader of which some reads fail, though the bytes are there.
class FailingReader final : public streaming::Reader {
 public:
  struct Fate {
    std::uint64_t one_in = 0;  // of so many reads one fails; 0: none
    std::uint64_t failed = 0;
  };

  // The fate outlives the reader.
  FailingReader(std::unique_ptr<streaming::Reader> reader, Fate& fate, std::uint64_t seed)
      : reader_(std::move(reader)), fate_(fate), random_(seed) {}

  std::string_view name() const override { return reader_->name(); }
  std::span<const streaming::ReaderFile> files() const override { return reader_->files(); }
  std::uint64_t alignment() const override { return reader_->alignment(); }
  std::string attach_buffers(std::span<std::byte> memory, std::uint64_t slot_bytes) override {
    return reader_->attach_buffers(memory, slot_bytes);
  }
  void submit(const streaming::ReadRequest& request) override { reader_->submit(request); }
  std::optional<streaming::Completion> poll() override {
    std::optional<streaming::Completion> done = reader_->poll();
    if (done) spoil(*done);
    return done;
  }
  streaming::Completion wait() override {
    streaming::Completion done = reader_->wait();
    spoil(done);
    return done;
  }
  bool has_changed(std::uint32_t file) const override { return reader_->has_changed(file); }
  bool maps_files() const override { return reader_->maps_files(); }
  const std::byte* mapping(std::uint32_t file) const override { return reader_->mapping(file); }
  void keep_to_requests(bool strictly) override { reader_->keep_to_requests(strictly); }
  void discard(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) override {
    reader_->discard(file, offset, bytes);
  }

 private:
  void spoil(streaming::Completion& done) {
    if (fate_.one_in == 0 || !chance(random_, fate_.one_in)) return;
    ++fate_.failed;
    done.error = std::error_code(EIO, std::generic_category());
  }

  std::unique_ptr<streaming::Reader> reader_;
  Fate& fate_;
  Random random_;
};

// A source that takes time, or says so.
class PaidSource final : public speculate::Source {
 public:
  PaidSource(std::unique_ptr<speculate::Source> source, speculate::Kind kind, double seconds)
      : source_(std::move(source)), kind_(kind), seconds_(seconds) {}

  speculate::Kind kind() const override { return kind_; }
  double seconds_each() const override { return seconds_; }
  void propose(const speculate::Wanted& wanted, std::vector<speculate::Draft>& drafts) override {
    source_->propose(wanted, drafts);
  }
  void accepted(std::span<const Token> tokens) override { source_->accepted(tokens); }
  void forget() override { source_->forget(); }

 private:
  std::unique_ptr<speculate::Source> source_;
  speculate::Kind kind_;
  double seconds_;
};

// A model as it runs without drafts, and as it runs with them.
class Subject {
 public:
  explicit Subject(Random& random) : shape_(any_shape(random)), random_(random()) {
    const auto path = write_model(folder_ / "model.gguf", shape_, random);
    engine::EngineOptions settings;
    settings.threads = 1;
    settings.context = context;
    if (chance(random, 3)) {
      settings.window = 12 + below(random, 40);
      settings.sinks = below(random, 6);
    }
    constexpr kvcache::ElementType types[] = {kvcache::ElementType::int8, kvcache::ElementType::f16,
                                              kvcache::ElementType::f32};
    settings.kv = types[random() % 3];
    settings.chunk = 4 + below(random, 28);
    plain = engine::Engine::open(path, settings);

    settings.drafts = 1 + below(random, 10);
    settings.checkpoints = below(random, 3);
    settings.parallel = 1 + below(random, 3);
    settings.predicts = shape_.predictors != 0;
    if (chance(random, 3)) settings.prompt_cache.folder = folder_ / "prompts";
    settings.memory = &memory_;
    settings.wrap_reader = [this](std::unique_ptr<streaming::Reader> reader) {
      return std::make_unique<FailingReader>(std::move(reader), reads, random_());
    };
    settings.stop_check = [this] {
      if (on_wave) on_wave();
    };
    if (chance(random, 3)) memory_.lose();
    engine = engine::Engine::open(path, settings);
    if (chance(random, 2)) make_drafter(random);
  }

  bool has_window() const { return engine->plan().cache.positions == kvcache::unlimited; }
  const std::string& name() const { return shape_.name; }

  void lose_memory() { memory_.lose(); }

 private:
  // A model like it, of the same family or another, with as many tokens or not.
  void make_drafter(Random& random) {
    const auto path = folder_ / "model.gguf";
    engine::EngineOptions settings;
    settings.context = context;
    settings.chunk = 4 + below(random, 12);
    settings.parallel = 1 + below(random, 3);
    settings.window = chance(random, 4) ? 20 : 0;
    settings.threads = 1;
    settings.is_helper = true;
    settings.helped = engine.get();
    const auto other =
        chance(random, 2) ? write_model(folder_ / "other.gguf", any_shape(random), random) : path;
    drafter = std::make_shared<serve::Drafter>(engine::Engine::open(other, settings),
                                               20 + below(random, context - 20));
  }

  TemporaryFolder folder_;
  synth::Shape shape_;
  Random random_;
  LostMemory memory_;

 public:
  FailingReader::Fate reads;
  std::function<void()> on_wave;  // of the engine that drafts; may throw
  std::unique_ptr<engine::Engine> plain, engine;
  std::shared_ptr<serve::Drafter> drafter;  // may be null
};

// Parts of it can be written in one way only, and others not.
constexpr const char* half_fixed =
    R"("grammar":"root ::= ((\"yes\" | \"no\") \" is it; \" [a-z]{1,3} \". \")*")";

std::string ids(const Tokens& tokens) {
  std::string text;
  for (const Token token : tokens) text += (text.empty() ? "[" : ",") + std::to_string(token);
  return text + "]";
}

// What the rows of a case may share, and the settings of each.
class TaskDice {
 public:
  TaskDice(const Subject& subject, Random& random)
      : subject_(subject),
        random_(random),
        vocabulary_(static_cast<Token>(subject.engine->tokenizer().vocabulary_size())),
        maker_(subject.engine->tokenizer(), options(subject)) {
    for (std::uint32_t i = below(random, 20); i > 0; --i) begin_.push_back(any_token());
  }

  Task task() {
    Tokens prompt = chance(random_, 2) ? begin_ : Tokens();
    if (chance(random_, 3)) {  // repeats itself
      const Tokens words = {any_token(), any_token(), any_token()};
      for (std::uint32_t i = below(random_, 12); i > 0; --i) prompt.push_back(words[i % 3]);
    }
    for (std::uint32_t i = 1 + below(random_, 12); i > 0; --i) prompt.push_back(any_token());
    const std::uint32_t most =
        subject_.has_window() ? 60 : context - static_cast<std::uint32_t>(prompt.size());
    std::string body = "{\"prompt\":" + ids(prompt);
    const auto add = [&](const std::string& setting) { body += "," + setting; };
    const std::uint32_t wanted = below(random_, std::min(most, chance(random_, 4) ? 60U : 24U));
    add("\"max_tokens\":" + std::to_string(wanted));
    add("\"seed\":" + std::to_string(below(random_, 1000)));
    add("\"temperature\":" + std::to_string(below(random_, 3)) + ".2");
    if (chance(random_, 3)) body.replace(body.size() - 3, 3, "0");
    if (chance(random_, 2)) add("\"ignore_eos\":true");
    if (chance(random_, 4)) add(R"("stop":["e","ta","is"])");
    if (chance(random_, 6)) add("\"stop_token_ids\":" + ids({any_token(), any_token()}));
    if (chance(random_, 3)) add(R"("repeat_penalty":1.3)");
    if (chance(random_, 3)) add(R"("presence_penalty":0.7,"frequency_penalty":0.5)");
    if (chance(random_, 3)) add(R"("top_k":20,"top_p":0.9,"min_p":0.02)");
    if (chance(random_, 4)) add(R"("logit_bias":{"101":-100,"270":3})");
    if (chance(random_, 3)) add("\"logprobs\":" + std::to_string(below(random_, 4)));
    if (chance(random_, 5)) add("\"min_tokens\":" + std::to_string(std::min(wanted, 3U)));
    if (chance(random_, 4)) add(half_fixed);
    if (chance(random_, 4)) add(R"("prediction":{"type":"content","content":"yes is it; tata"})");
    body += "}";
    auto made = maker_.make(rows::parse_body(body, rows::Form::completions, 1, {}), 1);
    if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
      throw std::logic_error(body + ": " + refused->reason);
    }
    auto task = std::get<Task>(std::move(made));
    if (chance(random_, 2)) task.priority = rows::Priority::interactive;
    if (chance(random_, 8)) task.watch = forces({any_token(), any_token()}, 2 + below(random_, 9));
    task.is_endless = subject_.has_window() && chance(random_, 3);
    return task;
  }

  Token vocabulary() const { return vocabulary_; }

 private:
  static rows::TaskOptions options(const Subject& subject) {
    rows::TaskOptions options;
    options.positions_max = subject.has_window() ? 0 : context;
    return options;
  }

  Token any_token() {
    return 3 + static_cast<Token>(below(random_, static_cast<std::uint64_t>(vocabulary_ - 3)));
  }

  // Says now and then what comes next.
  static std::function<Task::Forced()> forces(const Tokens& tokens, std::uint32_t period) {
    return [=]() -> Task::Forced {
      return [=, calls = std::uint32_t{0}](std::string_view) mutable {
        return ++calls % period == 0 ? tokens : Tokens();
      };
    };
  }

  const Subject& subject_;
  Random& random_;
  Token vocabulary_;
  rows::TaskMaker maker_;
  Tokens begin_;  // of half of the prompts
};

// The sources of a row of which is known what it will write.
serve::DraftOptions::Sources any_sources(const Subject& subject, const Tokens& text,
                                         Token vocabulary, Random& random,
                                         const std::shared_ptr<speculate::SharedTexts>& shared) {
  serve::DraftOptions::Sources sources;
  if (!chance(random, 3)) sources.push_back(any_source(text, random(), vocabulary, shared));
  if (subject.drafter && !chance(random, 4)) {
    sources.push_back(serve::make_draft_source(subject.drafter));
  }
  if (chance(random, 4)) {
    const auto kind = chance(random, 2) ? speculate::Kind::mtp : speculate::Kind::draft;
    const double seconds = chance(random, 2) ? 1e-7 : 1e-3;
    sources.push_back(std::make_unique<PaidSource>(any_source(text, random(), vocabulary, shared),
                                                   kind, seconds));
  }
  if (chance(random, 10)) sources.push_back(nullptr);
  return sources;
}

serve::SchedulerOptions any_options(const Subject& subject, Random& random) {
  serve::SchedulerOptions options;
  options.parallel = 1 + below(random, 6);
  options.shared_tokens_min = 1 + below(random, 12);
  options.kept_max = below(random, 4);
  options.prompt_columns_beside = below(random, 20);
  options.drafts.row_max = 1 + below(random, 12);
  options.drafts.is_eager = !chance(random, 3);
  options.drafts.uses_predictor = subject.engine->facts().predicts && !chance(random, 4);
  return options;
}

// Does it again where weights cannot be read: what was read ahead may have failed before the reads
// began to succeed again.
template <class Work>
void persist(const Work& work) {
  for (int tries = 0;; ++tries) {
    try {
      return work();
    } catch (const std::system_error&) {
      if (tries == 100) throw;
    }
  }
}

// The logits of a few tokens, each of so many texts at the same time: as many as there is room for,
// so that none may be lost.
std::vector<std::vector<float>> probe(engine::Engine& engine, std::size_t texts) {
  std::vector<std::unique_ptr<engine::Sequence>> sequences;
  for (std::size_t i = 0; i < texts; ++i) {
    sequences.push_back(engine.new_sequence(context));
    REQUIRE(sequences.back());
  }
  std::vector<std::vector<float>> all;
  for (Token token = 5; token < 9; ++token) {
    std::vector<engine::SequenceWork> works;
    for (const auto& sequence : sequences) works.push_back({sequence.get(), {&token, 1}, true});
    all.clear();
    persist([&] {
      for (const std::span<const float> logits : engine.step(works)) {
        all.emplace_back(logits.begin(), logits.end());
      }
    });
  }
  return all;
}

// What a row gave, for messages.
std::string of(const Given& given) {
  const std::string& problem = given.outcome ? given.outcome->problem : "no outcome";
  return ids(given.tokens) + " \"" + given.streamed + "\" " + problem;
}

struct Totals {
  serve::SchedulerCounts counts;
  std::uint64_t rows = 0, cancelled = 0, faults = 0, failed_reads = 0, forms = 0;
};

// What goes wrong on the way: steps are given up, rows cancelled, memory lost.
class Trouble {
 public:
  Trouble(Subject& subject, Rows& rows, Random& random, Totals& totals)
      : subject_(subject), rows_(rows), random_(random()), totals_(totals) {
    if (chance(random, 3)) faults_every_ = 100 + below(random, 2000);
    if (chance(random, 3)) cancels_every_ = 200 + below(random, 4000);
    if (chance(random, 20)) lost_in_ = 1 + below(random, 3000);
    if (chance(random, 3)) subject_.reads.one_in = 200 + below(random, 2000);
    subject_.on_wave = [this] { wave(); };
  }
  ~Trouble() {
    subject_.on_wave = nullptr;
    subject_.reads.one_in = 0;
  }
  Trouble(const Trouble&) = delete;
  Trouble& operator=(const Trouble&) = delete;

 private:
  void wave() {
    if (lost_in_ != 0 && --lost_in_ == 0) subject_.lose_memory();
    if (cancels_every_ != 0 && chance(random_, cancels_every_) && rows_.admitted() != 0) {
      rows_.scheduler().cancel(1 + random_() % rows_.admitted(), "enough");
    }
    if (faults_every_ != 0 && chance(random_, faults_every_)) {
      ++totals_.faults;
      throw StepFault();
    }
  }

  Subject& subject_;
  Rows& rows_;
  Random random_;
  Totals& totals_;
  std::uint64_t faults_every_ = 0, cancels_every_ = 0, lost_in_ = 0;  // 0: never
};

void check_case(Subject& subject, Random& random, Totals& totals) {
  TaskDice dice(subject, random);
  std::vector<Task> tasks;
  for (std::uint32_t count = 1 + below(random, 6); tasks.size() < count;) {
    tasks.push_back(dice.task());
    totals.forms += tasks.back().guide ? 1 : 0;
  }
  if (chance(random, 2)) std::ranges::stable_sort(tasks, {}, &Task::priority);
  const std::vector<Given> expected = plain(*subject.plain, tasks);
  serve::SchedulerOptions options = any_options(subject, random);
  Random of_sources(random());
  const auto shared = std::make_shared<speculate::SharedTexts>();
  options.drafts.make_sources = [&](const Task& task) {
    Tokens text = tasks[task.id - 1].prompt;
    const Tokens& written = expected[task.id - 1].tokens;
    text.insert(text.end(), written.begin(), written.end());
    return any_sources(subject, text, dice.vocabulary(), of_sources, shared);
  };
  const std::uint32_t free = subject.engine->free_positions();
  {
    std::optional<Rows> rows;
    persist([&] { rows.emplace(*subject.engine, options, tasks); });
    const Trouble trouble(subject, *rows, random, totals);
    const std::vector<Given>& given = rows->run();
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      INFO("row " << i << ": " << of(expected[i]) << " | " << of(given[i]));
      REQUIRE(given[i].outcome);
      ++totals.rows;
      if (given[i].outcome->end == rows::Outcome::End::cancelled) {
        ++totals.cancelled;
        REQUIRE(begins_as(given[i], expected[i]));
      } else {
        REQUIRE(given[i] == expected[i]);
      }
    }
    const serve::SchedulerCounts& counts = rows->scheduler().counts();
    totals.counts.preemptions += counts.preemptions;
    for (std::size_t kind = 0; kind < speculate::kind_names.size(); ++kind) {
      totals.counts.drafts_by_kind[kind].drafted += counts.drafts_by_kind[kind].drafted;
      totals.counts.drafts_by_kind[kind].accepted += counts.drafts_by_kind[kind].accepted;
    }
  }
  REQUIRE(subject.engine->free_positions() == free);
  const std::vector<float> right = probe(*subject.plain, 1).front();
  for (const std::vector<float>& logits :
       probe(*subject.engine, subject.engine->plan().cache.sequences)) {
    REQUIRE(logits.size() == right.size());
    REQUIRE(std::memcmp(logits.data(), right.data(), right.size() * sizeof(float)) == 0);
  }
}

// What the cases had in them.
void tell(std::size_t cases, const Totals& totals) {
  const auto print = [](const char* what, std::uint64_t count) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what);
  };
  print("cases", cases);
  print("rows", totals.rows);
  print("rows with a grammar", totals.forms);
  print("rows cancelled", totals.cancelled);
  print("rows preempted", totals.counts.preemptions);
  print("steps given up", totals.faults);
  print("reads failed", totals.failed_reads);
  for (std::size_t kind = 0; kind < speculate::kind_names.size(); ++kind) {
    const speculate::DraftCounts& counts = totals.counts.drafts_by_kind[kind];
    const std::string name(speculate::kind_names[kind]);
    print((name + ": guesses").c_str(), counts.drafted);
    print((name + ": guesses that were right").c_str(), counts.accepted);
  }
}

std::size_t cases_wanted() {
  const char* given = std::getenv("SLUICE_SPECULATION_CASES");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return (is_sanitized ? 2 : 8) * cases_of_a_model;
}

}  // namespace

TEST_CASE("random cases with drafts give what they give without, and lose nothing") {
  const std::uint64_t seed = random_seed();
  const std::size_t wanted = cases_wanted();
  Totals totals;
  for (std::size_t done = 0, models = 0; done < wanted; ++models) {
    // A model by itself: the seed of the first one that is named, and one model's cases.
    INFO("SLUICE_TEST_SEED=" << seed + models);
    Random random(seed + models);
    Subject subject(random);
    const std::size_t cases = std::min(cases_of_a_model, wanted - done);
    for (std::size_t i = 0; i < cases; ++i, ++done) {
      INFO("case " << i << " of " << subject.name());
      check_case(subject, random, totals);
    }
    totals.failed_reads += subject.reads.failed;
  }
  tell(wanted, totals);
  CHECK(totals.counts.drafts_by_kind[0].accepted != 0);
}

}  // namespace sluice::test
