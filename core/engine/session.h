// A model that is ready to run, and one sequence of tokens going through it.
//
// Engine: opens the model file, checks that sluice can run it, allocates everything of size. One
// engine serves one process. Session: the keys and values of one sequence; `evaluate` appends
// tokens and gives logits.
//
// Threads: an engine and its session are used by one thread; the engine's thread team works inside
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
#include "core/plan/memory_plan.h"
#include "core/tokenizer/tokenizer.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"
#include "topology/machine.h"

namespace sluice::engine {

enum class KvType { f32, f16 };

struct EngineOptions {
  std::optional<std::uint64_t> budget_bytes;  // all memory of the process; nothing: auto
  std::uint32_t context = 0;                  // positions to allocate; 0: the model's, at most 4096
  unsigned threads = 0;                       // 0: chosen by topology
  KvType kv = KvType::f16;
  std::uint32_t chunk = 512;  // tokens of a prompt that are evaluated together, at most
  streaming::Io io = streaming::Io::automatic;
  // Told how much of the pinned weights has been loaded.
  std::function<void(std::uint64_t loaded_bytes, std::uint64_t total_bytes)> on_load = {};
  // Told, in one line, when the memory that is used changes while running; see memory_guard.h.
  std::function<void(const std::string& line)> on_memory_change = {};
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

class Session;

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
  virtual Session& session() = 0;  // the one sequence, owned by the engine
};

class Session {
 public:
  virtual ~Session() = default;

  // Appends tokens to the sequence and returns the logits after the last one: [vocabulary] floats,
  // valid until the next call. Throws UsageError when the context is full.
  virtual std::span<const float> evaluate(std::span<const tokenizer::Token> tokens) = 0;

  // The same, and calls `on_logits(i, logits)` after each token i of `tokens`, in order.
  virtual void evaluate_all(
      std::span<const tokenizer::Token> tokens,
      const std::function<void(std::size_t, std::span<const float>)>& on_logits) = 0;

  virtual std::uint32_t position() const = 0;  // tokens in the sequence
  virtual std::uint32_t capacity() const = 0;  // tokens it can hold
  virtual void clear() = 0;                    // forgets the sequence
};

}  // namespace sluice::engine
