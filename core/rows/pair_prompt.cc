#include "core/rows/pair_prompt.h"

#include <algorithm>

namespace sluice::rows {

PairPrompt::PairPrompt(const tokenizer::Tokenizer& tokenizer, std::string_view written)
    : tokenizer_(tokenizer) {
  constexpr std::string_view query = "{query}", text = "{document}";
  while (!written.empty()) {
    const std::size_t at = std::min(written.find(query), written.find(text));
    if (at != 0) pieces_.push_back({Piece::Kind::markup, std::string(written.substr(0, at))});
    if (at == std::string_view::npos) return;
    written.remove_prefix(at);
    const bool is_query = written.starts_with(query);
    pieces_.push_back({is_query ? Piece::Kind::query : Piece::Kind::text});
    written.remove_prefix(is_query ? query.size() : text.size());
  }
}

std::vector<tokenizer::Token> PairPrompt::encode(std::string_view query,
                                                 std::string_view text) const {
  if (pieces_.empty()) return tokenizer_.encode_pair(query, text);
  std::vector<tokenizer::TextPart> parts;
  for (const Piece& piece : pieces_) {
    const bool is_markup = piece.kind == Piece::Kind::markup;
    parts.push_back({is_markup                          ? std::string_view(piece.markup)
                     : piece.kind == Piece::Kind::query ? query
                                                        : text,
                     is_markup});
  }
  std::vector<tokenizer::Token> tokens;
  if (tokenizer_.adds_bos()) tokens.push_back(tokenizer_.bos().value());
  const std::vector<tokenizer::Token> body = tokenizer_.encode_parts(parts, {}, false);
  tokens.insert(tokens.end(), body.begin(), body.end());
  const std::span<const tokenizer::Token> end = tokenizer_.text_end();
  tokens.insert(tokens.end(), end.begin(), end.end());
  return tokens;
}

}  // namespace sluice::rows
