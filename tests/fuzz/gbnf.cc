// Grammars in GBNF: GRAMMAR, CHOICES.
#include "core/constrain/gbnf.h"

#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/grammars.h"

namespace sluice::fuzz {

void run(std::string_view input) {
  const auto parts = split(input, 2);
  constexpr std::size_t bytes_max = std::size_t{16} << 20;
  constrain::CompileBudget budget(1'000'000, bytes_max);
  try {
    check_grammar(constrain::compile_gbnf(parts[0], budget), parts[1]);
  } catch (const constrain::GrammarError&) {
  }
  require(budget.bytes_peak() <= bytes_max, "memory is bounded");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      "root ::= \"{\" pair (\",\" pair)* \"}\" # a comment\npair ::= [a-z]+ \"=\" [^,}\\n]{1,3}\n",
      "root ::= (\"a\" | \"bc\"){2,4} .? x*\nx ::= \"\\x41\" | \"\\u00e9\" | [\\]\\-0-9]\n",
      "root ::= \"(\" root? \")\" | \"\"\n", "root ::= (a | b)\na ::= \"x\" b{0,2}\nb ::= \"y\"+\n",
      "root ::= ((\"a\"{1,3}){1,3} \"b\"?){2}\n"};
  for (std::string& seed : all) seed = joined({seed, "\x03\x40\x01\x05 some choices 0123"});
  return all;
}

}  // namespace sluice::fuzz
