// Steps that are given up: because the disk fails, at every segment, or because somebody asked for
// it, at every wave. What comes after is bit for bit what it is in an engine that nothing happened
// to.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/stepper.h"
#include "core/plan/planned_model.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/fake_reader.h"
#include "tests/model_file.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using engine::StepPart;
using tokenizer::Token;
namespace fs = std::filesystem;

FileBytes bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  FileBytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

constexpr std::size_t vocabulary = 2048;

std::vector<Token> tokens_from(std::size_t first, std::size_t count) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<Token>(((first + i) * 7919 + 300) % vocabulary);
  }
  return tokens;
}

// All of an engine but the choice of its reader: a model over a disk that does what it is told.
class Bench {
 public:
  explicit Bench(std::uint64_t pinned_bytes_max = 0, std::uint32_t slots = 16,
                 std::uint32_t held_max = 4)
      : Bench(model_file(), false, {pinned_bytes_max, slots, held_max}) {}
  // With `predicts`: with the block of the model that predicts further tokens.
  Bench(const fs::path& model, bool predicts, const streaming::TapeOptions& tape)
      : model_(gguf::Model::open(model)), team_(topology::CpuList{0}) {
    disk.files.push_back(bytes_of(model));
    plan::Request request;
    request.context = 64;
    request.chunk = 8;
    request.parallel = request.logits_columns = 2;
    request.predicts = predicts;
    planned_ = plan::plan_model(model_, {}, request);
    planned_.layout->load();
    planned_.plan.tape_options = tape;
    tape_.emplace(planned_.layout->segments(), std::make_unique<FakeReader>(disk, 3),
                  planned_.plan.tape_options,
                  [this](std::size_t turn, std::span<const std::byte> from, std::byte* to) {
                    planned_.layout->pack(turn, from, to, team_);
                  });
    stepper.emplace(*planned_.decoder, planned_.plan, kernels::kernel_table(), team_, *tape_,
                    model::EmbeddingTable(model_, model_.require_tensor("token_embd.weight")),
                    std::nullopt, planned_.decoder->hyper_parameters().vocabulary,
                    std::vector<tokenizer::Token>{});
    for (auto* sequence : {&first, &second}) *sequence = stepper->cache().new_sequence(32);
  }

  const std::vector<streaming::Segment>& segments() const { return planned_.layout->segments(); }

  // A step number of a conversation of two sequences: a prompt and a token, both with logits.
  std::vector<float> step(std::size_t number) {
    const std::vector<Token> a = tokens_from(number * 5, 5), b = tokens_from(900 + number, 1);
    const std::vector<StepPart> parts{{&*first, a, 1, {}, state_}, {&*second, b, 1}};
    stepper->run(parts);
    const std::span<const float> state = stepper->state_after(*first, a.size());
    state_.assign(state.begin(), state.end());
    std::vector<float> logits;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      logits.insert(logits.end(), stepper->logits(i).begin(), stepper->logits(i).end());
    }
    return logits;
  }

  // The logits of three guesses behind the first sequence.
  std::vector<float> guess() {
    std::vector<float> all;
    stepper->predict(*first, state_, 77, 3, [&](std::span<const float> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
      return static_cast<Token>(10 + all.size() % 100);
    });
    return all;
  }

  FakeDisk disk;  // outlives the tape

 private:
  gguf::Model model_;
  topology::ThreadTeam team_;
  plan::PlannedModel planned_;
  std::optional<streaming::StreamedTape> tape_;
  std::vector<float> state_;  // behind the first sequence, where the model predicts

 public:
  std::optional<engine::Stepper> stepper;
  std::optional<kvcache::Sequence> first, second;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr std::size_t steps = 3;

// The logits of all steps when nothing happens.
std::vector<std::vector<float>> undisturbed() {
  Bench bench;
  std::vector<std::vector<float>> logits;
  for (std::size_t i = 0; i < steps; ++i) logits.push_back(bench.step(i));
  return logits;
}

struct Stopped {};

}  // namespace

TEST_CASE("a step that an unreadable segment ends is run again with the same bits") {
  const auto expected = undisturbed();
  for (const std::uint64_t pinned_bytes_max : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    Bench probe(pinned_bytes_max);
    std::size_t failures = 0;
    const std::size_t stride = (pinned_bytes_max == 0 ? 1 : 5) * (is_sanitized ? 4 : 1);
    for (std::size_t victim = 0; victim < probe.segments().size(); victim += stride) {
      Bench bench(pinned_bytes_max);
      const streaming::Segment& segment = bench.segments()[victim];
      INFO("segment " << victim << ", " << pinned_bytes_max << " bytes pinned");
      REQUIRE(same_bits(bench.step(0), expected[0]));
      // Not its ends, which lie in pages of its neighbours.
      const std::uint64_t middle = segment.offset + segment.bytes / 2;
      bench.disk.bad = {{segment.file, middle, middle + 1}};
      const std::size_t pages = bench.stepper->cache().pages_in_use();
      // What was read ahead before the disk broke is there still, and so is what is pinned.
      for (std::size_t i = 1; i < steps; ++i) {
        std::vector<float> logits;
        try {
          logits = bench.step(i);
        } catch (const std::system_error&) {
          ++failures;
        }
        if (!logits.empty()) {
          REQUIRE(same_bits(logits, expected[i]));
          continue;
        }
        REQUIRE(bench.first->length() == 5 * i);
        REQUIRE(bench.second->length() == i);
        CHECK_THROWS_AS(bench.step(i), std::system_error);  // as long as it is broken
        bench.disk.bad.clear();
        REQUIRE(same_bits(bench.step(i), expected[i]));
      }
      CHECK(bench.stepper->cache().pages_in_use() == pages);
    }
    CHECK(failures != 0);
    if (pinned_bytes_max == 0) CHECK(failures == (probe.segments().size() + stride - 1) / stride);
  }
}

TEST_CASE("a guess that an unreadable segment ends leaves nothing, and is made again") {
  const TemporaryFolder folder;
  const fs::path model = folder / "model.gguf";
  synth::Shape shape = synth::shape_by_name("tiny-qwen35");
  shape.predictors = 1;
  shape.vocabulary = vocabulary;
  synth::SyntheticModel(shape, "Q8_0").write(model, 5, {});
  constexpr streaming::TapeOptions streamed = {0, 16, 4};
  Bench undisturbed(model, true, streamed);
  const std::vector<float> before = undisturbed.step(0), guessed = undisturbed.guess(),
                           after = undisturbed.step(1);
  REQUIRE(guessed.size() == 3 * vocabulary);
  std::size_t failures = 0;
  const std::size_t stride = is_sanitized ? 4 : 1;
  for (std::size_t victim = 0; victim < undisturbed.segments().size(); victim += stride) {
    INFO("segment " << victim);
    Bench bench(model, true, streamed);
    REQUIRE(same_bits(bench.step(0), before));
    const std::size_t pages = bench.stepper->cache().pages_in_use();
    const streaming::Segment& segment = bench.segments()[victim];
    const std::uint64_t middle = segment.offset + segment.bytes / 2;
    bench.disk.bad = {{segment.file, middle, middle + 1}};
    for (int tries = 0; tries < 2; ++tries) {
      std::vector<float> logits = guessed;
      try {
        logits = bench.guess();
      } catch (const std::system_error&) {
        ++failures;
      }
      REQUIRE(same_bits(logits, guessed));
      REQUIRE(bench.first->length() == 5);
      REQUIRE(bench.stepper->cache().pages_in_use() == pages);
    }
    bench.disk.bad.clear();
    REQUIRE(same_bits(bench.guess(), guessed));
    REQUIRE(same_bits(bench.step(1), after));
  }
  CHECK(failures != 0);
}

TEST_CASE("interruptions and short reads show in nothing") {
  const auto expected = undisturbed();
  for (std::uint64_t pinned_bytes_max : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
    Bench bench(pinned_bytes_max);
    bench.disk.interruptions = 0.3;
    bench.disk.short_reads = 0.3;
    bench.disk.late = 0.5;
    for (std::size_t i = 0; i < steps; ++i) REQUIRE(same_bits(bench.step(i), expected[i]));
  }
}

TEST_CASE("a step that is stopped, at whatever wave, is run again with the same bits") {
  const auto expected = undisturbed();
  Bench bench;
  std::size_t waves = 0;
  bench.stepper->set_stop_check([&] { ++waves; });
  REQUIRE(same_bits(bench.step(0), expected[0]));
  const std::size_t waves_of_a_step = waves;
  REQUIRE(waves_of_a_step >= bench.segments().size() / 4);
  for (std::size_t stop_at = 1; stop_at <= waves_of_a_step; ++stop_at) {
    waves = 0;
    bench.stepper->set_stop_check([&] {
      if (++waves == stop_at) throw Stopped();
    });
    REQUIRE_THROWS_AS(bench.step(1), Stopped);
    REQUIRE(bench.first->length() == 5);
    REQUIRE(bench.second->length() == 1);
  }
  bench.stepper->set_stop_check({});
  for (std::size_t i = 1; i < steps; ++i) REQUIRE(same_bits(bench.step(i), expected[i]));
}

TEST_CASE("a wave takes no more slots of the ring than it may") {
  const auto expected = undisturbed();
  Bench bench(0, 2, 1);
  for (std::size_t i = 0; i < steps; ++i) REQUIRE(same_bits(bench.step(i), expected[i]));
}

TEST_CASE("an engine passes its stop check on, and goes on after it") {
  const std::vector<Token> tokens = tokens_from(0, 20);
  engine::EngineOptions options;
  options.context = 64;
  options.threads = 1;
  options.chunk = 8;
  const auto reference = engine::Engine::open(model_file(), options);
  const auto expected = reference->session().evaluate(tokens);

  std::size_t waves_left = 40;
  options.stop_check = [&] {
    if (waves_left-- == 0) throw Stopped();
  };
  const auto engine = engine::Engine::open(model_file(), options);
  engine::Session& session = engine->session();
  std::span<const float> logits;
  std::size_t stops = 0;
  while (session.position() < tokens.size()) {
    try {
      logits = session.evaluate(std::span(tokens).subspan(session.position()));
    } catch (const Stopped&) {
      ++stops;
      REQUIRE(session.position() % options.chunk == 0);
      waves_left = 40;
    }
  }
  CHECK(stops != 0);
  CHECK(std::ranges::equal(logits, expected));
}

TEST_CASE("with a window a step that was stopped leaves room for that of another sequence") {
  engine::EngineOptions options;
  options.window = 40;
  options.threads = 1;
  options.chunk = 64;
  const auto lone = engine::Engine::open(model_file(), options);
  bool stops = false;
  std::size_t waves = 0;
  options.parallel = 2;
  options.stop_check = [&] {
    if (stops && ++waves == 3) throw Stopped();
  };
  const auto engine = engine::Engine::open(model_file(), options);
  std::unique_ptr<engine::Sequence> sequences[] = {engine->new_sequence(1),
                                                   engine->new_sequence(1)};
  for (std::size_t turn = 0; turn < 6; ++turn) {
    const std::vector<Token> tokens = tokens_from(turn * options.chunk, options.chunk);
    const auto expected = lone->session().evaluate(tokens);
    const auto work_of = [&](std::size_t i) {
      return engine::SequenceWork{sequences[i].get(), tokens, true};
    };
    for (const std::size_t other : {1, 0}) {
      stops = true;
      waves = 0;
      const engine::SequenceWork stopped = work_of(1 - other), next = work_of(other);
      if (other == 1) CHECK_THROWS_AS(engine->step({&stopped, 1}), Stopped);
      stops = false;
      CHECK(std::ranges::equal(engine->step({&next, 1})[0], expected));
    }
  }
}

}  // namespace sluice::test
