#include "core/cli/header_in_memory.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace sluice::cli {

HeaderInMemory::HeaderInMemory() : file_(::memfd_create("header", MFD_CLOEXEC)) {}

void HeaderInMemory::hold(std::span<const std::byte> bytes) {
  const bool is_empty = file_.is_open() && ::ftruncate(file_.number(), 0) == 0;
  std::size_t done = 0;
  while (is_empty && done < bytes.size()) {
    const ssize_t written = ::pwrite(file_.number(), bytes.data() + done, bytes.size() - done,
                                     static_cast<off_t>(done));
    if (written <= 0 && errno != EINTR) break;
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  if (!is_empty || done < bytes.size()) {
    throw std::system_error(errno, std::generic_category(), "cannot keep a header in memory");
  }
}

std::filesystem::path HeaderInMemory::path() const {
  return fmt::format("/proc/self/fd/{}", file_.number());
}

}  // namespace sluice::cli
