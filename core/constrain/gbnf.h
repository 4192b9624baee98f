// Grammars in GBNF, the format of llama.cpp (grammars/README.md there).
//
//   root  ::= "{" pair ("," pair)* "}"     # rules, literals, groups, repetition: * + ? {m} {m,n}
//   pair  ::= [a-z]+ "=" [^,}\n]{1,20}     # classes of characters, .: any character
//
// The text must match `root`. Refused: a rule that calls itself before it reads anything, a counted
// repetition of something that may be empty, and what names tokens (<think>, <[1000]>).
#pragma once

#include <cstddef>
#include <string_view>

#include "core/constrain/budget.h"
#include "core/constrain/grammar.h"

namespace sluice::constrain {

inline constexpr std::size_t gbnf_bytes_max = std::size_t{1} << 20;
inline constexpr unsigned gbnf_depth_max = 100;  // of groups

// Throws GrammarError, with line, column and what was expected there.
Grammar compile_gbnf(std::string_view text, CompileBudget& budget);
Grammar compile_gbnf(std::string_view text);

}  // namespace sluice::constrain
