#include "streaming/data_extents.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include "streaming/data_file.h"

namespace sluice::streaming {
namespace {

constexpr std::size_t extents_max = 4096;

std::uint64_t bytes_in(const std::vector<Extent>& extents) {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.end - extent.begin;
  return bytes;
}

}  // namespace

std::vector<Extent> data_extents(const std::filesystem::path& file) {
  const DataFile opened(file, DataFile::Access::buffered);
  const std::uint64_t bytes = opened.bytes();
  std::vector<Extent> extents;
  for (std::uint64_t at = 0; at < bytes;) {
    const off_t data = ::lseek(opened.descriptor(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;         // a hole up to the end
    if (data >= static_cast<off_t>(bytes)) break;  // the file has grown since
    if (data < 0 || extents.size() == extents_max) {
      extents.push_back({at, bytes});
      break;
    }
    const off_t hole = ::lseek(opened.descriptor(), data, SEEK_HOLE);
    const std::uint64_t end = hole < 0 ? bytes : std::min(static_cast<std::uint64_t>(hole), bytes);
    extents.push_back({static_cast<std::uint64_t>(data), end});
    at = std::max(end, at + 1);
  }
  return extents;
}

bool is_mostly_hole(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::uint64_t bytes = std::filesystem::file_size(file, ignored);
  return !ignored && bytes_in(data_extents(file)) < bytes / 2;
}

}  // namespace sluice::streaming
