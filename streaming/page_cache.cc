#include "streaming/page_cache.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/mapped_file.h"

namespace sluice::streaming {

std::uint64_t cached_bytes(const std::filesystem::path& path, std::uint64_t offset,
                           std::uint64_t bytes) {
  const MappedFile file(path);
  const std::uint64_t begin = round_down(offset, page_bytes);
  const std::uint64_t end = std::min<std::uint64_t>(offset + bytes, file.bytes().size());
  if (begin >= end) return 0;
  std::vector<unsigned char> pages((round_up(end, page_bytes) - begin) / page_bytes);
  auto* const address = const_cast<std::byte*>(file.bytes().data()) + begin;
  if (mincore(address, end - begin, pages.data()) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            path.string() + ": the kernel does not tell what is cached");
  }
  const auto present = std::count_if(pages.begin(), pages.end(),
                                     [](unsigned char page) { return (page & 1U) != 0; });
  return static_cast<std::uint64_t>(present) * page_bytes;
}

}  // namespace sluice::streaming
