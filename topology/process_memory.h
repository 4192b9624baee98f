// What memory this process and its control group hold, and how hard they press on it.
//
// Every figure is optional, because kernels and containers differ in what they offer; a figure
// that is absent is not zero. All functions read a handful of small files: call them between
// steps, not in inner loops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "topology/file_root.h"

namespace sluice::topology {

// From /proc/self/status and /proc/self/stat; see proc(5).
struct ProcessMemory {
  std::optional<std::uint64_t> rss_anon_bytes;
  std::optional<std::uint64_t> rss_file_bytes;  // resident pages of mapped files
  std::optional<std::uint64_t> rss_shmem_bytes;
  std::optional<std::uint64_t> rss_peak_bytes;    // VmHWM: the sum of the three at its highest
  std::optional<std::uint64_t> page_table_bytes;  // VmPTE
  std::optional<std::uint64_t> swapped_bytes;     // VmSwap
  std::optional<std::uint64_t> minor_faults;
  std::optional<std::uint64_t> major_faults;  // those that waited for a disk

  // What the process holds: its own pages and those of mapped files; nothing where either is not
  // known.
  std::optional<std::uint64_t> resident_bytes() const;

  // The most that the process held: resident pages, and page tables, which only grow.
  std::optional<std::uint64_t> peak_bytes() const;

  // What cannot be taken from the process without swap: anonymous and shared pages and page
  // tables; zero for those that are not known.
  std::uint64_t unreclaimable_bytes() const;
};

ProcessMemory read_process_memory(const FileRoot& root = {});

// The resident bytes with each shared page divided by its users (smaps_rollup). Apart from the
// above because the kernel walks all page tables of the process for it.
std::optional<std::uint64_t> read_proportional_bytes(const FileRoot& root = {});

// The memory control group of this process, with all its descendants.
struct CgroupMemory {
  std::string name;                            // empty where there is no such group
  std::optional<std::uint64_t> usage_bytes;    // page cache included
  std::optional<std::uint64_t> peak_bytes;     // since the group was made or the counter reset
  std::optional<std::uint64_t> refaults_file;  // pages of files read again soon after eviction
  std::optional<std::uint64_t> refaults_anon;

  // Both kinds, of those that are known; nothing where none is.
  std::optional<std::uint64_t> refaults() const;
};

// By how much a counter has grown. Nothing where it was not known before or is not now, or where it
// has begun anew in between.
std::optional<std::uint64_t> growth(std::optional<std::uint64_t> before,
                                    std::optional<std::uint64_t> now);

CgroupMemory read_cgroup_memory(const FileRoot& root = {});

// Pressure stall information: the share of the last ten seconds in which some (or all) tasks
// waited for memory, in percent, and the microseconds spent so in all.
struct PressureLine {
  double avg10_percent = 0;
  std::uint64_t total_us = 0;
};

struct MemoryPressure {
  std::string source;  // the file that was read; empty where there is none
  std::optional<PressureLine> some;
  std::optional<PressureLine> full;
};

// Of the process's v2 control group where there is one, else of the whole machine.
MemoryPressure read_memory_pressure(const FileRoot& root = {});

}  // namespace sluice::topology
