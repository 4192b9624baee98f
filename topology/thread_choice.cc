// Which CPUs the threads of a team run on: choose_threads of machine.h.
#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <tuple>

#include "topology/machine.h"

namespace sluice::topology {
namespace {

// An allowed CPU and its sort key. `rank` counts the allowed siblings before it on its core: 0 for
// the first thread of each core.
struct Candidate {
  std::size_t rank = 0;
  std::uint64_t capacity = 0;
  int package = 0;
  unsigned core = 0;  // id of the first hardware thread of the core
  unsigned id = 0;
};

// The allowed CPUs in the order in which threads should take them: the first thread of every core,
// the fastest cores first, package by package, then the second threads.
std::vector<Candidate> candidates_in_order(const Machine& machine) {
  std::vector<Candidate> candidates;
  for (const unsigned id : machine.allowed_cpus) {
    const auto cpu = std::find_if(machine.cpus.begin(), machine.cpus.end(),
                                  [id](const Cpu& entry) { return entry.id == id; });
    Candidate candidate{0, 0, -1, id, id};
    if (cpu != machine.cpus.end()) {
      candidate.capacity = cpu->capacity;
      candidate.package = cpu->package;
      if (!cpu->siblings.empty()) candidate.core = cpu->siblings.front();
    }
    candidate.rank = static_cast<std::size_t>(
        std::count_if(candidates.begin(), candidates.end(),
                      [&](const Candidate& earlier) { return earlier.core == candidate.core; }));
    candidates.push_back(candidate);
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, b.capacity, a.package, a.id) <
           std::tie(b.rank, a.capacity, b.package, b.id);
  });
  return candidates;
}

// How many of the first `cores` candidates do most together, when each does as much as the slowest
// of them can.
std::size_t fast_cores(const std::vector<Candidate>& candidates, std::size_t cores) {
  std::size_t best = 1;
  for (std::size_t count = 2; count <= cores; ++count) {
    const std::uint64_t together = count * candidates[count - 1].capacity;
    if (together >= best * candidates[best - 1].capacity) best = count;
  }
  return best;
}

CpuList first_cpus(const std::vector<Candidate>& candidates, std::size_t count) {
  CpuList cpus;
  for (std::size_t i = 0; i < count; ++i) cpus.push_back(candidates[i].id);
  return cpus;
}

std::string counted(std::size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string quota_text(const CpuQuota& quota) {
  return fmt::format("the quota of {:.4g} CPUs of {}", quota.cpus, quota.source);
}

ThreadChoice chosen_by_request(const Machine& machine, const std::vector<Candidate>& candidates,
                               std::size_t requested) {
  if (requested > candidates.size()) {
    throw std::invalid_argument(fmt::format(
        "{} threads were requested, but this process may run on {} only ({}): request at most {}",
        requested, counted(candidates.size(), "CPU"), format_cpu_list(machine.allowed_cpus),
        candidates.size()));
  }
  ThreadChoice choice;
  choice.cpus = first_cpus(candidates, requested);
  choice.reason = fmt::format("{}, as requested", counted(requested, "thread"));
  if (candidates[requested - 1].rank > 0) choice.reason += ", some on siblings of one core";
  if (machine.quota && machine.quota->cpus < static_cast<double>(requested)) {
    choice.reason += ", beyond " + quota_text(*machine.quota);
  }
  return choice;
}

}  // namespace

ThreadChoice choose_threads(const Machine& machine, unsigned requested) {
  const std::vector<Candidate> candidates = candidates_in_order(machine);
  if (candidates.empty()) throw std::invalid_argument("no CPU of this machine is known");
  if (requested > 0) return chosen_by_request(machine, candidates, requested);

  const auto all_cores = static_cast<std::size_t>(
      std::count_if(candidates.begin(), candidates.end(),
                    [](const Candidate& candidate) { return candidate.rank == 0; }));
  const std::size_t cores = fast_cores(candidates, all_cores);
  const double quota =
      machine.quota ? std::max(1.0, machine.quota->cpus) : static_cast<double>(candidates.size());
  const auto whole = static_cast<std::size_t>(quota);
  ThreadChoice choice;
  choice.siblings_only = all_cores == 1 && candidates.size() > 1;
  const bool is_limited = whole < (choice.siblings_only ? 2 : cores);
  const std::size_t count = std::min(cores, whole);
  choice.cpus = first_cpus(candidates, count);
  choice.reason = counted(count, "thread");
  if (is_limited ? quota > static_cast<double>(whole) : choice.siblings_only) {
    choice.alternative_cpus = first_cpus(candidates, count + 1);
    choice.reason += fmt::format(", or {} if that is faster", count + 1);
  }
  if (is_limited) {
    choice.reason += fmt::format(": {} carries no more", quota_text(*machine.quota));
  } else if (choice.siblings_only) {
    choice.reason += ": all CPUs allowed are siblings of one core";
  } else if (cores < all_cores) {
    choice.reason += fmt::format(": one for each of the fastest cores of the {} allowed",
                                 counted(candidates.size(), "CPU"));
  } else {
    choice.reason += fmt::format(": one for each physical core of the {} allowed",
                                 counted(candidates.size(), "CPU"));
  }
  return choice;
}

}  // namespace sluice::topology
