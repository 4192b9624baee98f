#include "core/tokenizer/byte_bpe.h"

#include <bit>
#include <string>
#include <unordered_map>

namespace sluice::tokenizer {

namespace {

PretokenizerTraits traits_of(const Vocabulary& vocabulary) {
  return find_pretokenizer(vocabulary.pre).value_or(PretokenizerTraits{});
}

// Gives symbols to strings of bytes: tokens keep their ids, others get the ids behind them.
class SymbolNames {
 public:
  explicit SymbolNames(const PieceTable& pieces) : pieces_(pieces) {}

  std::int32_t symbol_of(const std::string& bytes) {
    if (const Token token = pieces_.find(bytes); token >= 0) return token;
    const auto next = static_cast<std::int32_t>(pieces_.size() + others_.size());
    return others_.emplace(bytes, next).first->second;
  }

 private:
  const PieceTable& pieces_;
  std::unordered_map<std::string, std::int32_t> others_;
};

}  // namespace

MergeTable::MergeTable(std::size_t count) : slots_(std::bit_ceil(count + count / 2 + 1)) {}

void MergeTable::add(std::int32_t left, std::int32_t right, Merge merge) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left < 0) slot = {left, right, merge};
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
  // Fibonacci hashing: the high half of the product is well mixed.
  std::size_t slot = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
  while (slots_[slot].left >= 0 && (slots_[slot].left != left || slots_[slot].right != right)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

ByteBpe::ByteBpe(const Vocabulary& vocabulary)
    : VocabularyTokenizer(vocabulary),
      pretokenizer_(traits_of(vocabulary).kind),
      ignore_merges_(traits_of(vocabulary).ignore_merges),
      merges_(vocabulary.merges.size()) {
  SymbolNames names(pieces());
  for (std::size_t byte = 0; byte < byte_symbols_.size(); ++byte) {
    byte_symbols_[byte] = names.symbol_of(std::string(1, static_cast<char>(byte)));
  }
  std::string left;
  std::string right;
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const std::size_t space = merge.find(' ');
    // Parts outside of the byte alphabet cannot come from any text.
    if (!decode_byte_alphabet(merge.substr(0, space), left) ||
        !decode_byte_alphabet(merge.substr(space + 1), right)) {
      continue;
    }
    merges_.add(names.symbol_of(left), names.symbol_of(right),
                {static_cast<std::uint32_t>(i), names.symbol_of(left + right)});
  }
}

void ByteBpe::encode_fragment(std::string_view text, bool /*after_special*/,
                              std::vector<Token>& out) const {
  Merger merger;
  pretokenizer_.split(text, [&](std::string_view word) { encode_word(word, merger, out); });
}

void ByteBpe::encode_word(std::string_view word, Merger& merger, std::vector<Token>& out) const {
  if (ignore_merges_) {
    if (const Token token = pieces().find(word); token >= 0) {
      out.push_back(token);
      return;
    }
  }
  merger.clear();
  for (const char c : word) merger.push(1, byte_symbols_[static_cast<std::uint8_t>(c)]);
  merger.merge(
      [&](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  merger.for_each([&](const Symbol& symbol) {
    if (static_cast<std::size_t>(symbol.id) < vocabulary_size()) {
      out.push_back(symbol.id);
    } else {
      append_bytes(word.substr(symbol.begin, symbol.bytes), out);
    }
  });
}

}  // namespace sluice::tokenizer
