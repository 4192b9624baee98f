#include "core/cli/plan_table.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/header_in_memory.h"
#include "core/cli/inspection.h"
#include "core/cli/machine_rates.h"
#include "core/cli/output.h"
#include "core/cli/plan_choice.h"
#include "core/cli/pull.h"
#include "core/cli/quick_plan.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/fetch/hub.h"
#include "core/plan/plan_json.h"
#include "core/quant/quantise_model.h"
#include "core/text/lower_case.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

constexpr const char* standard_quantisations[] = {
    "F16",    "Q8_0",   "Q6_K",    "Q5_K_M", "Q4_K_M", "Q4_K_S",  "Q4_0",
    "IQ4_XS", "Q3_K_M", "IQ3_M",   "IQ3_S",  "Q2_K",   "IQ3_XXS", "IQ2_M",
    "IQ2_S",  "IQ2_XS", "IQ2_XXS", "IQ1_M",  "IQ1_S"};

// Files at one budget.
struct Column {
  std::uint64_t budget_bytes = 0;
  std::vector<Candidate> candidates;     // by file
  std::vector<std::uint32_t> contexts;   // as are these
  std::vector<ordered_json> lines = {};  // of the plans
};

struct FoundModel {
  fs::path path;
  bool is_in_folder;  // and not named itself
};

// Files in a folder that are models, or the first shards of models.
std::vector<fs::path> models_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_later_shard = fetch::shards_of(name).front() != name;
    if (entry.path().extension() != ".gguf" || !entry.is_regular_file() || is_later_shard) continue;
    found.push_back(entry.path());
  }
  std::ranges::sort(found);
  if (found.empty()) {
    throw UsageError(fmt::format("there is no .gguf file in {}", folder.string()));
  }
  return found;
}

std::vector<FoundModel> models_of(const std::vector<fs::path>& named) {
  std::vector<FoundModel> found;
  for (const fs::path& path : named) {
    if (!fs::is_directory(path)) {
      found.push_back({path, false});
      continue;
    }
    for (fs::path& model : models_in(path)) found.push_back({std::move(model), true});
  }
  return found;
}

// Of all files, when they are complete.
std::uint64_t whole_bytes(const gguf::Model& model) {
  return model.file_bytes() + missing_bytes(model);
}

class Table {
 public:
  explicit Table(const PlanOptions& options) : options_(options) {
    std::vector<std::uint64_t> budgets = options.budgets;
    if (budgets.empty() && options.common.budget_bytes != 0) {
      budgets = {options.common.budget_bytes};
    }
    if (budgets.empty()) budgets = {2 * GiB, 4 * GiB, 6 * GiB, 8 * GiB};
    for (const std::uint64_t budget : budgets) columns_.push_back({budget, {}, {}});
  }

  void add(const fs::path& path) {
    const engine::RunPlanner planner = next_planner(path);
    const std::string name = path.filename().string();
    const gguf::Model& header = planner.header();
    add(planner, path, name, quant_of(name, header), whole_bytes(header));
    missing_bytes_.push_back(missing_bytes(header));
  }

  // What the model of this file would be, quantised in the other ways that people know. What is not
  // smaller has no more in it than the file.
  void add_quantisations(const fs::path& path) {
    const gguf::Model model = gguf::Model::open(path, {.header_only = true});
    const std::string own = quant_of(path.filename().string(), model);
    for (const char* quant : standard_quantisations) {
      if (text::lower_case(quant) == text::lower_case(own)) continue;
      const quant::QuantisedHeader header = quant::quantised_header(model, quant);
      if (header.file_bytes >= whole_bytes(model)) continue;
      header_.hold(header.bytes);
      const engine::RunPlanner planner = next_planner(header_.path());
      add(planner, path, fmt::format("{} of {}", quant, path.filename().string()), quant,
          header.file_bytes);
      missing_bytes_.push_back(0);
    }
  }

  // Throws Error with ExitCode::budget when no file fits any of the budgets.
  void require_fitting() const {
    std::uint64_t most = 0;
    for (const Column& column : columns_) {
      if (std::ranges::any_of(column.candidates, &Candidate::fits)) return;
      most = std::max(most, column.budget_bytes);
    }
    throw_none_fits("files", most, columns_.front().candidates);
  }

  ordered_json json() const {
    const std::vector<Choice> choices = chosen();
    ordered_json files = ordered_json::array();
    for (std::size_t file = 0; file < file_count(); ++file) {
      ordered_json budgets = ordered_json::array();
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const Column& column = columns_[i];
        const ordered_json found =
            candidate_json(column.candidates[file], choices[i], "predicted_decode_tokens_per_s");
        ordered_json one = {{"budget_bytes", column.budget_bytes}};
        for (const char* member :
             {"fits", "streamed_bytes_per_step", "predicted_decode_tokens_per_s", "is_choice"}) {
          one[member] = found[member];
        }
        one["context"] = column.contexts[file];
        one["lines"] = column.lines[file];
        budgets.push_back(std::move(one));
      }
      const Candidate& any = columns_.front().candidates[file];
      files.push_back({{"name", any.name},
                       {"bytes", any.bytes},
                       {"quant", any.quant},
                       {"missing_bytes", missing_bytes_[file]},
                       {"budgets", std::move(budgets)}});
    }
    ordered_json json = {{"files", std::move(files)}};
    json["header_bytes_read"] = header_bytes_read();
    if (limits_) json["made_from"] = known_limits(*limits_);
    return json;
  }

  std::string text() const {
    const std::vector<Choice> choices = chosen();
    std::size_t width = 4;
    for (std::size_t file = 0; file < file_count(); ++file) {
      width = std::max(width, shown(columns_.front().candidates[file]).size());
    }
    std::string out = fmt::format("{:<{}}{:>12}", "file", width, "size");
    for (const Column& column : columns_) {
      out += fmt::format("{:>20}", format_bytes(column.budget_bytes));
    }
    out += "\n";
    for (std::size_t file = 0; file < file_count(); ++file) {
      const Candidate& any = columns_.front().candidates[file];
      out += fmt::format("{:<{}}{:>12}", shown(any), width, format_bytes(any.bytes));
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const Candidate& one = columns_[i].candidates[file];
        out += fmt::format("{:>20}", (&one == choices[i].candidate ? "* " : "") + text_of(one));
      }
      out += "\n";
    }
    out +=
        "\ntokens/s at each budget, and in parentheses what is read from the disk for each; -: "
        "does "
        "not fit\n";
    for (std::size_t file = 0; file < file_count(); ++file) {
      if (missing_bytes_[file] == 0) continue;
      out +=
          fmt::format("{} is planned as it will be: {} of it are not here yet\n",
                      shown(columns_.front().candidates[file]), format_bytes(missing_bytes_[file]));
    }
    for (const Choice& choice : choices) {
      if (choice.candidate == nullptr) continue;
      out += fmt::format("*: {}, or else the fastest that fits\n", enough_text(rule()));
      break;
    }
    if (limits_) out += "made from " + origin_text(*limits_) + "\n";
    return out;
  }

 private:
  static std::string shown(const Candidate& one) { return text::escaped(one.name, 60); }
  static std::string text_of(const Candidate& one) {
    if (!one.tokens_per_s) return "-";
    const std::string speed = format_speed(*one.tokens_per_s);
    return one.streamed_bytes == 0
               ? speed
               : fmt::format("{} ({})", speed, format_bytes(one.streamed_bytes));
  }

  std::size_t file_count() const { return columns_.front().candidates.size(); }

  // Files of models of several sizes are of several models.
  ChoiceRule rule() const {
    const auto& candidates = columns_.front().candidates;
    ChoiceRule rule;
    rule.prefers_large_models = std::ranges::any_of(candidates, [&](const Candidate& one) {
      return one.weights != candidates.front().weights;
    });
    return rule;
  }

  // By budget.
  std::vector<Choice> chosen() const {
    std::vector<Choice> choices;
    for (const Column& column : columns_) choices.push_back(choose(column.candidates, rule()));
    return choices;
  }

  void add(const engine::RunPlanner& planner, const fs::path& measured, const std::string& name,
           const std::string& quant, std::uint64_t bytes) {
    for (Column& column : columns_) {
      PlanOptions options = options_;
      options.common.budget_bytes = column.budget_bytes;
      options.common.has_memory_of_another = true;  // a table may ask about any
      const QuickPlan quick = quick_plan(planner, options);
      if (!limits_) limits_ = measure_limits(measured, planner, quick.run, options_);
      Candidate candidate = planned_candidate(name, quant, bytes, planner, quick);
      if (candidate.fits) candidate.tokens_per_s = quick.tokens_per_s(limits_->usual);
      column.candidates.push_back(std::move(candidate));
      column.contexts.push_back(quick.run.plan.context);
      column.lines.push_back(plan::lines_json(quick.run.plan));
    }
  }

  const PlanOptions& options_;
  HeaderInMemory header_;
  std::optional<KnownLimits> limits_;
  std::vector<Column> columns_;
  std::vector<std::uint64_t> missing_bytes_;  // by file
};

}  // namespace

int run_plan_table(const PlanOptions& options) {
  std::vector<fs::path> named = {options.common.model};
  named.insert(named.end(), options.others.begin(), options.others.end());
  Table table(options);
  enter_sandbox(options.common, {.models = options.others});
  refuse_other_than_report(options.common);
  const std::vector<FoundModel> models = models_of(named);
  for (const FoundModel& model : models) {
    if (options.common.report.empty()) break;
    refuse_same_file(options.common.report, model.path, "the model");
  }
  Progress progress(options.common.quiet);
  progress.show_now("measuring memory, disk and processors");
  std::size_t files = 0;
  for (const FoundModel& model : models) {
    try {
      table.add(model.path);
      ++files;
    } catch (const ModelError& error) {  // a folder may have files of other kinds, too
      const bool is_last = &model == &models.back();
      if (!model.is_in_folder || (is_last && files == 0)) throw;
      progress.clear();
      if (!options.common.quiet) warn(error.what());
    }
  }
  if (files == 1 && !fs::is_directory(named.front())) table.add_quantisations(named.front());
  progress.clear();
  const ordered_json json = table.json();
  write_output(options.json ? json_text(json) : fit_terminal(table.text()));
  write_report_file(options.common, json);
  table.require_fitting();
  return 0;
}

}  // namespace sluice::cli
