// The merge list of a BPE vocabulary: which pairs of symbols merge into which symbol. A symbol
// stands for a string of bytes. Immutable once it is filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/keyed_hash.h"
#include "core/tokenizer/merge.h"
#include "core/tokenizer/piece_table.h"

namespace sluice::tokenizer {

class MergeTable {
 public:
  // Room for `count` merges. `pieces` must outlive this.
  MergeTable(const PieceTable& pieces, std::size_t count);

  // The symbol of `bytes`: the normal token with these bytes, or else a number from pieces.size()
  // on.
  std::int32_t symbol_of(const std::string& bytes);

  // The same, but -1 for bytes that are no token and that symbol_of() was never called with.
  std::int32_t find_symbol(std::string_view bytes) const;

  // Adds a merge. If a pair is added twice the first counts.
  void add(const std::string& left, const std::string& right, std::uint32_t rank);
  std::optional<Merge> find(std::int32_t left, std::int32_t right) const;

  // True if no merge creates a symbol with a space behind another character. A text may then be cut
  // before each such space without changing how it is merged.
  bool spaces_start_symbols() const { return spaces_start_symbols_; }

  // The pairs of bytes where the two symbols of a merge meet: text is never merged across others.
  const BytePairs& joints() const { return joints_; }

 private:
  struct Slot {
    std::int32_t left = -1;  // -1: free
    std::int32_t right = -1;
    Merge merge;
  };
  std::size_t slot_of(std::int32_t left, std::int32_t right) const;

  const PieceTable& pieces_;
  // Strings that occur in merges but are no tokens.
  std::unordered_map<std::string, std::int32_t, text::KeyedHash> others_;
  std::vector<Slot> slots_;  // linear probing; a power of two of them
  bool spaces_start_symbols_ = true;
  BytePairs joints_;
};

}  // namespace sluice::tokenizer
