// Models that are planned beside each other at one budget, and which of them to take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/quick_plan.h"

namespace sluice::cli {

struct Candidate {
  std::string name, quant;
  std::uint64_t bytes = 0;
  std::uint64_t weights = 0;        // how many numbers
  std::uint64_t weights_bytes = 0;  // which are the file's, but for its header
  bool fits = false;
  std::uint64_t least_budget_bytes = 0;
  std::uint64_t streamed_bytes = 0;    // of a step
  std::optional<double> tokens_per_s;  // nothing: not known, or it does not fit

  double bits_per_weight() const;
};

// What a plan says of one. `bytes` is the size of the file. The speed is left open.
Candidate planned_candidate(std::string name, std::string quant, std::uint64_t bytes,
                            const engine::RunPlanner& planner, const QuickPlan& quick);

struct ChoiceRule {
  double enough_tokens_per_s = 5;     // to read along with
  std::string_view does = "reaches";  // so many tokens a second, for people
  bool prefers_large_models = false;  // candidates are of several models
};

struct Choice {
  const Candidate* candidate = nullptr;  // null: none fits
  std::string reason;
};

// More bits make a model better, and slower, as more weights do. So of what is fast enough the
// largest model is taken, and its most precise file; beyond 8 bits a weight there is next to
// nothing to gain. If nothing is fast enough, the fastest that fits.
Choice choose(const std::vector<Candidate>& candidates, const ChoiceRule& rule);

// What a choice is, for people, where something is fast enough.
std::string enough_text(const ChoiceRule& rule);

// Lines for people, under a line of titles. `what` is the title of the names, and `step` what the
// disk is read for each time: "token", or "step", which has several.
std::string candidate_table(const std::vector<Candidate>& candidates, const Choice& choice,
                            std::string_view what, std::string_view step = "token");

// {name, bytes, quant, fits, least_budget_bytes, streamed_bytes_per_step, `speed_name`, is_choice}.
nlohmann::ordered_json candidate_json(const Candidate& candidate, const Choice& choice,
                                      const char* speed_name);

// Throws Error with ExitCode::budget, which says the least budget that one of them needs; there is
// one. `what` is what they are: "files".
[[noreturn]] void throw_none_fits(std::string_view what, std::uint64_t budget_bytes,
                                  const std::vector<Candidate>& candidates);

}  // namespace sluice::cli
