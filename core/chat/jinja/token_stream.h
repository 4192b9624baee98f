// The tokens of a template with a current position, and the depth of nesting of the parser.
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat/jinja/lexer.h"

namespace sluice::chat::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool at(Token::Kind kind) const { return current().kind == kind; }
  bool at_symbol(std::string_view symbol) const { return current().is_symbol(symbol); }
  bool at_name(std::string_view name) const { return current().is_name(name); }

  Token next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_symbol(std::string_view symbol) { return at_symbol(symbol) && skip(); }
  bool skip_name(std::string_view name) { return at_name(name) && skip(); }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail_expected(fmt::format("'{}'", symbol));
  }
  Token expect(Token::Kind kind, std::string_view what) {
    if (!at(kind)) fail_expected(what);
    return next();
  }

  [[noreturn]] void fail(const std::string& what) const { throw SyntaxError(current().line, what); }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail(fmt::format("expected {}, found {}", what, describe(current())));
  }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::data:
        return "text";
      case Token::Kind::block_begin:
        return "'{%'";
      case Token::Kind::block_end:
        return "'%}'";
      case Token::Kind::variable_begin:
        return "'{{'";
      case Token::Kind::variable_end:
        return "'}}'";
      case Token::Kind::end:
        return "the end of the template";
      default:
        return fmt::format("'{}'", token.text);
    }
  }

  // Held while a part of the template is parsed that may contain other parts.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream_.depth_ > depth_max) stream_.fail("the template is nested too deeply");
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    static constexpr int depth_max = 150;
    TokenStream& stream_;
  };

 private:
  bool skip() {
    next();
    return true;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace sluice::chat::jinja
