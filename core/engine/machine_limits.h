// What the machine could do at best: the rates that bound a decode step.
//
//   step time >= max(multiply-adds / peak, weight bytes / DRAM bandwidth,
//                    streamed bytes / disk bandwidth)
//
// They move from machine to machine and from minute to minute, so they are measured in the same run
// as what is compared with them, right after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/aligned_bytes.h"
#include "topology/machine.h"
#include "topology/thread_team.h"

namespace sluice::engine {

struct MachineLimits {
  double dram_bytes_per_s = 0;  // all threads together, for the share of time that a quota allows
  double int8_macs_per_s = 0;   // 8-bit multiply-adds of the kernels in use, all threads together
  double disk_bytes_per_s = 0;
  std::vector<std::string> disk_notes;  // why the disk's figure may not be the disk's
};

// Takes about a second. `cpus`: one for each thread that works; `file`: not empty, lies on
// the disk to measure. Holds a buffer of dram_buffer_bytes() while it runs. Throws
// std::system_error when the buffer cannot be had, a thread not be started or the file not be read.
MachineLimits measure_machine_limits(const topology::CpuList& cpus,
                                     const std::filesystem::path& file);

// Threads that read memory as fast as they can, one for each of `cpus`, through a buffer in huge
// pages where the system has them. Throws std::system_error when the buffer cannot be had, or a
// thread not be started.
class DramReader {
 public:
  DramReader(const topology::CpuList& cpus, std::size_t buffer_bytes);

  // Reads the buffer once; bytes per second.
  double read();

 private:
  std::span<std::uint64_t> words();

  topology::ThreadTeam team_;
  model::AlignedBytes buffer_;
};

// Memory to read through when measuring DRAM: four times the last cache, so that little of it is
// found there, and 1 GiB at least, for caches that the machine does not tell of; but no more than
// 2 GiB (virtual machines report the cache of the whole host) nor a quarter of the memory that is
// free to this process.
std::size_t dram_buffer_bytes(const topology::Machine& machine);

// What a step of one token has to do.
struct DecodeWork {
  std::uint64_t hot_bytes = 0;       // of weights, read from memory
  std::uint64_t streamed_bytes = 0;  // of those, the ones that come from the disk
  std::uint64_t macs = 0;            // multiply-adds with weights
};

struct DecodeBound {
  double tokens_per_s = 0;
  std::string_view name;  // of the term that binds: "compute", "dram" or "disk"
};

// The tokens per second of `parallel` sequences together that the limits allow, a token of each in
// every step: they share what is read.
DecodeBound decode_bound(const MachineLimits& limits, const DecodeWork& work,
                         std::uint32_t parallel = 1);

}  // namespace sluice::engine
