#include "core/cli/speculation.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>

#include "core/cli/output.h"
#include "core/speculate/suffix_source.h"

namespace sluice::cli {
namespace {

// Refuses the sources that this version does not have, with a message of their own.
CLI::Validator source_name() {
  const CLI::Validator known = one_of({"auto", "off", "suffix", "ngram"});
  return {[known](std::string& text) -> std::string {
            if (text == "mtp" || text == "draft") {
              return fmt::format(
                  "this version has no drafts of the kind \"{}\": give auto or "
                  "suffix",
                  text);
            }
            return known(text);
          },
          ""};
}

}  // namespace

void add_speculate_options(CLI::App& command, CommonOptions& options,
                           const std::string& default_mode) {
  options.speculate.mode = default_mode;
  command
      .add_option(
          "--speculate", options.speculate.mode,
          "Guess the next tokens from what the text repeats, and check several in one step; the "
          "text stays the same. auto does so where measured steps show that it is faster, suffix "
          "(or ngram) wherever there is a guess")
      ->check(source_name())
      ->type_name("auto|off|suffix|ngram")
      ->capture_default_str()
      ->group("Speculation");
  command
      .add_option("--draft-max", options.speculate.draft_max, "Most guesses for a text in one step")
      ->check(count_between(1, 64))
      ->type_name("N")
      ->capture_default_str()
      ->group("Speculation");
}

serve::DraftOptions draft_options(const SpeculateOptions& options) {
  serve::DraftOptions drafts;
  if (options.is_off()) return drafts;
  drafts.row_max = options.draft_max;
  drafts.is_eager = options.mode != "auto";
  drafts.make_source = [](const rows::Task& task) {
    return std::make_unique<speculate::SuffixSource>(task.prediction);
  };
  return drafts;
}

void warn_of_drafts(const CommonOptions& options, const engine::EngineFacts& facts) {
  const SpeculateOptions& speculate = options.speculate;
  if (speculate.is_off() || speculate.mode == "auto" || facts.takes_drafts) return;
  warn(fmt::format("--speculate {}: nothing is guessed, since this run cannot take tokens back",
                   speculate.mode));
}

void report_drafts(const SpeculateOptions& options, const serve::SchedulerCounts& counts,
                   nlohmann::ordered_json& report) {
  report["drafted_tokens"] = counts.tokens_drafted;
  report["accepted_tokens"] = counts.tokens_accepted;
  // Each step chooses a token besides those that were guessed right; the last may be an end.
  const auto steps = static_cast<double>(std::max<std::uint64_t>(counts.row_steps, 1));
  report["tokens_per_step"] = 1 + static_cast<double>(counts.tokens_accepted) / steps;
  nlohmann::ordered_json& sources = report["speculation"] = nlohmann::ordered_json::object();
  if (options.is_off()) return;
  sources["suffix"] = {{"drafted", counts.tokens_drafted}, {"accepted", counts.tokens_accepted}};
}

}  // namespace sluice::cli
