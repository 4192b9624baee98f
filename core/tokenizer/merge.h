// The core of both kinds of BPE: the best adjacent pair in a row of symbols is merged until no pair
// can be. A priority queue over a linked list makes it O(n log n) in the number of symbols (as in
// SentencePiece; the plain loop of Sennrich et al. 2016 is quadratic).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

// The result of a merge: lower ranks come first, and among equal ranks the leftmost pair.
struct Merge {
  std::uint32_t rank = 0;
  std::int32_t id = 0;
};

struct Symbol {
  std::uint32_t begin = 0;  // of its bytes in the text
  std::uint32_t bytes = 0;  // 0: merged into the symbol on its left
  std::int32_t id = 0;      // how the caller tells symbols apart
  std::uint32_t previous = 0;
  std::uint32_t next = 0;
};

// Reusable: keeps its memory from word to word.
class Merger {
 public:
  void clear() { symbols_.clear(); }

  // Adds a symbol that begins where the last one ended. `bytes` is not 0.
  void push(std::size_t bytes, std::int32_t id) {
    const auto index = static_cast<std::uint32_t>(symbols_.size());
    const std::uint32_t begin = index == 0 ? 0 : symbols_.back().begin + symbols_.back().bytes;
    symbols_.push_back({begin, static_cast<std::uint32_t>(bytes), id, index - 1, index + 1});
  }

  // `find(left, right)` gives the Merge of two adjacent symbols, or nothing.
  template <typename Find>
  void merge(const Find& find) {
    queue_.clear();
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) {
      if (const auto candidate = candidate_at(i, find)) queue_.push_back(*candidate);
    }
    std::make_heap(queue_.begin(), queue_.end(), comes_later);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), comes_later);
      const Candidate best = queue_.back();
      queue_.pop_back();
      if (!is_current(best)) continue;
      join(best);
      enqueue(symbols_[best.left].previous, find);
      enqueue(best.left, find);
    }
  }

  // Calls `sink(symbol)` for each symbol that is left, in order.
  template <typename Sink>
  void for_each(const Sink& sink) const {
    for (std::size_t i = 0; i < symbols_.size(); i = symbols_[i].next) sink(symbols_[i]);
  }

 private:
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;
    std::uint32_t bytes;  // of both symbols when this was found
    std::int32_t id;
  };

  static bool comes_later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  template <typename Find>
  std::optional<Candidate> candidate_at(std::uint32_t left, const Find& find) const {
    const Symbol& first = symbols_[left];
    if (first.next >= symbols_.size()) return std::nullopt;
    const Symbol& second = symbols_[first.next];
    const std::optional<Merge> merge = find(first, second);
    if (!merge) return std::nullopt;
    return Candidate{merge->rank, left, first.bytes + second.bytes, merge->id};
  }

  template <typename Find>
  void enqueue(std::uint32_t left, const Find& find) {
    if (left >= symbols_.size()) return;  // there is none before the first symbol
    if (const auto candidate = candidate_at(left, find)) {
      queue_.push_back(*candidate);
      std::push_heap(queue_.begin(), queue_.end(), comes_later);
    }
  }

  // Symbols only grow, so the pair is still the one that was found when its length is the same.
  bool is_current(const Candidate& candidate) const {
    const Symbol& first = symbols_[candidate.left];
    return first.bytes > 0 && first.next < symbols_.size() &&
           first.bytes + symbols_[first.next].bytes == candidate.bytes;
  }

  void join(const Candidate& candidate) {
    Symbol& first = symbols_[candidate.left];
    Symbol& second = symbols_[first.next];
    first.bytes += second.bytes;
    first.id = candidate.id;
    first.next = second.next;
    second.bytes = 0;
    if (first.next < symbols_.size()) symbols_[first.next].previous = candidate.left;
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;
};

}  // namespace sluice::tokenizer
