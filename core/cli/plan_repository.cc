#include "core/cli/plan_repository.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/json.h"
#include "core/cli/output.h"
#include "core/cli/pull.h"
#include "core/cli/quick_plan.h"
#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

struct Candidate {
  std::string name, quant;
  std::uint64_t bytes = 0;
  std::string problem;  // why it is refused; then nothing below is known
  double bits_per_weight = 0;
  bool fits = false;
  std::uint64_t least_budget_bytes = 0;
  std::uint64_t streamed_bytes = 0;  // of a step
  double tokens_per_s = 0;
};

struct Choice {
  const Candidate* row = nullptr;
  std::string reason;
};

// More bits make a model better, and slower. So the most precise file is taken that is fast enough
// to be read along with; beyond 8 bits a weight there is next to nothing to gain.
Choice choose(const std::vector<Candidate>& rows) {
  constexpr double enough_tokens_per_s = 5, bits_most = 9;
  const auto best = [&](auto&& is_candidate, auto&& is_worse) {
    const Candidate* found = nullptr;
    for (const Candidate& row : rows) {
      if (!row.fits || !is_candidate(row)) continue;
      if (found == nullptr || is_worse(*found, row)) found = &row;
    }
    return found;
  };
  const Candidate* precise = best(
      [&](const Candidate& row) {
        return row.tokens_per_s >= enough_tokens_per_s && row.bits_per_weight <= bits_most;
      },
      [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
  if (precise != nullptr) {
    return {precise, fmt::format("the most precise that reaches {:.0f} tokens/s, up to 8 bits a "
                                 "weight",
                                 enough_tokens_per_s)};
  }
  const Candidate* fastest =
      best([](const Candidate&) { return true; },
           [](const Candidate& a, const Candidate& b) { return a.tokens_per_s < b.tokens_per_s; });
  return {fastest, "the fastest that fits"};
}

class Repository {
 public:
  explicit Repository(const PlanOptions& options) : options_(options) {}

  void add(const fetch::RepositoryModel& model) {
    Candidate row;
    row.name = model.name;
    row.bytes = model.bytes;
    row.problem = model.problem;
    try {
      if (row.problem.empty()) plan(model, row);
    } catch (const ModelError& error) {
      row.problem = error.what();
    }
    rows_.push_back(std::move(row));
  }

  bool has_fitting() const { return std::ranges::any_of(rows_, &Candidate::fits); }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  // Of the one that needs least; 0 if all are refused.
  std::uint64_t least_budget_bytes() const {
    std::uint64_t least = 0;
    for (const Candidate& row : rows_) {
      if (row.problem.empty() && (least == 0 || row.least_budget_bytes < least)) {
        least = row.least_budget_bytes;
      }
    }
    return least;
  }

  ordered_json json() const {
    const Choice choice = choose(rows_);
    ordered_json files = ordered_json::array(), refused = ordered_json::array();
    for (const Candidate& row : rows_) {
      if (!row.problem.empty()) {
        refused.push_back({{"name", row.name}, {"bytes", row.bytes}, {"reason", row.problem}});
        continue;
      }
      ordered_json one = {{"name", row.name},
                          {"bytes", row.bytes},
                          {"quant", row.quant},
                          {"fits", row.fits},
                          {"least_budget_bytes", row.least_budget_bytes}};
      const auto known = [&](auto value) { return row.fits ? std::optional(value) : std::nullopt; };
      one["streamed_bytes_per_step"] = or_null(known(row.streamed_bytes));
      one["predicted_decode_tokens_per_s"] = or_null(known(row.tokens_per_s));
      one["is_choice"] = choice.row == &row;
      files.push_back(std::move(one));
    }
    ordered_json json = {{"budget_bytes", budget_bytes_},
                         {"files", std::move(files)},
                         {"refused", std::move(refused)}};
    json["choice"] = nullptr;
    if (choice.row != nullptr) {
      json["choice"] = {{"name", choice.row->name}, {"reason", choice.reason}};
    }
    json["header_bytes_read"] = header_bytes_read();
    if (limits_) json["made_from"] = known_limits(*limits_);
    return json;
  }

  std::string text() const {
    const Choice choice = choose(rows_);
    std::size_t width = 4;
    for (const Candidate& row : rows_) width = std::max(width, shown(row).size());
    const auto line = [&](std::string_view mark, std::string_view name, std::string_view size,
                          std::string_view quant, std::string_view memory, std::string_view speed) {
      return fmt::format("{:1} {:<{}}{:>12}  {:<10}{:>24}{:>10}\n", mark, name, width, size, quant,
                         memory, speed);
    };
    std::string out = line("", "file", "size", "quant", "memory", "tokens/s");
    std::string refused;
    for (const Candidate& row : rows_) {
      if (!row.problem.empty()) {
        refused += fmt::format("refused: {}\n", row.problem);
        continue;
      }
      const bool is_choice = choice.row == &row;
      const std::string memory =
          !row.fits                 ? fmt::format("needs {}", format_bytes(row.least_budget_bytes))
          : row.streamed_bytes == 0 ? "fits"
                                    : fmt::format("{} streamed", format_bytes(row.streamed_bytes));
      out += line(is_choice ? "*" : "", shown(row), format_bytes(row.bytes),
                  text::escaped(row.quant, 10), memory,
                  row.fits ? format_speed(row.tokens_per_s) : "-");
    }
    out += "\n" + refused;
    if (choice.row != nullptr) {
      out += fmt::format("* {}: {}\n", shown(*choice.row), choice.reason);
    }
    if (budget_bytes_ != 0) out += fmt::format("for a budget of {}\n", format_bytes(budget_bytes_));
    if (limits_) out += "made from " + origin_text(*limits_) + "\n";
    return out;
  }

 private:
  static std::string shown(const Candidate& row) { return text::escaped(row.name, 60); }

  void plan(const fetch::RepositoryModel& model, Candidate& row) {
    const engine::RunPlanner planner(model.path);
    const QuickPlan quick = quick_plan(planner, options_);
    // Threads are timed for the first one; all have the same budget.
    options_.common.threads = static_cast<unsigned>(quick.run.cpus.size());
    budget_bytes_ = quick.run.plan.budget.bytes;
    if (!limits_) limits_ = measure_limits(model.path, planner, quick.run, options_);
    row.quant = quant_of(row.name, planner.header());
    row.bits_per_weight =
        8 * static_cast<double>(planner.header().data_bytes()) /
        static_cast<double>(std::max<std::uint64_t>(planner.header().elements(), 1));
    row.fits = quick.run.plan.fits();
    row.least_budget_bytes = quick.run.plan.least_budget_bytes;
    row.streamed_bytes = quick.work.streamed_bytes;
    row.tokens_per_s = quick.tokens_per_s(limits_->usual);
  }

  PlanOptions options_;
  std::uint64_t budget_bytes_ = 0;
  std::optional<KnownLimits> limits_;
  std::vector<Candidate> rows_;
};

}  // namespace

int run_plan_repository(const PlanOptions& options) {
  if (options.table || !options.others.empty() || !options.budgets.empty()) {
    throw UsageError("a repository is planned for one --budget, without --table and other models");
  }
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
  if (repository.least_budget_bytes() == 0) {
    throw ModelError("none of the files of this repository can be run: see above for the reasons");
  }
  throw Error(ExitCode::budget,
              fmt::format("none of the files fits a budget of {}: the least that one needs is {}",
                          format_bytes(repository.budget_bytes()),
                          format_bytes(repository.least_budget_bytes())));
}

}  // namespace sluice::cli
