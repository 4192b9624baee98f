// A vocabulary that is a list of pieces, and one made at random, for tests of grammars.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::test {

// Tokens are the given pieces; then comes a control token whose text must never be written, the one
// that ends a text, and control tokens with the texts of `marks`.
class ListTokenizer final : public tokenizer::Tokenizer {
 public:
  using Token = tokenizer::Token;
  explicit ListTokenizer(std::vector<std::string> pieces, std::vector<std::string> marks = {})
      : pieces_(std::move(pieces)), marks_(std::move(marks)) {}

  Token control() const { return static_cast<Token>(pieces_.size()); }
  Token end() const { return static_cast<Token>(pieces_.size() + 1); }

  std::vector<Token> encode(std::string_view, const tokenizer::EncodeOptions&) const override {
    throw std::logic_error("not for this test");
  }
  std::vector<Token> encode_parts(std::span<const tokenizer::TextPart>, std::span<const Token>,
                                  bool) const override {
    throw std::logic_error("not for this test");
  }
  std::string_view piece(Token token, bool render_special = false) const override {
    if (token < control()) return pieces_[static_cast<std::size_t>(token)];
    if (!render_special || token == end()) return {};
    if (token == control()) return "\"";
    return marks_[static_cast<std::size_t>(token - end() - 1)];
  }
  std::string decode(std::span<const Token> tokens, bool) const override {
    std::string text;
    for (const Token token : tokens) text += piece(token);
    return text;
  }
  bool is_ordinary(Token token) const override { return token < control(); }
  bool is_end_of_generation(Token token) const override { return token == end(); }
  std::size_t vocabulary_size() const override { return pieces_.size() + 2 + marks_.size(); }
  std::optional<Token> bos() const override { return std::nullopt; }
  std::optional<Token> eos() const override { return end(); }
  bool adds_bos() const override { return false; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  std::vector<std::string> pieces_, marks_;
  std::vector<std::string> warnings_;
};

// Every byte, some of them twice, and pieces that JSON is made of, cut at random places: also in
// the middle of characters. `pieces` and `marks` are there besides.
inline ListTokenizer random_vocabulary(std::mt19937_64& random, std::size_t size,
                                       std::vector<std::string> pieces = {},
                                       std::vector<std::string> marks = {}) {
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  for (const char twin : {'a', '"', '{', '\n'}) pieces.push_back(std::string(1, twin));
  const std::string source =
      "{\"name\": \"\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\", \"age\":12.5e+3,\"list\": [1, 2, "
      "null]} "
      "true false \\u00e9\\\"\\\\ \"},{\"\"]], 2024-02-29T12:00:00Z \xED\xA0\x80\xFF aaaa "
      "bbb\n\n\t";
  std::set<std::string> seen(pieces.begin(), pieces.end());
  while (pieces.size() < size) {
    const std::size_t begin = random() % source.size();
    std::string piece = source.substr(begin, 2 + random() % 7);
    if (random() % 4 == 0) piece += source.substr(random() % source.size(), 1 + random() % 3);
    if (seen.insert(piece).second) pieces.push_back(std::move(piece));
  }
  return ListTokenizer(std::move(pieces), std::move(marks));
}

inline std::shared_ptr<const std::vector<tokenizer::Token>> ends_of(const ListTokenizer& list) {
  return std::make_shared<const std::vector<tokenizer::Token>>(1, list.end());
}

inline bool has_bit(std::span<const std::uint64_t> words, tokenizer::Token token) {
  const auto id = static_cast<std::size_t>(token);
  return (words[id / 64] >> (id % 64) & 1U) != 0;
}

}  // namespace sluice::test
