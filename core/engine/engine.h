// A model that is ready to run, and sequences of tokens going through it.
//
// Engine: opens the model file, checks that sluice can run it, and allocates everything of size. A
// process has one engine, and perhaps a second one that helps it. Sequence: tokens so far, with
// their keys and values; Engine::step() appends tokens to several sequences and returns logits.
// Session: the same for a single sequence and any number of tokens, where a text is read and none
// is written.
//
// The logits of a token depend only on the tokens before it in its sequence. They are the same bits
// whatever else is in a step, however the sequence is cut into steps, and whatever it shares with
// other sequences.
//
// Threads: an engine and everything it made are used by one thread. The engine's thread team works
// inside of the calls.
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
#include "core/model/expert_watch.h"
#include "core/model/matrix_input.h"
#include "core/plan/memory_plan.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/layout.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"
#include "topology/machine.h"

namespace sluice::engine {

// EngineOptions::logits_columns for callers that want the logits after every token: large enough
// that the weights are read seldom.
inline constexpr std::uint32_t logits_columns_for_all = 32;

class Engine;
class MemorySource;

struct EngineOptions : plan::RunSettings {
  unsigned threads = 0;  // 0: topology chooses
  // Plan for a machine of so many threads; what is measured has as many of them as this one can
  // run. 0: this machine. Engines take no notice of it.
  unsigned planned_threads = 0;
  PromptCacheOptions prompt_cache = {};  // Engine::restore and Engine::save
  // Called while pinned weights are loaded.
  std::function<void(std::uint64_t loaded_bytes, std::uint64_t total_bytes)> on_load = {};
  // Called many times a step. What it throws ends the step early, so that a caller that no longer
  // wants the result need not wait. Sequences are then as before the step, and may go on, with the
  // same bits.
  std::function<void()> stop_check = {};
  // Called with the input of each matrix product, for statistics. A step that fails may already
  // have called it for some products.
  model::MatrixWatch watch = {};
  model::ExpertWatch expert_watch = {};  // called with what routers choose
  // The engine of the model that this one helps (RunSettings::is_helper). It gives its threads, and
  // only one of the two may be in a call.
  const Engine* helped = nullptr;
  // What the engine stands on, for tests that let it fail. Makes the reader of the weights of the
  // one that suits the machine (empty: that one), and is the memory that the guard watches in place
  // of the machine's, outliving the engine (null: the machine's).
  std::function<std::unique_ptr<streaming::Reader>(std::unique_ptr<streaming::Reader>)>
      wrap_reader = {};
  MemorySource* memory = nullptr;
  // Called with one line of text when something changes during the run: the memory in use
  // (memory_guard.h), or how weights are read (streaming::Reader::trouble).
  std::function<void(const std::string& line)> on_change = {};
};

// What to say where a text is wanted of a model that sees whole texts and writes none.
std::string no_text_of(const std::string& architecture);
// Whether a model is none of those. Throws ModelError as model::Keys does.
bool writes_text(const gguf::Model& model);
// Throws UsageError with no_text_of() for one of those, and ModelError likewise.
void require_text(const gguf::Model& model);

// Facts about the engine, for `bench`, --report and the end of a run.
struct EngineFacts {
  std::string model_name;  // general.name, may be empty
  std::string architecture;
  std::string isa;                 // "avx512"
  std::string io;                  // the reader of the weights: "mmap", "uring", "pread"
  std::string io_reason;           // one line: why this reader
  std::vector<std::string> notes;  // requests that could not be met, a line each
  unsigned threads = 0;
  std::uint32_t context = 0;
  // Texts of more tokens than this have their keys rotated otherwise (engine/cached_text.h).
  std::uint32_t short_tokens_max = kvcache::unlimited;
  std::uint32_t vocabulary = 0;  // logits per token
  std::uint32_t embedding = 0;   // floats of a hidden state
  // Whether steps may have drafts (SequenceWork::drafts): not where a layer has a state that cannot
  // be computed again without its weights, or where no memory was planned for that. Where layers
  // have states at all, drafts stand behind one token.
  bool takes_drafts = false;
  bool has_states = false;
  bool predicts = false;  // whether Engine::predict() guesses
  // Whether a sequence can lose any number of its newest tokens (Sequence::truncate): not where
  // there are states or windows.
  bool cuts_back = false;
  // How the file says to make one embedding of the hidden states of a text, if it does: the number
  // of llama.cpp's enum llama_pooling_type. Of a reranker, how to make what is scored.
  std::optional<std::int64_t> pooling_type;
  bool is_encoder = false;          // writes no text, and wants all tokens of a text in one step
  bool makes_scores = false;        // a reranker or a classifier: text_vector() gives scores
  bool has_text_head = false;       // pooled states go through Engine::text_vector()
  std::uint32_t text_numbers = 0;   // of an embedding, or scores
  std::string rerank_template;      // with {query} and {document}; empty: the file has none
  std::uint64_t weights_bytes = 0;  // all tensors of the file
  DecodeWork work;                  // of a step of one token
  std::uint64_t pinned_bytes = 0;
  std::uint64_t planned_peak_bytes = 0;
};

// The plan of a run, made from the header of `model` without running it.
struct PlannedRun {
  plan::MemoryPlan plan;
  DecodeWork work;
  topology::CpuList cpus;  // of the threads that would compute here
};
PlannedRun plan_run(const std::filesystem::path& model, const EngineOptions& options);

struct StepPoint {
  double tokens = 0, seconds = 0;
};

// The time of a step with one token of each sequence of the run.
struct StepTime {
  double seconds = 0;                // the median of some steps
  std::vector<RehearsedStep> steps;  // all of them; ascending seconds
  // Whether streamed weights were read from the disk. If not, the file does not have them, or it
  // was not to be read, and the time is that of the arithmetic alone.
  bool has_read = true;
};
enum class ReadsDisk { yes, no };

struct OpenedModel;

// A model whose header and tokenizer have been read, once: to plan runs of it, and to open one of
// them.
class RunPlanner {
 public:
  // Throws what Engine::open throws for the file. With header_only the weights may be missing.
  explicit RunPlanner(const std::filesystem::path& model,
                      const gguf::ParseOptions& options = {.header_only = true});
  ~RunPlanner();
  RunPlanner(RunPlanner&& other) noexcept;
  RunPlanner& operator=(RunPlanner&& other) noexcept;

  const gguf::Model& header() const;
  const tokenizer::Tokenizer& tokenizer() const;

  PlannedRun plan(const EngineOptions& options) const;

  // Measures a step with one token of each sequence, without loading the weights
  // (engine/rehearsal.h). Meanwhile it holds all that the plan has except the weights, plus
  // dram_buffer_bytes(). Takes about a second, or as long as the step. `expert_hit_rate` is the
  // share of the experts needed that are in memory; nothing: that of tokens that choose as real
  // models do. Throws what plan() throws.
  StepTime rehearse_step(const EngineOptions& options, std::optional<double> expert_hit_rate = {},
                         ReadsDisk reads_disk = ReadsDisk::yes) const;

  // Measures steps of 1, 4, 16, ... tokens of one sequence, without reading from the disk. Ends at
  // `tokens_max`, when the sequence or the chunk has no room for more, or when time grows in
  // proportion to tokens and further ones need no further experts. A step of one token is always
  // measured.
  std::vector<StepPoint> rehearse_steps(const EngineOptions& options, std::uint64_t tokens_max,
                                        LogitsOf logits) const;

 private:
  friend class Engine;
  std::unique_ptr<OpenedModel> opened_;
};

class Session;

// One sequence of tokens. The engine that made it must outlive it. Destroying it frees its memory.
class Sequence {
 public:
  virtual ~Sequence() = default;

  virtual std::uint32_t position() const = 0;  // tokens so far
  // The most tokens that it may hold; with a window there is no limit (the largest uint32).
  virtual std::uint32_t capacity() const = 0;
  // Removes the tokens from `position` on. Throws UsageError when positions that are needed have
  // slid out of the window, or when shared pages would have to be copied and there is no room for
  // that.
  virtual void truncate(std::uint32_t position) = 0;
  // The largest position <= `position` at which it can be forked or truncated. Less than `position`
  // when what is needed has slid out of the window, or when recurrent states are not kept there.
  virtual std::uint32_t reachable(std::uint32_t position) const = 0;
  // Lets it go back to its present position, where there are recurrent states and memory is planned
  // for that (plan::RunSettings::checkpoints); an older such position is forgotten.
  virtual void checkpoint() {}
  // Changes how many positions there is room for: to `positions`, or to position() if that is more.
  // Returns false, and changes nothing, when the cache does not have so much free, or when a
  // sequence cannot be so long. A sequence without limit stays as it is.
  virtual bool reserve(std::uint32_t positions) = 0;
  // Says how many tokens an empty sequence will have before logits are wanted. Changes no result,
  // but a text that becomes longer than EngineFacts::short_tokens_max is evaluated only once then.
  virtual void expect(std::uint32_t /*tokens*/) {}
  // Ends a step with drafts (SequenceWork::drafts): appends the tokens that stood before them, and
  // the first `count` drafts. Nothing is left of the others. Until then the sequence is as before
  // the step. Call it before the next step; whatever else changes the sequence gives this step up.
  virtual void accept(std::size_t count) = 0;
  // Whether what it holds is that of a text that is longer: of use to others that are so, too.
  virtual bool is_long() const { return false; }
};

// Chooses the next guess by its logits [vocabulary]; nothing ends the guesses.
using ChooseGuess = std::function<std::optional<tokenizer::Token>(std::span<const float> logits)>;

using HiddenSink = std::function<void(std::size_t i, std::span<const float> hidden)>;

// What a step does for one sequence.
struct SequenceWork {
  Sequence* sequence;                        // at most once in a step
  std::span<const tokenizer::Token> tokens;  // to append, at least one
  bool wants_logits;                         // after the last token
  // Called at the end of a step that has not failed, for each token i of `tokens` in order, with
  // its hidden state after the output norm: [embedding] floats, valid during the call. Must not
  // throw. Empty: not wanted.
  HiddenSink on_hidden = {};
  // How many of the last tokens are drafts: guesses at what the logits before them will choose. The
  // step computes the logits after each of them too. It appends nothing, until Sequence::accept()
  // says which of them were right. Only with wants_logits, and behind one token at least that is no
  // draft; exactly one where EngineFacts::has_states is true.
  std::size_t drafts = 0;
};

class Engine {
 public:
  // Throws ModelError (bad or unsupported file), UsageError (options the model cannot satisfy),
  // Error with ExitCode::budget (the plan does not fit), std::system_error (I/O).
  static std::unique_ptr<Engine> open(const std::filesystem::path& model,
                                      const EngineOptions& options);
  // The same for a model whose header has been read with its weights there. What the process holds
  // by now is in the plan. The planner's tokenizer becomes the engine's and stays where it is.
  static std::unique_ptr<Engine> open(RunPlanner planner, const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const tokenizer::Tokenizer& tokenizer() const = 0;
  virtual const EngineFacts& facts() const = 0;
  virtual const plan::MemoryPlan& plan() const = 0;
  virtual streaming::TapeStatistics tape_statistics() const = 0;  // reads /proc: for reports
  // How the experts of all layers were used so far; nothing for a model without experts.
  virtual std::optional<streaming::ExpertStatistics> expert_statistics() const = 0;

  // Makes an empty sequence and reserves room for `positions` positions. Null when the cache does
  // not have that much free.
  virtual std::unique_ptr<Sequence> new_sequence(std::uint32_t positions) = 0;
  // The same, but the sequence begins with the first `prefix` tokens of `source` and shares their
  // pages. Throws UsageError when `source` does not have these tokens, or no longer has what the
  // next token would see.
  virtual std::unique_ptr<Sequence> fork(const Sequence& source, std::uint32_t prefix,
                                         std::uint32_t positions) = 0;
  // Fills the sequence, which must be empty, with the longest prefix of `tokens` that the prompt
  // cache has and the sequence has room for; Sequence::expect comes first. Returns its length; 0
  // without a prompt cache. All results after it are bit for bit those that computing the tokens
  // would have given.
  virtual std::uint32_t restore(Sequence& /*sequence*/,
                                std::span<const tokenizer::Token> /*tokens*/) {
    return 0;
  }
  // Writes `tokens`, which the sequence begins with, to the prompt cache if there is one. With a
  // window it can only save what has not slid out, so save after each part of a prompt.
  virtual void save(const Sequence& /*sequence*/, std::span<const tokenizer::Token> /*tokens*/) {}
  // Where a step should end, so that save() can keep as much of a prompt of `tokens` tokens as
  // restore() would look for: recurrent states are known where a step ends. 0: anywhere.
  virtual std::size_t saved_until(std::size_t /*tokens*/) const { return 0; }

  // Appends the tokens of all works in one pass over the tape. Returns, in the order of `works`,
  // the logits [1 + drafts][vocabulary] of each work that wants them, those before the drafts
  // first, and an empty span for each other; valid until the next call.
  //
  // Throws UsageError for more than step_columns() tokens, more than step_logits() logits, a
  // sequence that is full or occurs twice, an invalid token, drafts that do not stand where they
  // may, and drafts that make a short text a long one (EngineFacts::short_tokens_max);
  // std::system_error when weights cannot be read; and what EngineOptions::stop_check throws.
  // Nothing has changed then, and the step may be tried again.
  virtual std::span<const std::span<const float>> step(std::span<const SequenceWork> works) = 0;
  // Guesses what comes behind `next`, the next token of the sequence, which no step has had yet, by
  // the block of the model that predicts further tokens (EngineFacts::predicts). Calls `choose` up
  // to `most` times, each time with the logits of what comes behind what was chosen before. The
  // sequence stays as it is, but for drafts that are not accepted, which it drops; the logits of
  // the last step are no longer valid. Throws UsageError when the sequence has no room for `most`
  // tokens, and what step() throws.
  virtual void predict(Sequence& /*sequence*/, tokenizer::Token /*next*/, std::size_t /*most*/,
                       const ChooseGuess& /*choose*/) {}
  // What the model makes of the pooled hidden states of a text: EngineFacts::text_numbers numbers.
  virtual std::vector<float> text_vector(std::span<const float> pooled) const {
    return {pooled.begin(), pooled.end()};
  }
  virtual std::uint32_t step_columns() const = 0;    // most tokens of a step
  virtual std::uint32_t step_logits() const = 0;     // most tokens of a step with logits
  virtual std::uint32_t free_positions() const = 0;  // that new_sequence() can still reserve

  // One sequence over a whole context, owned by the engine. The first call reserves its room;
  // throws UsageError when other sequences have taken it.
  virtual Session& session() = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  // Appends tokens to the sequence and returns the logits after the last one: [vocabulary] floats,
  // valid until the next call. Throws what Engine::step throws; position() then tells how many
  // tokens were appended, in whole chunks. When the context has no room for all, throws UsageError
  // and appends none.
  virtual std::span<const float> evaluate(std::span<const tokenizer::Token> tokens) = 0;

  // The same, but calls `on_logits(i, logits)` after each token i of `tokens`, in order.
  virtual void evaluate_all(
      std::span<const tokenizer::Token> tokens,
      const std::function<void(std::size_t, std::span<const float>)>& on_logits) = 0;

  virtual std::uint32_t position() const = 0;         // tokens in the sequence
  virtual std::uint32_t capacity() const = 0;         // tokens it can hold; with a window: no limit
  virtual void clear() = 0;                           // removes all tokens
  virtual void truncate(std::uint32_t position) = 0;  // as Sequence::truncate
};

}  // namespace sluice::engine
