// Anonymous memory that can grow and shrink at its end without moving.
//
// An arena reserves addresses for its whole capacity (which costs nothing) and memory only for its
// first committed_bytes(). Whole huge pages are asked for as such; the rest at the end is not,
// so an arena never takes more memory than was committed.
//
// Threads: nothing may run beside commit(). discard() may run while other bytes are in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::streaming {

class Arena {
 public:
  // Reserves addresses. Throws std::system_error when there are not enough of them.
  explicit Arena(std::uint64_t capacity_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes the first `bytes` usable (rounded up to whole pages) and returns the memory of the rest
  // to the system at once. Bytes below both the old and the new size keep their values; new ones
  // are zero. Throws std::invalid_argument above the capacity, std::system_error when the system
  // refuses.
  void commit(std::uint64_t bytes);

  // Returns the memory of bytes [begin, end) to the system at once; both are multiples of
  // page_bytes, at most committed_bytes(). The bytes stay usable and are zero when they are touched
  // again.
  void discard(std::uint64_t begin, std::uint64_t end);

  // Aligned to a page; to a huge page (mostly 2 MiB) when the capacity is at least one.
  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, committed_bytes_}; }
  std::uint64_t committed_bytes() const { return committed_bytes_; }

  // How many bytes of the arena lie in huge pages now, from /proc/self/smaps; 0 when the kernel
  // does not say. Slow: for reports.
  std::uint64_t huge_page_bytes() const;

 private:
  std::byte* reservation_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t committed_bytes_ = 0;
};

}  // namespace sluice::streaming
