// The seam between the readers and the system calls: what the kernel says of a read, before a
// reader believes it. The program has nothing in between; tests put a disk there that fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "streaming/read_piece.h"

namespace sluice::streaming {

// Given how the piece was read ("uring", "pread", "buffered", "mmap") and the result, bytes or
// -errno, returns the result to go on with. Called by any thread that reads. Empty: none.
using ReadResults =
    std::function<std::int64_t(std::string_view call, const ReadPiece& piece, std::int64_t result)>;

inline std::int64_t seen(const ReadResults& results, std::string_view call, const ReadPiece& piece,
                         std::int64_t result) {
  return results ? results(call, piece, result) : result;
}

}  // namespace sluice::streaming
