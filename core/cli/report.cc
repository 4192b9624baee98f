#include "core/cli/report.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "core/cli/files.h"
#include "core/cli/json.h"
#include "core/cli/machine_rates.h"
#include "core/cli/output.h"
#include "core/cli/sandbox.h"
#include "core/engine/machine_limits.h"
#include "core/plan/plan_json.h"
#include "core/text/limited_json.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

// The line of a plan that the kernel counts separately, and therefore the report too.
constexpr std::string_view page_tables = "page tables";

std::uint64_t planned_bytes(const plan::MemoryPlan& plan, plan::Kind kind) {
  std::uint64_t total = 0;
  for (const plan::Line& line : plan.lines) {
    if (line.kind == kind && line.name != page_tables) total += line.bytes;
  }
  return total;
}

std::uint64_t planned_page_tables(const plan::MemoryPlan& plan) {
  for (const plan::Line& line : plan.lines) {
    if (line.name == page_tables) return line.bytes;
  }
  return 0;
}

// Adds the plan, and what the kernel says that the process holds.
void add_memory(ordered_json& report, const RunRecord& run, const topology::CgroupMemory& before) {
  const plan::MemoryPlan& plan = run.plan;
  const topology::ProcessMemory& process = run.process;
  report["memory"] = {{"anon",
                       {{"planned_bytes", planned_bytes(plan, plan::Kind::anon)},
                        {"measured_bytes", or_null(process.rss_anon_bytes)}}},
                      {"file",
                       {{"planned_bytes", planned_bytes(plan, plan::Kind::file)},
                        {"measured_bytes", or_null(process.rss_file_bytes)}}},
                      {"page_tables",
                       {{"planned_bytes", planned_page_tables(plan)},
                        {"measured_bytes", or_null(process.page_table_bytes)}}}};
  const topology::CgroupMemory& cgroup = run.cgroup;
  report["measured_peak_bytes"] = or_null(process.peak_bytes());
  report["cgroup_peak_bytes"] = or_null(cgroup.peak_bytes);
  report["refaults"] = or_null(topology::growth(before.refaults(), cgroup.refaults()));
}

void add_tape(ordered_json& report, const streaming::TapeStatistics& tape) {
  report["tape"] = {{"loaded_bytes", tape.loaded_bytes},
                    {"pinned_bytes", tape.pinned_bytes},
                    {"huge_page_bytes", tape.huge_page_bytes},
                    {"streamed_bytes", tape.streaming.bytes_read},
                    {"reads", tape.streaming.reads},
                    {"stalls", tape.streaming.stalls},
                    {"stall_seconds", static_cast<double>(tape.streaming.stall_ns) / 1e9}};
}

// Of a mixture of experts, and of the whole run: prompts included.
void add_experts(ordered_json& report, const RunRecord& run) {
  if (run.tape.experts.empty()) return;
  const streaming::ExpertStatistics sum = streaming::sum_of(run.tape.experts);
  report["expert_hit_rate"] = sum.hit_rate();
  report["expert_bytes_read_per_token"] = sum.bytes_read_per_token();
  report["expert_stall_seconds"] = static_cast<double>(sum.stall_ns) / 1e9;
  report["expert_cache_bytes"] = run.plan.tape.residency.pinned_expert_bytes;
  ordered_json& rates = report["expert_hit_rate_by_layer"] = ordered_json::array();
  for (const auto& group : run.tape.experts) rates.push_back(group.hit_rate());
}

// Of a run, or of a plan.
bool is_report(const std::filesystem::path& path) {
  constexpr std::uintmax_t bytes_max = std::uintmax_t{1} << 24;
  std::error_code absent;
  const std::uintmax_t bytes = std::filesystem::file_size(path, absent);
  if (absent || bytes > bytes_max) return false;
  constexpr JsonLimits limits{
      .what = "report", .values_max = std::size_t{1} << 20, .members_max = 10'000, .depth_max = 16};
  try {
    const ordered_json report = parse_limited_json(read_text(path), limits).value;
    return report.is_object() &&
           (report.contains("planned_peak_bytes") || report.contains("header_bytes_read"));
  } catch (const std::runtime_error&) {  // it cannot be read, or is no JSON
    return false;
  }
}

}  // namespace

RunRecord::RunRecord(const engine::Engine& engine)
    : facts(engine.facts()),
      plan(engine.plan()),
      tape(engine.tape_statistics()),
      process(topology::read_process_memory()),
      cgroup(topology::read_cgroup_memory(topology::find_cgroup({}, "memory"))) {}

std::string memory_line(const RunRecord& run) {
  std::string line = fmt::format("memory {} planned", format_bytes(run.plan.total_bytes()));
  if (const auto peak = run.process.peak_bytes()) {
    line += fmt::format(", {} at its peak", format_bytes(*peak));
  }
  const streaming::ExpertStatistics experts = streaming::sum_of(run.tape.experts);
  if (experts.hits != experts.uses) {
    line += fmt::format(
        "; {:.0f} % of the experts needed were in memory, {} of others read for a token, waited "
        "{:.2f} s for them",
        100 * experts.hit_rate(),
        format_bytes(static_cast<std::uint64_t>(experts.bytes_read_per_token())),
        static_cast<double>(experts.stall_ns) / 1e9);
  }
  const streaming::ReadAheadStatistics& tape = run.tape.streaming;
  if (tape.bytes_read != 0) {
    line += fmt::format("; streamed {}, waited {:.2f} s for the disk",
                        format_bytes(tape.bytes_read), static_cast<double>(tape.stall_ns) / 1e9);
  }
  return line;
}

std::optional<double> rate(std::uint64_t tokens, double seconds) {
  if (tokens == 0 || !(seconds > 0)) return std::nullopt;
  return static_cast<double>(tokens) / seconds;
}

RunWatch::RunWatch()
    : machine_(topology::read_machine()),
      cgroup_before_(topology::read_cgroup_memory(topology::find_cgroup({}, "memory"))) {}

ordered_json RunWatch::report(const CommonOptions& common, const RunRecord& run,
                              const Throughput& throughput) const {
  const engine::EngineFacts& facts = run.facts;
  ordered_json report;
  report["version"] = SLUICE_VERSION;
  report["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  report["cpu"] = machine_.model_name;
  report["model"] = common.model.string();
  report["model_name"] = facts.model_name;
  report["architecture"] = facts.architecture;
  report["context"] = facts.context;
  report["prefill_tokens_per_s"] = or_null(throughput.prefill_tokens_per_s);
  report["decode_tokens_per_s"] = or_null(throughput.decode_tokens_per_s);
  report["parallel"] = run.plan.cache.sequences;
  report["threads"] = facts.threads;
  report["isa"] = facts.isa;
  report["io"] = facts.io;
  report["sandbox"] = sandbox_in_force();
  report["weights_bytes"] = facts.weights_bytes;
  report["hot_bytes"] = facts.work.hot_bytes;
  report["pinned_bytes"] = facts.pinned_bytes;
  report["streamed_bytes_per_step"] = facts.work.streamed_bytes;
  report["planned_peak_bytes"] = facts.planned_peak_bytes;
  report["plan"] = plan::lines_json(run.plan);
  add_memory(report, run, cgroup_before_);
  add_tape(report, run.tape);
  add_experts(report, run);

  MachineRates rates(machine_, rated_run(common.model, run));
  const KnownLimits known =
      rates.measure(topology::choose_threads(machine_, facts.threads).cpus, run.plan.budget.bytes);
  const engine::MachineLimits& limits = known.now;
  const double hit_rate = streaming::sum_of(run.tape.experts).hit_rate();
  if (throughput.steps_per_s) rates.add_steps(*throughput.steps_per_s, hit_rate);
  rates.save(common.quiet);
  const engine::DecodeBound bound =
      engine::decode_bound(limits, facts.work.with_hit_rate(hit_rate), run.plan.cache.sequences);
  report["bound_tokens_per_s"] = bound.tokens_per_s;
  report["bound"] = bound.name;
  report["dram_bytes_per_s"] = limits.dram_bytes_per_s;
  report["disk_bytes_per_s"] = limits.disk_bytes_per_s;
  report["int8_macs_per_s"] = limits.int8_macs_per_s;
  report["machine"] = known_limits(known);
  report["disk_notes"] = limits.disk_notes;
  return report;
}

void RunWatch::write_report(const CommonOptions& common, const RunRecord& run,
                            const Throughput& throughput) const {
  if (common.report.empty()) return remember(common, run, throughput);
  write_report_file(common, report(common, run, throughput));
}

void RunWatch::remember(const CommonOptions& common, const RunRecord& run,
                        const Throughput& throughput) const {
  if (!throughput.steps_per_s) return;
  MachineRates rates(machine_, rated_run(common.model, run));
  rates.add_steps(*throughput.steps_per_s, streaming::sum_of(run.tape.experts).hit_rate());
  rates.save(common.quiet);
}

void refuse_other_than_report(const CommonOptions& common) {
  if (common.report.empty()) return;
  refuse_existing(common.report, common.force || is_report(common.report));
}

void check_report_of_model(const CommonOptions& common) {
  if (!common.report.empty()) refuse_files_of_model(common.report, common.model);
  refuse_other_than_report(common);
}

void report_counts(const serve::SchedulerCounts& counts, ordered_json& report) {
  report["steps"] = counts.steps;
  report["sequences_max"] = counts.running_max;
  report["prompt_tokens_evaluated"] = counts.prompt_tokens_evaluated;
  report["prompt_tokens_shared"] = counts.prompt_tokens_shared;
  report["tokens_generated"] = counts.tokens_generated;
  report["tokens_forced"] = counts.tokens_forced;
}

void write_report_file(const CommonOptions& common, const ordered_json& report) {
  if (!common.report.empty()) write_file(common.report, json_text(report));
}

std::string json_text(const ordered_json& object) {
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::cli
