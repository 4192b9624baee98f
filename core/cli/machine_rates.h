// How fast this machine is: measured now, and known from earlier plans and runs.
//
// The profile (engine/machine_profile.h) is machine.json in state_folder(), or machine-quick.json
// where measurements are quick ones. Plans and benches measure rates and add them; a run adds how
// fast its steps were, and what the disk and the memory must have given for that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/cli/report.h"
#include "core/engine/machine_limits.h"
#include "core/engine/machine_profile.h"
#include "kernels/kernel_table.h"
#include "topology/machine.h"

namespace sluice::cli {

struct KnownLimits {
  engine::MachineLimits now;               // measured now
  engine::MachineLimits low, usual, high;  // of all that is known, `now` included
  std::size_t measurements = 0;
  std::int64_t first_time = 0, last_time = 0;  // seconds since 1970

  // Whether memory or processors give clearly less now than they have given before.
  bool is_slow_now() const;
};

// The speeds of another machine, in place of those that are measured here; nothing: as here.
struct OtherMachine {
  std::optional<double> disk_bytes_per_s, dram_bytes_per_s, int8_macs_per_s;
  unsigned cpus = 0;                // 0: as many as are measured here
  std::optional<kernels::Isa> isa;  // nothing: as here

  // `measured` are the CPUs of the measurement.
  bool is_this_one(const topology::CpuList& measured) const;
  // Where the multiply-adds are not known, processors are taken to be like those here, with the
  // instruction set of the other machine if they have it. That is measured for a moment.
  void replace(engine::MachineLimits& limits, const topology::CpuList& measured) const;
  void replace(KnownLimits& limits, const topology::CpuList& measured) const;
  // What those do not know of the other machine; empty: nothing.
  std::string lacking() const;
};

// {measurements, first, last, is_slow_now, dram_bytes_per_s: {now, low, usual, high}, ...}; null
// stands for what was not measured.
nlohmann::ordered_json known_limits(const KnownLimits& limits);
// "7 measurements of this machine, from 2026-11-20 to 2026-11-26", and whether it is slow now.
std::string origin_text(const KnownLimits& limits);

// What a run is, for rates that hold for it alone.
struct RatedRun {
  std::filesystem::path model;  // its file, or the folder where it would lie
  std::uint64_t weights_bytes = 0;
  unsigned threads = 0;
  std::uint32_t sequences = 0;
  engine::DecodeWork work;
  bool reads_disk = true;  // and not the page cache
};
RatedRun rated_run(const std::filesystem::path& model, const RunRecord& run);

class MachineRates {
 public:
  // Reads the profile.
  MachineRates(const topology::Machine& machine, RatedRun run);

  // What is usual, as far as it is known; nothing is measured. A rate that is not known is 0.
  engine::MachineLimits known() const;

  // Takes about a second, and holds the process to `memory_max` bytes; where that is too little to
  // measure memory, the figures for it are those that are known, if any are. Of a model that is no
  // file, the disk is not measured. Throws what engine::measure_machine_limits throws.
  KnownLimits measure(const topology::CpuList& cpus, std::uint64_t memory_max = engine::all_memory);

  // Adds what memory usually gives beside steps, and not at best.
  void add_dram_beside_steps(double bytes_per_s) { profile_.add(dram_beside_, bytes_per_s); }
  // Replaces what is usual and low in `limits` by what is known of that, if anything is.
  void take_dram_beside_steps(KnownLimits& limits) const;

  // Steps per second of earlier runs like this one, with a token of each sequence.
  std::optional<engine::RateRange> steps() const { return profile_.rate(steps_); }
  // Adds those of this run. `hit_rate` is the share of the experts needed that were in memory.
  void add_steps(double per_s, double hit_rate);

  // A profile that cannot be written is worth a warning, unless `quiet`.
  void save(bool quiet);

 private:
  RatedRun run_;
  engine::MachineProfile profile_;
  std::string dram_, dram_beside_, int8_, disk_, steps_;  // names of rates
};

}  // namespace sluice::cli
