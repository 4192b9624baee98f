// The parts of JSON texts as expressions of a grammar.
//
// Texts are compact: no white space but one optional space behind a colon and behind a comma, as
// models write them. Free white space would let a model write it for ever.
//
// Threads: used by one thread, as its builder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constrain/characters.h"
#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

class JsonText {
 public:
  static constexpr std::uint32_t unlimited = GrammarBuilder::unlimited;

  // `builder` must outlive this.
  explicit JsonText(GrammarBuilder& builder) : builder_(&builder) {}

  GrammarBuilder& builder() { return *builder_; }

  Expression comma();
  Expression colon();

  // A string of min to max characters, each written plainly or with any escape of JSON. Surrogates
  // come in pairs only.
  Expression string(std::uint32_t min, std::uint32_t max);

  // One character of the ranges in the one way in which this project writes it: plainly where JSON
  // allows that, else with the shortest escape.
  Expression character(const Ranges& ranges);

  // The text of a string (without quotation marks), as character() writes each of it. `text` is
  // UTF-8.
  std::string plain_text(std::string_view text) const;

  // The rest of a key behind its first quotation mark, with the last one, that is none of `names`.
  // Its size is linear in that of the names.
  Expression other_key(std::span<const std::string> names);

  // A number of up to 15 digits, a fraction of up to 15, and an exponent of up to 2: what every
  // reader of JSON takes.
  Expression number();
  Expression integer();  // up to 18 digits
  Expression boolean();

  Expression object();  // any
  Expression array();
  Expression value();

  // For a format that a schema names and no text has to have, as it is not known here, or not with
  // the lengths beside it.
  void leave_aside(std::string_view format);
  // Names these formats, in one line of ASCII; empty where there is none.
  std::string warning() const;

 private:
  using Rule = GrammarBuilder::Rule;

  Expression rule(std::string name, Expression body);
  Expression any_character();
  Expression character_and_rest(Ranges ranges);

  GrammarBuilder* builder_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Expression> strings_;
  std::map<std::string, Expression> characters_;  // by their ranges
  std::map<std::string, Expression> rests_;       // of keys, by how they go on
  std::optional<Expression> comma_, colon_, escaped_, rest_;
  std::optional<Expression> any_character_, number_, integer_, boolean_, object_, array_;
  std::optional<Rule> value_;
  std::set<std::string> left_aside_;
};

}  // namespace sluice::constrain
