// Calls of tools as a grammar: their arguments match the schemas of the tools.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/constrain/budget.h"
#include "core/constrain/grammar.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::constrain {

// A text with control tokens in it, each of which is one of the marks of the vocabulary's trie.
using MarkedText = std::vector<std::variant<std::string, tokenizer::Token>>;

// How calls are written, as chat::WrittenCall has it.
struct CallSyntax {
  enum class Arguments : std::uint8_t { json, tagged, python };
  Arguments arguments = Arguments::json;
  MarkedText list_open, list_close, open, behind_name, close, separator;
  MarkedText thought_open, thought_close;
  // Around the name and the value of one argument, if arguments are not one object; before_close
  // stands behind a value that is not a text of the model's own.
  MarkedText key_open, key_close, before_close, value_close;
  bool may_repeat = false;
};

// The calls that an answer may consist of: at least one. `tools` is a list of functions as JSON,
// each with a `name` and perhaps with `parameters`; a tool whose schema is not supported takes any
// object. Throws GrammarError beyond the budget.
Grammar compile_calls(const CallSyntax& syntax, const std::string& tools, CompileBudget& budget);

}  // namespace sluice::constrain
