// Facts about the machine as this process may use it: CPUs and their kinship, quota and memory
// limits of the control groups, and what follows from them: how much memory, which threads.
//
// All readers take the folder below which /proc and /sys are looked up, so that other machines can
// be read from recorded trees. What a kernel does not tell is left empty; nothing here throws
// because of what a file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/cgroup.h"
#include "topology/file_root.h"

namespace sluice::topology {

struct Cpu {
  unsigned id = 0;
  int package = 0;   // socket; -1 where the kernel does not know
  int core = 0;      // the kernel's core id: not unique over packages, may be sparse
  CpuList siblings;  // the online hardware threads of the same physical core, this one included
};

// Of the first online CPU, in bytes.
struct CacheSizes {
  std::optional<std::uint64_t> l1d_bytes;
  std::optional<std::uint64_t> l2_bytes;
  std::optional<std::uint64_t> l3_bytes;
};

// The tightest CPU quota above this process.
struct CpuQuota {
  double cpus = 0;     // CPU seconds per second; 0.5 is half of one CPU
  std::string source;  // "cpu cgroup /a/b (cpu.max)"
};

// A memory control group that holds this process: its own or a parent.
struct MemoryGroup {
  std::string name;
  bool is_v1 = false;
  std::optional<std::uint64_t> limit_bytes;  // memory.max, v1 memory.limit_in_bytes
  std::optional<std::uint64_t> high_bytes;   // memory.high: beyond it the kernel throttles
  std::optional<std::uint64_t> usage_bytes;  // of the group and its descendants, with page cache
  std::uint64_t reclaimable_bytes = 0;       // of the usage: page cache and, in v2, slab
  // v1 states the tightest limit of all ancestors, visible or not.
  std::optional<std::uint64_t> hierarchical_limit_bytes;
};

struct Machine {
  std::vector<Cpu> cpus;   // online, by ascending id
  CpuList allowed_cpus;    // of those, the ones that affinity and cpuset leave to this process
  std::string model_name;  // empty where unknown
  std::vector<std::string> flags;  // instruction sets that matter to this program, as in cpuinfo
  CacheSizes caches;
  std::optional<CpuQuota> quota;

  std::vector<MemoryGroup> memory_groups;  // the process's own first, then its parents
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_available_bytes;
  std::uint64_t own_bytes = 0;  // that this process held when asked, and cannot be reclaimed
  std::optional<std::string> huge_pages;  // transparent huge pages: "always", "madvise", "never"
  std::size_t page_bytes = 4096;
};

// What bounds the memory of this process, and nothing else of the machine: the memory groups and
// the lines after them but the last two. `group` is that of find_cgroup(root, "memory"), which
// takes most of the time. For whoever looks again every few milliseconds.
Machine read_memory_limits(const FileRoot& root, const std::optional<Cgroup>& group);

// Reads all of the above. `affinity` stands in for the mask of the calling thread, which is asked
// of the kernel where it is absent.
Machine read_machine(const FileRoot& root = {}, std::optional<CpuList> affinity = std::nullopt);

// One of the things that bound the memory of this process.
struct MemoryBound {
  std::string source;             // "memory cgroup /a/b (memory.max)"
  std::uint64_t limit_bytes = 0;  // for everything that counts against this bound
  // The part of the limit that others in the group hold and that cannot be reclaimed, as far as
  // it can be told: usage less page cache less what this process held.
  std::uint64_t held_by_others_bytes = 0;

  // What is left to this process in all, what it holds already included.
  std::uint64_t usable_bytes() const { return limit_bytes - held_by_others_bytes; }
};

// Every bound on the memory of this process, the one that leaves it least first. The available
// memory of the machine is counted with what the process holds already, which it need not find
// again. Empty only where the kernel states neither limits nor memory.
std::vector<MemoryBound> memory_bounds(const Machine& machine);

// The first of memory_bounds: how much memory the process may use in all, and what says so.
std::optional<MemoryBound> usable_memory(const Machine& machine);

// On which CPUs a team of threads should run.
struct ThreadChoice {
  CpuList cpus;  // one for each thread, in the order of members; not sorted
  // The same with one thread more, where no rule says whether that helps, and the code that is to
  // run has to be timed on both; else empty.
  CpuList alternative_cpus;
  bool siblings_only = false;  // all CPUs of this process are hardware threads of one core
  std::string reason;          // one line for people
};

// Chooses CPUs from the allowed ones, one thread per physical core first, cores of one package
// together. requested == 0 gives one thread per core, but no more than the whole CPUs of the quota,
// and at least one. There is an alternative when a second thread would share the only core, or when
// the quota has a fraction of a CPU left: a team that outruns its quota is stopped as a whole until
// the next period, which may still be faster. A request by number is honoured beyond the quota, on
// siblings where cores run out, and is never siblings_only. Throws std::invalid_argument when more
// threads are requested than there are CPUs allowed.
ThreadChoice choose_threads(const Machine& machine, unsigned requested = 0);

}  // namespace sluice::topology
