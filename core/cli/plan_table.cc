#include "core/cli/plan_table.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/header_in_memory.h"
#include "core/cli/json.h"
#include "core/cli/machine_rates.h"
#include "core/cli/output.h"
#include "core/cli/pull.h"
#include "core/cli/quick_plan.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/plan/plan_json.h"
#include "core/quant/quantise_model.h"
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

struct Cell {
  std::uint64_t budget_bytes = 0;
  bool fits = false;
  std::uint64_t streamed_bytes = 0;  // of a step
  double tokens_per_s = 0;
  std::uint32_t context = 0;
  ordered_json lines = {};  // of the plan
};

struct Row {
  std::string name, quant;
  std::uint64_t bytes = 0;
  std::vector<Cell> cells;  // by budget
};

// Files in a folder that are models, or the first shards of models.
std::vector<fs::path> models_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::size_t shard = name.find("-of-");
    const bool is_later_shard =
        shard != std::string::npos && shard >= 5 && name.compare(shard - 5, 5, "00001") != 0;
    if (entry.path().extension() != ".gguf" || !entry.is_regular_file() || is_later_shard) continue;
    found.push_back(entry.path());
  }
  std::ranges::sort(found);
  if (found.empty()) {
    throw UsageError(fmt::format("there is no .gguf file in {}", folder.string()));
  }
  return found;
}

class Table {
 public:
  explicit Table(const PlanOptions& options) : options_(options), budgets_(options.budgets) {
    if (budgets_.empty() && options.common.budget_bytes != 0) {
      budgets_ = {options.common.budget_bytes};
    }
    if (budgets_.empty()) budgets_ = {2 * GiB, 4 * GiB, 6 * GiB, 8 * GiB};
  }

  void add(const fs::path& path) {
    const engine::RunPlanner planner = next_planner(path);
    const std::string name = path.filename().string();
    add(planner, path, name, quant_of(name, planner.header()), planner.header().file_bytes());
  }

  // What the model of this file would be, quantised in the ways that people know.
  void add_quantisations(const fs::path& path) {
    const gguf::Model model = gguf::Model::open(path, {.header_only = true});
    for (const char* quant : standard_quantisations) {
      const quant::QuantisedHeader header = quant::quantised_header(model, quant);
      const HeaderInMemory file(header.bytes);
      const engine::RunPlanner planner = next_planner(file.path());
      add(planner, path, fmt::format("{} of {}", quant, path.filename().string()), quant,
          header.file_bytes);
    }
  }

  ordered_json json() const {
    ordered_json files = ordered_json::array();
    for (const Row& row : rows_) {
      ordered_json budgets = ordered_json::array();
      for (const Cell& cell : row.cells) {
        ordered_json one = {{"budget_bytes", cell.budget_bytes}, {"fits", cell.fits}};
        one["streamed_bytes_per_step"] = nullptr;
        one["predicted_decode_tokens_per_s"] = nullptr;
        one["context"] = cell.context;
        one["lines"] = cell.lines;
        if (cell.fits) {
          one["streamed_bytes_per_step"] = cell.streamed_bytes;
          one["predicted_decode_tokens_per_s"] = cell.tokens_per_s;
        }
        budgets.push_back(std::move(one));
      }
      files.push_back({{"name", row.name},
                       {"bytes", row.bytes},
                       {"quant", row.quant},
                       {"budgets", std::move(budgets)}});
    }
    ordered_json json = {{"files", std::move(files)}};
    json["header_bytes_read"] = header_bytes_read();
    if (limits_) json["made_from"] = known_limits(*limits_);
    return json;
  }

  std::string text() const {
    std::size_t width = 4;
    for (const Row& row : rows_) width = std::max(width, shown(row).size());
    std::string out = fmt::format("{:<{}}{:>12}", "file", width, "size");
    for (const std::uint64_t budget : budgets_) out += fmt::format("{:>20}", format_bytes(budget));
    out += "\n";
    for (const Row& row : rows_) {
      out += fmt::format("{:<{}}{:>12}", shown(row), width, format_bytes(row.bytes));
      for (const Cell& cell : row.cells) out += fmt::format("{:>20}", text_of(cell));
      out += "\n";
    }
    out +=
        "\ntokens/s at each budget, and in parentheses what is streamed for each; -: does not "
        "fit\n";
    if (limits_) out += "made from " + origin_text(*limits_) + "\n";
    return out;
  }

 private:
  static std::string shown(const Row& row) { return text::escaped(row.name, 60); }
  static std::string text_of(const Cell& cell) {
    if (!cell.fits) return "-";
    if (cell.streamed_bytes == 0) return format_speed(cell.tokens_per_s);
    return fmt::format("{} ({})", format_speed(cell.tokens_per_s),
                       format_bytes(cell.streamed_bytes));
  }

  void add(const engine::RunPlanner& planner, const fs::path& measured, const std::string& name,
           const std::string& quant, std::uint64_t bytes) {
    Row row{name, quant, bytes, {}};
    for (const std::uint64_t budget : budgets_) {
      PlanOptions options = options_;
      options.common.budget_bytes = budget;
      const QuickPlan quick = quick_plan(planner, options);
      if (!limits_) limits_ = measure_limits(measured, planner, quick.run, options_);
      row.cells.push_back({budget, quick.run.plan.fits(), quick.work.streamed_bytes,
                           quick.tokens_per_s(limits_->usual), quick.run.plan.context,
                           plan::lines_json(quick.run.plan)});
    }
    rows_.push_back(std::move(row));
  }

  const PlanOptions& options_;
  std::vector<std::uint64_t> budgets_;
  std::optional<KnownLimits> limits_;
  std::vector<Row> rows_;
};

}  // namespace

int run_plan_table(const PlanOptions& options) {
  std::vector<fs::path> named = {options.common.model};
  named.insert(named.end(), options.others.begin(), options.others.end());
  Table table(options);
  Progress progress(options.common.quiet);
  progress.show_now("measuring memory, disk and processors");
  std::size_t files = 0;
  for (const fs::path& path : named) {
    if (!fs::is_directory(path)) {
      table.add(path);
      ++files;
      continue;
    }
    for (const fs::path& model : models_in(path)) {
      try {
        table.add(model);
        ++files;
      } catch (const ModelError& error) {  // a folder may have files of other kinds, too
        progress.clear();
        if (!options.common.quiet) warn(error.what());
      }
    }
  }
  if (files == 1 && !fs::is_directory(named.front())) table.add_quantisations(named.front());
  progress.clear();
  const ordered_json json = table.json();
  write_output(options.json ? json_text(json) : fit_terminal(table.text()));
  return 0;
}

}  // namespace sluice::cli
