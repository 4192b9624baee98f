#include "topology/aligned_bytes.h"

#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <utility>

namespace sluice::topology {

AlignedBytes::AlignedBytes(std::size_t bytes, std::string_view remark) : size_(bytes) {
  if (bytes == 0) return;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot allocate {} bytes{}", bytes, remark));
  }
  ::madvise(p, bytes, MADV_HUGEPAGE);  // only a hint: all works without huge pages
  data_ = static_cast<std::byte*>(p);
}

AlignedBytes::~AlignedBytes() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AlignedBytes::AlignedBytes(AlignedBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace sluice::topology
