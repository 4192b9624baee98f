// Splits a template into tokens. White space is treated as in the transformers library: trim_blocks
// and lstrip_blocks are on, the last newline of a template is dropped, and all line ends become
// "\n".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/jinja/text.h"

namespace sluice::chat::jinja {

// A template that cannot be parsed. The message names the line.
class SyntaxError : public Failure {
 public:
  SyntaxError(std::size_t line, const std::string& what);
};

struct Token {
  enum class Kind {
    data,            // text to be printed as it is
    block_begin,     // {%
    block_end,       // %}
    variable_begin,  // {{
    variable_end,    // }}
    name,
    string,  // its value, without quotes and escapes
    integer,
    floating,
    symbol,  // an operator or a bracket
    end,
  };
  Kind kind;
  std::string text;
  std::size_t line;

  bool is_symbol(std::string_view symbol) const { return kind == Kind::symbol && text == symbol; }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

// The tokens of a template, the last of them `end`. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace sluice::chat::jinja
