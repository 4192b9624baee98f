// What of a file lies in the page cache: the proof that a reader gave up what it should have.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice::streaming {

// Bytes (whole pages) of the range that are in memory, as mincore(2) tells. The kernel tells the
// truth only to the owner of the file or who may write it; to others everything looks present.
// Pages beyond the end of the file do not count. Throws std::system_error that names the file.
std::uint64_t cached_bytes(const std::filesystem::path& path, std::uint64_t offset,
                           std::uint64_t bytes);

}  // namespace sluice::streaming
