#include "core/cli/machine_rates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/json.h"
#include "core/cli/output.h"
#include "kernels/kernel_table.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

std::string time_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

// Quick measurements are kept, so that what is made of them can be tested, and kept apart.
std::filesystem::path profile_file() {
  const std::filesystem::path state = state_folder();
  const char* const name = engine::measures_quickly() ? "machine-quick.json" : "machine.json";
  return state.empty() ? state : state / name;
}

std::string_view isa() {
  return kernels::isa_name(kernels::kernel_table().isa);
}

// The disk of the file, and how it is read: figures of other sizes say little.
std::string disk_name(const RatedRun& run) {
  struct stat facts {};
  const bool is_known = ::stat(run.model.c_str(), &facts) == 0;
  const dev_t device = is_known ? facts.st_dev : 0;
  const std::uint64_t scattered = run.work.scattered_bytes();
  const std::string reads = scattered == 0 ? "in order"
                                           : fmt::format("scattered reads of about {} KiB",
                                                         std::bit_floor(scattered) >> 10);
  return fmt::format("disk {}:{}, {}", major(device), minor(device), reads);
}

// Plans of one run differ by a few MiB from those of the next. Where no model is planned for, no
// bytes are read in a step.
std::string steps_name(const RatedRun& run) {
  const double streamed = run.work.hot_bytes == 0 ? 0
                                                  : static_cast<double>(run.work.streamed_bytes) /
                                                        static_cast<double>(run.work.hot_bytes);
  return fmt::format("steps of {} ({} bytes), {} threads, {}, {} together, {} % streamed",
                     run.model.filename().string().substr(0, 100), run.weights_bytes, run.threads,
                     isa(), run.sequences, 5 * std::lround(20 * streamed));
}

// Clearly below what it was at its best.
bool is_slow(const KnownLimits& limits, double engine::MachineLimits::*rate) {
  constexpr double clearly = 0.8;
  return limits.now.*rate < clearly * limits.high.*rate;
}

}  // namespace

bool KnownLimits::is_slow_now() const {
  return is_slow(*this, &engine::MachineLimits::dram_bytes_per_s) ||
         is_slow(*this, &engine::MachineLimits::int8_macs_per_s);
}

bool OtherMachine::is_this_one(const topology::CpuList& measured) const {
  return !disk_bytes_per_s && !dram_bytes_per_s && !int8_macs_per_s && cpus <= measured.size() &&
         (!isa || isa == kernels::kernel_table().isa);
}

void OtherMachine::replace(engine::MachineLimits& limits, const topology::CpuList& measured) const {
  KnownLimits all{.now = limits, .low = limits, .usual = limits, .high = limits};
  replace(all, measured);
  limits = all.usual;
}

void OtherMachine::replace(KnownLimits& limits, const topology::CpuList& measured) const {
  std::optional<double> int8 = int8_macs_per_s;
  const bool has_isa = isa && std::ranges::count(kernels::offered_isas(), *isa) != 0;
  if (!int8 && has_isa && isa != kernels::kernel_table().isa) {
    int8 = engine::measure_int8_macs_per_s(measured, kernels::kernel_table(*isa));
  }
  // Those that are not here.
  const double times = int8_macs_per_s || cpus <= measured.size()
                           ? 1
                           : static_cast<double>(cpus) / static_cast<double>(measured.size());
  for (engine::MachineLimits* one : {&limits.now, &limits.low, &limits.usual, &limits.high}) {
    one->disk_bytes_per_s = disk_bytes_per_s.value_or(one->disk_bytes_per_s);
    one->dram_bytes_per_s = dram_bytes_per_s.value_or(one->dram_bytes_per_s);
    one->int8_macs_per_s = times * int8.value_or(one->int8_macs_per_s);
  }
}

std::string OtherMachine::lacking() const {
  if (!isa || int8_macs_per_s || std::ranges::count(kernels::offered_isas(), *isa) != 0) return "";
  return fmt::format(
      "--for {}: this CPU has no such instruction set, so arithmetic is taken to be as fast as "
      "here; say how fast it is, such as int8=100G/s",
      kernels::isa_name(*isa));
}

ordered_json known_limits(const KnownLimits& limits) {
  ordered_json json;
  json["measurements"] = limits.measurements;
  json["first"] = time_text(limits.first_time);
  json["last"] = time_text(limits.last_time);
  json["is_slow_now"] = limits.is_slow_now();
  const auto add = [&](const char* name, double engine::MachineLimits::*rate) {
    const auto known = [&](const engine::MachineLimits& of) {
      return or_null(of.*rate > 0 ? std::optional(of.*rate) : std::nullopt);
    };
    json[name] = {{"now", known(limits.now)},
                  {"low", known(limits.low)},
                  {"usual", known(limits.usual)},
                  {"high", known(limits.high)}};
  };
  add("dram_bytes_per_s", &engine::MachineLimits::dram_bytes_per_s);
  add("int8_macs_per_s", &engine::MachineLimits::int8_macs_per_s);
  add("disk_bytes_per_s", &engine::MachineLimits::disk_bytes_per_s);
  return json;
}

std::string origin_text(const KnownLimits& limits) {
  constexpr double giga = 1e9;
  std::string text =
      limits.measurements <= 1
          ? fmt::format("one measurement of this machine, {}", time_text(limits.last_time))
          : fmt::format("{} measurements of this machine, {} to {}", limits.measurements,
                        time_text(limits.first_time), time_text(limits.last_time));
  std::vector<std::string> slow;
  if (is_slow(limits, &engine::MachineLimits::dram_bytes_per_s)) {
    slow.push_back(fmt::format("memory gives {} of {} GB/s",
                               format_speed(limits.now.dram_bytes_per_s / giga),
                               format_speed(limits.high.dram_bytes_per_s / giga)));
  }
  if (is_slow(limits, &engine::MachineLimits::int8_macs_per_s)) {
    slow.push_back(fmt::format("processors {:.0f} of {:.0f} G multiply-adds/s",
                               limits.now.int8_macs_per_s / giga,
                               limits.high.int8_macs_per_s / giga));
  }
  if (!slow.empty()) text += fmt::format("; it is slow or busy now: {}", fmt::join(slow, ", "));
  return text;
}

RatedRun rated_run(const std::filesystem::path& model, const RunRecord& run) {
  return {model,          run.facts.weights_bytes, run.facts.threads, run.plan.cache.sequences,
          run.facts.work, run.facts.io != "mmap"};
}

MachineRates::MachineRates(const topology::Machine& machine, RatedRun run)
    : run_(std::move(run)),
      profile_(profile_file(), engine::machine_identity(machine), std::time(nullptr)),
      dram_(fmt::format("dram, {} threads", run_.threads)),
      dram_beside_(fmt::format("dram beside steps, {} threads", run_.threads)),
      int8_(fmt::format("int8, {} threads, {}", run_.threads, isa())),
      disk_(disk_name(run_)),
      steps_(steps_name(run_)) {}

engine::MachineLimits MachineRates::known() const {
  const auto usual = [&](const std::string& name) {
    const std::optional<engine::RateRange> range = profile_.rate(name);
    return range ? range->usual : 0;
  };
  return {.dram_bytes_per_s = usual(dram_),
          .int8_macs_per_s = usual(int8_),
          .disk_bytes_per_s = usual(disk_),
          .disk_notes = {}};
}

KnownLimits MachineRates::measure(const topology::CpuList& cpus, std::uint64_t memory_max) {
  KnownLimits known;
  const bool has_file = std::filesystem::is_regular_file(run_.model);
  known.now = engine::measure_machine_limits(cpus, has_file ? run_.model : "",
                                             run_.work.scattered_bytes(), memory_max);
  const std::optional<engine::RateRange> dram = profile_.rate(dram_);
  if (!known.now.has_left_caches && dram) known.now.dram_bytes_per_s = dram->usual;
  known.low = known.usual = known.high = known.now;
  const auto take = [&](const std::string& name, double engine::MachineLimits::*rate,
                        bool is_measured = true) {
    if (is_measured) profile_.add(name, known.now.*rate);
    const std::optional<engine::RateRange> range = profile_.rate(name);
    if (!range) return;
    known.low.*rate = range->low;
    known.usual.*rate = range->usual;
    known.high.*rate = range->high;
    const bool is_first = known.measurements == 0;
    known.first_time = is_first ? range->first_time : std::min(known.first_time, range->first_time);
    known.last_time = std::max(known.last_time, range->last_time);
    known.measurements = std::max(known.measurements, range->samples);
  };
  take(dram_, &engine::MachineLimits::dram_bytes_per_s, known.now.has_left_caches);
  take(int8_, &engine::MachineLimits::int8_macs_per_s);
  // What is read from a hole, or from the page cache, is no rate of a disk.
  take(disk_, &engine::MachineLimits::disk_bytes_per_s, known.now.disk_notes.empty());
  return known;
}

void MachineRates::take_dram_beside_steps(KnownLimits& limits) const {
  const std::optional<engine::RateRange> range = profile_.rate(dram_beside_);
  if (!range) return;
  double& low = limits.low.dram_bytes_per_s;
  limits.usual.dram_bytes_per_s = std::min(limits.usual.dram_bytes_per_s, range->usual);
  low = std::min(low, range->low);
}

void MachineRates::add_steps(double per_s, double hit_rate) {
  const engine::DecodeWork work = run_.work.with_hit_rate(hit_rate);
  profile_.add(steps_, per_s);
  // Caches hold a good part of less.
  constexpr std::uint64_t much = std::uint64_t{1} << 29;
  if (work.hot_bytes >= much) {
    profile_.add_reached(dram_, per_s * static_cast<double>(work.hot_bytes));
  }
  if (run_.reads_disk && work.streamed_bytes >= much) {
    profile_.add_reached(disk_, per_s * static_cast<double>(work.streamed_bytes));
  }
}

void MachineRates::save(bool quiet) {
  const std::string problem = profile_.save();
  if (!problem.empty() && !quiet) warn(fmt::format("the profile of this machine: {}", problem));
}

}  // namespace sluice::cli
