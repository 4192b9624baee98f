// --speculate: the options of drafts, as several commands share them, and what became of the
// drafts.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "core/cli/options.h"
#include "core/engine/engine.h"
#include "core/serve/scheduler.h"

namespace sluice::cli {

// --speculate, with this default, and --draft-max.
void add_speculate_options(CLI::App& command, CommonOptions& options,
                           const std::string& default_mode = "auto");

// Reads the header of the model of --draft, if there is one: what it holds belongs to the program
// when a plan of the other model is made.
void read_draft_model(const SpeculateOptions& speculate);

// Throws UsageError for options that do not go together.
void check_speculation(const SpeculateOptions& speculate);

// Adds the lines of the model of --draft to the options of the model that it helps. At most `rows`
// texts have its drafts at a time.
void plan_draft_model(const CommonOptions& common, std::uint32_t rows,
                      engine::EngineOptions& options);

// Before the model is opened: refuses a draft model with another vocabulary; and with --speculate
// auto leaves out, with a warning, one whose memory is worth more to the weights.
void settle_draft_model(const CommonOptions& common, const engine::RunPlanner& planner,
                        engine::EngineOptions& options);

// With --speculate auto: takes the model's own block that predicts further tokens, if it has one,
// the plan fits with it, and a step hardly streams more for it. Otherwise it is left out, also
// where it was taken for other options.
void settle_predictor(const SpeculateOptions& speculate, const engine::RunPlanner& planner,
                      engine::EngineOptions& options);

// Loads the draft model, if it is in the options of the engine.
void open_draft_model(const SpeculateOptions& speculate, const engine::Engine& engine,
                      const engine::EngineOptions& options);

void close_draft_model(const SpeculateOptions& speculate);

// How a scheduler drafts with these options.
serve::DraftOptions draft_options(const SpeculateOptions& options);

// Warns that a model cannot do what the user asked for.
void warn_of_drafts(const CommonOptions& options, const engine::EngineFacts& facts);

// Seconds that the draft model, or the model's own predicting block, takes for a token; 0 when
// there is none.
double draft_seconds(const SpeculateOptions& speculate, engine::Engine& engine);

// ", 60 of 80 guesses were right (1.92 tokens a step)"; empty when nothing was guessed.
std::string drafts_text(const serve::SchedulerCounts& counts);

// Adds to a report: drafted_tokens and accepted_tokens, in `speculation` also by source; and
// tokens_per_step, what a text gains in a step that generates.
void report_drafts(const SpeculateOptions& options, const serve::SchedulerCounts& counts,
                   nlohmann::ordered_json& report);

}  // namespace sluice::cli
