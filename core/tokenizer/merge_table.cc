#include "core/tokenizer/merge_table.h"

#include <bit>

#include "core/text/keyed_hash.h"

namespace sluice::tokenizer {

MergeTable::MergeTable(const PieceTable& pieces, std::size_t count)
    : pieces_(pieces), slots_(std::bit_ceil(count + count / 2 + 1)) {}

std::int32_t MergeTable::symbol_of(const std::string& bytes) {
  if (const Token token = pieces_.find(bytes); token >= 0) return token;
  const auto next = static_cast<std::int32_t>(pieces_.size() + others_.size());
  return others_.emplace(bytes, next).first->second;
}

std::int32_t MergeTable::find_symbol(std::string_view bytes) const {
  if (const Token token = pieces_.find(bytes); token >= 0 || others_.empty()) return token;
  const auto other = others_.find(std::string(bytes));
  return other == others_.end() ? -1 : other->second;
}

void MergeTable::add(const std::string& left, const std::string& right, std::uint32_t rank) {
  const std::int32_t left_symbol = symbol_of(left);
  const std::int32_t right_symbol = symbol_of(right);
  Slot& slot = slots_[slot_of(left_symbol, right_symbol)];
  if (slot.left >= 0) return;
  const std::string whole = left + right;
  if (!left.empty() && !right.empty()) joints_.add(left.back(), right.front());
  slot = {left_symbol, right_symbol, {rank, symbol_of(whole)}};
  if (first_word_bytes(whole) < whole.size()) spaces_start_symbols_ = false;
}

std::optional<Merge> MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(left, right)];
  if (slot.left < 0) return std::nullopt;
  return slot.merge;
}

std::size_t MergeTable::slot_of(std::int32_t left, std::int32_t right) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t pair = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                             static_cast<std::uint32_t>(right);
  const std::string_view bytes(reinterpret_cast<const char*>(&pair), sizeof pair);
  std::size_t slot = text::KeyedHash{}(bytes)&mask;
  while (slots_[slot].left >= 0 && (slots_[slot].left != left || slots_[slot].right != right)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

}  // namespace sluice::tokenizer
