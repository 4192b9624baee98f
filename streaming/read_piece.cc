#include "streaming/read_piece.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

// After this many attempts in a row without progress, a read is reported as failed. The later ones
// wait, since they are for what others hold.
constexpr std::uint32_t futile_max = 100, futile_at_once = 10;
constexpr std::chrono::milliseconds pause(2);

// What is over after a while: the kernel lacks memory for a read for as long as others take it, and
// cancels what a thread has submitted when that thread ends.
bool is_passing(std::int64_t result) {
  return result == -EINTR || result == -EAGAIN || result == -ENOMEM || result == -ECANCELED;
}

}  // namespace

ReadPiece::Outcome ReadPiece::advance(std::int64_t result, std::uint64_t alignment) {
  if (result < 0) {
    if (is_passing(result) && ++futile < futile_max) {
      if (futile > futile_at_once) std::this_thread::sleep_for(pause);
      return Outcome::again;
    }
    error = static_cast<int>(-result);
    return Outcome::failed;
  }
  const auto got_bytes = std::min(static_cast<std::uint64_t>(result), bytes);
  if (offset + got_bytes >= needed_end) return Outcome::done;
  if (got_bytes == 0) {
    error = EIO;
    is_truncated = true;
    return Outcome::failed;
  }
  // The next read has to start at an aligned offset, so the bytes after the last aligned one are
  // read again. When a read never gets beyond it, the file has been truncated there.
  const std::uint64_t kept_bytes = round_down(got_bytes, alignment);
  if (kept_bytes != 0) {
    futile = 0;
  } else if (++futile >= futile_max) {
    error = EIO;
    is_truncated = true;
    return Outcome::failed;
  }
  offset += kept_bytes;
  bytes -= kept_bytes;
  if (buffer != nullptr) buffer += kept_bytes;
  return Outcome::again;
}

std::size_t piece_count(const ReadRequest& request) {
  return static_cast<std::size_t>((request.bytes + piece_bytes_max - 1) / piece_bytes_max);
}

ReadPiece piece_at(const ReadRequest& request, std::uint64_t file_bytes, std::size_t index) {
  const std::uint64_t done = index * piece_bytes_max;
  ReadPiece piece;
  piece.slot = request.slot;
  piece.file = request.file;
  piece.offset = request.offset + done;
  piece.bytes = std::min(piece_bytes_max, request.bytes - done);
  piece.buffer = request.buffer == nullptr ? nullptr : request.buffer + done;
  piece.needed_end = std::min(file_bytes, piece.offset + piece.bytes);
  return piece;
}

void SlotLedger::begin(std::uint32_t slot, std::size_t pieces) {
  if (slot >= entries_.size()) entries_.resize(slot + std::size_t{1});
  base::check(entries_[slot].pieces == 0, "two reads into one slot");
  entries_[slot].pieces = pieces;
  entries_[slot].completion = {};
  entries_[slot].completion.slot = slot;
}

std::optional<Completion> SlotLedger::end(const ReadPiece& piece) {
  base::check(piece.slot < entries_.size() && entries_[piece.slot].pieces != 0,
              "a piece ended of a read that nobody has begun");
  Entry& entry = entries_[piece.slot];
  Completion& completion = entry.completion;
  const bool is_first = !completion.error || piece.offset < completion.offset;
  if (piece.error != 0 && is_first) {
    completion.error = {piece.error, std::generic_category()};
    completion.offset = piece.offset;
    completion.is_truncated = piece.is_truncated;
  }
  if (--entry.pieces != 0) return std::nullopt;
  return completion;
}

}  // namespace sluice::streaming
