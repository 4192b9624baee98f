// Runs steps: tokens of one or several sequences go through the model in one pass over the tape.
//
// Allocates everything that a step needs, as planned. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/model/compute.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"
#include "core/plan/memory_plan.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/kv_cache.h"
#include "streaming/streamed_tape.h"

namespace sluice::engine {

// The part of one sequence in a step. A sequence has at most one part in a step.
struct StepPart {
  kvcache::Sequence* sequence;
  std::span<const tokenizer::Token> tokens;  // to append, at least one
  std::size_t logits;                        // how many of the last tokens get logits
  // Called with the hidden state after the output norm of each token; empty: not wanted.
  std::function<void(std::size_t i, std::span<const float> hidden)> on_hidden = {};
  // With a predictor: the hidden state after the token before these; empty: not known.
  std::span<const float> state = {};
  // How many of the last tokens are drafts. If there are any, the keys and values of all tokens are
  // written, but the sequence does not grow.
  std::size_t drafts = 0;
};

// Throws UsageError when `count` more tokens than `length` do not fit into the sequence.
void require_room(const kvcache::Sequence& sequence, std::size_t length, std::size_t count);

class Stepper {
 public:
  // Owns only the embedding tables; that of the predictor is needed where it has one of its own.
  // `tokens` is the size of the tokenizer's vocabulary; the model may have more rows (padding),
  // never fewer. The logits of the tokens in `suppressed`, each below `tokens`, are always minus
  // infinity.
  Stepper(model::Decoder& decoder, const plan::MemoryPlan& plan,
          const kernels::KernelTable& kernels, topology::ThreadTeam& team,
          streaming::StreamedTape& tape, model::EmbeddingTable embedding,
          std::optional<model::EmbeddingTable> predictor_embedding, std::size_t tokens,
          std::vector<tokenizer::Token> suppressed);

  std::size_t columns_max() const { return plan_.chunk; }  // most tokens of a step

  kvcache::KvCache& cache() { return cache_; }
  const kvcache::KvCache& cache() const { return cache_; }

  // The most tokens of a text whose keys are rotated as those of a short one (kvcache::Sequence::
  // is_long). No limit where all texts are rotated alike, and where a window hides what is farther.
  std::uint32_t short_tokens_max() const { return short_tokens_max_; }

  // Called many times a step; what it throws ends the step.
  void set_stop_check(std::function<void()> check) { compute_.set_stop_check(std::move(check)); }
  void set_watch(model::MatrixWatch watch) { compute_.set_watch(std::move(watch)); }
  void set_expert_watch(model::ExpertWatch watch) { compute_.set_expert_watch(std::move(watch)); }

  // Runs a step of at most plan.chunk tokens and plan.logits_columns logits. Throws UsageError when
  // something does not fit or a token is invalid, std::system_error when weights cannot be read,
  // and what the stop check throws. The sequences are then as before, and the step may be run
  // again.
  void run(std::span<const StepPart> parts);

  // Ends the part of a sequence with drafts in the last step: it grows by the first `count` of its
  // tokens. Changes no other sequence.
  void accept(kvcache::Sequence& sequence, std::size_t count);

  // The hidden state after the first `count` tokens of the part of a sequence in the last step.
  // Empty without a predictor, and if the step had no such part. Valid until the next step.
  std::span<const float> state_after(const kvcache::Sequence& sequence, std::size_t count) const;

  // With a predictor: guesses what comes behind `next`, which is the next token of the sequence and
  // follows the hidden state `state` (empty: not known). Calls `choose` with the logits of up to
  // `most` guesses, each of which follows from those before it. Changes no sequence. Throws what
  // run() throws, but does not ask the stop check: it takes a small part of a step.
  void predict(kvcache::Sequence& sequence, std::span<const float> state, tokenizer::Token next,
               std::size_t most, const ChooseGuess& choose);

  // `count` logits of the last step from the i-th on, in the order of parts and tokens:
  // [count][vocabulary], valid until the next step.
  std::span<const float> logits(std::size_t i, std::size_t count = 1) const;

 private:
  void check(std::span<const StepPart> parts) const;
  void require_token(tokenizer::Token token) const;
  void embed(std::span<const StepPart> parts);
  void store_predicted(std::span<const StepPart> parts);
  void mask(std::span<float> logits) const;
  void find_kept(std::span<const StepPart> parts);
  void run_head(std::span<const StepPart> parts, std::size_t count, const float* hidden);
  void tell_hidden(std::span<const StepPart> parts, const float* hidden) const;
  model::EmbeddingTable& predictor_table() {
    return predictor_embedding_ ? *predictor_embedding_ : embedding_;
  }
  float* column(std::size_t c) const;
  std::span<float> row_of_logits(std::size_t i) const;

  model::Decoder& decoder_;
  const plan::MemoryPlan& plan_;
  streaming::StreamedTape& tape_;
  model::EmbeddingTable embedding_;
  std::optional<model::EmbeddingTable> predictor_embedding_;
  std::size_t tokens_;
  std::uint32_t short_tokens_max_;
  std::vector<tokenizer::Token> suppressed_;
  kvcache::KvCache cache_;
  model::Compute compute_;
  topology::AlignedBytes x_;       // [chunk][embedding]
  topology::AlignedBytes logits_;  // [logits_columns][vocabulary]
  std::vector<model::Column> columns_;
  // Of the last step: columns, and which of them are those of a sequence; the columns of parts with
  // drafts.
  struct Kept {
    const kvcache::Sequence* sequence;
    std::size_t first, count;
  };
  std::vector<std::size_t> kept_columns_;
  std::vector<Kept> kept_;
  const float* hidden_ = nullptr;   // of the last step, [columns][embedding], with a predictor
  std::vector<Kept> hidden_of_;     // of its parts
  std::vector<float> guess_state_;  // [embedding], of the guess before
};

}  // namespace sluice::engine
