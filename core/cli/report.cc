#include "core/cli/report.h"

#include <nlohmann/json.hpp>

#include "core/cli/files.h"
#include "core/engine/machine_limits.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// How many pages of files and of the process came back soon after they were evicted.
std::optional<std::uint64_t> refaults(const topology::CgroupMemory& memory) {
  if (!memory.refaults_file && !memory.refaults_anon) return std::nullopt;
  return memory.refaults_file.value_or(0) + memory.refaults_anon.value_or(0);
}

void add_memory(ordered_json& report, const topology::CgroupMemory& before) {
  const topology::ProcessMemory process = topology::read_process_memory();
  const topology::CgroupMemory cgroup = topology::read_cgroup_memory();
  report["measured_peak_bytes"] = or_null(process.rss_peak_bytes);
  report["cgroup_peak_bytes"] = or_null(cgroup.peak_bytes);
  std::optional<std::uint64_t> during_run = refaults(cgroup);
  if (during_run) *during_run -= refaults(before).value_or(0);
  report["refaults"] = or_null(during_run);
}

}  // namespace

std::optional<double> rate(std::uint64_t tokens, double seconds) {
  if (tokens == 0 || !(seconds > 0)) return std::nullopt;
  return static_cast<double>(tokens) / seconds;
}

RunWatch::RunWatch()
    : machine_(topology::read_machine()), cgroup_before_(topology::read_cgroup_memory()) {}

ordered_json RunWatch::report(const CommonOptions& common, const engine::EngineFacts& facts,
                              const Throughput& throughput) const {
  ordered_json report;
  report["model"] = common.model.string();
  report["model_name"] = facts.model_name;
  report["architecture"] = facts.architecture;
  report["context"] = facts.context;
  report["prefill_tokens_per_s"] = or_null(throughput.prefill_tokens_per_s);
  report["decode_tokens_per_s"] = or_null(throughput.decode_tokens_per_s);
  report["parallel"] = 1;
  report["threads"] = facts.threads;
  report["isa"] = facts.isa;
  report["io"] = facts.io;
  report["weights_bytes"] = facts.weights_bytes;
  report["hot_bytes"] = facts.work.hot_bytes;
  report["pinned_bytes"] = facts.pinned_bytes;
  report["streamed_bytes_per_step"] = facts.work.streamed_bytes;
  report["planned_peak_bytes"] = facts.planned_peak_bytes;
  add_memory(report, cgroup_before_);

  const topology::CpuList cpus = topology::choose_threads(machine_, facts.threads).cpus;
  const engine::MachineLimits limits = engine::measure_machine_limits(cpus, common.model);
  const engine::DecodeBound bound = engine::decode_bound(limits, facts.work);
  report["bound_tokens_per_s"] = bound.tokens_per_s;
  report["bound"] = bound.name;
  report["dram_bytes_per_s"] = limits.dram_bytes_per_s;
  report["disk_bytes_per_s"] = limits.disk_bytes_per_s;
  report["int8_macs_per_s"] = limits.int8_macs_per_s;
  report["disk_notes"] = limits.disk_notes;
  return report;
}

void RunWatch::write_report(const CommonOptions& common, const engine::EngineFacts& facts,
                            const Throughput& throughput) const {
  if (common.report.empty()) return;
  write_report_file(common, report(common, facts, throughput));
}

void write_report_file(const CommonOptions& common, const ordered_json& report) {
  if (!common.report.empty()) write_file(common.report, json_text(report));
}

std::string json_text(const ordered_json& object) {
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace sluice::cli
