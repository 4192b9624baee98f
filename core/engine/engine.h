// A model that is ready to run, and sequences of tokens going through it.
//
// Engine: opens the model file, checks that sluice can run it, allocates everything of size. One
// engine serves one process. Sequence: the keys and values of tokens so far; Engine::step() appends
// tokens to several of them and gives logits. Session: the same for one sequence alone, of any
// number of tokens.
//
// The logits of a token depend on the tokens before it in its sequence and on nothing else: neither
// on what else is in a step, nor on how a sequence is cut into steps, nor on what is shared. They
// are the same bits.
//
// Threads: an engine and what it made are used by one thread; the engine's thread team works inside
// of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/machine_limits.h"
#include "core/engine/prompt_cache.h"
#include "core/gguf/gguf.h"
#include "core/model/matrix_input.h"
#include "core/plan/memory_plan.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/layout.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"
#include "topology/machine.h"

namespace sluice::engine {

// For those who want the logits after every token: enough to read the weights seldom.
inline constexpr std::uint32_t logits_columns_for_all = 32;

struct EngineOptions {
  std::optional<std::uint64_t> budget_bytes;  // all memory of the process; nothing: auto
  std::uint32_t context = 0;                  // positions of a sequence; 0: what the budget allows
  // The newest positions that a token sees, the first `sinks` that always stay included; 0: all.
  // With a window sequences have no end. No longer than `context`, where that is given.
  std::uint32_t window = 0;
  std::uint32_t sinks = 4;     // only with a window
  std::uint32_t parallel = 1;  // sequences of `context` positions that there is room for together
  // Positions of all sequences together, where there need not be room for that; more is made where
  // no weight has to be streamed for it. At least `context`; 0: all. Not with a window.
  std::uint64_t cache_positions = 0;
  std::uint64_t caller_bytes = 0;  // that the caller will hold beside the engine, for the plan
  unsigned threads = 0;            // 0: chosen by topology
  kvcache::ElementType kv = kvcache::ElementType::int8;
  std::uint32_t chunk = 512;  // tokens of a prompt that are evaluated together, at most
  // Tokens that evaluate_all() takes together, at most: their logits have to be held.
  std::uint32_t logits_columns = 1;
  streaming::Io io = streaming::Io::automatic;
  PromptCacheOptions prompt_cache = {};  // of the session
  // Told how much of the pinned weights has been loaded.
  std::function<void(std::uint64_t loaded_bytes, std::uint64_t total_bytes)> on_load = {};
  // Called many times a step, and what it throws gives the step up, so that whoever no longer wants
  // it need not wait for its end: sequences are as before, and go on with the same bits.
  std::function<void()> stop_check = {};
  // Told of the input of each matrix product, for statistics over them. A step that fails may have
  // told of some of its products.
  model::MatrixWatch watch = {};
  // Told, in one line, what changes while running: the memory that is used (memory_guard.h), and
  // how weights are read (streaming::Reader::trouble).
  std::function<void(const std::string& line)> on_change = {};
};

// What `bench`, --report and the end of a run tell about the engine.
struct EngineFacts {
  std::string model_name;  // general.name, may be empty
  std::string architecture;
  std::string isa;                 // "avx512"
  std::string io;                  // the reader of the weights: "mmap", "uring", "pread"
  std::string io_reason;           // one line: why this reader
  std::vector<std::string> notes;  // what was wanted and is not to be had, a line each
  unsigned threads = 0;
  std::uint32_t context = 0;
  std::uint32_t vocabulary = 0;     // logits per token
  std::uint64_t weights_bytes = 0;  // all tensors of the file
  DecodeWork work;                  // of a step of one token
  std::uint64_t pinned_bytes = 0;
  std::uint64_t planned_peak_bytes = 0;
};

// The plan of a run, without running it: from the header of `model` alone.
struct PlannedRun {
  plan::MemoryPlan plan;
  DecodeWork work;
  topology::CpuList cpus;  // of the threads that would compute
};
PlannedRun plan_run(const std::filesystem::path& model, const EngineOptions& options);

struct StepPoint;

// Plans of many runs of one model, whose header and tokenizer are read once.
class RunPlanner {
 public:
  // Throws what Engine::open throws for the file.
  explicit RunPlanner(const std::filesystem::path& model);
  ~RunPlanner();
  RunPlanner(const RunPlanner&) = delete;
  RunPlanner& operator=(const RunPlanner&) = delete;

  const gguf::Model& header() const;
  const tokenizer::Tokenizer& tokenizer() const;

  PlannedRun plan(const EngineOptions& options) const;
  std::vector<StepPoint> rehearse_steps(const EngineOptions& options) const;  // see below

 private:
  struct Opened;
  std::unique_ptr<Opened> opened_;
};

// What a step of that run takes: a token of each of its sequences.
struct StepTime {
  double seconds = 0;
  // Whether streamed weights were read from the disk; else they are missing from the file, and the
  // time is that of the arithmetic alone.
  bool has_read = true;
};

// Tries such a step out, without loading weights (engine/rehearsal.h). Holds, while it runs, what
// the plan has beside the weights, and dram_buffer_bytes(). Takes about a second, or as long as the
// step. Throws what plan_run throws, and Error with ExitCode::budget when the plan does not fit.
StepTime rehearse_run(const std::filesystem::path& model, const EngineOptions& options);

// The same for steps of 1, 4, 16, ... tokens of one sequence, as long as they have room, and until
// more tokens only take more time; nothing is read from the disk.
struct StepPoint {
  double tokens = 0, seconds = 0;
};
std::vector<StepPoint> rehearse_steps(const std::filesystem::path& model,
                                      const EngineOptions& options);

class Session;

// One sequence of tokens. Made by an engine, which outlives it; its memory is given back when it is
// destroyed.
class Sequence {
 public:
  virtual ~Sequence() = default;

  virtual std::uint32_t position() const = 0;  // tokens so far
  // Tokens that it may hold; with a window there is no limit (the largest uint32).
  virtual std::uint32_t capacity() const = 0;
  // Forgets the tokens from `position` on. Throws UsageError when what came before has slid out of
  // the window, or when pages that are shared would have to be copied and there is no room for
  // that.
  virtual void truncate(std::uint32_t position) = 0;
};

// What a step does for one sequence.
struct SequenceWork {
  Sequence* sequence;                        // each at most once in a step
  std::span<const tokenizer::Token> tokens;  // to append, at least one
  bool wants_logits;                         // of the last token
};

class Engine {
 public:
  // Throws ModelError (bad or unsupported file), UsageError (options the model cannot satisfy),
  // Error with ExitCode::budget (the plan does not fit), std::system_error (I/O).
  static std::unique_ptr<Engine> open(const std::filesystem::path& model,
                                      const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const tokenizer::Tokenizer& tokenizer() const = 0;
  virtual const EngineFacts& facts() const = 0;
  virtual const plan::MemoryPlan& plan() const = 0;
  virtual streaming::TapeStatistics tape_statistics() const = 0;

  // An empty sequence with room for `positions` positions set aside; null when the cache has not
  // that much free.
  virtual std::unique_ptr<Sequence> new_sequence(std::uint32_t positions) = 0;
  // The same, beginning with the first `prefix` tokens of `source`, whose pages are shared. Throws
  // UsageError when `source` does not have them, or no longer what a token after them would see.
  virtual std::unique_ptr<Sequence> fork(const Sequence& source, std::uint32_t prefix,
                                         std::uint32_t positions) = 0;
  // Appends the tokens of all works in one turn of the tape. Gives the logits [vocabulary] of each
  // work that wants them, empty spans for the others, in order; valid until the next call. Throws
  // UsageError for more than step_columns() tokens, more than step_logits() works that want logits,
  // a sequence that is full or comes twice, and what is no token; std::system_error when weights
  // cannot be read; and what EngineOptions::stop_check throws. Nothing has changed then, and the
  // step may be tried again.
  virtual std::span<const std::span<const float>> step(std::span<const SequenceWork> works) = 0;
  virtual std::uint32_t step_columns() const = 0;    // tokens of a step, at most
  virtual std::uint32_t step_logits() const = 0;     // works of a step with logits, at most
  virtual std::uint32_t free_positions() const = 0;  // that new_sequence() can still give

  // One sequence over a whole context, owned by the engine. The first call sets its room aside;
  // throws UsageError when other sequences have taken that.
  virtual Session& session() = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  // Appends tokens to the sequence and returns the logits after the last one: [vocabulary] floats,
  // valid until the next call. Throws as Engine::step does; position() then tells how many tokens
  // were appended, in whole chunks. Throws UsageError, and appends none, when the context is full.
  virtual std::span<const float> evaluate(std::span<const tokenizer::Token> tokens) = 0;

  // The same, and calls `on_logits(i, logits)` after each token i of `tokens`, in order.
  virtual void evaluate_all(
      std::span<const tokenizer::Token> tokens,
      const std::function<void(std::size_t, std::span<const float>)>& on_logits) = 0;

  virtual std::uint32_t position() const = 0;         // tokens in the sequence
  virtual std::uint32_t capacity() const = 0;         // tokens it can hold; with a window: no limit
  virtual void clear() = 0;                           // forgets the sequence
  virtual void truncate(std::uint32_t position) = 0;  // as Sequence::truncate

  // Fills the sequence, which must be empty, with the longest beginning of `tokens` that the prompt
  // cache has, and returns its length: 0 when there is no prompt cache. What follows is bit for bit
  // what it would be had those tokens been evaluated.
  virtual std::uint32_t restore(std::span<const tokenizer::Token> tokens) = 0;
  // Keeps `tokens`, which the sequence begins with, in the prompt cache if there is one. With a
  // window only what has not slid out: save after each part of a prompt.
  virtual void save(std::span<const tokenizer::Token> tokens) = 0;
};

}  // namespace sluice::engine
