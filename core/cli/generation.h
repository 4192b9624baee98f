// Generation, as `run` and `chat` share it: texts that a scheduler writes one after the other,
// each as its only row, and what they have taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/run_status.h"
#include "core/engine/engine.h"
#include "core/rows/task.h"
#include "core/serve/scheduler.h"

namespace sluice::cli {

// Counts what is held for a text beside the engine: tokens of a context that are read ahead, and
// what guesses look through.
void count_text(const CommonOptions& options, engine::EngineOptions& settings);

struct GenerationCounts {
  serve::SchedulerCounts rows;
  double prompt_seconds = 0;      // with reading the prompt cache
  std::uint64_t step_tokens = 0;  // computed behind the prompts: the last of a text need not be
  double steps_seconds = 0;

  std::uint64_t reused_tokens() const {  // of prompts, held already for an earlier text
    return rows.prompt_tokens_shared - rows.prompt_tokens_restored;
  }
  Throughput throughput() const {
    return {.prefill_tokens_per_s = rate(rows.prompt_tokens_evaluated, prompt_seconds),
            .decode_tokens_per_s = rate(step_tokens, steps_seconds)};
  }
};

// Writes the report of --report, if it is asked for.
void write_report(const RunWatch& watch, const CommonOptions& common, const RunRecord& run,
                  const GenerationCounts& counts);

// "prompt 12 tokens (80.00 tokens/s), generated 5 tokens (7.00 tokens/s)".
std::string generation_line(const GenerationCounts& counts);

enum class GenerationEnd {
  text,         // the model ended the text
  stop_text,    // a stop text was found
  tokens_max,   // as many tokens as were asked for
  context,      // the context is full
  interrupted,  // by a signal, perhaps before there was any text
  unwanted,     // the output returned false
};

class TextWriter {
 public:
  // Called with each token, and at the end perhaps with text that was held back. Returns false to
  // end the text.
  using Output = std::function<bool(const rows::TokenEvent& event)>;

  // `engine`, which must have no sequences, `status` and `progress` must outlive the writer.
  TextWriter(engine::Engine& engine, const SpeculateOptions& speculate, RunStatus& status,
             Progress& progress);

  std::uint32_t positions_max() const { return positions_max_; }  // that a text may have

  // Writes a text of at most `tokens_max` tokens (-1: as many as the context allows). What an
  // earlier text began alike is not computed again. The prompt must fit into positions_max().
  // Throws what the engine, the task and the output throw.
  GenerationEnd write(rows::Task task, std::int64_t tokens_max, Output output);

  const GenerationCounts& counts() const { return counts_; }
  std::size_t held_tokens() const { return scheduler_.kept_tokens(); }  // of the last text

 private:
  void take(const rows::TokenEvent& event);
  void step();
  void show_progress();
  GenerationEnd end_of_text(std::uint64_t tokens_max) const;

  RunStatus& status_;
  Progress& progress_;
  std::uint32_t positions_max_;
  std::optional<rows::Task> task_;  // that the scheduler has not taken yet
  Output output_;
  bool is_wanted_ = true;
  std::uint64_t text_tokens_ = 0, prompt_tokens_ = 0;  // of the present text
  GenerationCounts before_;                            // it
  std::optional<rows::Outcome> outcome_;
  GenerationCounts counts_;
  serve::Scheduler scheduler_;
};

}  // namespace sluice::cli
