// Facts about the machine as this process may use it: CPUs and which of them share a core, the CPU
// quota and memory limits of control groups; and two conclusions: how much memory the process may
// use, and on which CPUs its threads should run.
//
// All readers take the folder below which /proc and /sys are looked up, so that other machines can
// be read from recorded trees. What a kernel does not report is left empty; no file content makes
// a function here throw.
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
  // Its speed beside that of the fastest, which has 1024; 0 where the kernel does not say. It does
  // on machines with cores of several kinds (aarch64).
  std::uint64_t capacity = 0;
};

// The caches of the first online CPU, in bytes.
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
  std::uint64_t reclaimable_bytes = 0;       // part of usage_bytes: page cache and, in v2, slab
  // v1 only: the tightest limit of this group and all ancestors, visible or not.
  std::optional<std::uint64_t> hierarchical_limit_bytes;
};

// A limit on the addresses of this process, whether there is memory behind them or not.
struct AddressLimit {
  std::string name;  // "address space (ulimit -v)"
  std::uint64_t limit_bytes = 0;
  std::uint64_t bytes = 0;  // that it has of them now
};

struct Machine {
  std::vector<Cpu> cpus;   // online, by ascending id
  CpuList allowed_cpus;    // the online CPUs that affinity and cpuset allow this process to use
  std::string model_name;  // empty where unknown
  std::vector<std::string> flags;  // instruction sets that matter to this program, as in cpuinfo
  CacheSizes caches;
  std::optional<CpuQuota> quota;

  std::vector<MemoryGroup> memory_groups;  // the process's own first, then its parents
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_available_bytes;
  std::uint64_t own_bytes = 0;  // held by this process and not reclaimable, when this was read
  std::vector<AddressLimit> address_limits;
  std::optional<std::string> huge_pages;  // transparent huge pages: "always", "madvise", "never"
  std::size_t page_bytes = 4096;
};

// Reads only what limits the memory of this process and may change while it runs: memory_groups,
// memory_total_bytes, memory_available_bytes and own_bytes. `group` is the result of
// find_cgroup(root, "memory"); as that takes most of the time, a caller that polls every few
// milliseconds finds it once.
Machine read_memory_limits(const FileRoot& root, const std::optional<Cgroup>& group);

// Reads all of the above. `affinity` replaces the mask of the calling thread; if it is absent, the
// kernel is asked for that mask.
Machine read_machine(const FileRoot& root = {}, std::optional<CpuList> affinity = std::nullopt);

// One bound on the memory of this process.
struct MemoryBound {
  std::string source;             // "memory cgroup /a/b (memory.max)"
  std::uint64_t limit_bytes = 0;  // for everything that counts against this bound
  // What other processes of the group hold and cannot be reclaimed, as far as that is known: the
  // usage, less page cache, less what this process held. Of addresses: those without memory.
  std::uint64_t held_by_others_bytes = 0;

  // What this process may use in all, including what it holds already.
  std::uint64_t usable_bytes() const { return limit_bytes - held_by_others_bytes; }
};

// Every bound on the memory of this process, the tightest first. The bound of the machine's
// available memory includes what the process holds already. Empty only if the kernel reports
// neither limits nor memory.
std::vector<MemoryBound> memory_bounds(const Machine& machine);

// The tightest of memory_bounds(): how much memory the process may use in all, and why.
std::optional<MemoryBound> usable_memory(const Machine& machine);

// On which CPUs a team of threads should run.
struct ThreadChoice {
  CpuList cpus;  // one for each thread, in the order of members; not sorted
  // The same with one thread more, if no rule says whether that helps; then the caller has to time
  // its code on both. Else empty.
  CpuList alternative_cpus;
  bool siblings_only = false;  // all CPUs of this process are hardware threads of one core
  std::string reason;          // one line for people
};

// Chooses CPUs from the allowed ones: one thread per physical core first, the fastest cores first,
// cores of one package together. Where cores are of several kinds, so many of the fastest as do
// most together, since every thread gets the same work. requested == 0 gives one thread per core,
// but no more than the quota rounded down to whole CPUs, and at least one. There is an alternative
// when a second thread would share the only core, or when a fraction of a CPU of the quota is left
// (a team that exceeds its quota is stopped as a whole until the next period, and may still be
// faster). A requested number is honoured even beyond the quota, on siblings when there are too few
// cores; siblings_only stays false. Throws std::invalid_argument when more threads are requested
// than there are CPUs allowed.
ThreadChoice choose_threads(const Machine& machine, unsigned requested = 0);

}  // namespace sluice::topology
