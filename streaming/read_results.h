// A hook between the readers and the system calls: it sees the result of each read and may replace
// it. The program installs none; tests use it to simulate a disk that fails.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "streaming/read_piece.h"

namespace sluice::streaming {

// Takes how a piece was read ("uring", "pread", "buffered") and the result (bytes, or -errno), and
// returns the result that the reader shall use. Called on any thread that reads. Empty: no hook.
using ReadResults =
    std::function<std::int64_t(std::string_view call, const ReadPiece& piece, std::int64_t result)>;

inline std::int64_t seen(const ReadResults& results, std::string_view call, const ReadPiece& piece,
                         std::int64_t result) {
  return results ? results(call, piece, result) : result;
}

}  // namespace sluice::streaming
