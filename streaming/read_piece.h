// The part that all readers share: requests are cut into pieces of a size that suits disks, and
// the result of a system call on a piece is interpreted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "streaming/reader.h"

namespace sluice::streaming {

// Large enough for the full speed of a disk, small enough that a few MiB keep its queue filled.
inline constexpr std::uint64_t piece_bytes_max = std::uint64_t{512} << 10;

// A part of a request; offset, bytes and buffer describe what of it is still to be read.
struct ReadPiece {
  enum class Outcome { done, again, failed };

  std::uint32_t slot = 0;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::byte* buffer = nullptr;
  std::uint64_t needed_end = 0;  // file offset; bytes from here on are not needed (end of file)
  std::uint32_t futile = 0;      // attempts in a row that made no progress
  int error = 0;                 // with failed: errno
  bool is_truncated = false;     // with failed: the file ended before needed_end

  // Takes the result of a read of (offset, bytes, buffer): the bytes read, or -errno. After `again`
  // the piece describes the read that remains, aligned as before. Waits a moment where errors that
  // pass do not; in all for less than a second.
  Outcome advance(std::int64_t result, std::uint64_t alignment);
};

// A request is read in so many pieces, at least one; and piece number `index`, where `file_bytes`
// is the length of its file.
std::size_t piece_count(const ReadRequest& request);
ReadPiece piece_at(const ReadRequest& request, std::uint64_t file_bytes, std::size_t index);

// Counts the unfinished pieces of each slot and keeps its error at the lowest file offset. Not
// thread safe.
class SlotLedger {
 public:
  // A request for `slot` with this many pieces begins.
  void begin(std::uint32_t slot, std::size_t pieces);

  // A piece has ended. Returns the completion of its slot when it was the last piece.
  std::optional<Completion> end(const ReadPiece& piece);

 private:
  struct Entry {
    std::size_t pieces = 0;
    Completion completion;
  };
  std::vector<Entry> entries_;
};

}  // namespace sluice::streaming
