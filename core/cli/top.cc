#include "core/cli/top.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/batch/progress.h"
#include "core/batch/status_segment.h"
#include "core/cli/interrupt.h"
#include "core/cli/json.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/terminal.h"
#include "core/cli/wrap.h"

namespace sluice::cli {
namespace {

using batch::LivingStatus;
using nlohmann::ordered_json;

bool knows_memory(const batch::Status& status) {
  return status.memory_bytes != batch::Status::unknown_memory;
}

ordered_json memory_bytes(const batch::Status& status) {
  return knows_memory(status) ? ordered_json(status.memory_bytes) : ordered_json(nullptr);
}

std::string memory_text(const batch::Status& status) {
  return knows_memory(status) ? format_bytes(status.memory_bytes) : "unknown";
}

std::string rows_text(const batch::Status& status) {
  return status.rows == 0 ? "-" : fmt::format("{}/{}", status.rows_done, status.rows);
}

std::string left_text(const batch::Status& status) {
  return status.seconds_left ? batch::format_duration(*status.seconds_left) : "-";
}

std::string hits_text(const batch::Status& status) {
  return status.experts ? fmt::format("{:.0f} %", 100 * status.experts->hit_rate) : "-";
}

std::string expert_bytes_text(const batch::Status& status) {
  if (!status.experts) return "-";
  return format_bytes(static_cast<std::uint64_t>(status.experts->bytes_read_per_token));
}

std::string tokens_per_step_text(const batch::Status& status) {
  return status.guesses ? fmt::format("{:.2f}", status.guesses->tokens_per_step) : "-";
}

std::string right_text(const batch::Status& status) {
  if (!status.guesses) return "-";
  double drafted = 0, accepted = 0;
  for (const speculate::DraftCounts& counts : status.guesses->by_kind) {
    drafted += static_cast<double>(counts.drafted);
    accepted += static_cast<double>(counts.accepted);
  }
  return drafted == 0 ? "-" : fmt::format("{:.0f} %", 100 * accepted / drafted);
}

ordered_json to_json(const batch::Status::Guesses& guesses) {
  ordered_json json = ordered_json::object();
  for (std::size_t kind = 0; kind < guesses.by_kind.size(); ++kind) {
    const speculate::DraftCounts& counts = guesses.by_kind[kind];
    if (counts.drafted == 0) continue;
    json[std::string(speculate::kind_names[kind])] = {{"drafted", counts.drafted},
                                                      {"accepted", counts.accepted}};
  }
  return json;
}

ordered_json to_json(const LivingStatus& living) {
  const batch::Status& status = living.status;
  ordered_json json = {{"pid", living.pid},
                       {"command", status.command},
                       {"model", status.model},
                       {"seconds", living.seconds},
                       {"budget_bytes", status.budget_bytes},
                       {"memory_bytes", memory_bytes(status)},
                       {"tokens_per_s", status.tokens_per_s},
                       {"sequences", status.sequences},
                       {"rows_done", status.rows_done},
                       {"rows", status.rows},
                       {"seconds_left", or_null(status.seconds_left)}};
  if (status.experts) {
    json["expert_hit_rate"] = status.experts->hit_rate;
    json["expert_bytes_read_per_token"] = status.experts->bytes_read_per_token;
  }
  if (status.guesses) {
    json["tokens_per_step"] = status.guesses->tokens_per_step;
    json["speculation"] = to_json(*status.guesses);
  }
  return json;
}

// A column of the table, with its name as the first cell.
struct Column {
  std::vector<std::string> cells;
  int rank;  // the columns with the highest are left out first; 0: none that has something to say

  std::size_t width() const {
    std::size_t most = 0;
    for (const std::string& cell : cells) most = std::max(most, cells_of(cell));
    return most;
  }
  bool says_nothing() const {
    return std::all_of(cells.begin() + 1, cells.end(),
                       [](const auto& cell) { return cell == "-"; });
  }
};

std::vector<Column> columns_of(const std::vector<LivingStatus>& all) {
  std::vector<Column> columns;
  const auto add = [&](const char* name, int rank, auto text) {
    columns.push_back({{name}, rank});
    for (const LivingStatus& living : all) columns.back().cells.push_back(text(living));
  };
  add("pid", 0, [](const LivingStatus& it) { return std::to_string(it.pid); });
  add("command", 0, [](const LivingStatus& it) { return it.status.command; });
  add("time", 3, [](const LivingStatus& it) { return batch::format_duration(it.seconds); });
  add("budget", 5, [](const LivingStatus& it) { return format_bytes(it.status.budget_bytes); });
  add("memory", 2, [](const LivingStatus& it) { return memory_text(it.status); });
  add("tokens/s", 0, [](const auto& it) { return fmt::format("{:.1f}", it.status.tokens_per_s); });
  add("seqs", 4, [](const LivingStatus& it) { return std::to_string(it.status.sequences); });
  add("rows", 0, [](const LivingStatus& it) { return rows_text(it.status); });
  add("left", 1, [](const LivingStatus& it) { return left_text(it.status); });
  add("hits", 6, [](const LivingStatus& it) { return hits_text(it.status); });
  add("read/token", 7, [](const LivingStatus& it) { return expert_bytes_text(it.status); });
  add("tokens/step", 8, [](const auto& it) { return tokens_per_step_text(it.status); });
  add("right", 9, [](const LivingStatus& it) { return right_text(it.status); });
  add("model", 0, [](const LivingStatus& it) { return it.status.model; });
  std::erase_if(columns, [](const Column& column) { return column.says_nothing(); });
  return columns;
}

// Leaves out what has no room; 0: a line may have any length.
std::string table(const std::vector<LivingStatus>& all, std::size_t columns_max) {
  if (all.empty()) return "no sluice process runs\n";
  constexpr std::size_t gap = 2, model_least = 12;
  std::vector<Column> columns = columns_of(all);
  // The model stands last, and is cut where the line ends.
  const auto least = [&] {
    std::size_t width = std::min(columns.back().width(), model_least);
    for (std::size_t i = 0; i + 1 < columns.size(); ++i) width += columns[i].width() + gap;
    return width;
  };
  while (columns_max != 0 && least() > columns_max) {
    const auto last = std::ranges::max_element(columns, {}, &Column::rank);
    if (last->rank == 0) break;
    columns.erase(last);
  }
  std::string text;
  for (std::size_t row = 0; row <= all.size(); ++row) {
    std::string line;
    for (const Column& column : columns) {
      const std::string& cell = column.cells[row];
      const std::string space(column.width() - cells_of(cell), ' ');
      const bool is_text = column.cells[0] == "command" || column.cells[0] == "model";
      if (!line.empty()) line += std::string(gap, ' ');
      line += is_text ? cell + space : space + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (columns_max != 0) line.resize(front_of(line, columns_max).size());
    text += line + "\n";
  }
  return text;
}

// Shows the table again and again, in the same place of a terminal, until a signal comes or the
// reader is gone.
int watch(double interval_s) {
  constexpr std::chrono::milliseconds pause{100};  // after which a signal is noticed
  const InterruptGuard guard;
  const bool has_terminal = ::isatty(STDOUT_FILENO) == 1;
  while (interrupt_signal() == 0) {
    const std::size_t columns = window_size(STDOUT_FILENO).columns;
    const std::string text = table(batch::living_statuses(), columns);
    if (!write_output(has_terminal ? "\x1b[H\x1b[2J" + text : text + "\n")) return 0;
    const Stopwatch shown;
    while (interrupt_signal() == 0 && shown.seconds() < interval_s) {
      std::this_thread::sleep_for(pause);
    }
  }
  return exit_status_of_signal(interrupt_signal());
}

}  // namespace

CLI::App* add_top(CLI::App& program, TopOptions& options) {
  CLI::App* command = add_command(
      program, "top", "Show the sluice processes that run on this machine",
      "Memory is what a process holds, file pages included; tokens/s are of the last minute. A\n"
      "narrow terminal shows fewer columns; --json has all.\n"
      "Of mixtures of experts, hits are the share of the experts needed that were in memory, and\n"
      "read/token is what was read of the others, both since the process began. Where tokens are\n"
      "guessed, tokens/step is what a text gains in a step, and right the share of the guesses "
      "that\n"
      "were.\n\n"
      "Examples:\n"
      "  sluice top --interval 2\n"
      "  sluice top --json | jq '.jobs[].tokens_per_s'");
  add_json_option(*command, options.json);
  command
      ->add_option("--interval", options.interval_s,
                   "Show them anew after so many seconds each, until Ctrl-C")
      ->type_name("SECONDS")
      ->check(number_between(0.1, 86400, "from 0.1 to 86400"))
      ->excludes("--json");
  return command;
}

int run_top(const TopOptions& options) {
  if (options.interval_s > 0) return watch(options.interval_s);
  const std::vector<LivingStatus> all = batch::living_statuses();
  if (!options.json) {
    write_output(table(all, window_size(STDOUT_FILENO).columns));
    return 0;
  }
  ordered_json jobs = ordered_json::array();
  for (const LivingStatus& living : all) jobs.push_back(to_json(living));
  write_output(json_text({{"jobs", jobs}}));
  return 0;
}

}  // namespace sluice::cli
