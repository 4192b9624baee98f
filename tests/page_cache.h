// How much of a file lies in the page cache, to check that a reader has dropped what it should.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/mapped_file.h"
#include "tests/paths.h"

namespace sluice::test {

// How many bytes (in whole pages) of a range of the file are in memory, according to mincore(2).
// The kernel tells the truth only to the owner of the file and to those who may write it; to others
// every page looks present. Pages beyond the end of the file do not count. Throws std::system_error
// that names the file.
inline std::uint64_t cached_bytes(const std::filesystem::path& path, std::uint64_t offset,
                                  std::uint64_t bytes) {
  // QEMU may pretend to have larger pages than its host, whose answer it passes on.
  const std::uint64_t page_bytes = *emulator != 0 ? 4096 : streaming::page_bytes;
  const streaming::MappedFile file(path);
  const std::uint64_t begin = streaming::round_down(offset, page_bytes);
  const std::uint64_t end = std::min<std::uint64_t>(offset + bytes, file.bytes().size());
  if (begin >= end) return 0;
  std::vector<unsigned char> pages((streaming::round_up(end, page_bytes) - begin) / page_bytes);
  auto* const address = const_cast<std::byte*>(file.bytes().data()) + begin;
  if (mincore(address, end - begin, pages.data()) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            path.string() + ": the kernel does not tell what is cached");
  }
  const auto present = std::count_if(pages.begin(), pages.end(),
                                     [](unsigned char page) { return (page & 1U) != 0; });
  return static_cast<std::uint64_t>(present) * page_bytes;
}

}  // namespace sluice::test
