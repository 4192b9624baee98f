// What a run measured, as the JSON object of `sluice bench --json` and --report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "core/cli/options.h"
#include "core/engine/engine.h"
#include "core/serve/scheduler.h"
#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::cli {

// Everything about an engine that a report needs, copied so that the engine can be destroyed before
// the limits of the machine are measured.
struct RunRecord {
  explicit RunRecord(const engine::Engine& engine);

  engine::EngineFacts facts;
  plan::MemoryPlan plan;
  streaming::TapeStatistics tape;
  topology::ProcessMemory process;
  topology::CgroupMemory cgroup;
};

// A line for the end of a run: memory planned and measured, bytes read from disk, and time waited.
std::string memory_line(const RunRecord& run);

// Values that were not measured are absent.
struct Throughput {
  std::optional<double> prefill_tokens_per_s;
  std::optional<double> decode_tokens_per_s;  // of all sequences together
  // Steps with one token of each sequence that there is room for, as a plan predicts them.
  std::optional<double> steps_per_s = {};
};

// Tokens per second; nothing unless both are above 0.
std::optional<double> rate(std::uint64_t tokens, double seconds);

// Records the state of the machine before the engine is opened: the memory that was in use, and the
// CPUs that the process may use, before any thread is pinned.
class RunWatch {
 public:
  RunWatch();

  // The report of the run that ends here. Reads the memory figures first and measures the limits of
  // the machine afterwards (about a second), so that measuring does not affect the figures.
  nlohmann::ordered_json report(const CommonOptions& common, const RunRecord& run,
                                const Throughput& throughput) const;

  // Makes the report only if --report asks for it, and writes it to that file. In any case adds
  // what the run has measured to the profile of the machine.
  void write_report(const CommonOptions& common, const RunRecord& run,
                    const Throughput& throughput) const;
  // Only the latter.
  void remember(const CommonOptions& common, const RunRecord& run,
                const Throughput& throughput) const;

 private:
  topology::Machine machine_;
  topology::CgroupMemory cgroup_before_;
};

// Throws UsageError when --report names something else than the report of an earlier run, or of a
// plan, unless there is --force; and std::system_error as refuse_existing().
void refuse_other_than_report(const CommonOptions& common);
// The same, and for a file of the model in any case.
void check_report_of_model(const CommonOptions& common);

// Adds to a report how many steps a scheduler made, and how many tokens it read and generated.
void report_counts(const serve::SchedulerCounts& counts, nlohmann::ordered_json& report);

// Writes a report to the file of --report, if there is one.
void write_report_file(const CommonOptions& common, const nlohmann::ordered_json& report);

// The JSON text of an object, with bytes that are not UTF-8 replaced and a newline at its end.
std::string json_text(const nlohmann::ordered_json& object);

}  // namespace sluice::cli
