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

// How a scheduler drafts with these options.
serve::DraftOptions draft_options(const SpeculateOptions& options);

// Warns that a model cannot do what the user asked for.
void warn_of_drafts(const CommonOptions& options, const engine::EngineFacts& facts);

// Adds to a report: drafted_tokens and accepted_tokens, in `speculation` also by source; and
// tokens_per_step, what a text gains in a step that generates.
void report_drafts(const SpeculateOptions& options, const serve::SchedulerCounts& counts,
                   nlohmann::ordered_json& report);

}  // namespace sluice::cli
