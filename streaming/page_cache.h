// How much of a file lies in the page cache. Tests use it to check that a reader has dropped the
// pages it should drop.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice::streaming {

// How many bytes (in whole pages) of a range of the file are in memory, according to mincore(2).
// `offset` and `bytes` give the range. The kernel tells the truth only to the owner of the file and
// to those who may write it; to others every page looks present. Pages beyond the end of the file
// do not count. Throws std::system_error that names the file.
std::uint64_t cached_bytes(const std::filesystem::path& path, std::uint64_t offset,
                           std::uint64_t bytes);

}  // namespace sluice::streaming
