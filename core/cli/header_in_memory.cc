#include "core/cli/header_in_memory.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

namespace sluice::cli {

HeaderInMemory::HeaderInMemory(std::span<const std::byte> bytes)
    : file_(::memfd_create("header", MFD_CLOEXEC)) {
  std::size_t done = 0;
  while (file_.is_open() && done < bytes.size()) {
    const ssize_t written = ::write(file_.number(), bytes.data() + done, bytes.size() - done);
    if (written <= 0 && errno != EINTR) break;
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  if (done < bytes.size()) {
    throw std::system_error(errno, std::generic_category(), "cannot keep a header in memory");
  }
}

std::filesystem::path HeaderInMemory::path() const {
  return fmt::format("/proc/self/fd/{}", file_.number());
}

}  // namespace sluice::cli
