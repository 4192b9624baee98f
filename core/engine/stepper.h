// Runs steps: tokens of one or several sequences through the model in one turn of the tape.
//
// Allocates all that a step needs, as planned. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/model/compute.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"
#include "core/plan/memory_plan.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/kv_cache.h"
#include "streaming/streamed_tape.h"

namespace sluice::engine {

// What a step does for one sequence. No sequence may have two parts in a step.
struct StepPart {
  kvcache::Sequence* sequence;
  std::span<const tokenizer::Token> tokens;  // to append, at least one
  std::size_t logits;                        // wanted of so many of the last tokens
};

// Throws UsageError when so many more tokens do not fit into the sequence.
void require_room(const kvcache::Sequence& sequence, std::size_t count);

class Stepper {
 public:
  // None is owned but the embedding table. `tokens`: the vocabulary of the tokenizer; the model may
  // have more rows than that (padding), never fewer. `suppressed`: tokens, less than that, whose
  // logits are always minus infinity.
  Stepper(model::Decoder& decoder, const plan::MemoryPlan& plan,
          const kernels::KernelTable& kernels, topology::ThreadTeam& team,
          streaming::StreamedTape& tape, model::EmbeddingTable embedding, std::size_t tokens,
          std::vector<tokenizer::Token> suppressed);

  kvcache::KvCache& cache() { return cache_; }
  const kvcache::KvCache& cache() const { return cache_; }

  // Asked many times a step; what it throws ends the step.
  void set_stop_check(std::function<void()> check) { compute_.set_stop_check(std::move(check)); }
  void set_watch(model::MatrixWatch watch) { compute_.set_watch(std::move(watch)); }

  // Runs a step of at most plan.chunk tokens and plan.logits_columns logits. Throws UsageError for
  // what does not fit or is no token, std::system_error when weights cannot be read, and what the
  // stop check throws. The sequences are then as before, and the step may be run again.
  void run(std::span<const StepPart> parts);

  // Logits number i of the last step, in the order of parts and tokens: [vocabulary], valid until
  // the next step.
  std::span<const float> logits(std::size_t i) const;

 private:
  void check(std::span<const StepPart> parts) const;
  void embed(std::span<const StepPart> parts);
  void run_head(std::span<const StepPart> parts, std::size_t count);
  float* column(std::size_t c) const;
  std::span<float> row_of_logits(std::size_t i) const;

  model::Decoder& decoder_;
  const plan::MemoryPlan& plan_;
  streaming::StreamedTape& tape_;
  model::EmbeddingTable embedding_;
  std::size_t tokens_;
  std::vector<tokenizer::Token> suppressed_;
  kvcache::KvCache cache_;
  model::Compute compute_;
  model::AlignedBytes x_;       // [chunk][embedding]
  model::AlignedBytes logits_;  // [logits_columns][vocabulary]
  std::vector<model::Column> columns_;
};

}  // namespace sluice::engine
