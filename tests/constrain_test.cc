// Grammars, machines and masks: texts that match and texts that do not, masks against feeding every
// token to the automaton, hostile grammars, and GBNF as its users write it.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/constrain/constraint.h"
#include "core/constrain/gbnf.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/guide.h"
#include "core/constrain/json_schema.h"
#include "core/synth/toy_vocabulary.h"
#include "core/text/utf8.h"
#include "core/tokenizer/vocabulary_tokenizer.h"
#include "tests/catch.h"
#include "tests/constrain_support.h"
#include "tests/contains.h"
#include "tests/random_seed.h"

namespace sluice::constrain {
namespace {

using sluice::test::Contains;
using test::ends_of;
using test::has_bit;
using test::ListTokenizer;
using tokenizer::Token;

void check_texts(const std::string& gbnf, const std::vector<std::string>& matching,
                 const std::vector<std::string>& others) {
  INFO(gbnf);
  const Grammar grammar = compile_gbnf(gbnf);
  for (const std::string& text : matching) {
    INFO(text);
    CHECK(matches(grammar, text));
    for (std::size_t n = 0; n <= text.size(); ++n) {
      CHECK(matches_beginning(grammar, text.substr(0, n)));
    }
  }
  for (const std::string& text : others) {
    INFO(text);
    CHECK_FALSE(matches(grammar, text));
  }
}

std::string problem_of(const std::string& gbnf) {
  try {
    compile_gbnf(gbnf);
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "";
}

// Every token of the vocabulary, by feeding its bytes to a copy of the matcher.
void check_mask(const ListTokenizer& vocabulary, Matcher& matcher) {
  const std::span<const std::uint64_t> mask = matcher.allowed();
  const std::vector<std::uint64_t> words(mask.begin(), mask.end());
  int wrong = 0, count = 0;
  Token only = -1;
  for (Token token = 0; token < vocabulary.control(); ++token) {
    Matcher copy = matcher;
    const bool expected = copy.accept_text(vocabulary.piece(token));
    if (expected != has_bit(words, token)) ++wrong;
    if (expected) ++count, only = token;
  }
  CHECK(wrong == 0);
  CHECK_FALSE(has_bit(words, vocabulary.control()));
  CHECK(has_bit(words, vocabulary.end()) == matcher.may_end());
  if (matcher.may_end()) ++count, only = vocabulary.end();
  CHECK(matcher.only_choice() == (count == 1 ? std::optional(only) : std::nullopt));
}

// A random walk by masks; the oracle at some of its places.
std::string write_text(const ListTokenizer& vocabulary, Matcher& matcher, std::mt19937_64& random,
                       std::size_t tokens_max, std::size_t checks_one_in) {
  std::string text;
  for (std::size_t i = 0; i < tokens_max && !matcher.is_complete(); ++i) {
    if (random() % checks_one_in == 0) check_mask(vocabulary, matcher);
    const std::span<const std::uint64_t> mask = matcher.allowed();
    std::vector<Token> choices;
    for (Token token = 0; token <= vocabulary.end(); ++token) {
      if (has_bit(mask, token)) choices.push_back(token);
    }
    REQUIRE_FALSE(choices.empty());
    const Token token = choices[random() % choices.size()];
    if (token == vocabulary.end()) return text;
    REQUIRE(matcher.accept(token));
    text += vocabulary.piece(token);
  }
  return text;
}

const char* const json_gbnf = R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)GBNF";

}  // namespace

TEST_CASE("GBNF: literals, classes, groups and repetition") {
  check_texts("root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "b", "ab", "abc"});
  check_texts("root ::= [a-c]+ [^x]?", {"a", "abca", "ay"}, {"", "x", "ax", "axx"});
  check_texts("root ::= (\"x\" \",\")* \"x\"", {"x", "x,x,x"}, {"", "x,", ",x"});
  check_texts("root ::= \"a\"{2,4}", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"});
  check_texts("root ::= \"a\"{2,}", {"aa", "aaaaaaa"}, {"a"});
  check_texts("root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"});
  check_texts("root ::= \"\\x41\\u00e9\\U0001F600\\n\"", {"A\u00e9\U0001F600\n"}, {"A"});
  check_texts("root ::= [ぁ-ゟ]+", {"ひらがな"}, {"カ", "a", "\xE3\x81"});
  check_texts("root ::= .", {"a", "\n", "é", "\U0001F600"}, {"", "ab", "\xC3", "\xED\xA0\x80"});
  check_texts("root ::= [a\\-z\\]^-]", {"a", "-", "z", "]", "^"}, {"b", "\\"});
  check_texts("root ::= a b\na ::= \"1\" |\n  \"2\"\n# comment\nb ::= \"3\"", {"13", "23"}, {"3"});
  check_texts("root ::= \"\" | \"a\" root \"b\"", {"", "ab", "aaabbb"}, {"a", "aab", "ba"});
  check_texts("root ::= \"(\" root \")\" root | \"\"", {"", "()", "(())()"}, {"(", ")(", "(()"});
}

TEST_CASE("GBNF: counted repetition of large parts, nested and one after the other") {
  const std::string word = "[a-z] \"0123456789012345678901234567890123456789\"";
  const std::string tail = "0123456789012345678901234567890123456789";
  const auto words = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "a" + tail;
    return text;
  };
  check_texts("root ::= (" + word + "){2,5}", {words(2), words(5)}, {words(1), words(6)});
  check_texts("root ::= (" + word + "){2,5} \"-\" (" + word + "){3,}",
              {words(2) + "-" + words(3), words(5) + "-" + words(9)},
              {words(2) + "-" + words(2), words(6) + "-" + words(3), words(1) + "-" + words(3)});
  check_texts("root ::= ((" + word + "){2,3} \";\"){2,4}", {words(2) + ";" + words(3) + ";"},
              {words(2) + ";", words(1) + ";" + words(2) + ";"});
  check_texts("root ::= x{0,1000}\nx ::= \"a\" | \"b\" x \"c\"", {"", "aaa", "bbaccbac"},
              {"ba", "c"});
  check_texts("root ::= [ab]{0,200} \"b\"", {"b", "bb", std::string(200, 'a') + "b"},
              {"a", std::string(201, 'a') + "b"});
}

TEST_CASE("GBNF: line breaks stand for themselves in literals and classes") {
  check_texts("root ::= \"a\nb\" [;\n]", {"a\nb;", "a\nb\n"}, {"ab;", "a\nb", "a\\nb;"});
}

TEST_CASE("GBNF: the grammar of JSON in llama.cpp") {
  check_texts(json_gbnf, {"{}", "{\"a\": [1, 2.5, \"x\\n\", {\"b\":null}]}", "{\n  \"a\":true}"},
              {"", "[]", "{\"a\"}", "{\"a\":1,}", "{\"a\":01}"});
}

TEST_CASE("GBNF: an error says line, column and what was expected") {
  CHECK(problem_of("root = \"a\"") == "grammar, line 1, column 6: expected \"::=\", found \"=\"");
  CHECK_THAT(problem_of("root ::= \"a"),
             Contains("line 1, column 10: the literal has no quotation mark"));
  CHECK_THAT(problem_of("root ::= \"a\"\nb ::= [x\nc ::= \"y\""),
             Contains("line 2, column 7: the class has no \"]\""));
  CHECK_THAT(problem_of("root ::= \"a\"\nb ::= (\"x\""),
             Contains("line 2, column 11: expected \")\""));
  CHECK_THAT(problem_of("root ::= \"a\" \x1B"), Contains("found \"\\x1b\""));
  CHECK(problem_of("root ::= " + std::string(100'000, 'x')).size() < 200);
  CHECK(problem_of("root ::= \"a\"" + std::string(200'000, '*')).size() < 200);
  CHECK_THAT(problem_of("root ::= missing"), Contains("column 10: the rule \"missing\" is used"));
  CHECK_THAT(problem_of("a ::= \"x\""), Contains("no rule \"root\""));
  CHECK_THAT(problem_of("root ::= \"x\"\nroot ::= \"y\""), Contains("line 2, column 1"));
  CHECK_THAT(problem_of("root ::= [b-a]"), Contains("ends before it begins"));
  CHECK_THAT(problem_of("root ::= \"\\q\""), Contains("column 12: expected one of the escapes"));
  CHECK_THAT(problem_of("root ::= \"\\ud800\""), Contains("not the number of a character"));
  CHECK_THAT(problem_of("root ::= <think> \"a\""), Contains("tokens in a grammar"));
  CHECK_THAT(problem_of("root ::= \"a\"{3,2}"), Contains("the most rounds are fewer"));
  CHECK_THAT(problem_of("root ::= \"a\"{99999999999}"), Contains("greater than"));
  CHECK_THAT(problem_of("root ::= \"\xFF\""), Contains("not UTF-8"));
  CHECK_THAT(problem_of("root ::= " + std::string(1000, '(')), Contains("nested deeper"));
  CHECK_THAT(problem_of("root ::= root \"a\" | \"b\""), Contains("left recursion"));
  CHECK_THAT(problem_of("root ::= e root \"a\" | \"b\"\ne ::= \"\" | \"x\""),
             Contains("left recursion"));
  CHECK_THAT(problem_of("root ::= \"a\" root"), Contains("no text can ever match \"root\""));
  CHECK_THAT(problem_of("root ::= \"a\" b\nb ::= c \"x\"\nc ::= \"d\" c"),
             Contains("no text can ever match \"c\""));
  CHECK_THAT(problem_of("root ::= (\"a\"{0,100}){2,300}"), Contains("may be empty"));
}

TEST_CASE("hostile grammars end with an error, or are bounded") {
  // The subset construction of this has 2^20 states.
  CHECK_THAT(problem_of("root ::= [ab]* \"a\" [ab]{20}"), Contains("too"));
  const Grammar counted = compile_gbnf("root ::= (((([a-z]{60}){60}){60}){60}){60} \"!\"");
  CHECK(counted.states.size() < 1000);
  CHECK(matches_beginning(counted, std::string(10000, 'x')));
  CHECK_FALSE(matches_beginning(counted, "x!"));
  std::string doubling = "r0 ::= \"a\" | \"b\"\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "r" + std::to_string(i - 1);
    doubling += "r" + std::to_string(i) + " ::= " + before + " " + before + "\n";
  }
  const Grammar grammar = compile_gbnf(doubling + "root ::= r39\n");
  CHECK(grammar.states.size() < 1000);
  CHECK(matches_beginning(grammar, std::string(10000, 'a')));
  // Every text has very many readings.
  const Grammar ambiguous = compile_gbnf(
      "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" other\n"
      "other ::= \"a\" root \"d\" | \"\" ");
  CHECK_THROWS_AS(matches(ambiguous, std::string(200, 'a')), GrammarError);
  // Deeper than any stack: not accepted, but no error either.
  const Grammar nested = compile_gbnf("root ::= \"(\" root \")\" | \"x\"");
  CHECK(matches_beginning(nested, std::string(1000, '(')));
  CHECK_FALSE(matches_beginning(nested, std::string(2000, '(')));
}

TEST_CASE("masks are what feeding each token's bytes gives") {
  std::mt19937_64 random(test::random_seed());
  const std::vector<std::string> grammars = {
      json_gbnf,
      "root ::= .{3,40} \"\\n\"",
      "root ::= (\"a\" | \"aa\" | \"b\" root \"c\")+",
      "root ::= [^\"]{0,10} \"\\\"\" | root2\nroot2 ::= \"a\" root2 \"b\" | \"\\\"},{\\\"\"",
      "root ::= line{2,30}\nline ::= [^\\n]{0,12} \"\\n\"",
  };
  for (const std::string& gbnf : grammars) {
    INFO(gbnf);
    const ListTokenizer vocabulary = test::random_vocabulary(random, 700);
    const auto constraint = std::make_shared<const Constraint>(
        compile_gbnf(gbnf), std::make_shared<const TokenTrie>(vocabulary));
    for (int i = 0; i < 6; ++i) {
      Matcher matcher(constraint, ends_of(vocabulary));
      const std::string text = write_text(vocabulary, matcher, random, 60, 3);
      CHECK(matches_beginning(constraint->grammar(), text));
      if (matcher.may_end()) CHECK(matches(constraint->grammar(), text));
    }
  }
}

TEST_CASE("masks are right where a text nests as deep as it may") {
  const ListTokenizer vocabulary(
      {"(", "((", "((((((((", ")", "))", "x", "(x", "x)", "((x))", "(((x", " "});
  // The second needs frames for what ends it too.
  for (const char* gbnf : {"root ::= \"(\" root \")\" | \"x\"",
                           "root ::= \"(\" inner \")\" | end \" \"\ninner ::= root | root root\n"
                           "end ::= x \" \"\nx ::= \"x\""}) {
    const auto constraint = std::make_shared<const Constraint>(
        compile_gbnf(gbnf), std::make_shared<const TokenTrie>(vocabulary));
    Matcher matcher(constraint, ends_of(vocabulary));
    std::size_t depth = 0;
    for (; depth < Machine::depth_max + 10 && matcher.accept(0); ++depth) {
      if (depth + 20 > Machine::depth_max || depth % 100 == 0) check_mask(vocabulary, matcher);
    }
    CHECK(depth > Machine::depth_max / 3);
    CHECK(depth <= Machine::depth_max);
    check_mask(vocabulary, matcher);
  }
}

TEST_CASE("a guide says when a text cannot go on") {
  const ListTokenizer vocabulary({"(", "x", ")", " "});
  const auto constraint = std::make_shared<const Constraint>(
      compile_gbnf("root ::= \"(\" root \")\" | a \" \"\na ::= b \" \"\nb ::= \"x\""),
      std::make_shared<const TokenTrie>(vocabulary));
  Guide guide(constraint, ends_of(vocabulary));
  const auto nest = [&] {
    for (std::size_t i = 0; i <= Machine::depth_max; ++i) {
      if (!has_bit(guide.allowed(), 0)) return;
      guide.take(0, "(");
    }
  };
  CHECK_THROWS_WITH(nest(), Contains("the text cannot go on"));
}

TEST_CASE("what is written is valid UTF-8, also across the borders of tokens") {
  std::mt19937_64 random(test::random_seed());
  const ListTokenizer vocabulary = test::random_vocabulary(random, 900);
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  for (const char* gbnf : {"root ::= .{0,30}", "root ::= [^a-z]{5,}"}) {
    const auto constraint = std::make_shared<const Constraint>(compile_gbnf(gbnf), trie);
    for (int i = 0; i < 30; ++i) {
      Matcher matcher(constraint, ends_of(vocabulary));
      const std::string text = write_text(vocabulary, matcher, random, 40, 40);
      if (matcher.may_end()) CHECK(utf8::valid_prefix(text) == text.size());
    }
  }
}

TEST_CASE("white space that a vocabulary finds before anything else may be written") {
  using tokenizer::TokenType;
  const synth::Vocabulary toy = synth::toy_vocabulary(500);
  tokenizer::Vocabulary lines;
  lines.source = "test";
  lines.tokens = toy.tokens;
  lines.scores = toy.scores;
  for (const std::int32_t type : toy.types) lines.types.push_back(static_cast<TokenType>(type));
  const auto first = static_cast<Token>(lines.tokens.size());
  const auto add = [&](const char* text, TokenType type) {
    lines.tokens.emplace_back(text);
    lines.types.push_back(type);
    lines.scores.push_back(0);
  };
  add("\n\n", TokenType::user_defined);
  add("\n\n\n", TokenType::control);
  add("<a>", TokenType::user_defined);
  lines.unknown = 0;
  lines.bos = 1;
  lines.eos = 2;
  const auto trie = std::make_shared<const TokenTrie>(*make_tokenizer(lines));
  Matcher matcher(
      std::make_shared<const Constraint>(compile_gbnf("root ::= ([\\n] | \"<a>\")+"), trie),
      std::make_shared<const std::vector<Token>>(1, 2));
  const std::span<const std::uint64_t> mask = matcher.allowed();
  CHECK(has_bit(mask, first));
  CHECK_FALSE(has_bit(mask, first + 1));
  CHECK_FALSE(has_bit(mask, first + 2));
  CHECK(matcher.accept(first));
  CHECK(matcher.may_end());
}

TEST_CASE("a refused token changes nothing, and copies go their own ways") {
  const ListTokenizer vocabulary({"a", "b", "ab", "ba", "c"});
  const auto constraint = std::make_shared<const Constraint>(
      compile_gbnf("root ::= (\"ab\")+ \"c\""), std::make_shared<const TokenTrie>(vocabulary));
  Matcher matcher(constraint, ends_of(vocabulary));
  CHECK_FALSE(matcher.accept(1));
  CHECK_FALSE(matcher.accept(vocabulary.control()));
  CHECK_FALSE(matcher.accept(vocabulary.end()));
  CHECK_FALSE(matcher.accept(-1));
  REQUIRE(matcher.accept(0));
  Matcher copy = matcher;
  REQUIRE(copy.accept(1));
  REQUIRE(copy.accept(4));
  CHECK(copy.is_complete());
  CHECK(copy.only_choice() == vocabulary.end());
  check_mask(vocabulary, matcher);
  CHECK_FALSE(matcher.is_complete());
  REQUIRE(matcher.accept(3));  // "ba" goes over the end of a round
  check_mask(vocabulary, matcher);
}

TEST_CASE("masks stay right when more of them are found than are kept") {
  std::mt19937_64 random(test::random_seed());
  const ListTokenizer vocabulary = test::random_vocabulary(random, 400);
  // Each letter of the text is a state with a mask of its own, of 128 bytes or more.
  constexpr std::size_t letters = 20000;
  static_assert(letters * 128 > Constraint::kept_bytes_max);
  std::string text;
  for (std::size_t i = 0; i < letters; ++i) text += static_cast<char>('a' + random() % 3);
  const auto constraint = std::make_shared<const Constraint>(
      compile_gbnf("root ::= \"" + text + "\""), std::make_shared<const TokenTrie>(vocabulary));
  for (int round = 0; round < 2; ++round) {
    Matcher matcher(constraint, ends_of(vocabulary));
    for (std::size_t i = 0; i < letters; ++i) {
      if (i % 1000 == 999) {
        check_mask(vocabulary, matcher);
      } else {
        REQUIRE(has_bit(matcher.allowed(), static_cast<unsigned char>(text[i])));
      }
      REQUIRE(matcher.accept_text(text.substr(i, 1)));
    }
    CHECK(matcher.is_complete());
  }
}

TEST_CASE("a guide leaves thoughts free, and begins where they end") {
  const ListTokenizer vocabulary({"<", "t", ">", "/", "x", "\n", "1", "\n\n", "</t>", "<t>"});
  const auto constraint = std::make_shared<const Constraint>(
      compile_gbnf("root ::= \"11\""), std::make_shared<const TokenTrie>(vocabulary));
  const auto gate = [] {
    auto seen = std::make_shared<std::string>();
    return [seen](std::string_view text) -> std::optional<std::string> {
      *seen += text;
      const std::size_t at = seen->find("</t>");
      if (at == std::string::npos) return std::nullopt;
      return seen->substr(at + 4);
    };
  };
  SECTION("from the first token on") {
    Guide guide(constraint, ends_of(vocabulary), {gate(), true, {}});
    CHECK(guide.allowed().empty());
    CHECK_FALSE(guide.only_choice());
    guide.take(4, "x");
    guide.take(6, "1");
    CHECK(guide.allowed().empty());
    guide.take(8, "</t>");
    REQUIRE_FALSE(guide.allowed().empty());
    CHECK(has_bit(guide.allowed(), 6));
    CHECK(has_bit(guide.allowed(), 7));  // newlines behind the thought
    CHECK_FALSE(has_bit(guide.allowed(), 4));
    guide.take(7, "\n\n");
    CHECK_FALSE(has_bit(guide.allowed(), 5));
    CHECK(guide.only_choice() == 6);
    guide.take(6, "1");
    CHECK_THROWS_AS(guide.take(4, "x"), GrammarError);
    guide.take(6, "1");
    CHECK(guide.is_complete());
  }
  SECTION("only if the model begins one") {
    Guide guide(constraint, ends_of(vocabulary), {gate(), false, {9}});
    CHECK(has_bit(guide.allowed(), 9));
    CHECK(has_bit(guide.allowed(), 6));
    CHECK_FALSE(has_bit(guide.allowed(), 4));
    SECTION("it does") {
      guide.take(9, "<t>");
      CHECK(guide.allowed().empty());
      guide.take(8, "</t>");
      CHECK_FALSE(has_bit(guide.allowed(), 9));
    }
    SECTION("it does not") {
      guide.take(6, "1");
      CHECK_FALSE(has_bit(guide.allowed(), 9));
      CHECK(guide.only_choice() == 6);
    }
  }
}

TEST_CASE("a guide lets a call stand in place of the answer, and not within it") {
  const ListTokenizer vocabulary({"1", "\n", "x"});
  const tokenizer::Token call = vocabulary.control();
  const auto constraint = std::make_shared<const Constraint>(
      compile_gbnf("root ::= [\\n]* \"11\""), std::make_shared<const TokenTrie>(vocabulary));
  Guide guide(constraint, ends_of(vocabulary), {}, {call});
  CHECK(has_bit(guide.allowed(), call));
  CHECK(has_bit(guide.allowed(), 0));
  CHECK_FALSE(has_bit(guide.allowed(), 2));
  CHECK_FALSE(guide.only_choice());
  guide.take(1, "\n");
  CHECK(has_bit(guide.allowed(), call));
  SECTION("a call") {
    guide.take(call, "<call>");
    CHECK(guide.allowed().empty());
    guide.take(2, "x");
    guide.take(0, "1");
    guide.take(0, "1");
    CHECK(guide.allowed().empty());
    CHECK_FALSE(guide.is_complete());
  }
  SECTION("an answer") {
    guide.take(0, "1");
    CHECK_FALSE(has_bit(guide.allowed(), call));
    CHECK(guide.only_choice() == 0);
    CHECK_THROWS_AS(guide.take(call, "<call>"), GrammarError);
  }
}

}  // namespace sluice::constrain
