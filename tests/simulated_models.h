// The models of a simulation, over a disk and a memory that do what they are told: one that is a
// hash of the tokens so far, beside a tape and experts of made-up bytes; and tiny real ones.
//
// Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/engine/memory_guard.h"
#include "core/rows/task_maker.h"
#include "tests/fake_engine.h"
#include "tests/fake_reader.h"
#include "tests/forwarding_engine.h"
#include "tests/mixture_tape.h"
#include "tests/random_models.h"
#include "tests/serve_support.h"
#include "tests/simulated_machine.h"

namespace sluice::test {

// What an engine stands on, and whom it tells.
struct EngineHooks {
  std::function<void()> in_step;  // many times a step; may throw
  std::function<void(const std::string& what)> violation;
  SteppedMemory* memory = nullptr;  // null: of no limit; outlives the engine
};

class SimulatedModel {
 public:
  virtual ~SimulatedModel() = default;

  // An engine with the weights as they were, and settings drawn at random.
  virtual std::unique_ptr<engine::Engine> open(Random& random, const EngineHooks& hooks) = 0;
  // One to which nothing happens, for what each row gives alone.
  virtual engine::Engine& plain() = 0;
  virtual rows::Task task(Random& random) const = 0;
  virtual std::string row(Random& random) const = 0;  // of a batch, as JSON
  virtual rows::TaskOptions options() const = 0;
  virtual bool writes_ascii() const { return false; }
  // Makes a task throw at some point, where it can.
  virtual void sabotage(rows::Task& task, Random& random) const = 0;
  // Does something to the present engine that it has to bear.
  virtual void disturb(Random& random) = 0;
  virtual std::string name() const = 0;

  FakeDisk disk;  // of the weights

  // A stretch that lies within one segment.
  virtual BadStretch some_stretch(Random& random) const = 0;
  // A stretch whose bytes the present engine knows; empty if it cannot tell.
  virtual BadStretch known_stretch(Random& /*random*/) const { return {}; }
  void write_to_file() {
    disk.is_written_to = true;
    for (std::byte& byte : disk.files[0]) byte ^= std::byte{0x55};
  }

 protected:
  void begin_disk(const FileBytes& weights, Random& random) {
    disk.files = {weights};
    disk.is_written_to = false;
    disk.bad.clear();
    disk.wrong.clear();
    disk.on_attempt = nullptr;
    disk.short_reads = 0.1 * static_cast<double>(random() % 6);
    disk.interruptions = 0.05 * static_cast<double>(random() % 4);
    disk.late = 0.1 * static_cast<double>(random() % 8);
    disk.requests.clear();
  }
};

// The tokens of a hash, and weights of which every byte is compared.
class HashEngine final : public ForwardingEngine {
 public:
  HashEngine(Mixture& mixture, FakeDisk& disk, Random& random, const EngineHooks& hooks)
      : ForwardingEngine(inner_),
        inner_(limits(random)),
        random_(random()),
        hooks_(hooks),
        disk_(disk),
        tape_(mixture.segments, std::make_unique<FakeReader>(disk, random()),
              options(mixture, random), {}, mixture.groups),
        consumer_(mixture, tape_) {
    consumer_.on_turn = hooks.in_step;
    inner_.read_weights = [this](std::size_t columns) { read_weights(columns); };
    tape_.load();
    if (hooks.memory == nullptr) return;
    plan_.tape = tape_.plan();
    plan_.lines = {{"everything else", rest_bytes, plan::Kind::anon},
                   {"pinned weights", plan_.tape.pinned_bytes, plan::Kind::anon}};
    guard_.emplace(plan_, tape_, *hooks.memory, nullptr);
  }

  void limit_pinned_bytes(std::uint64_t bytes) { tape_.limit_pinned_bytes(bytes); }
  std::uint64_t pinned_bytes_planned() const { return tape_.plan().pinned_bytes; }
  const std::set<std::size_t>& seen_turns() const { return consumer_.seen; }

 private:
  static constexpr std::uint64_t rest_bytes = std::uint64_t{64} << 20;

  static FakeLimits limits(Random& random) {
    FakeLimits limits;
    limits.window = random() % 3 == 0 ? 100 : 0;
    limits.columns = 1 + static_cast<std::uint32_t>(random() % 64);
    limits.logits = 1 + static_cast<std::uint32_t>(random() % 12);
    limits.pages = 10 + static_cast<std::uint32_t>(random() % 20);  // one row always fits
    return limits;
  }
  static TapeOptions options(const Mixture& mixture, Random& random) {
    TapeOptions options;
    options.pinned_bytes_max = below(random, mixture.bytes() * 5 / 4);
    options.held_max = 1;
    options.slots = 2 + static_cast<std::uint32_t>(below(random, 12));
    return options;
  }
  void read_weights(std::size_t columns) {
    try {
      consumer_.step(static_cast<std::uint32_t>(columns), random_);
    } catch (const std::logic_error& error) {
      hooks_.violation(error.what());
      throw;
    }
    disk_.requests.clear();
    if (tape_.pinned_bytes() > tape_.plan().pinned_bytes) {
      hooks_.violation("more is pinned than was planned");
    }
    if (disk_.buffer_bytes > tape_.plan().ring_bytes) {
      hooks_.violation("the ring is larger than was planned");
    }
    if (!guard_ || tape_.pinned_bytes() == 0) return;
    if (rest_bytes + tape_.pinned_bytes() > hooks_.memory->seen()) {
      hooks_.violation("more is pinned than there is memory for");
    }
  }

  FakeEngine inner_;
  Random random_;
  EngineHooks hooks_;
  FakeDisk& disk_;
  StreamedTape tape_;
  Consumer consumer_;
  plan::MemoryPlan plan_;
  std::optional<engine::MemoryGuard> guard_;
};

class HashModel final : public SimulatedModel {
 public:
  explicit HashModel(Random& random) : mixture_(random) {}

  std::unique_ptr<engine::Engine> open(Random& random, const EngineHooks& hooks) override {
    begin_disk(mixture_.weights, random);
    has_guard_ = hooks.memory != nullptr;
    auto engine = std::make_unique<HashEngine>(mixture_, disk, random, hooks);
    engine_ = engine.get();
    return engine;
  }
  engine::Engine& plain() override { return plain_; }
  rows::Task task(Random& random) const override { return random_task(maker_, random); }
  std::string row(Random& random) const override {
    return body_of(text_of(random() % 100, 'q') + text_of(random() % 9, 'a'),
                   static_cast<int>(random() % 60), static_cast<int>(random() % 4));
  }
  rows::TaskOptions options() const override { return maker_.maker().options(); }
  void sabotage(rows::Task& task, Random& random) const override { test::sabotage(task, random); }
  void disturb(Random& random) override {
    if (has_guard_) return;  // which sets another limit
    engine_->limit_pinned_bytes(below(random, engine_->pinned_bytes_planned() + 1));
  }
  bool writes_ascii() const override { return true; }
  std::string name() const override { return "a hash"; }
  BadStretch some_stretch(Random& random) const override {
    return stretch_of(below(random, mixture_.segments.size()));
  }
  BadStretch known_stretch(Random& random) const override {
    const std::set<std::size_t>& seen = engine_->seen_turns();
    if (seen.empty()) return {};
    return stretch_of(*std::next(seen.begin(), static_cast<int>(below(random, seen.size()))));
  }

 private:
  BadStretch stretch_of(std::size_t turn) const {
    const Segment& segment = mixture_.segments[turn];
    return {0, segment.offset, segment.offset + segment.bytes};
  }

  Maker maker_;
  Mixture mixture_;
  FakeEngine plain_;
  HashEngine* engine_ = nullptr;  // the present one
  bool has_guard_ = false;
};

// A tiny model of any architecture.
class TinyModel final : public SimulatedModel {
 public:
  explicit TinyModel(Random& random)
      : shape_(any_shape(random)), path_(write_model(folder_ / "model.gguf", shape_, random)) {
    settings_.threads = 1;
    settings_.context = context;
    if (random() % 3 == 0) {
      settings_.window = 12 + static_cast<std::uint32_t>(random() % 40);
      settings_.sinks = static_cast<std::uint32_t>(random() % 6);
    }
    constexpr kvcache::ElementType types[] = {kvcache::ElementType::int8, kvcache::ElementType::f16,
                                              kvcache::ElementType::f32};
    settings_.kv = types[random() % 3];
    settings_.chunk = 4 + static_cast<std::uint32_t>(random() % 28);
    plain_ = engine::Engine::open(path_, settings_);
    maker_.emplace(plain_->tokenizer(), options());
    std::ifstream in(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::ranges::transform(text, std::back_inserter(weights_),
                           [](char c) { return static_cast<std::byte>(c); });
  }

  std::unique_ptr<engine::Engine> open(Random& random, const EngineHooks& hooks) override {
    begin_disk(weights_, random);
    engine::EngineOptions settings = settings_;
    settings.chunk = 4 + static_cast<std::uint32_t>(random() % 28);
    settings.drafts = static_cast<std::uint32_t>(random() % 8);
    settings.parallel = 1 + static_cast<std::uint32_t>(random() % 4);
    settings.checkpoints = static_cast<std::uint32_t>(random() % 3);
    settings.predicts = shape_.predictors != 0;
    settings.prompt_cache.folder = prompts();
    settings.memory = hooks.memory;
    settings.stop_check = hooks.in_step;
    settings.wrap_reader = [&](const std::unique_ptr<streaming::Reader>&) {
      return std::make_unique<FakeReader>(disk, random());
    };
    return engine::Engine::open(path_, settings);
  }
  engine::Engine& plain() override { return *plain_; }
  rows::Task task(Random& random) const override {
    auto made = maker_->make(rows::parse_body(row(random), rows::Form::completions, 1, {}), 1);
    auto task = std::get<rows::Task>(std::move(made));
    if (random() % 2 == 0) task.priority = rows::Priority::interactive;
    return task;
  }
  std::string row(Random& random) const override {
    // Most begin with the same page.
    std::string prompt = std::to_string(some_token(random));
    if (random() % 4 != 0) {
      prompt = "7";
      for (std::uint32_t i = 1; i < kvcache::page_positions; ++i) prompt += ",5";
    }
    for (std::uint64_t more = random() % 12; more != 0; --more) {
      prompt += "," + std::to_string(more % 3 == 0 ? some_token(random) : 5);
    }
    return R"({"prompt":[)" + prompt + R"(],"max_tokens":)" + std::to_string(random() % 24) +
           R"(,"seed":)" + std::to_string(random() % 1000) + R"(,"temperature":)" +
           std::to_string(random() % 2) + R"(,"ignore_eos":true})";
  }
  rows::TaskOptions options() const override {
    rows::TaskOptions options;
    const bool has_window = plain_->plan().cache.positions == kvcache::unlimited;
    options.positions_max = has_window ? 0 : context;
    return options;
  }
  void sabotage(rows::Task& task, Random& /*random*/) const override {
    task.sampler.temperature = -1;  // of no sampler
  }
  // Pages of the prompt cache are damaged.
  void disturb(Random& random) override {
    if (!std::filesystem::exists(prompts())) return;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(prompts())) {
      if (!entry.is_regular_file() || entry.file_size() == 0) continue;
      std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
      for (std::uint64_t bytes = 1 + random() % 64; bytes != 0; --bytes) {
        file.seekp(static_cast<std::streamoff>(random() % entry.file_size()));
        file.put(static_cast<char>(random()));
      }
    }
  }
  std::string name() const override { return shape_.name; }
  BadStretch some_stretch(Random& random) const override {
    const std::uint64_t at = random() % weights_.size();
    return {0, at, at + 1};
  }

 private:
  static constexpr std::uint32_t context = 72;

  std::filesystem::path prompts() const { return folder_ / "prompts"; }
  Token some_token(Random& random) const {
    const auto known = static_cast<std::uint64_t>(plain_->tokenizer().vocabulary_size());
    return static_cast<Token>(3 + random() % (known - 3));
  }

  TemporaryFolder folder_;
  synth::Shape shape_;
  std::filesystem::path path_;
  engine::EngineOptions settings_;
  std::unique_ptr<engine::Engine> plain_;
  std::optional<rows::TaskMaker> maker_;
  FileBytes weights_;
};

}  // namespace sluice::test
