// The pieces of a text that nobody has taken yet, and the memory that is held for them.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/allowance.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::capi {

class PieceQueue {
 public:
  // What a piece of a usual text holds until it is taken.
  static constexpr std::uint64_t piece_bytes = 64;
  // So much the pieces may hold in any case; more, as long as other texts leave some.
  static constexpr std::uint64_t share_bytes = std::uint64_t{32} << 10;

  struct Piece {
    std::string text;
    std::optional<tokenizer::Token> token;
  };

  PieceQueue() = default;
  // `held` is what the task of the text holds, and share_bytes.
  explicit PieceQueue(Allowance::Held held)
      : held_(std::move(held)), task_bytes_(held_.bytes() - share_bytes) {}

  bool is_empty() const { return pieces_.empty(); }

  // False where there is no memory for the piece: nothing changes then.
  [[nodiscard]] bool push(Piece piece) {
    if (!hold(pieces_bytes_ + bytes_of(piece))) return false;
    pieces_.push_back(std::move(piece));
    return true;
  }

  // The first piece. There must be one.
  Piece pop() {
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    base::check(hold(pieces_bytes_ - bytes_of(piece)), "fewer pieces need more memory");
    return piece;
  }

 private:
  static std::uint64_t bytes_of(const Piece& piece) {
    constexpr std::uint64_t of_heap = 8;
    return sizeof piece + of_heap + piece.text.size();
  }

  bool hold(std::uint64_t pieces_bytes) {
    if (!held_.resize(task_bytes_ + std::max(share_bytes, pieces_bytes))) return false;
    pieces_bytes_ = pieces_bytes;
    return true;
  }

  std::deque<Piece> pieces_;
  std::uint64_t pieces_bytes_ = 0;
  Allowance::Held held_;
  std::uint64_t task_bytes_ = 0;  // of what is held
};

}  // namespace sluice::capi
