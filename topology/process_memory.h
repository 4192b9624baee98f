// How much memory this process and its control group hold, and the memory pressure they are under.
//
// Every figure is optional, because kernels and containers differ in what they offer; an absent
// figure does not mean zero. All functions read a handful of small files: call them between steps,
// not in inner loops. Where the groups lie is told by the caller, since finding them takes longer
// than reading their files, and they stay where they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "topology/cgroup.h"
#include "topology/file_root.h"

namespace sluice::topology {

// From /proc/self/status and /proc/self/stat; see proc(5).
struct ProcessMemory {
  std::optional<std::uint64_t> rss_anon_bytes;
  std::optional<std::uint64_t> rss_file_bytes;  // resident pages of mapped files
  std::optional<std::uint64_t> rss_shmem_bytes;
  std::optional<std::uint64_t> rss_peak_bytes;    // VmHWM: the highest sum of the three so far
  std::optional<std::uint64_t> page_table_bytes;  // VmPTE
  std::optional<std::uint64_t> swapped_bytes;     // VmSwap
  std::optional<std::uint64_t> minor_faults;
  std::optional<std::uint64_t> major_faults;  // page faults that waited for a disk

  // Resident anonymous pages and pages of mapped files. Nothing if either is not known.
  std::optional<std::uint64_t> resident_bytes() const;

  // The most that the process has held: resident pages, and page tables, which only grow.
  std::optional<std::uint64_t> peak_bytes() const;

  // What the kernel cannot reclaim without swap: anonymous and shared pages and page tables.
  // Figures that are not known count as zero.
  std::uint64_t unreclaimable_bytes() const;
};

ProcessMemory read_process_memory(const FileRoot& root = {});

// The memory control group of this process, with all its descendants.
struct CgroupMemory {
  std::string name;                            // empty if there is no such group
  std::optional<std::uint64_t> usage_bytes;    // page cache included
  std::optional<std::uint64_t> peak_bytes;     // since the group was made or the counter reset
  std::optional<std::uint64_t> refaults_file;  // pages of files read again after eviction
  std::optional<std::uint64_t> refaults_anon;

  // The sum of both kinds, as far as they are known; nothing if neither is.
  std::optional<std::uint64_t> refaults() const;
};

// By how much a counter has grown. Nothing if either value is not known, or if the counter was
// reset in between.
std::optional<std::uint64_t> growth(std::optional<std::uint64_t> before,
                                    std::optional<std::uint64_t> now);

// `group` is the result of find_cgroup(root, "memory").
CgroupMemory read_cgroup_memory(const std::optional<Cgroup>& group, const FileRoot& root = {});

// The pages that were read again so soon after eviction that a little more memory would have kept
// them, from the process's v2 control group or, without one that counts them, from the whole
// machine. A running total. Refaults are also counted of pages that were evicted hours ago, when a
// file was read for the last time. `unified` is the result of find_unified_cgroup(root).
std::optional<std::uint64_t> read_recent_refaults(const std::optional<Cgroup>& unified,
                                                  const FileRoot& root = {});

// Pressure stall information: the share of the last ten seconds in which some (or all) tasks
// waited for memory, in percent, and the total time of such waiting in microseconds.
struct PressureLine {
  double avg10_percent = 0;
  std::uint64_t total_us = 0;
};

struct MemoryPressure {
  std::string source;          // the file that was read; empty if there is none
  bool is_of_machine = false;  // some task of any group waited
  std::optional<PressureLine> some;
  std::optional<PressureLine> full;
};

// The pressure in the process's v2 control group if it has one, else in the whole machine.
// `unified` is the result of find_unified_cgroup(root).
MemoryPressure read_memory_pressure(const std::optional<Cgroup>& unified,
                                    const FileRoot& root = {});

}  // namespace sluice::topology
