// Measures how fast the disk under a file is, with the same reads that a tape makes.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "streaming/choose_reader.h"

namespace sluice::streaming {

struct DiskSpeed {
  double bytes_per_s = 0;
  std::uint64_t bytes = 0;         // read in all
  std::string reader;              // "uring"
  std::vector<std::string> notes;  // e.g. that reads went through the page cache, not to the disk
};

// Memory that measure_disk() allocates for what it reads, and frees before it returns, where it may
// have so much. A list of the places that it reads takes up to half as much beside it.
inline constexpr std::uint64_t disk_speed_bytes = std::uint64_t{32} << 20;

// Reads for `duration` as a tape streams, at places spread over the whole file; each call begins
// elsewhere, and a short file is read again and again. Holes are left out. The bytes are not used.
// With `scattered_bytes` each read has so many bytes (at most 2 MiB) and lies far from the one
// before it, as those of experts do; 0: long stretches of the file, as those of other weights.
// What is read has at most `buffer_bytes`, but at least 1 MiB, which makes reads shorter.
// Io::mmap would measure the page cache, so it is treated as Io::automatic. Throws
// std::system_error when the file cannot be read, std::invalid_argument when it is empty.
DiskSpeed measure_disk(const std::filesystem::path& file, std::chrono::milliseconds duration,
                       Io io = Io::automatic, std::uint64_t scattered_bytes = 0,
                       std::uint64_t buffer_bytes = disk_speed_bytes);

}  // namespace sluice::streaming
