#include "core/cli/top.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/batch/progress.h"
#include "core/batch/status_segment.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"

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

std::string hits_text(const batch::Status& status) {
  return status.experts ? fmt::format("{:.0f} %", 100 * status.experts->hit_rate) : "-";
}

std::string expert_bytes_text(const batch::Status& status) {
  if (!status.experts) return "-";
  return format_bytes(static_cast<std::uint64_t>(status.experts->bytes_read_per_token));
}

std::string memory_text(const batch::Status& status) {
  return knows_memory(status) ? format_bytes(status.memory_bytes) : "unknown";
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
                       {"rows", status.rows}};
  if (status.experts) {
    json["expert_hit_rate"] = status.experts->hit_rate;
    json["expert_bytes_read_per_token"] = status.experts->bytes_read_per_token;
  }
  return json;
}

std::string table(const std::vector<LivingStatus>& all) {
  if (all.empty()) return "no sluice process runs\n";
  std::string text = fmt::format(
      "{:>8}  {:<7} {:>12} {:>12} {:>12} {:>10} {:>5} {:>15} {:>6} {:>12}  {}\n", "pid", "command",
      "time", "budget", "memory", "tokens/s", "seqs", "rows", "hits", "read/token", "model");
  for (const LivingStatus& living : all) {
    const batch::Status& status = living.status;
    text += fmt::format(
        "{:>8}  {:<7} {:>12} {:>12} {:>12} {:>10.1f} {:>5} {:>15} {:>6} {:>12}  {}\n", living.pid,
        status.command, batch::format_duration(living.seconds), format_bytes(status.budget_bytes),
        memory_text(status), status.tokens_per_s, status.sequences,
        status.rows == 0 ? "-" : fmt::format("{}/{}", status.rows_done, status.rows),
        hits_text(status), expert_bytes_text(status), status.model);
  }
  return text;
}

}  // namespace

CLI::App* add_top(CLI::App& program, TopOptions& options) {
  CLI::App* command = add_command(
      program, "top", "Show the sluice processes that run on this machine",
      "Memory is what a process holds, file pages included; tokens/s are of the last minute.\n"
      "Of mixtures of experts, hits are the share of the experts needed that were in memory, and\n"
      "read/token is what was read of the others, both since the process began.\n\n"
      "Examples:\n"
      "  watch sluice top\n"
      "  sluice top --json | jq '.jobs[].tokens_per_s'");
  add_json_option(*command, options.json);
  return command;
}

int run_top(const TopOptions& options) {
  const std::vector<LivingStatus> all = batch::living_statuses();
  if (!options.json) {
    write_output(table(all));
    return 0;
  }
  ordered_json jobs = ordered_json::array();
  for (const LivingStatus& living : all) jobs.push_back(to_json(living));
  write_output(json_text({{"jobs", jobs}}));
  return 0;
}

}  // namespace sluice::cli
