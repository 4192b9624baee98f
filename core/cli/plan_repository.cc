#include "core/cli/plan_repository.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/output.h"
#include "core/cli/plan_choice.h"
#include "core/cli/pull.h"
#include "core/cli/quick_plan.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

struct Refused {
  std::string name;
  std::uint64_t bytes = 0;
  std::string reason;
};

class Repository {
 public:
  explicit Repository(const PlanOptions& options) : options_(options) {}

  void add(const fetch::RepositoryModel& model) {
    try {
      if (!model.problem.empty()) throw ModelError(model.problem);
      candidates_.push_back(plan(model));
    } catch (const ModelError& error) {
      refused_.push_back({model.name, model.bytes, error.what()});
    }
  }

  bool has_fitting() const { return std::ranges::any_of(candidates_, &Candidate::fits); }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }

  ordered_json json() const {
    const Choice choice = choose(candidates_, {});
    ordered_json files = ordered_json::array(), refused = ordered_json::array();
    for (const Candidate& one : candidates_) {
      files.push_back(candidate_json(one, choice, "predicted_decode_tokens_per_s"));
    }
    for (const Refused& one : refused_) {
      refused.push_back({{"name", one.name}, {"bytes", one.bytes}, {"reason", one.reason}});
    }
    ordered_json json = {{"budget_bytes", budget_bytes_},
                         {"files", std::move(files)},
                         {"refused", std::move(refused)}};
    json["choice"] = nullptr;
    if (choice.candidate != nullptr) {
      json["choice"] = {{"name", choice.candidate->name}, {"reason", choice.reason}};
    }
    json["header_bytes_read"] = header_bytes_read();
    if (limits_) json["made_from"] = known_limits(*limits_);
    return json;
  }

  std::string text() const {
    const Choice choice = choose(candidates_, {});
    std::string out = candidate_table(candidates_, choice, "file") + "\n";
    for (const Refused& one : refused_) out += fmt::format("refused: {}\n", one.reason);
    if (choice.candidate != nullptr) {
      out += fmt::format("* {}: {}\n", text::escaped(choice.candidate->name, 60), choice.reason);
    }
    if (budget_bytes_ != 0) out += fmt::format("for a budget of {}\n", format_bytes(budget_bytes_));
    if (limits_) out += "made from " + origin_text(*limits_) + "\n";
    return out;
  }

 private:
  Candidate plan(const fetch::RepositoryModel& model) {
    const engine::RunPlanner planner = next_planner(model.path);
    const QuickPlan quick = quick_plan(planner, options_);
    // Threads are timed for the first one; all have the same budget.
    options_.common.threads = static_cast<unsigned>(quick.run.cpus.size());
    budget_bytes_ = quick.run.plan.budget.bytes;
    if (!limits_) limits_ = measure_limits(model.path, planner, quick.run, options_);
    Candidate out = planned_candidate(model.name, quant_of(model.name, planner.header()),
                                      model.bytes, planner, quick);
    if (out.fits) out.tokens_per_s = quick.tokens_per_s(limits_->usual);
    return out;
  }

  PlanOptions options_;
  std::uint64_t budget_bytes_ = 0;
  std::optional<KnownLimits> limits_;
  std::vector<Candidate> candidates_;
  std::vector<Refused> refused_;
};

}  // namespace

int run_plan_repository(const PlanOptions& options) {
  if (!options.others.empty() || !options.budgets.empty()) {
    throw UsageError("a repository is planned for one --budget, and without other models");
  }
  enter_sandbox(options.common, {});
  refuse_other_than_report(options.common);
  Repository repository(options);
  Progress progress(options.common.quiet);
  progress.show_now("measuring memory, disk and processors");
  for (const fetch::RepositoryModel& model : models_of_repository(options.common.model)) {
    repository.add(model);
  }
  progress.clear();
  const ordered_json json = repository.json();
  write_output(options.json ? json_text(json) : fit_terminal(repository.text()));
  write_report_file(options.common, json);
  if (repository.has_fitting()) return 0;
  if (repository.candidates().empty()) {
    throw ModelError("none of the files of this repository can be run: see above for the reasons");
  }
  throw_none_fits("files", repository.budget_bytes(), repository.candidates());
}

}  // namespace sluice::cli
