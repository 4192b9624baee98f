#include "core/cli/doctor.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/resource.h>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/health.h"
#include "core/cli/json.h"
#include "core/cli/machine_rates.h"
#include "core/cli/models_folder.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/engine/thread_timing.h"
#include "core/error.h"
#include "core/fetch/listing.h"
#include "streaming/choose_reader.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

// What a model takes beside its weights: a context of some thousand tokens, and the program.
constexpr std::uint64_t beside_bytes = std::uint64_t{512} << 20;

// What people download, as Q4_K_M.
struct ModelSize {
  const char* name;
  std::uint64_t bytes;
};
constexpr std::array sizes = {ModelSize{"1B", 800'000'000}, ModelSize{"4B", 2'500'000'000},
                              ModelSize{"8B", 5'000'000'000}, ModelSize{"14B", 9'000'000'000},
                              ModelSize{"27B", 16'500'000'000}};

struct Reach {
  ModelSize size;
  bool fits;                      // in memory
  std::optional<double> at_most;  // tokens/s
};

struct Findings {
  std::vector<HealthCheck> checks;
  std::vector<Reach> reach;
  KnownLimits limits;
  std::string next;
};

Reach reach_of(const ModelSize& size, std::uint64_t usable_bytes,
               const engine::MachineLimits& rates) {
  const std::uint64_t room = usable_bytes > beside_bytes ? usable_bytes - beside_bytes : 0;
  const bool fits = size.bytes <= room;
  Reach reach{size, fits, std::nullopt};
  if (rates.dram_bytes_per_s <= 0 || (!fits && rates.disk_bytes_per_s <= 0)) return reach;
  const auto bytes = static_cast<double>(size.bytes);
  const double streamed = fits ? 0 : bytes - static_cast<double>(room);
  double seconds = bytes / rates.dram_bytes_per_s;
  if (streamed > 0) seconds = std::max(seconds, streamed / rates.disk_bytes_per_s);
  reach.at_most = 1 / seconds;
  return reach;
}

// Measures now, in about a second, and keeps it. A small file says nothing about a disk: what is
// known of that is from earlier plans then.
KnownLimits measure(const topology::Machine& machine, const topology::CpuList& cpus,
                    const std::filesystem::path& file_or_folder) {
  const auto threads = static_cast<unsigned>(cpus.size());
  MachineRates rates(machine, {file_or_folder, 0, threads, 1, {}, true});
  KnownLimits limits = rates.measure(cpus);
  rates.save(true);
  return limits;
}

std::vector<HealthCheck> check_all(const topology::Machine& machine,
                                   const topology::ThreadChoice& threads,
                                   const std::filesystem::path& folder,
                                   const fetch::ListedModel* model) {
  const topology::FileRoot root;
  std::vector<HealthCheck> checks = {check_processor(kernels::kernel_table().isa),
                                     check_threads(machine, threads),
                                     check_memory(machine),
                                     check_huge_pages(machine),
                                     check_swap(root),
                                     check_disk(root, folder)};
  if (model != nullptr) {
    const std::array files = {model->path};
    const streaming::ReaderChoice choice =
        streaming::choose_reader(streaming::Io::automatic, files);
    checks.push_back(check_reading({choice.reason, choice.notes}));
  }
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) checks.push_back(check_open_files(files.rlim_cur));
  checks.push_back(check_sandbox(base::possible_confinement()));
  checks.push_back(check_state_folder(state_folder()));
  return checks;
}

Findings find_all(const std::string& asked_folder) {
  const topology::Machine machine = topology::read_machine();
  const topology::ThreadChoice threads = engine::choose_timed_threads(machine);
  const std::filesystem::path folder = models_folder(asked_folder);
  const std::vector<fetch::ListedModel> models = fetch::list_models(installed_models());
  const fetch::ListedModel* const model = model_to_read(models, folder);
  Findings findings{check_all(machine, threads, folder, model),
                    {},
                    measure(machine, threads.cpus, file_of_disk(model, folder)),
                    {}};
  const auto bound = topology::usable_memory(machine);
  for (const ModelSize& size : sizes) {
    findings.reach.push_back(
        reach_of(size, bound ? bound->usable_bytes() : 0, findings.limits.high));
  }
  const bool has_own = std::ranges::any_of(models, &fetch::ListedModel::is_removable);
  findings.next = has_own ? "sluice list, and sluice plan NAME for one of them"
                          : "sluice recommend, for which model to take and how to get it";
  return findings;
}

std::string reach_text(const Reach& reach) {
  const std::string speed =
      reach.at_most ? fmt::format(", at most {} tokens/s", format_speed(*reach.at_most)) : "";
  return fmt::format("{} {}{}", format_bytes(reach.size.bytes),
                     reach.fits ? "stay in memory" : "are streamed in part", speed);
}

std::string to_table(const Findings& findings) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const HealthCheck& check : findings.checks) {
    std::string text = check.found;
    if (check.health != Health::good) {
      text = fmt::format("{}: {}", check.health == Health::slow ? "SLOW" : "BROKEN", text);
      if (!check.remedy.empty()) text += fmt::format(" -> {}", check.remedy);
    }
    facts.emplace_back(check.name, text);
  }
  for (const Reach& reach : findings.reach) {
    facts.emplace_back(fmt::format("a model of {}, Q4_K_M", reach.size.name), reach_text(reach));
  }
  facts.emplace_back("made from", origin_text(findings.limits));
  facts.emplace_back("next", findings.next);
  return format_facts(facts);
}

ordered_json to_json(const Findings& findings) {
  ordered_json json;
  json["checks"] = ordered_json::array();
  for (const HealthCheck& check : findings.checks) {
    json["checks"].push_back({{"name", check.name},
                              {"health", health_name(check.health)},
                              {"found", check.found},
                              {"remedy", check.remedy}});
  }
  json["reach"] = ordered_json::array();
  for (const Reach& reach : findings.reach) {
    json["reach"].push_back({{"size", reach.size.name},
                             {"bytes", reach.size.bytes},
                             {"fits", reach.fits},
                             {"bound_tokens_per_s", or_null(reach.at_most)}});
  }
  json["made_from"] = known_limits(findings.limits);
  json["next"] = findings.next;
  return json;
}

}  // namespace

CLI::App* add_doctor(CLI::App& program, DoctorOptions& options) {
  CLI::App* command = add_command(
      program, "doctor", "Say what this machine can run, and what stands in its way",
      "Looks at processor, memory, disk and limits, measures for about a second, and says what to\n"
      "do about what is slow or broken. The speeds are bounds from memory and disk alone, at the\n"
      "best that they are known to give;\n"
      "`sluice plan MODEL` predicts that of a model.\n\n"
      "Examples:\n"
      "  sluice doctor\n"
      "  sluice doctor /mnt/models");
  command
      ->add_option("FOLDER", options.folder,
                   "Where models lie; default: where `sluice pull` puts them")
      ->type_name("");
  add_json_option(*command, options.json);
  return command;
}

int run_doctor(const DoctorOptions& options) {
  const Findings findings = find_all(options.folder);
  write_output(options.json ? json_text(to_json(findings)) : fit_terminal(to_table(findings)));
  return 0;
}

}  // namespace sluice::cli
