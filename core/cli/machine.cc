#include "core/cli/machine.h"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/json.h"
#include "core/cli/machine_rates.h"
#include "core/cli/models_folder.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/engine/thread_timing.h"
#include "core/fetch/listing.h"
#include "kernels/kernel_table.h"
#include "topology/machine.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;
using topology::Machine;

// One entry per physical core: its hardware threads.
std::vector<topology::CpuList> cores_of(const Machine& machine) {
  std::vector<topology::CpuList> cores;
  for (const topology::Cpu& cpu : machine.cpus) {
    if (cpu.siblings.empty() || cpu.siblings.front() == cpu.id) {
      cores.push_back(cpu.siblings.empty() ? topology::CpuList{cpu.id} : cpu.siblings);
    }
  }
  return cores;
}

std::size_t package_count(const Machine& machine) {
  std::set<int> packages;
  for (const topology::Cpu& cpu : machine.cpus) packages.insert(cpu.package);
  return packages.size();
}

// How fast the disk of models was when it was measured; nothing is measured now.
struct Disk {
  std::filesystem::path folder;
  std::optional<double> bytes_per_s;
};

Disk known_disk(const Machine& machine, const topology::ThreadChoice& threads) {
  const std::filesystem::path folder = models_folder();
  const std::vector<fetch::ListedModel> models = fetch::list_models(installed_models());
  const std::filesystem::path file = file_of_disk(model_to_read(models, folder), folder);
  const MachineRates rates(machine,
                           {file, 0, static_cast<unsigned>(threads.cpus.size()), 1, {}, true});
  const double known = rates.known().disk_bytes_per_s;
  return {lies_in(file, folder) ? folder : file.parent_path(),
          known > 0 ? std::optional(known) : std::nullopt};
}

ordered_json to_json(const Machine& machine, const topology::ThreadChoice& threads,
                     const Disk& disk) {
  ordered_json json;
  json["cpu"] = machine.model_name;
  json["isa"] = kernels::isa_name(kernels::kernel_table().isa);
  json["flags"] = machine.flags;
  json["packages"] = package_count(machine);
  json["cores"] = cores_of(machine);
  json["cpus_allowed"] = machine.allowed_cpus;
  json["l1d_bytes"] = or_null(machine.caches.l1d_bytes);
  json["l2_bytes"] = or_null(machine.caches.l2_bytes);
  json["l3_bytes"] = or_null(machine.caches.l3_bytes);
  json["cpu_quota"] = nullptr;
  if (machine.quota) {
    json["cpu_quota"] = {{"cpus", machine.quota->cpus}, {"source", machine.quota->source}};
  }
  json["memory_total_bytes"] = or_null(machine.memory_total_bytes);
  json["memory_available_bytes"] = or_null(machine.memory_available_bytes);
  json["memory_bounds"] = ordered_json::array();
  for (const topology::MemoryBound& bound : topology::memory_bounds(machine)) {
    json["memory_bounds"].push_back({{"source", bound.source},
                                     {"limit_bytes", bound.limit_bytes},
                                     {"held_by_others_bytes", bound.held_by_others_bytes},
                                     {"usable_bytes", bound.usable_bytes()}});
  }
  json["transparent_huge_pages"] = or_null(machine.huge_pages);
  json["page_bytes"] = machine.page_bytes;
  json["disk_bytes_per_s"] = or_null(disk.bytes_per_s);
  json["threads"] = threads.cpus.size();
  json["threads_cpus"] = threads.cpus;
  json["threads_siblings_only"] = threads.siblings_only;
  json["threads_reason"] = threads.reason;
  return json;
}

std::string bytes_or_unknown(const std::optional<std::uint64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "unknown";
}

std::string describe_cores(const Machine& machine) {
  std::vector<std::string> cores;
  for (const topology::CpuList& core : cores_of(machine)) {
    cores.push_back(topology::format_cpu_list(core));
  }
  return fmt::format("{} cores in {} package(s), CPUs {}; {} CPUs allowed: {}", cores.size(),
                     package_count(machine), fmt::join(cores, " | "), machine.allowed_cpus.size(),
                     topology::format_cpu_list(machine.allowed_cpus));
}

std::string describe_disk(const Disk& disk) {
  constexpr double giga = 1e9;
  return disk.bytes_per_s
             ? fmt::format("{} GB/s in order, as earlier plans and runs found; models in {}",
                           format_speed(*disk.bytes_per_s / giga), disk.folder.string())
             : fmt::format(
                   "not measured where models lie, in {}: `sluice plan` of one there measures it, "
                   "and `sluice doctor` of one of 256 MiB or more",
                   disk.folder.string());
}

std::string to_table(const Machine& machine, const topology::ThreadChoice& threads,
                     const Disk& disk) {
  const kernels::Isa used = kernels::kernel_table().isa;
  std::vector<std::pair<std::string, std::string>> facts{
      {"CPU", machine.model_name.empty() ? "unknown" : machine.model_name},
      {"cores", describe_cores(machine)},
      {"instruction set",
       fmt::format("{}{}", kernels::isa_name(used),
                   used == kernels::highest_isa() ? "" : ", as SLUICE_ISA says")},
      {"caches", fmt::format("L1d {}, L2 {}, L3 {}", bytes_or_unknown(machine.caches.l1d_bytes),
                             bytes_or_unknown(machine.caches.l2_bytes),
                             bytes_or_unknown(machine.caches.l3_bytes))},
      {"CPU quota", machine.quota
                        ? fmt::format("{:.2f} CPUs, {}", machine.quota->cpus, machine.quota->source)
                        : "none"},
      {"memory",
       fmt::format("{} in all, {} available", bytes_or_unknown(machine.memory_total_bytes),
                   bytes_or_unknown(machine.memory_available_bytes))}};
  const char* name = "memory limit that binds";
  for (const topology::MemoryBound& bound : topology::memory_bounds(machine)) {
    facts.emplace_back(name, fmt::format("{} usable of {}, {}", format_bytes(bound.usable_bytes()),
                                         format_bytes(bound.limit_bytes), bound.source));
    name = "memory limit";
  }
  facts.emplace_back("huge pages", machine.huge_pages.value_or("unknown"));
  facts.emplace_back("disk", describe_disk(disk));
  facts.emplace_back("threads chosen", threads.reason);
  return format_facts(facts);
}

}  // namespace

CLI::App* add_machine(CLI::App& program, MachineOptions& options) {
  CLI::App* command = add_command(
      program, "machine", "Show the CPUs, the memory, the limits, the disk and the threads chosen",
      "What other programs and containers leave to this one counts, not what the machine has.\n\n"
      "Examples:\n"
      "  sluice machine\n"
      "  sluice machine --json | jq .memory_bounds[0]");
  add_json_option(*command, options.json);
  return command;
}

int run_machine(const MachineOptions& options) {
  const Machine machine = topology::read_machine();
  const topology::ThreadChoice threads = engine::choose_timed_threads(machine);
  if (kernels::highest_isa() == kernels::Isa::scalar) {
    warn(
        "this processor has none of the instruction sets that sluice has fast kernels for (AVX2, "
        "AVX-512, AMX, NEON); everything works, many times slower");
  }
  const Disk disk = known_disk(machine, threads);
  write_output(options.json ? json_text(to_json(machine, threads, disk))
                            : fit_terminal(to_table(machine, threads, disk)));
  return 0;
}

}  // namespace sluice::cli
