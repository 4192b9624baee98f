#include "core/cli/generation.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <utility>

#include "core/cli/interrupt.h"
#include "core/cli/speculation.h"
#include "core/cli/token_reader.h"
#include "core/error.h"
#include "core/serve/drafter.h"
#include "core/speculate/suffix_source.h"

namespace sluice::cli {

void count_text(const CommonOptions& options, engine::EngineOptions& settings) {
  settings.caller_bytes += TokenReader::bytes_max;
  std::uint64_t& per_position = settings.caller_bytes_per_position;
  per_position += TokenReader::bytes_per_token;
  if (!options.speculate.is_off()) {
    settings.caller_bytes_per_newest = speculate::SuffixSource::bytes_of(1);
    settings.caller_newest_max = speculate::SuffixSource::tokens_max;
  }
  if (options.speculate.draft_model) per_position += serve::Drafter::bytes_per_token;
}

void write_report(const RunWatch& watch, const CommonOptions& common, const RunRecord& run,
                  const GenerationCounts& counts) {
  Throughput throughput = counts.throughput();
  // With guesses a step gives several tokens; behind a few tokens it tells little.
  constexpr std::uint64_t tokens_min = 16;
  if (counts.rows.tokens_drafted == 0 && counts.step_tokens >= tokens_min) {
    throughput.steps_per_s = throughput.decode_tokens_per_s;
  }
  if (common.report.empty()) return watch.remember(common, run, throughput);
  nlohmann::ordered_json report = watch.report(common, run, throughput);
  report_drafts(common.speculate, counts.rows, report);
  write_report_file(common, report);
}

std::string generation_line(const GenerationCounts& counts) {
  const auto speed = [](std::optional<double> tokens_per_s) {
    return tokens_per_s ? fmt::format(" ({} tokens/s)", format_speed(*tokens_per_s))
                        : std::string();
  };
  const Throughput throughput = counts.throughput();
  const serve::SchedulerCounts& rows = counts.rows;
  const std::string restored =
      rows.prompt_tokens_restored == 0
          ? ""
          : fmt::format(" and {} from the prompt cache", rows.prompt_tokens_restored);
  return fmt::format("prompt {} tokens{}{}, generated {} tokens{}{}", rows.prompt_tokens_evaluated,
                     speed(throughput.prefill_tokens_per_s), restored, rows.tokens_generated,
                     speed(throughput.decode_tokens_per_s), drafts_text(rows));
}

// A sequence is kept for what comes next, if it begins alike by a token.
TextWriter::TextWriter(engine::Engine& engine, const SpeculateOptions& speculate, RunStatus& status,
                       Progress& progress)
    : status_(status),
      progress_(progress),
      positions_max_(engine.free_positions()),
      scheduler_(
          engine,
          {.parallel = 1,
           .shared_tokens_min = 1,
           .kept_max = 1,
           .drafts = draft_options(speculate)},
          [this](rows::Priority) { return std::exchange(task_, std::nullopt); },
          [this](const rows::Task&, const rows::Outcome& outcome) { outcome_ = outcome; },
          [this](const rows::Task&, const rows::TokenEvent& event) { take(event); }) {}

void TextWriter::take(const rows::TokenEvent& event) {
  progress_.clear();
  text_tokens_ += event.token ? 1 : 0;
  if (is_wanted_) is_wanted_ = output_(event);
}

GenerationEnd TextWriter::write(rows::Task task, std::int64_t tokens_max, Output output) {
  const auto wanted = static_cast<std::uint64_t>(tokens_max);  // -1: more than there is room for
  // The last token takes no room. Where no token is wanted the prompt is computed all the same.
  const std::uint64_t room = std::uint64_t{positions_max_} + 1 - task.prompt.size();
  task.tokens_max = static_cast<std::uint32_t>(std::min(std::max<std::uint64_t>(wanted, 1), room));
  task.priority = rows::Priority::interactive;
  if (wanted == 0) output = [](const rows::TokenEvent&) { return true; };
  output_ = std::move(output);
  is_wanted_ = true;
  text_tokens_ = 0;
  prompt_tokens_ = task.prompt.size();
  before_ = counts_;
  task_ = std::move(task);
  for (outcome_.reset(); !outcome_;) step();
  progress_.clear();
  status_.rest();
  if (wanted == 0) counts_.rows.tokens_generated -= text_tokens_;
  return end_of_text(wanted);
}

// What interrupts a step leaves the row as it was; then it ends with the text that it has.
void TextWriter::step() {
  if (interrupt_signal() != 0 || !is_wanted_) scheduler_.cancel(0, "ended");
  const bool is_prompt = text_tokens_ == 0;
  if (is_prompt) show_progress();
  const Stopwatch watch;
  try {
    scheduler_.step();
  } catch (const Interrupted&) {
    return;
  } catch (...) {
    scheduler_.end_all("the step failed");
    throw;
  }
  const serve::SchedulerCounts before = std::exchange(counts_.rows, scheduler_.counts());
  status_.set_guesses(counts_.rows);
  if (counts_.rows.steps == before.steps) return;
  if (is_prompt) {
    counts_.prompt_seconds += watch.seconds();
    status_.add_tokens(counts_.rows.prompt_tokens_evaluated - before.prompt_tokens_evaluated);
  } else {
    const std::uint64_t generated = counts_.rows.tokens_generated - before.tokens_generated;
    counts_.step_tokens += std::max<std::uint64_t>(generated, 1);
    counts_.steps_seconds += watch.seconds();
    status_.add_tokens(std::max<std::uint64_t>(generated, 1));
  }
}

// A prompt without an end is read while it is computed, so more of it may be done than is known.
void TextWriter::show_progress() {
  const serve::SchedulerCounts &now = counts_.rows, &before = before_.rows;
  const std::uint64_t computed = now.prompt_tokens_evaluated - before.prompt_tokens_evaluated;
  const std::uint64_t done = computed + now.prompt_tokens_shared - before.prompt_tokens_shared;
  const double seconds = counts_.prompt_seconds - before_.prompt_seconds;
  progress_.show(fmt::format("prompt: {} of {} tokens, {} tokens/s", done,
                             std::max(done, prompt_tokens_),
                             format_speed(rate(computed, seconds).value_or(0))));
}

GenerationEnd TextWriter::end_of_text(std::uint64_t tokens_max) const {
  if (outcome_->end == rows::Outcome::End::failed) {
    if (outcome_->cause) std::rethrow_exception(outcome_->cause);
    throw UsageError(outcome_->problem);
  }
  if (!is_wanted_) return GenerationEnd::unwanted;
  if (outcome_->end == rows::Outcome::End::cancelled) return GenerationEnd::interrupted;
  if (tokens_max == 0) return GenerationEnd::tokens_max;
  const rows::Completion& completion = outcome_->completion;
  if (completion.finish == rows::Finish::stop) {
    return completion.has_stop_text ? GenerationEnd::stop_text : GenerationEnd::text;
  }
  return completion.completion_tokens < tokens_max ? GenerationEnd::context
                                                   : GenerationEnd::tokens_max;
}

}  // namespace sluice::cli
