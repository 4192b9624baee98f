#pragma once

#include <cstddef>
#include <string_view>

namespace sluice::topology {

// Memory for data that all threads work through: zeroed, aligned to a page, in huge pages where the
// system gives them, which make TLB misses rare.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  // Throws std::system_error when the memory cannot be had. `remark` ends its message: what the
  // memory is for, and what would take less.
  explicit AlignedBytes(std::size_t bytes, std::string_view remark = {});
  ~AlignedBytes();
  AlignedBytes(AlignedBytes&& other) noexcept;
  AlignedBytes& operator=(AlignedBytes&& other) noexcept;

  std::byte* data() const { return data_; }  // null when there are no bytes
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace sluice::topology
