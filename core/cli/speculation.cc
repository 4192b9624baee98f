#include "core/cli/speculation.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "core/cli/draft_model.h"
#include "core/cli/output.h"
#include "core/error.h"
#include "core/model/keys.h"
#include "core/serve/guesser.h"
#include "core/speculate/shared_texts.h"
#include "core/speculate/suffix_source.h"

namespace sluice::cli {
namespace {

// Whether guesses come from the text itself.
bool looks_up(const std::string& mode) {
  return mode == "auto" || mode == "suffix" || mode == "ngram";
}

}  // namespace

void add_speculate_options(CLI::App& command, CommonOptions& options,
                           const std::string& default_mode) {
  options.speculate.mode = default_mode;
  command
      .add_option(
          "--speculate", options.speculate.mode,
          "Guess the next tokens from what the text repeats, with the block that some models have "
          "for it (mtp), or with the model of --draft, and check several in one step; the text "
          "stays the same. auto does so where measured steps show that it is faster, suffix (or "
          "ngram), mtp and draft wherever there is a guess")
      ->check(one_of({"auto", "off", "suffix", "ngram", "mtp", "draft"}))
      ->type_name("auto|off|suffix|ngram|mtp|draft")
      ->capture_default_str()
      ->group("Speculation");
  command
      .add_option_function<std::string>(
          "--draft",
          [&options](const std::string& path) {
            options.speculate.draft_model = std::make_shared<DraftModel>(path);
          },
          "A small model with the same vocabulary, whose guesses are checked. It stays in memory "
          "as a whole, within --budget")
      ->transform(named_model(command))
      ->type_name("MODEL")
      ->group("Speculation");
  command
      .add_option("--draft-max", options.speculate.draft_max, "Most guesses for a text in one step")
      ->check(count_between(1, 64))
      ->each([&options](const std::string&) { options.speculate.has_draft_max = true; })
      ->type_name("N")
      ->capture_default_str()
      ->group("Speculation");
}

void read_draft_model(const SpeculateOptions& speculate) {
  if (speculate.draft_model) speculate.draft_model->read();
}

void check_speculation(const SpeculateOptions& speculate) {
  const bool is_needed = speculate.mode == "draft";
  if (is_needed && !speculate.draft_model) {
    throw UsageError("--speculate draft needs a model that guesses: give --draft MODEL");
  }
  if (speculate.draft_model && !is_needed && speculate.mode != "auto") {
    throw UsageError(fmt::format("--draft is of no use with --speculate {}: give auto or draft",
                                 speculate.mode));
  }
}

void plan_draft_model(const CommonOptions& common, std::uint32_t rows,
                      engine::EngineOptions& options) {
  const SpeculateOptions& speculate = common.speculate;
  if (speculate.is_off() && speculate.has_draft_max && !common.quiet) {
    warn("--draft-max is of no use with --speculate off: give auto, or leave it out");
  }
  if (speculate.draft_model) speculate.draft_model->plan_for(options, rows);
}

void settle_draft_model(const CommonOptions& common, const engine::RunPlanner& planner,
                        engine::EngineOptions& options) {
  const SpeculateOptions& speculate = common.speculate;
  if (!speculate.draft_model) return;
  speculate.draft_model->check_vocabulary(planner);
  if (speculate.mode != "auto") return;
  // A draft model brings about so much where it brings something.
  constexpr double gain = 1.3;
  const engine::PlannedRun with = planner.plan(options);
  engine::EngineOptions alone = options;
  alone.helper.clear();
  const auto streamed = static_cast<double>(planner.plan(alone).work.streamed_bytes);
  const bool pays =
      with.plan.fits() && static_cast<double>(with.work.streamed_bytes) <= gain * streamed;
  if (pays) return;
  speculate.draft_model->close();
  options = alone;
  if (common.quiet) return;
  warn(
      fmt::format("--draft {}: left out, since its memory is worth more to the weights of the "
                  "model; --speculate draft takes it all the same, --budget gives more",
                  speculate.draft_model->path().string()));
}

void settle_predictor(const SpeculateOptions& speculate, const engine::RunPlanner& planner,
                      engine::EngineOptions& options) {
  const bool has_block = model::Keys(planner.header()).whole_or("nextn_predict_layers", 0) != 0;
  if (speculate.mode != "auto" || !has_block) return;
  constexpr double dearer = 1.1;  // what a step may stream with it
  options.predicts = false;
  engine::EngineOptions predicting = options;
  predicting.predicts = true;
  try {
    const engine::PlannedRun with = planner.plan(predicting);
    const engine::PlannedRun without = planner.plan(options);
    options.predicts = with.plan.fits() && with.plan.context == without.plan.context &&
                       with.plan.logits_columns == without.plan.logits_columns &&
                       with.plan.has_room_for_drafts() &&
                       static_cast<double>(with.work.streamed_bytes) <=
                           dearer * static_cast<double>(without.work.streamed_bytes);
  } catch (const Error&) {  // it has no such block, or not as it should be
  }
}

void open_draft_model(const SpeculateOptions& speculate, const engine::Engine& engine,
                      const engine::EngineOptions& options) {
  if (options.helper.empty() || !engine.facts().takes_drafts) return;
  speculate.draft_model->open(engine, options.on_load);
}

void close_draft_model(const SpeculateOptions& speculate) {
  if (speculate.draft_model) speculate.draft_model->close();
}

serve::DraftOptions draft_options(const SpeculateOptions& options) {
  serve::DraftOptions drafts;
  if (options.is_off()) return drafts;
  drafts.row_max = options.draft_max;
  drafts.is_eager = options.mode != "auto";
  drafts.uses_predictor = options.mode == "auto" || options.mode == "mtp";
  const std::shared_ptr<DraftModel> model = options.draft_model;
  if (model) drafts.bytes_per_token = serve::Drafter::bytes_per_token;
  const auto shared = std::make_shared<speculate::SharedTexts>();
  drafts.make_sources = [model, shared, looks_up = looks_up(options.mode),
                         is_auto = options.mode == "auto"](const rows::Task& task) {
    // A prompt that the draft model would read for a few tokens costs more than it brings.
    constexpr std::size_t prompt_per_token = 16;
    const bool is_long = task.prompt.size() / prompt_per_token > task.tokens_max;
    serve::DraftOptions::Sources sources;
    if (looks_up) {
      sources.push_back(
          std::make_unique<speculate::SuffixSource>(task.prediction, shared, task.drafts_group));
    }
    const std::shared_ptr<serve::Drafter> drafter = model ? model->drafter() : nullptr;
    if (drafter && (!is_auto || !is_long)) sources.push_back(serve::make_draft_source(drafter));
    return sources;
  };
  return drafts;
}

double draft_seconds(const SpeculateOptions& speculate, engine::Engine& engine) {
  const auto drafter = speculate.draft_model ? speculate.draft_model->drafter() : nullptr;
  if (drafter) return drafter->seconds_each();
  return engine.facts().predicts ? serve::Guesser(engine).seconds_each() : 0;
}

void warn_of_drafts(const CommonOptions& options, const engine::EngineFacts& facts) {
  const SpeculateOptions& speculate = options.speculate;
  if (speculate.is_off() || speculate.mode == "auto" || facts.takes_drafts) return;
  warn(fmt::format(
      "--speculate {}: nothing is guessed, since the model cannot take tokens back, or the run has "
      "no memory for guesses (--budget gives more)",
      speculate.mode));
}

std::string drafts_text(const serve::SchedulerCounts& counts) {
  if (counts.tokens_drafted == 0) return {};
  return fmt::format(", {} of {} guesses were right ({:.2f} tokens a step)", counts.tokens_accepted,
                     counts.tokens_drafted, counts.tokens_per_step());
}

void report_drafts(const SpeculateOptions& options, const serve::SchedulerCounts& counts,
                   nlohmann::ordered_json& report) {
  report["drafted_tokens"] = counts.tokens_drafted;
  report["accepted_tokens"] = counts.tokens_accepted;
  report["tokens_per_step"] = counts.tokens_per_step();
  nlohmann::ordered_json& sources = report["speculation"] = nlohmann::ordered_json::object();
  if (options.is_off()) return;
  const auto is_used = [&](speculate::Kind kind) {
    if (kind == speculate::Kind::suffix) return looks_up(options.mode);
    if (kind == speculate::Kind::draft) return options.draft_model != nullptr;
    return options.mode == "mtp";
  };
  for (std::size_t kind = 0; kind < speculate::kind_names.size(); ++kind) {
    const speculate::DraftCounts& of_kind = counts.drafts_by_kind[kind];
    if (!is_used(static_cast<speculate::Kind>(kind)) && of_kind.drafted == 0) continue;
    sources[std::string(speculate::kind_names[kind])] = {{"drafted", of_kind.drafted},
                                                         {"accepted", of_kind.accepted}};
  }
}

}  // namespace sluice::cli
