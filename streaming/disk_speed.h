// How fast the disk under a file is, measured with the very reads that a tape does.
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
  std::uint64_t bytes = 0;         // that were read
  std::string reader;              // "uring"
  std::vector<std::string> notes;  // with reads through the page cache the figure is not the disk's
};

// Memory that measure_disk() needs, and gives back before it returns.
inline constexpr std::uint64_t disk_speed_bytes = std::uint64_t{32} << 20;

// Reads for this long, as a tape streams, in places all over the file, each time in others; a short
// file is read again. Nothing is done with the bytes. Io::mmap would measure the page cache and is
// taken as automatic. Throws std::system_error when the file cannot be read, std::invalid_argument
// when it is empty.
DiskSpeed measure_disk(const std::filesystem::path& file, std::chrono::milliseconds duration,
                       Io io = Io::automatic);

}  // namespace sluice::streaming
