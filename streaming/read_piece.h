// Requests cut into pieces of the size that disks like, and what the result of a system call on a
// piece means: the part of a reader that is the same for all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "streaming/reader.h"

namespace sluice::streaming {

// Large enough for the full speed of a disk, small enough that a few MiB keep its queue filled.
inline constexpr std::uint64_t piece_bytes_max = std::uint64_t{512} << 10;

// What is still to be read of a part of a request.
struct ReadPiece {
  enum class Outcome { done, again, failed };

  std::uint32_t slot = 0;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::byte* buffer = nullptr;
  std::uint64_t needed_end = 0;  // bytes beyond this offset need not be there: the end of file
  std::uint32_t futile = 0;      // interruptions in a row
  int error = 0;                 // with failed: errno
  bool is_truncated = false;     // with failed: the file ended before needed_end

  // Takes the result of a read of (offset, bytes, buffer): what it returned, or -errno. With
  // `again` the piece describes the read that remains, aligned as before.
  Outcome advance(std::int64_t result, std::uint64_t alignment);
};

// Calls visit(ReadPiece) for the pieces of a request, in order; `file_bytes` is the length of its
// file. A request always has at least one piece.
template <typename Visit>
void cut_into_pieces(const ReadRequest& request, std::uint64_t file_bytes, Visit&& visit) {
  for (std::uint64_t done = 0; done < request.bytes; done += piece_bytes_max) {
    ReadPiece piece;
    piece.slot = request.slot;
    piece.file = request.file;
    piece.offset = request.offset + done;
    piece.bytes = std::min(piece_bytes_max, request.bytes - done);
    piece.buffer = request.buffer == nullptr ? nullptr : request.buffer + done;
    piece.needed_end = std::min(file_bytes, piece.offset + piece.bytes);
    visit(piece);
  }
}

// Which slots have pieces under way, and the first error of each. Not thread safe.
class SlotLedger {
 public:
  // A request of `slot` with this many pieces begins.
  void begin(std::uint32_t slot, std::size_t pieces);

  // A piece has ended; the completion of its slot if it was the last one.
  std::optional<Completion> end(const ReadPiece& piece);

 private:
  struct Entry {
    std::size_t pieces = 0;
    Completion completion;
  };
  std::vector<Entry> entries_;
};

}  // namespace sluice::streaming
