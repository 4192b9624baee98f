// What the machine could do at best: the rates that bound a decode step.
//
//   step time >= max(multiply-adds / peak, weight bytes / DRAM bandwidth,
//                    streamed bytes / disk bandwidth)
//
// They differ from machine to machine and change from minute to minute. So they are measured in the
// same run as the speed that is compared with them, right after it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"
#include "topology/aligned_bytes.h"
#include "topology/machine.h"
#include "topology/thread_team.h"

namespace sluice::engine {

inline constexpr std::uint64_t all_memory = std::numeric_limits<std::uint64_t>::max();

struct MachineLimits {
  double dram_bytes_per_s = 0;  // all threads together, times the share of time of a quota
  double int8_macs_per_s = 0;   // 8-bit multiply-adds of the kernels in use, all threads together
  double disk_bytes_per_s = 0;
  std::vector<std::string> disk_notes;  // reasons why the disk's figure may be wrong
  // False where there was room for a buffer of less than two last-level caches, which then are what
  // dram_bytes_per_s tells of.
  bool has_left_caches = true;
};

// Takes about a second. `cpus` has one CPU for each thread that works; `file` has bytes and lies on
// the disk to measure, with reads of `scattered_bytes` (streaming::measure_disk). An empty path
// means that there is none: the disk's figure is then 0, with a note. The process holds at most
// `memory_max` bytes meanwhile, and at any time one buffer of measuring_bytes(). Throws
// std::system_error when it cannot allocate the buffer, start a thread or read the file.
MachineLimits measure_machine_limits(const topology::CpuList& cpus,
                                     const std::filesystem::path& file,
                                     std::uint64_t scattered_bytes = 0,
                                     std::uint64_t memory_max = all_memory);

// 8-bit multiply-adds per second of these kernels, with a thread on each of `cpus`, all at once.
double measure_int8_macs_per_s(const topology::CpuList& cpus, const kernels::KernelTable& table);

// Whether measurements are short and small: where their figures mean nothing, which is under a
// sanitizer, and where $SLUICE_QUICK_MEASURES is set, as tests do.
bool measures_quickly();

// How long a measurement takes that usually takes `duration`: a sixteenth if it is quick.
std::chrono::milliseconds measuring_time(std::chrono::milliseconds duration);

// The tokens of a step whose logits are wanted: the last one of a prompt, or all, as when each is
// of another sequence that generates.
enum class LogitsOf { last_token, all_tokens };

// A step that was measured (engine/rehearsal.h).
struct RehearsedStep {
  double seconds = 0;
  // What plain reading gave right after it, since memory may be half as fast a second later; 0
  // where that was not measured, because the disk is read meanwhile.
  double dram_bytes_per_s = 0;
};

// Reads `bytes`, all but less than 64 KiB at the end, with all threads of the team, as fast as
// memory allows; returns bytes per second.
double read_memory(topology::ThreadTeam& team, std::span<const std::byte> bytes);

// The share of time that `threads` busy threads run under the quota of this machine; 1 without one.
double share_of_time(const topology::Machine& machine, std::size_t threads);

// Reads memory as fast as possible, with a thread on each of `cpus`, through a buffer in huge pages
// where the system has them. Throws std::system_error when it cannot allocate the buffer or start a
// thread.
class DramReader {
 public:
  DramReader(const topology::CpuList& cpus, std::size_t buffer_bytes);

  // Reads the buffer once; returns bytes per second.
  double read();

 private:
  topology::ThreadTeam team_;
  topology::AlignedBytes buffer_;
};

// What a measurement may take: at most a quarter of the memory that is free to this process, and at
// most half of what `memory_max` leaves beside what the process holds.
std::uint64_t measuring_bytes(const topology::Machine& machine,
                              std::uint64_t memory_max = all_memory);

// The size of the buffer for measuring DRAM. It is four times the last-level cache, so that little
// of it is found there, and at least 1 GiB, for caches that the machine does not report. It is at
// most 2 GiB (virtual machines report the cache of the whole host), and at most measuring_bytes(),
// but at least 1 MiB. Quick measurements take a sixteenth of it.
std::size_t dram_buffer_bytes(const topology::Machine& machine,
                              std::uint64_t memory_max = all_memory);

// The work of a step with one token of each sequence.
struct DecodeWork {
  std::uint64_t hot_bytes = 0;       // of weights, read from memory
  std::uint64_t streamed_bytes = 0;  // the part of hot_bytes that comes from the disk
  // The parts of both that are experts, if any is as likely to be needed as any other.
  std::uint64_t hot_expert_bytes = 0, streamed_expert_bytes = 0;
  std::uint64_t expert_bytes = 0;       // of all experts
  std::uint64_t expert_read_bytes = 0;  // of one read of an expert, on average
  std::uint64_t macs = 0;               // multiply-adds with weights, of one token

  bool has_streamed_experts() const { return streamed_expert_bytes != 0; }
  // The share of experts that have a place in memory.
  double expert_places() const;
  // The share of the experts needed that are in memory, if tokens choose them as those of real
  // models do (engine/expert_routes.h).
  double usual_hit_rate() const;
  // How the disk is read: streaming::measure_disk.
  std::uint64_t scattered_bytes() const;
  // The same work with another share of them.
  DecodeWork with_hit_rate(double rate) const;
};

struct DecodeBound {
  double tokens_per_s = 0;
  std::string_view name;  // the term that binds: "compute", "dram" or "disk"
};

// The most tokens per second that the limits allow for `parallel` sequences together. Every step
// has a token of each sequence, and reads the weights once for all.
DecodeBound decode_bound(const MachineLimits& limits, const DecodeWork& work,
                         std::uint32_t parallel = 1);

}  // namespace sluice::engine
