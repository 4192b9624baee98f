// Pre-tokenizers: the splits that the published patterns make, and what holds for every text.
#include "core/tokenizer/pretokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "core/text/utf8.h"
#include "core/tokenizer/pattern.h"
#include "tests/catch.h"

namespace {

using namespace sluice::tokenizer;
using Kind = PretokenizerKind;
using Pieces = std::vector<std::string>;

const std::vector<Kind> all_kinds = {
    Kind::fallback, Kind::llama3, Kind::qwen2,       Kind::qwen35,         Kind::gpt2,
    Kind::gpt4o,    Kind::tekken, Kind::smollm,      Kind::falcon,         Kind::deepseek_llm,
    Kind::bloom,    Kind::viking, Kind::deepseek_v3, Kind::deepseek_coder, Kind::seed_coder,
    Kind::bailing,  Kind::jais2,  Kind::kimi_k2,     Kind::laguna,         Kind::minicpm5,
    Kind::tiny_aya, Kind::youtu,  Kind::superbpe,    Kind::ufakzeka,
};

Pieces split(Kind kind, std::string_view text) {
  const auto views = split_pretokens(kind, text);
  return Pieces(views.begin(), views.end());
}

std::string joined(const std::vector<std::string_view>& pieces) {
  std::string text;
  for (const auto piece : pieces) text += piece;
  return text;
}

TEST_CASE("the llama 3 family keeps three digits and newlines together") {
  CHECK(split(Kind::llama3, "Hello, y'all! I'LL 12345") ==
        Pieces{"Hello", ",", " y", "'all", "!", " I", "'LL", " ", "123", "45"});
  CHECK(split(Kind::llama3, "a  b\n\n  c") == Pieces{"a", " ", " b", "\n\n", " ", " c"});
  CHECK(split(Kind::llama3, " !!\n\nx") == Pieces{" !!\n\n", "x"});
  CHECK(split(Kind::llama3, "x   ") == Pieces{"x", "   "});
}

TEST_CASE("qwen2 takes digits one by one") {
  CHECK(split(Kind::qwen2, "it's 2024.") == Pieces{"it", "'s", " ", "2", "0", "2", "4", "."});
  CHECK(split(Kind::qwen2, "_foo\tbar") == Pieces{"_foo", "\tbar"});
}

TEST_CASE("qwen35 keeps marks with their letters") {
  const std::string decomposed = "cafe\u0301s";
  CHECK(split(Kind::qwen35, decomposed) == Pieces{decomposed});
  CHECK(split(Kind::qwen2, decomposed) == Pieces{"cafe", "\u0301s"});
}

TEST_CASE("gpt-2 joins a space to the word behind it") {
  CHECK(split(Kind::gpt2, "We'll  go 123abc!? \n x") ==
        Pieces{"We", "'ll", " ", " go", " 123", "abc", "!?", " \n", " x"});
  // Contractions are lower case only, and a lone newline is what no alternative matches.
  CHECK(split(Kind::gpt2, "I'LL\nx") == Pieces{"I", "'", "LL", "\n", "x"});
}

TEST_CASE("gpt-4o and tekken split words where the case rises") {
  CHECK(split(Kind::gpt4o, "HelloWorld's 1234/\n") ==
        Pieces{"Hello", "World's", " ", "123", "4", "/\n"});
  CHECK(split(Kind::tekken, "HelloWorld's 12/\n") ==
        Pieces{"Hello", "World", "'s", " ", "1", "2", "/\n"});
  CHECK(split(Kind::tekken, "ABCdef") == Pieces{"ABCdef"});
  CHECK(split(Kind::tekken, "\u00C9cole\u00C9t\u00E9") == Pieces{"\u00C9cole", "\u00C9t\u00E9"});
}

TEST_CASE("smollm isolates digits before words") {
  CHECK(split(Kind::smollm, "abc 12 d") == Pieces{"abc", " ", "1", "2", " d"});
}

TEST_CASE("falcon isolates punctuation and triples of digits") {
  CHECK(split(Kind::falcon, "a+b `12345`") == Pieces{"a", "+", "b", " ", "`", "123", "45", "`"});
}

TEST_CASE("the default isolates punctuation and triples of digits") {
  CHECK(split(Kind::fallback, "Hi, 12345 x") == Pieces{"Hi", ",", " ", "123", "45", " x"});
  CHECK(split(Kind::fallback, "a`b") == Pieces{"a", "`", "b"});
}

TEST_CASE("the deepseek pre-tokenizers") {
  CHECK(split(Kind::deepseek_llm, "a b\n\u4F60\u597D, 123  ") ==
        Pieces{"a", " b", "\n", "\u4F60\u597D", ",", " ", "123", "  "});
  CHECK(split(Kind::deepseek_llm, "   x5   5") == Pieces{"  ", " x", "5", "   ", "5"});
  CHECK(split(Kind::deepseek_llm, "\u1F7D\u212A \u00E9") == Pieces{"\u1F7D\u212A", " \u00E9"});
  // The published punctuation class has the range :-~, which takes in the ASCII letters.
  CHECK(split(Kind::deepseek_llm, "\u00E9tude") == Pieces{"\u00E9", "tude"});
  CHECK(split(Kind::deepseek_coder, "x = 10;\r\n") ==
        Pieces{"x", " = ", "1", "0", ";", "\r", "\n"});
  CHECK(split(Kind::deepseek_v3, "foo.bar 1234\u3042\u4E00") ==
        Pieces{"foo", ".bar", " ", "123", "4", "\u3042\u4E00"});
}

TEST_CASE("bloom, viking and seed-coder") {
  CHECK(split(Kind::bloom, "Hello there, x1") == Pieces{"Hello", " there", ",", " x1"});
  CHECK(split(Kind::viking, "ab12") == Pieces{"ab", "1", "2"});
  CHECK(split(Kind::seed_coder, "x!\n 12") == Pieces{"x", "!", "\n", " ", "1", "2"});
}

TEST_CASE("kimi-k2 splits ideographs from words, and words where the case rises") {
  CHECK(split(Kind::kimi_k2, "iPhone\u4E00\u3005\u4E8Cx's 1234/\n") ==
        Pieces{"i", "Phone", "\u4E00\u3005\u4E8C", "x's", " ", "123", "4", "/\n"});
  CHECK(split(Kind::kimi_k2, "cafe\u0301\u3042 //\n") == Pieces{"cafe\u0301\u3042", " //\n"});
  CHECK(split(Kind::kimi_k2, "\u2E80\U00020000a") == Pieces{"\u2E80\U00020000", "a"});
}

TEST_CASE("bailing, laguna, minicpm5 and youtu") {
  CHECK(split(Kind::bailing, "It'S 12\n\nx") == Pieces{"It", "'S", " ", "1", "2", "\n\n", "x"});
  CHECK(split(Kind::laguna, "a!\n\n b 12") == Pieces{"a", "!", "\n\n", " b", " ", "1", "2"});
  CHECK(split(Kind::minicpm5, "it's 12345") == Pieces{"it", "'s", " ", "123", "45"});
  CHECK(split(Kind::youtu, "aB\uAC00\u3131\u3002\u3042\u4E00 12") ==
        Pieces{"a", "B", "\uAC00\u3131", "\u3002", "\u3042\u4E00", " ", "1", "2"});
}

TEST_CASE("jais2 cuts white space into powers of two, but for a last pair") {
  const auto lengths = [](std::size_t spaces) {
    std::vector<std::size_t> result;
    for (const auto& piece : split(Kind::jais2, std::string(spaces, ' ') + "x")) {
      result.push_back(piece.size());
    }
    return result;
  };
  CHECK(lengths(1) == std::vector<std::size_t>{2});
  CHECK(lengths(4) == std::vector<std::size_t>{2, 1, 2});
  CHECK(lengths(14) == std::vector<std::size_t>{8, 4, 1, 2});
  CHECK(lengths(1025) == std::vector<std::size_t>{512, 512, 2});
}

TEST_CASE("jais2 splits as its published expression does") {
  const Pattern published(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|)"
                          R"(\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|)"
                          R"(\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)");
  Pattern::Scratch scratch;
  const Pretokenizer jais2(Kind::jais2);
  const std::string alphabet[] = {" ", "  ", "\n", "\r", "\t", "\u3000", "\u180E", "a", "1", "!"};
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto parts = random() % 16; parts > 0; --parts) {
      text += alphabet[random() % std::size(alphabet)];
    }
    if (random() % 16 == 0) text.insert(random() % 2 == 0 ? 0 : text.size(), random() % 600, ' ');
    Pieces expected, found;
    for (std::size_t at = 0; at < text.size();) {
      const auto match = published.find(text, at, scratch);
      REQUIRE(match);
      if (match->begin > at) expected.push_back(text.substr(at, match->begin - at));
      expected.push_back(text.substr(match->begin, match->end - match->begin));
      at = match->end;
    }
    jais2.split(text, [&](std::string_view piece) { found.emplace_back(piece); });
    CAPTURE(text);
    REQUIRE(found == expected);
  }
}

TEST_CASE("tiny_aya groups digits from the right, where a word ends") {
  CHECK(split(Kind::tiny_aya, "1234567 12 a1234") ==
        Pieces{"1", "234", "567", " ", "12", " a", "1", "234"});
  CHECK(split(Kind::tiny_aya, "1234a") == Pieces{"123", "4", "a"});
  CHECK(split(Kind::tiny_aya, "1234_ 123456\u00BD") ==
        Pieces{"123", "4", "_", " ", "123", "456", "\u00BD"});
  // Against the rule itself: the first group has what is left over by groups of three.
  for (std::size_t length = 1; length < 50; ++length) {
    const std::string digits(length, '7');
    std::size_t taken = (length + 2) % 3 + 1;
    Pieces expected = {digits.substr(0, taken)};
    for (; taken < length; taken += 3) expected.push_back(digits.substr(taken, 3));
    REQUIRE(split(Kind::tiny_aya, digits) == expected);
  }
}

TEST_CASE("superbpe cuts at numbers only, and these from the right") {
  CHECK(split(Kind::superbpe, "all of it's one. 1234567, a12\n") ==
        Pieces{"all of it's one. ", "1", "234", "567", ", a", "12", "\n"});
  CHECK(split(Kind::superbpe, "10\u00B2 100\u00B2") == Pieces{"10\u00B2", " ", "100\u00B2"});
  // Against the published expression: a cut is where 3, 6, ... digits follow.
  const Pattern cut(R"((?=(\d{3})+(?!\d)))");
  Pattern::Scratch scratch;
  const std::string parts[] = {"1", "23", "456", "7890", "\u00BD", "\u0661", "\u2167", "1234567"};
  std::mt19937 random(4);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (auto count = random() % 9 + 1; count > 0; --count) text += parts[random() % 8];
    Pieces expected;
    std::size_t begin = 0;
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (sluice::utf8::is_continuation(text[at])) continue;
      const auto match = cut.find(text, at, scratch);
      if (!match || match->begin != at) continue;
      expected.push_back(text.substr(begin, at - begin));
      begin = at;
    }
    expected.push_back(text.substr(begin));
    CAPTURE(text);
    REQUIRE(split(Kind::superbpe, text) == expected);
  }
}

TEST_CASE("ufakzeka has no contractions") {
  CHECK(split(Kind::ufakzeka, "it's 2024.\n\n x") ==
        Pieces{"it", "'s", " ", "2", "0", "2", "4", ".\n\n", " x"});
  CHECK(split(Kind::ufakzeka, "y'all") == Pieces{"y", "'all"});
  CHECK(split(Kind::qwen2, "o'star") == Pieces{"o", "'s", "tar"});
  CHECK(split(Kind::ufakzeka, "o'star") == Pieces{"o", "'star"});
}

TEST_CASE("white space is Unicode's, whatever the library counts as space") {
  CHECK(split(Kind::llama3, "a\u3000\u3000b") == Pieces{"a", "\u3000", "\u3000b"});
  CHECK(split(Kind::llama3, "!\u180E!") == Pieces{"!\u180E!"});
  CHECK(split(Kind::llama3, "!\u0085!") == Pieces{"!", "\u0085", "!"});
}

TEST_CASE("bytes that are not UTF-8 are pieces of their own") {
  CHECK(split(Kind::llama3,
              "ab\xFF\xFE"
              "cd") == Pieces{"ab", "\xFF\xFE", "cd"});
  CHECK(split(Kind::llama3, "\xE2\x96") == Pieces{"\xE2\x96"});                // cut short
  CHECK(split(Kind::llama3, "\xC0\x80x") == Pieces{"\xC0\x80", "x"});          // overlong
  CHECK(split(Kind::llama3, "\xED\xA0\x80x") == Pieces{"\xED\xA0\x80", "x"});  // surrogate
  CHECK(split(Kind::llama3, "\xF4\x90\x80\x80") == Pieces{"\xF4\x90\x80\x80"});
  CHECK(split(Kind::llama3, "\xF4\x8F\xBF\xBF") == Pieces{"\xF4\x8F\xBF\xBF"});
}

TEST_CASE("pieces add up to the text, whatever the text is") {
  std::mt19937 random(1);
  const std::string alphabet[] = {
      " ", "\n",     "\r",     "\t",     "a",      "B",          "'",    "s",    "1",   ".",
      "$", "\u00E9", "\u4E00", "\u0301", "\u00A0", "\U0001F642", "\xFF", "\xE2", "\x01"};
  for (const Kind kind : all_kinds) {
    const Pretokenizer pretokenizer(kind);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      const int length = std::uniform_int_distribution(0, 40)(random);
      for (int i = 0; i < length; ++i) {
        text += alphabet[std::uniform_int_distribution<std::size_t>(
            0, std::size(alphabet) - 1)(random)];
      }
      std::vector<std::string_view> pieces;
      pretokenizer.split(text, [&](std::string_view piece) { pieces.push_back(piece); });
      CAPTURE(static_cast<int>(kind), text);
      REQUIRE(joined(pieces) == text);
      for (const auto piece : pieces) REQUIRE_FALSE(piece.empty());
    }
  }
}

TEST_CASE("where a text may be cut, its parts have the pieces of the whole") {
  std::mt19937 random(2);
  const std::string alphabet[] = {
      " ",      "\n",     "\r",     "\t",      "a",          "B",      "'",      "s",
      "ll",     "1",      "22",     ".",       ",",          "(",      "$",      "_",
      "/",      "\u00E9", "\u00C9", "\u4E00",  "\u3042",     "\uAC00", "\u05D0", "\u0E01",
      "\u0301", "\u00A0", "\u3002", "\uFF0C",  "\U0001F642", "\xFF",   "\xE2",   "\xE4\xB8",
      "\x01",   "ab ",    "a\n",    "\u4E00\n"};
  std::size_t cuts = 0;
  for (const Kind kind : all_kinds) {
    const Pretokenizer pretokenizer(kind);
    const auto pieces_of = [&](std::string_view text) {
      Pieces pieces;
      pretokenizer.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
      return pieces;
    };
    for (int round = 0; round < 1500; ++round) {
      std::string text;
      const int length = std::uniform_int_distribution(0, 24)(random);
      for (int i = 0; i < length; ++i) {
        text += alphabet[std::uniform_int_distribution<std::size_t>(
            0, std::size(alphabet) - 1)(random)];
      }
      const Pieces whole = pieces_of(text);
      for (std::size_t at = 1; at < text.size(); ++at) {
        if (!pretokenizer.may_cut(text, at)) continue;
        ++cuts;
        Pieces parts = pieces_of(text.substr(0, at));
        for (std::string& piece : pieces_of(text.substr(at))) parts.push_back(std::move(piece));
        CAPTURE(static_cast<int>(kind), text, at);
        REQUIRE(parts == whole);
      }
    }
  }
  CHECK(cuts > 10'000);
}

// A pattern that is quadratic would need many minutes for these, and one with limits would fail.
TEST_CASE("runs of half a million bytes are split") {
  constexpr std::size_t length = 500'000;
  for (const std::string unit :
       {"a", "A", " ", "\n", "1", "!", "\t", "\u4E00", "\u0301", "'", "\u00BD"}) {
    std::string run;
    for (std::size_t i = 0; i < length / unit.size(); ++i) run += unit;
    for (const Kind kind : all_kinds) {
      CAPTURE(static_cast<int>(kind), unit);
      const std::string text = run + "x";
      REQUIRE(joined(split_pretokens(kind, text)) == text);
      REQUIRE(joined(split_pretokens(kind, run)) == run);
    }
  }
  std::string spaces_and_digit(length, ' ');
  spaces_and_digit += "5";
  for (const Kind kind : all_kinds) {
    REQUIRE(joined(split_pretokens(kind, spaces_and_digit)) == spaces_and_digit);
  }
  // This one cuts long runs into pieces; looking to the end of the run at each takes minutes.
  const std::string long_run = std::string(24 * length, ' ') + "5";
  REQUIRE(joined(split_pretokens(Kind::jais2, long_run)) == long_run);
}

TEST_CASE("names of pre-tokenizers and what they imply") {
  for (const char* name : {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0",
                           "lfm2", "jina-v5-nano", "tekken"}) {
    CAPTURE(name);
    const auto traits = find_pretokenizer(name);
    REQUIRE(traits.has_value());
    CHECK(traits->ignore_merges);
    CHECK(traits->adds_bos);
  }
  for (const char* name : {"smaug-bpe", "dbrx", "chatglm-bpe"}) {
    CAPTURE(name);
    CHECK(find_pretokenizer(name)->kind == Kind::llama3);
    CHECK_FALSE(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->adds_bos);
  }
  for (const char* name : {"qwen2", "qwen35", "granite-docling", "refact"}) {
    CAPTURE(name);
    CHECK_FALSE(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->adds_bos);
  }
  for (const char* name : {"glm4", "glm5"}) {
    CHECK(find_pretokenizer(name)->kind == Kind::llama3);
    CHECK(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->adds_bos);
    CHECK_FALSE(find_pretokenizer(name)->has_bos);
  }
  CHECK(find_pretokenizer("superbpe")->kind == Kind::superbpe);
  CHECK(find_pretokenizer("ufakzeka")->kind == Kind::ufakzeka);
  CHECK(find_pretokenizer("deepseek-r1-qwen")->kind == Kind::qwen2);
  CHECK(find_pretokenizer("llama4")->kind == Kind::gpt4o);
  CHECK(find_pretokenizer("refact")->kind == Kind::smollm);
  CHECK(find_pretokenizer("mpt")->kind == Kind::gpt2);
  CHECK(find_pretokenizer("mellum")->kind == Kind::gpt2);
  CHECK(find_pretokenizer("minimax-m2")->kind == Kind::gpt4o);
  CHECK(find_pretokenizer("joyai-llm")->kind == Kind::deepseek_v3);
  // Of models that make vectors.
  for (const char* name : {"modern-bert", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de",
                           "jina-v1-en", "jina-v2-code", "roberta-bpe"}) {
    CAPTURE(name);
    REQUIRE(find_pretokenizer(name).has_value());
    CHECK(find_pretokenizer(name)->kind == Kind::gpt2);
    CHECK_FALSE(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->adds_bos);
  }
  CHECK(find_pretokenizer("f2llmv2")->kind == Kind::qwen2);
  CHECK(find_pretokenizer("granite-embed-multi-97m")->kind == Kind::gpt4o);
  CHECK(find_pretokenizer("granite-embed-multi-97m")->ignore_merges);
  for (const char* name : {"minicpm5", "youtu"}) {
    CHECK(find_pretokenizer(name)->ignore_merges);
    CHECK_FALSE(find_pretokenizer(name)->adds_bos);
  }
  CHECK_FALSE(find_pretokenizer("").has_value());
  CHECK_FALSE(find_pretokenizer("llama-bpe2").has_value());
}

TEST_CASE("a pattern that does not compile says where") {
  CHECK_THROWS_AS(Pattern("a("), std::invalid_argument);
}

}  // namespace
