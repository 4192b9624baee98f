// What earlier plans and runs have measured on this machine, kept in a small file.
//
// A rate that is measured once says how fast the machine was in that moment; beside other work it
// is less. So the last samples of each rate are kept with their times, and give a range. The file
// is text (JSON). It belongs to one machine; that of another, or one that is damaged, counts as
// empty and is replaced by the next that is written. Several processes may use one file at a time:
// each writes it whole, and reads what others wrote before it does.
//
// Nothing here throws for anything that a file may contain. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace sluice::engine {

// All of one unit a second: bytes, multiply-adds, steps.
struct RateRange {
  double low = 0;    // the least sample
  double usual = 0;  // the median of the latest ones
  double high = 0;   // the most that was reached more than once, about; never less than usual
  std::size_t samples = 0;
  std::int64_t first_time = 0, last_time = 0;  // seconds since 1970
};

// Processor, CPUs and quota: what makes two machines different, for their speed.
std::string machine_identity(const topology::Machine& machine);

class MachineProfile {
 public:
  // Reads the file, if it is there and of `identity`. An empty path: nothing is kept. Samples more
  // than 30 days older than `now` are forgotten.
  MachineProfile(std::filesystem::path file, std::string identity, std::int64_t now);

  std::optional<RateRange> rate(const std::string& name) const;

  // Adds what was measured now. Ignores what is no positive number.
  void add(const std::string& name, double per_s);
  // The same for what is at most the rate: adds it only if no sample is above it.
  void add_reached(const std::string& name, double per_s);

  // Writes the file, with what other processes have added meanwhile. Returns why it could not, in
  // one line; empty when it could, or when there is nothing to write.
  std::string save();

 private:
  struct Sample {
    double per_s = 0;
    std::int64_t time = 0;
  };
  using Samples = std::map<std::string, std::vector<Sample>>;  // by name; ascending times

  Samples read() const;
  void insert(Samples& samples, const std::string& name, const Sample& sample) const;

  std::filesystem::path file_;
  std::string identity_;
  std::int64_t now_;
  Samples samples_, added_;
};

}  // namespace sluice::engine
