// Anonymous memory that can grow and shrink at its end without moving.
//
// An arena reserves addresses for its whole capacity (which costs nothing) and memory only for its
// first committed_bytes(). Whole 2 MiB stretches ask for huge pages; the rest at the end does not,
// so that an arena never holds more than it was told to.
//
// Not thread safe while commit() runs. discard() may run beside uses of other bytes.
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

  // Makes the first `bytes` usable (rounded up to whole pages) and gives the memory of the rest
  // back to the system at once. Bytes below both the old and the new size stay as they are; new
  // ones are zero. Throws std::invalid_argument above the capacity, std::system_error when the
  // system refuses.
  void commit(std::uint64_t bytes);

  // Gives the memory of bytes [begin, end), multiples of 4096 below committed_bytes(), back to the
  // system at once. They stay usable, and are zero when they are touched again.
  void discard(std::uint64_t begin, std::uint64_t end);

  // 4096-aligned, and 2 MiB aligned where the capacity reaches 2 MiB.
  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const { return {data_, committed_bytes_}; }
  std::uint64_t committed_bytes() const { return committed_bytes_; }

  // How much of the arena lies in huge pages at this moment, as the kernel tells it
  // (/proc/self/smaps); 0 where it does not tell. Slow: for reports.
  std::uint64_t huge_page_bytes() const;

 private:
  std::byte* reservation_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::uint64_t capacity_bytes_ = 0;
  std::uint64_t committed_bytes_ = 0;
};

}  // namespace sluice::streaming
