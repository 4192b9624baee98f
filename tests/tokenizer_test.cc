// Tokenizers: against a plain implementation of the merging, against published tokenisations, and
// what must hold for every text and every vocabulary.
#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "core/gguf/gguf.h"
#include "core/text/keyed_hash.h"
#include "core/tokenizer/character_map.h"
#include "core/tokenizer/text_encoder.h"
#include "core/tokenizer/vocabulary_tokenizer.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::tokenizer;
using sluice::ModelError;
using Tokens = std::vector<Token>;

constexpr EncodeOptions plain = {.add_bos = false, .parse_special = false};
constexpr EncodeOptions parsed = {.add_bos = false, .parse_special = true};

int uniform(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution(least, most)(random);
}

std::string random_text(std::mt19937& random, const std::vector<std::string>& alphabet,
                        int length_max) {
  std::string text;
  for (int i = uniform(random, 0, length_max); i > 0; --i) {
    text += alphabet[static_cast<std::size_t>(
        uniform(random, 0, static_cast<int>(alphabet.size()) - 1))];
  }
  return text;
}

std::string random_bytes(std::mt19937& random, int length_max) {
  std::string text;
  for (int i = uniform(random, 0, length_max); i > 0; --i) {
    text += static_cast<char>(uniform(random, 0, 255));
  }
  return text;
}

std::string utf8(unsigned code) {
  const auto byte = [](unsigned value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 63))};
  if (code < 0x10000) {
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
  }
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
          byte(0x80 | (code & 63))};
}

std::string random_unicode(std::mt19937& random, int length_max) {
  std::string text;
  for (int i = uniform(random, 0, length_max); i > 0; --i) {
    const int planes[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    const auto code = static_cast<unsigned>(uniform(random, 0, planes[uniform(random, 0, 3)]));
    if (code < 0xD800 || code > 0xDFFF) text += utf8(code);
  }
  return text;
}

void add_token(Vocabulary& vocabulary, const std::string& text, TokenType type, float score = 0) {
  vocabulary.tokens.push_back(text);
  vocabulary.types.push_back(type);
  const bool has_scores = vocabulary.kind == VocabularyKind::sentencepiece ||
                          vocabulary.kind == VocabularyKind::unigram;
  if (has_scores) vocabulary.scores.push_back(score);
}

// <unk>, <s>, </s>, and the byte tokens at 3 + byte.
Vocabulary sentencepiece_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.source = "test";
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.unknown = 0;
  add_token(vocabulary, "<unk>", TokenType::unknown);
  add_token(vocabulary, "<s>", TokenType::control);
  add_token(vocabulary, "</s>", TokenType::control);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add_token(vocabulary, text, TokenType::byte);
  }
  return vocabulary;
}

std::string mapped(const std::string& bytes) {  // into GPT-2's alphabet
  std::string text;
  for (const char c : bytes) {
    const unsigned byte = static_cast<unsigned char>(c);
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD)) {
      text += utf8(byte);
    } else {
      text += utf8(byte < 0x21 ? 256 + byte : byte < 0xA1 ? 256 + 33 + byte - 127 : 256 + 67);
    }
  }
  return text;
}

// The bytes, at 0 to 255.
Vocabulary byte_vocabulary(const std::string& pre) {
  Vocabulary vocabulary;
  vocabulary.source = "test";
  vocabulary.kind = VocabularyKind::byte_level;
  vocabulary.pre = pre;
  vocabulary.add_bos = false;
  for (int byte = 0; byte < 256; ++byte) {
    add_token(vocabulary, mapped(std::string(1, static_cast<char>(byte))), TokenType::normal);
  }
  return vocabulary;
}

// Merges the best pair, over and over. `rank` is lower for better pairs and negative for none.
template <typename Rank>
std::vector<std::string> merge_plainly(std::vector<std::string> symbols, const Rank& rank) {
  while (true) {
    std::size_t best = symbols.size();
    double best_rank = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::optional<double> r = rank(symbols[i], symbols[i + 1]);
      if (r && (best == symbols.size() || *r < best_rank)) {
        best = i;
        best_rank = *r;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  for (const char c : text) {
    if (result.empty() || (static_cast<unsigned char>(c) & 0xC0) != 0x80) result.emplace_back();
    result.back() += c;
  }
  return result;
}

Tokens sentencepiece_plainly(const Vocabulary& vocabulary, const std::string& text) {
  std::map<std::string, Token> ids;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == TokenType::normal) {
      ids[vocabulary.tokens[i]] = static_cast<Token>(i);
    }
  }
  std::string marked;
  for (const char c : " " + text) marked += c == ' ' ? std::string("\u2581") : std::string(1, c);
  const auto rank = [&](const std::string& left, const std::string& right) {
    const auto found = ids.find(left + right);
    std::optional<double> result;
    if (found != ids.end()) result = -vocabulary.scores[static_cast<std::size_t>(found->second)];
    return result;
  };
  Tokens tokens;
  for (const std::string& symbol : merge_plainly(characters(marked), rank)) {
    const auto found = ids.find(symbol);
    if (found != ids.end()) {
      tokens.push_back(found->second);
    } else {
      for (const char c : symbol == "\u2581" ? std::string(" ") : symbol) {
        tokens.push_back(3 + static_cast<unsigned char>(c));
      }
    }
  }
  return tokens;
}

TEST_CASE("SentencePiece merges as the plain loop does") {
  std::mt19937 random(2);
  const std::vector<std::string> alphabet = {"a", "b", "c", "\u00E9", "\u4E00", " "};
  for (int round = 0; round < 200; ++round) {
    Vocabulary vocabulary = sentencepiece_vocabulary();
    const bool spaces_inside = round % 2 == 0;
    for (int i = uniform(random, 1, 60); i > 0; --i) {
      std::string text;
      for (const char c : random_text(random, alphabet, 5)) {
        text += c == ' ' ? std::string("\u2581") : std::string(1, c);
      }
      const auto inside = text.find("\u2581", text.find_first_not_of("\u2581"));
      if (text.empty() || (!spaces_inside && inside != std::string::npos)) continue;
      const auto& known = vocabulary.tokens;
      if (std::find(known.begin(), known.end(), text) != known.end()) continue;
      add_token(vocabulary, text, TokenType::normal,
                static_cast<float>(uniform(random, -4, 4)) / 2);
    }
    const auto tokenizer = make_tokenizer(vocabulary);
    for (int i = 0; i < 20; ++i) {
      std::string text = random_text(random, alphabet, 30);
      if (text.empty()) text = "a";
      CAPTURE(round, text);
      const Tokens tokens = tokenizer->encode(text, plain);
      REQUIRE(tokens == sentencepiece_plainly(vocabulary, text));
      REQUIRE(tokenizer->decode(tokens) == text);
    }
  }
}

TEST_CASE("byte-level BPE merges as the plain loop does") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Vocabulary vocabulary = byte_vocabulary("gpt-2");
    std::vector<std::string> strings = {"a", "b", "c", "\xC3", "\xA9"};
    std::map<std::pair<std::string, std::string>, int> ranks;
    std::map<std::string, Token> ids;
    for (int byte = 0; byte < 256; ++byte) ids[std::string(1, static_cast<char>(byte))] = byte;
    for (int i = uniform(random, 1, 40); i > 0; --i) {
      const auto any = [&] {
        return strings[static_cast<std::size_t>(
            uniform(random, 0, static_cast<int>(strings.size()) - 1))];
      };
      const std::string left = any();
      const std::string right = any();
      ranks.emplace(std::pair(left, right), static_cast<int>(vocabulary.merges.size()));
      vocabulary.merges.push_back(mapped(left) + " " + mapped(right));
      strings.push_back(left + right);
      // Now and then the result of a merge is no token.
      if (uniform(random, 0, 5) > 0 && !ids.contains(left + right)) {
        ids[left + right] = static_cast<Token>(vocabulary.tokens.size());
        add_token(vocabulary, mapped(left + right), TokenType::normal);
      }
    }
    const auto tokenizer = make_tokenizer(vocabulary);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(random, {"a", "b", "c", "\u00E9"}, 30);
      std::vector<std::string> bytes;
      for (const char c : text) bytes.emplace_back(1, c);
      Tokens expected;
      for (const std::string& symbol :
           merge_plainly(bytes, [&](const std::string&left, const std::string&right) {
             const auto found = ranks.find({left, right});
             return found == ranks.end() ? std::nullopt : std::optional<double>(found->second);
           })) {
        if (const auto found = ids.find(symbol); found != ids.end()) {
          expected.push_back(found->second);
        } else {
          for (const char c : symbol) expected.push_back(static_cast<unsigned char>(c));
        }
      }
      CAPTURE(round, text);
      const Tokens tokens = tokenizer->encode(text, plain);
      REQUIRE(tokens == expected);
      REQUIRE(tokenizer->decode(tokens) == text);
    }
  }
}

// <unk>, <s>, </s>, and the byte tokens at 3 + byte.
Vocabulary character_vocabulary() {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.kind = VocabularyKind::character_level;
  vocabulary.scores.clear();
  return vocabulary;
}

Tokens characters_plainly(const Vocabulary& vocabulary, const std::string& text) {
  std::map<std::string, Token> ids;
  for (std::size_t i = 259; i < vocabulary.tokens.size(); ++i) {
    ids[vocabulary.tokens[i]] = static_cast<Token>(i);
  }
  std::map<std::pair<std::string, std::string>, double> ranks;
  for (const std::string& merge : vocabulary.merges) {
    const std::size_t space = merge.find(' ');
    ranks.emplace(std::pair(merge.substr(0, space), merge.substr(space + 1)), ranks.size());
  }
  Tokens tokens;
  std::string line;
  const auto finish_line = [&] {
    const bool is_token = line.starts_with('\n') && ids.contains(line);
    const auto rank = [&](const std::string& left, const std::string& right) {
      const auto found = ranks.find({left, right});
      return found == ranks.end() ? std::nullopt : std::optional<double>(found->second);
    };
    for (const std::string& symbol :
         is_token ? std::vector{line} : merge_plainly(characters(line), rank)) {
      if (const auto found = ids.find(symbol); found != ids.end()) {
        tokens.push_back(found->second);
        continue;
      }
      for (std::size_t i = 0; i < symbol.size(); ++i) {
        const bool is_mark = symbol.substr(i).starts_with("\u2581");
        tokens.push_back(3 + (is_mark ? ' ' : static_cast<unsigned char>(symbol[i])));
        if (is_mark) i += 2;
      }
    }
    line.clear();
  };
  for (const char c : text) {
    if (!line.empty() && (line[0] == '\n') != (c == '\n')) finish_line();
    line += c == ' ' ? std::string("\u2581") : std::string(1, c);
  }
  finish_line();
  return tokens;
}

TEST_CASE("BPE on characters merges as the plain loop does") {
  std::mt19937 random(5);
  const std::vector<std::string> alphabet = {"a", "b", "\u00E9", "\u4E00", " ", "\n"};
  for (int round = 0; round < 200; ++round) {
    Vocabulary vocabulary = character_vocabulary();
    const bool spaces_inside = round % 2 == 0;
    std::vector<std::string> strings = {"a", "b", "c", "\u00E9", "\u2581", "\n"};
    for (const std::string& text : strings) {
      if (uniform(random, 0, 5) > 0) add_token(vocabulary, text, TokenType::normal);
    }
    for (int i = uniform(random, 0, 40); i > 0; --i) {
      const auto any = [&] {
        return strings[static_cast<std::size_t>(
            uniform(random, 0, static_cast<int>(strings.size()) - 1))];
      };
      const std::string left = any();
      const std::string right = any();
      const std::string whole = left + right;
      const std::size_t first = whole.find_first_not_of("\xE2\x96\x81");
      const bool inside =
          first != std::string::npos && whole.find("\u2581", first) != std::string::npos;
      if (inside && !spaces_inside) continue;
      vocabulary.merges.push_back(left + " " + right);
      strings.push_back(whole);
      const auto& known = vocabulary.tokens;
      // Now and then the result of a merge is no token.
      if (uniform(random, 0, 5) > 0 &&
          std::find(known.begin(), known.end(), whole) == known.end()) {
        add_token(vocabulary, whole, TokenType::normal);
      }
    }
    const auto tokenizer = make_tokenizer(vocabulary);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(random, alphabet, 30);
      CAPTURE(round, text);
      const Tokens tokens = tokenizer->encode(text, plain);
      REQUIRE(tokens == characters_plainly(vocabulary, text));
      REQUIRE(tokenizer->decode(tokens) == text);
    }
    const std::string bytes = random_bytes(random, 40) + "\u2581" + random_unicode(random, 20);
    REQUIRE(tokenizer->decode(tokenizer->encode(bytes, plain)) == bytes);
  }
}

TEST_CASE("a run of line breaks that is a token is taken before any merge") {
  Vocabulary vocabulary = character_vocabulary();
  add_token(vocabulary, "\n", TokenType::normal);       // 259
  add_token(vocabulary, "\n\n", TokenType::normal);     // 260
  add_token(vocabulary, "\n\n\n", TokenType::normal);   // 261, which no merge makes
  add_token(vocabulary, "\u2581x", TokenType::normal);  // 262
  vocabulary.merges = {"\n \n", "\u2581 x"};
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("\n\n\n x", plain) == Tokens{261, 262});
  CHECK(tokenizer->encode("\n\n\n\n", plain) == Tokens{260, 260});
  CHECK(tokenizer->encode("x", plain) == Tokens{3 + 'x'});  // no space in front
}

// The first names are those of files that say "gpt2" all the same.
TEST_CASE("BPE on characters: what the pre-tokenizers of other models do to a line") {
  Vocabulary vocabulary = character_vocabulary();
  add_token(vocabulary, "\n", TokenType::normal);              // 259
  add_token(vocabulary, "\n\n", TokenType::normal);            // 260, which no merge makes
  add_token(vocabulary, "\u2581", TokenType::normal);          // 261
  add_token(vocabulary, "\u2581\u2581", TokenType::normal);    // 262
  add_token(vocabulary, "x", TokenType::normal);               // 263
  add_token(vocabulary, "\u2581x", TokenType::normal);         // 264
  add_token(vocabulary, "\u2581x\u2581x", TokenType::normal);  // 265
  vocabulary.merges = {"\u2581 \u2581", "\u2581 x", "\u2581x \u2581x"};
  const auto encoded = [&](const std::string& pre, std::string_view text) {
    vocabulary.pre = pre;
    return make_tokenizer(vocabulary)->encode(text, plain);
  };
  for (const char* pre : {"gemma4", "granite-embed-multi-311m"}) {
    CHECK(encoded(pre, "x x x\n\nx") == Tokens{263, 265, 260, 263});
    CHECK(encoded(pre, "  x\n") == Tokens{262, 263, 259});
  }
  CHECK(encoded("sarvam-moe", "x x x\n\nx") == Tokens{263, 265, 259, 259, 263});
  CHECK(encoded("sarvam-moe", "  x\n") == Tokens{262, 263, 259});
  CHECK(encoded("mmbert", "x x x\n\nx") == Tokens{264, 264, 264, 260, 264});
  CHECK(encoded("mmbert", "  x\n x  ") == Tokens{261, 264, 259, 264, 261, 261});
  CHECK(encoded("mmbert", "\n") == Tokens{259});
}

TEST_CASE("text never turns into control or byte tokens by itself") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  for (const char* text : {"<", "s", ">", "<s", "/", "</", "</s", "0", "x", "\u2581"}) {
    add_token(vocabulary, text, TokenType::normal, 1);
  }
  const auto tokenizer = make_tokenizer(vocabulary);
  for (const std::string text : {"<s>", "a</s>b", "<0x41>", "<unk>", "\u2581", " \u2581x"}) {
    CAPTURE(text);
    const Tokens tokens = tokenizer->encode(text, plain);
    for (const Token token : tokens) CHECK(token > 2);
    CHECK(tokenizer->decode(tokens) == text);
  }
  CHECK(tokenizer->encode("<s>", parsed) == Tokens{1});
}

TEST_CASE("written-out tokens: longest first, and which are seen when") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  add_token(vocabulary, "\u2581x", TokenType::normal, 1);  // 259
  add_token(vocabulary, "<t>", TokenType::control);        // 260
  add_token(vocabulary, "<t><u>", TokenType::control);     // 261
  add_token(vocabulary, "\n\n", TokenType::user_defined);  // 262
  add_token(vocabulary, "\n\n\n", TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("<t><u><t>x", parsed) == Tokens{261, 260, 259});
  CHECK(tokenizer->encode("\n\n\n\n\nx", plain) == Tokens{263, 262, 259});
  CHECK(tokenizer->decode(Tokens{263, 262, 259}) == "\n\n\n\n\nx");
  CHECK(tokenizer->decode(Tokens{261, 259}) == "x");
  CHECK(tokenizer->decode(Tokens{261, 259}, true) == "<t><u>x");
  CHECK(tokenizer->piece(260).empty());
  CHECK(tokenizer->piece(260, true) == "<t>");
  CHECK(tokenizer->piece(262) == "\n\n");
  CHECK(tokenizer->piece(259) == " x");
  CHECK(tokenizer->piece(3 + 0xE2) == "\xE2");
  CHECK(tokenizer->encode("", plain).empty());
  CHECK(tokenizer->encode("", {}) == Tokens{1});
}

TEST_CASE("Phi-3's control tokens take the space behind them, in templates only") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.control_takes_space = true;
  add_token(vocabulary, "\u2581x", TokenType::normal, 1);  // 259
  add_token(vocabulary, "<|user|>", TokenType::control);   // 260
  add_token(vocabulary, "<|mark|>", TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("<|user|> \n x", parsed) == Tokens{260, 259});
  CHECK(tokenizer->encode("<s> x", parsed) == Tokens{1, 3 + ' ', 259});
  const std::string text = "<|mark|>  x";
  CHECK(tokenizer->decode(tokenizer->encode(text, plain)) == text);
}

TEST_CASE("tokens that a file lists take the space behind them, others do not") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  add_token(vocabulary, "\u2581x", TokenType::normal, 1);       // 259
  add_token(vocabulary, "<|user|>", TokenType::control);        // 260
  add_token(vocabulary, "<|mark|>", TokenType::user_defined);   // 261
  add_token(vocabulary, "<|other|>", TokenType::user_defined);  // 262
  vocabulary.takes_space = {260, 261};
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("<|user|> \n x<|mark|> x", parsed) == Tokens{260, 259, 261, 259});
  CHECK(tokenizer->encode("<|other|> x", parsed) == Tokens{262, 3 + ' ', 259});
  CHECK(tokenizer->encode("<|mark|> x", plain) == Tokens{261, 3 + ' ', 259});
}

TEST_CASE("parts are one text, but what is written out counts in markup alone") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.add_bos = true;
  add_token(vocabulary, "\u2581", TokenType::normal, -1);   // 259
  add_token(vocabulary, "x", TokenType::normal, -1);        // 260
  add_token(vocabulary, "\u2581x", TokenType::normal, 2);   // 261
  add_token(vocabulary, "xx", TokenType::normal, 1);        // 262
  add_token(vocabulary, "<|a|>", TokenType::control);       // 263
  add_token(vocabulary, "<|u|>", TokenType::user_defined);  // 264
  add_token(vocabulary, "<|a|><|u|>", TokenType::control);  // 265
  const auto tokenizer = make_tokenizer(vocabulary);
  const auto encode = [&](const std::vector<TextPart>& parts, bool continues = false,
                          const Tokens& barred = {}) {
    return tokenizer->encode_parts(parts, barred, continues);
  };
  const Tokens u_as_text = encode({{"<|u|>", false}}, true, {264});
  CHECK(std::ranges::count(u_as_text, 264) == 0);
  CHECK(tokenizer->decode(u_as_text) == "<|u|>");
  CHECK(encode({}) == Tokens{});
  CHECK(encode({{"", true}, {"", false}}) == Tokens{});
  // Merged over the border; a space is put in front unless the text continues.
  CHECK(encode({{"x", true}, {"x", false}}, true) == Tokens{262});
  CHECK(encode({{"x", false}}) == Tokens{261});
  CHECK(encode({{"x", false}}, true) == Tokens{260});
  // A space of the markup is that space; one of the content is another.
  CHECK(encode({{"<|a|>", true}, {"x", false}}) == Tokens{263, 261});
  CHECK(encode({{"<|a|> ", true}, {"x", false}}) == Tokens{263, 261});
  CHECK(encode({{"<|a|>", true}, {" x", false}}) == Tokens{263, 259, 261});
  CHECK(encode({{"<|a|> ", true}, {" x", false}}) == Tokens{263, 259, 261});
  // No token is found across a border, and user-defined ones are where they are not barred.
  CHECK(encode({{"<|a|><|u|>", true}}) == Tokens{265});
  CHECK(encode({{"<|a|>", true}, {"<|u|>", true}}, false, {264}) == Tokens{263, 264});
  CHECK(encode({{"<|u|>", false}}) == Tokens{264});
  CHECK(tokenizer->decode(encode({{"<|a|", true}, {">", true}})) == "<|a|>");
  Tokens expected = {263};
  expected.insert(expected.end(), u_as_text.begin(), u_as_text.end());
  CHECK(encode({{"<|a|> ", true}, {"<|u|>", false}}, false, {264}).size() == expected.size() + 1);
  CHECK(tokenizer->decode(encode({{"<|a|>", false}})) == "<|a|>");
  // Of plain parts encode says the same.
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_text(random, {"x", " ", "<|a|>", "<|u|>", "\n", "<"}, 8);
    CHECK(encode({{text, false}}) == tokenizer->encode(text, plain));
    const std::size_t cut =
        static_cast<std::size_t>(uniform(random, 0, static_cast<int>(text.size())));
    if (text.find("<|u|>") != std::string::npos) continue;  // the cut may go through it
    CHECK(encode({{text.substr(0, cut), false}, {text.substr(cut), false}}) ==
          tokenizer->encode(text, plain));
  }
}

TEST_CASE("without a space prefix nothing is added or taken away") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.add_space_prefix = false;
  add_token(vocabulary, "\u2581x", TokenType::normal, 1);
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("x x", plain) == Tokens{3 + 'x', 259});
  CHECK(tokenizer->decode(Tokens{259}) == " x");
}

TEST_CASE("ignore_merges takes a word that is a token as it is") {
  for (const bool ignores : {true, false}) {
    Vocabulary vocabulary = byte_vocabulary(ignores ? "llama-bpe" : "qwen2");
    add_token(vocabulary, "abc", TokenType::normal);
    const auto tokenizer = make_tokenizer(vocabulary);
    CHECK(tokenizer->encode("abc", plain) == (ignores ? Tokens{256} : Tokens{'a', 'b', 'c'}));
  }
}

TEST_CASE("a byte without a token is unknown, or an error that names it") {
  Vocabulary vocabulary = sentencepiece_vocabulary();
  vocabulary.tokens.resize(3);
  vocabulary.types.resize(3);
  vocabulary.scores.resize(3);
  add_token(vocabulary, "a", TokenType::normal);
  add_token(vocabulary, "\u2581", TokenType::normal);
  CHECK(make_tokenizer(vocabulary)->encode("a\u4E00a", plain) == Tokens{4, 3, 0, 3});
  vocabulary.unknown.reset();
  CHECK_THROWS_AS(make_tokenizer(vocabulary)->encode("a\u4E00a", plain), ModelError);
}

TEST_CASE("ids out of range are refused") {
  const auto tokenizer = make_tokenizer(sentencepiece_vocabulary());
  CHECK_THROWS_AS(tokenizer->piece(-1), std::out_of_range);
  CHECK_THROWS_AS(tokenizer->piece(259), std::out_of_range);
  CHECK_THROWS_AS(tokenizer->decode(Tokens{1, 259}), std::out_of_range);
  CHECK_FALSE(tokenizer->is_end_of_generation(-1));
  CHECK_FALSE(tokenizer->is_end_of_generation(259));
}

TEST_CASE("what ends a generation") {
  Vocabulary vocabulary = byte_vocabulary("qwen2");
  const auto add = [&](const std::string& text, TokenType type = TokenType::control) {
    add_token(vocabulary, text, type);
    return static_cast<Token>(vocabulary.tokens.size() - 1);
  };
  const Token end = add("<|end|>");
  const Token turn = add("<end_of_turn>", TokenType::normal);
  const Token user = add("<|user|>");
  const Token file = add("<|file_sep|>");
  const Token struck = add("</s>");
  const Token padding = add("[PAD]", TokenType::normal);
  const Token minimax = add("[e~[");
  vocabulary.eot = user;

  auto tokenizer = make_tokenizer(vocabulary);
  for (const Token token : {end, turn, user, file, struck, padding, minimax}) {
    CHECK(tokenizer->is_end_of_generation(token));
  }
  CHECK_FALSE(tokenizer->is_end_of_generation('a'));
  CHECK(tokenizer->piece(turn).empty());  // a control token, whatever the file says

  const Token call = add("<|call|>");
  const Token give = add("<|return|>");
  const Token channel = add("<|channel|>");
  add("<|tool_response>");
  tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->is_end_of_generation(call));
  CHECK(tokenizer->is_end_of_generation(give));
  CHECK_FALSE(tokenizer->is_end_of_generation(end));
  CHECK_FALSE(tokenizer->is_end_of_generation(struck));
  CHECK(tokenizer->piece(channel) == "<|channel|>");
}

TEST_CASE("vocabularies that make no sense are refused by name") {
  const auto refused = [](const Vocabulary& vocabulary, const std::string& key) {
    try {
      make_tokenizer(vocabulary);
    } catch (const ModelError& error) {
      CAPTURE(error.what());
      CHECK(std::string(error.what()).find("tokenizer.ggml." + key) != std::string::npos);
      return;
    }
    FAIL("accepted, though " << key << " is wrong");
  };
  const Vocabulary good = sentencepiece_vocabulary();
  Vocabulary bad = good;
  bad.tokens[5] = bad.tokens[4];
  refused(bad, "tokens");
  for (const char* text : {"<0x-1>", "<0x1>", "<0xGG>", "<0x411>", "x"}) {
    bad = good;
    bad.tokens[7] = text;
    refused(bad, "tokens");
  }
  bad = good;
  bad.scores.pop_back();
  refused(bad, "scores");
  bad = good;
  bad.scores[3] = std::numeric_limits<float>::quiet_NaN();
  refused(bad, "scores");
  bad = good;
  bad.types.pop_back();
  refused(bad, "token_type");
  // The number of tokens is no id, nor is -1.
  for (const Token id : {static_cast<Token>(good.tokens.size()), Token{-1}}) {
    using Member = std::optional<Token> Vocabulary::*;
    const std::pair<Member, std::string> ids[] = {
        {&Vocabulary::bos, "bos"},         {&Vocabulary::eos, "eos"},
        {&Vocabulary::eot, "eot"},         {&Vocabulary::eom, "eom"},
        {&Vocabulary::unknown, "unknown"}, {&Vocabulary::fim_pad, "fim_pad"},
        {&Vocabulary::fim_rep, "fim_rep"}, {&Vocabulary::fim_sep, "fim_sep"}};
    for (const auto& [member, name] : ids) {
      bad = good;
      bad.*member = id;
      refused(bad, name + "_token_id");
    }
    bad = good;
    bad.more_ends = {2, id};
    refused(bad, "eos_token_id");
  }
  bad.more_ends = {0, static_cast<Token>(good.tokens.size()) - 1};
  CHECK_NOTHROW(make_tokenizer(bad));
  for (const char* merge : {"", " ", "a", "a ", " a", "a b c"}) {
    bad = byte_vocabulary("gpt-2");
    bad.merges = {"a b", merge};
    refused(bad, "merges");
  }
  CHECK_NOTHROW(make_tokenizer(good));
}

// Texts that a hash without a key puts into one chain: a vocabulary of them would take hours.
TEST_CASE("texts that are made to fall together in a table do not") {
  constexpr std::size_t places = 1024, count = 400;
  std::map<std::size_t, std::size_t> texts_of_place;
  std::size_t found = 0;
  for (int i = 0; found < count; ++i) {
    const std::string text = std::to_string(i);
    if (std::hash<std::string>{}(text) % places != 0) continue;
    ++found;
    ++texts_of_place[sluice::text::KeyedHash{}(text) % places];
  }
  for (const auto& [place, texts] : texts_of_place) CHECK(texts < 20);
}

TEST_CASE("long texts take a time that grows with their length") {
  Vocabulary bytes = byte_vocabulary("llama-bpe");
  Vocabulary pieces = sentencepiece_vocabulary();
  Vocabulary lines = character_vocabulary();
  std::string run = "a";
  std::string marked = "a";
  for (int i = 0; i < 5; ++i) {
    bytes.merges.push_back(run + " " + run);
    lines.merges.push_back(run + " " + run);
    lines.merges.push_back(run + " \u2581");  // space inside
    run += run;
    marked += marked;
    add_token(bytes, run, TokenType::normal);
    add_token(lines, run, TokenType::normal);
    add_token(pieces, run, TokenType::normal, static_cast<float>(i));
    add_token(pieces, marked.substr(1) + "\u2581", TokenType::normal, -1);  // space inside
  }
  for (const Vocabulary& vocabulary : {bytes, pieces, lines}) {
    const auto tokenizer = make_tokenizer(vocabulary);
    for (const char c : {'a', ' ', '\n', '<', '\xFF'}) {
      const std::string text(1'000'000, c);
      const Tokens tokens = tokenizer->encode(text, parsed);
      REQUIRE(tokenizer->decode(tokens) == text);
    }
    CHECK(tokenizer->encode(std::string(3200, 'a'), plain).size() < 110);
  }
}

struct Fixture {
  std::string name;
  sluice::gguf::Model model;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::optional<Fixture> open_fixture(const std::string& name) {
  const auto path = sluice::test::fixture(name + ".gguf");
  if (!path) return std::nullopt;
  auto model = sluice::gguf::Model::open(*path, {.header_only = true});
  auto tokenizer = Tokenizer::from_metadata(model.metadata());
  return Fixture{path->string().substr(0, path->string().size() - 5), std::move(model),
                 std::move(tokenizer)};
}

std::vector<std::string> split_at(std::string text, const std::string& separator) {
  std::vector<std::string> parts;
  for (std::size_t at; (at = text.find(separator)) != std::string::npos;) {
    parts.push_back(text.substr(0, at));
    text.erase(0, at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

const std::vector<std::string> vocabularies = {"vocab/gpt-2", "vocab/llama-bpe", "vocab/llama-spm",
                                               "vocab/phi-3", "vocab/qwen2"};

TEST_CASE("published tokenisations are reproduced") {
  for (const std::string& name : vocabularies) {
    const auto fixture = open_fixture(name);
    if (!fixture) SLUICE_SKIP("no fixture " + name);
    const auto texts =
        split_at(sluice::test::content(fixture->name + ".inp"), "\n__ggml_vocab_test__\n");
    const auto lines = split_at(sluice::test::content(fixture->name + ".out"), "\n");
    REQUIRE(texts.size() == 47);
    REQUIRE(lines.size() == 47);
    CHECK(fixture->tokenizer->warnings().empty());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(name, i, texts[i]);
      std::istringstream line(lines[i]);
      const Tokens expected{std::istream_iterator<Token>(line), std::istream_iterator<Token>()};
      CHECK(fixture->tokenizer->encode(texts[i], plain) == expected);
      CHECK(fixture->tokenizer->decode(expected) == texts[i]);
    }
  }
}

TEST_CASE("WordPiece reproduces published tokenisations") {
  const auto fixture = open_fixture("vocab/bert-bge");
  if (!fixture) SLUICE_SKIP("no fixture vocab/bert-bge");
  const auto texts =
      split_at(sluice::test::content(fixture->name + ".inp"), "\n__ggml_vocab_test__\n");
  const auto lines = split_at(sluice::test::content(fixture->name + ".out"), "\n");
  REQUIRE(texts.size() == 47);
  REQUIRE(lines.size() >= texts.size());
  const Tokenizer& tokenizer = *fixture->tokenizer;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CAPTURE(i, texts[i]);
    std::istringstream line(lines[i]);
    const Tokens expected{std::istream_iterator<Token>(line), std::istream_iterator<Token>()};
    CHECK(tokenizer.encode(texts[i], plain) == expected);
  }
  // [CLS] in front, [SEP] behind a text that is read as a whole.
  CHECK(tokenizer.encode("", {.add_end = true}) == Tokens{101, 102});
  CHECK(tokenizer.encode("", {}) == Tokens{101});
}

// The words of an ASCII text, and the longest pieces of each, tried one by one.
Tokens word_pieces_plainly(const Vocabulary& vocabulary, const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) != 0) {
      words.emplace_back();
    } else if (std::ispunct(byte) != 0) {
      words.emplace_back(1, c);
      words.emplace_back();
    } else if (std::iscntrl(byte) == 0) {
      words.back() += static_cast<char>(std::tolower(byte));
    }
  }
  Tokens tokens;
  for (const std::string& word : words) {
    if (word.empty()) continue;
    std::string rest = "\u2581" + word;
    Tokens found;
    while (!rest.empty()) {
      std::optional<std::size_t> best;
      for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
        const bool is_longer =
            !best || vocabulary.tokens[i].size() > vocabulary.tokens[*best].size();
        if (vocabulary.types[i] == TokenType::normal && is_longer &&
            rest.starts_with(vocabulary.tokens[i])) {
          best = i;
        }
      }
      if (!best) {
        found = {*vocabulary.unknown};
        break;
      }
      found.push_back(static_cast<Token>(*best));
      rest.erase(0, vocabulary.tokens[*best].size());
    }
    tokens.insert(tokens.end(), found.begin(), found.end());
  }
  return tokens;
}

Vocabulary word_piece_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.source = "test";
  vocabulary.kind = VocabularyKind::word_pieces;
  vocabulary.add_space_prefix = false;
  vocabulary.add_separator = true;
  for (const char* text : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    add_token(vocabulary, text, TokenType::control);
  }
  vocabulary.unknown = 1;
  vocabulary.bos = 2;
  vocabulary.separator = 3;
  return vocabulary;
}

TEST_CASE("WordPiece takes the longest pieces of each word, or calls it unknown") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    Vocabulary vocabulary = word_piece_vocabulary();
    std::set<std::string> pieces;
    for (int i = 0; i < 40; ++i) {
      std::string piece = uniform(random, 0, 1) == 0 ? "\u2581" : "";
      for (int n = uniform(random, 1, 3); n > 0; --n) {
        piece += static_cast<char>('a' + uniform(random, 0, 3));
      }
      pieces.insert(piece);
    }
    pieces.insert({"\u2581,", "\u2581-", "\u2581a", "b"});
    for (const std::string& piece : pieces) add_token(vocabulary, piece, TokenType::normal);
    const auto tokenizer = make_tokenizer(vocabulary);
    for (int i = 0; i < 40; ++i) {
      const std::string text = random_text(
          random, {"a", "b", "c", "d", "A", "D", " ", "  ", "\n", "\t", ",", "-", "\x01"}, 24);
      CAPTURE(round, text);
      CHECK(tokenizer->encode(text, plain) == word_pieces_plainly(vocabulary, text));
    }
    // Anything else is survived.
    CHECK_NOTHROW(tokenizer->encode(random_bytes(random, 60), {}));
    CHECK_NOTHROW(tokenizer->encode(random_unicode(random, 60), {}));
  }
}

// One token of control, and one of each byte, at 1 + byte.
Vocabulary longest_pieces_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.source = "test";
  vocabulary.kind = VocabularyKind::longest_pieces;
  vocabulary.add_space_prefix = vocabulary.add_bos = false;
  add_token(vocabulary, "<s>", TokenType::control);
  for (int byte = 0; byte < 256; ++byte) {
    add_token(vocabulary, std::string(1, static_cast<char>(byte)), TokenType::normal);
  }
  return vocabulary;
}

TEST_CASE("a byte that is no token of RWKV's vocabulary is unknown") {
  Vocabulary vocabulary = longest_pieces_vocabulary();
  vocabulary.tokens.resize(1 + 'b');  // the bytes before 'b', behind "<s>"
  vocabulary.types.resize(1 + 'b');
  vocabulary.unknown = 0;
  const auto tokenizer = make_tokenizer(vocabulary);
  CHECK(tokenizer->encode("aba", plain) == Tokens{1 + 'a', 0, 1 + 'a'});
  CHECK(tokenizer->is_ordinary(1 + 'a'));
  CHECK_FALSE(tokenizer->is_ordinary(0));
  CHECK_THROWS_AS(tokenizer->is_ordinary(1 + 'b'), std::out_of_range);
}

TEST_CASE("where all lengths of a piece are tried, none is very long") {
  for (Vocabulary vocabulary : {word_piece_vocabulary(), longest_pieces_vocabulary()}) {
    add_token(vocabulary, std::string(piece_bytes_max, 'a'), TokenType::normal);
    CHECK_NOTHROW(make_tokenizer(vocabulary));
    add_token(vocabulary, std::string(piece_bytes_max + 1, 'b'), TokenType::normal);
    CHECK_THROWS_AS(make_tokenizer(vocabulary), ModelError);
  }
}

TEST_CASE("tokens that are written out are not very long, in any vocabulary") {
  for (const TokenType type : {TokenType::control, TokenType::user_defined, TokenType::unknown}) {
    for (Vocabulary vocabulary : {sentencepiece_vocabulary(), byte_vocabulary("llama-bpe")}) {
      add_token(vocabulary, std::string(2 * piece_bytes_max, 'a'), TokenType::normal);
      add_token(vocabulary, std::string(piece_bytes_max, 'b'), type);
      CHECK_NOTHROW(make_tokenizer(vocabulary));
      add_token(vocabulary, std::string(piece_bytes_max + 1, 'c'), type);
      CHECK_THROWS_AS(make_tokenizer(vocabulary), ModelError);
    }
  }
}

TEST_CASE("the tokenizer of RWKV takes the longest tokens from the left") {
  std::mt19937 random(12);
  for (int round = 0; round < 60; ++round) {
    Vocabulary vocabulary = longest_pieces_vocabulary();
    std::set<std::string> pieces;
    for (int i = 0; i < 40; ++i) {
      const std::string piece = random_text(random, {"a", "b", " ", "\n", "\xFF", "\u2581"}, 6);
      if (piece.size() > 1) pieces.insert(piece);
    }
    for (const std::string& piece : pieces) add_token(vocabulary, piece, TokenType::normal);
    const auto tokenizer = make_tokenizer(vocabulary);
    for (int i = 0; i < 40; ++i) {
      const std::string text =
          random_text(random, {"a", "b", "c", " ", "\n", "\xFF", "\u2581", "d"}, 30);
      Tokens expected;
      for (std::string_view rest = text; !rest.empty();) {
        std::size_t best = 1 + static_cast<std::uint8_t>(rest.front());
        for (std::size_t t = 257; t < vocabulary.tokens.size(); ++t) {
          const std::string& piece = vocabulary.tokens[t];
          if (piece.size() > vocabulary.tokens[best].size() && rest.starts_with(piece)) best = t;
        }
        expected.push_back(static_cast<Token>(best));
        rest.remove_prefix(vocabulary.tokens[best].size());
      }
      CAPTURE(round, text);
      CHECK(tokenizer->encode(text, plain) == expected);
      CHECK(tokenizer->decode(expected) == text);
    }
    const std::string bytes = random_bytes(random, 60);
    CHECK(tokenizer->decode(tokenizer->encode(bytes, {})) == bytes);
  }
}

using Replacements = std::map<std::string, std::string>;

// The file of a map of characters: a double array of the sources, and the replacements.
class CharacterMapFile {
 public:
  // Children of all nodes but the root are at `least_place` or behind it.
  explicit CharacterMapFile(const Replacements& replacements, std::size_t least_place = 1)
      : replacements_(replacements), least_place_(least_place) {
    units_[0] = 0;
    add_children(0, "");
  }

  std::string content() const {
    std::string file;
    const auto add_u32 = [&](std::size_t value) {
      for (int shift = 0; shift < 32; shift += 8) file += static_cast<char>(value >> shift & 255);
    };
    add_u32(4 * (units_.rbegin()->first + 1));
    for (const auto& [place, unit] : units_) {
      file.resize(4 + 4 * place);
      add_u32(unit);
    }
    return file + texts_;
  }

 private:
  // Of the node at `place`, to which the bytes of `front` lead.
  void add_children(std::size_t place, const std::string& front) {
    std::set<std::uint8_t> bytes;
    for (const auto& [source, text] : replacements_) {
      if (!source.starts_with(front)) continue;
      bytes.insert(source == front ? 0 : static_cast<std::uint8_t>(source[front.size()]));
    }
    std::size_t base = place == 0 ? 1 : least_place_;
    const auto is_free = [&](std::uint8_t b) { return !units_.contains(base ^ b); };
    const auto can_be_said = [&] { return !is_wide(place ^ base) || (place ^ base) % 256 == 0; };
    while (bases_.contains(base) || !can_be_said() || !std::ranges::all_of(bytes, is_free)) ++base;
    bases_.insert(base);
    set_offset(place, place ^ base);
    for (const std::uint8_t b : bytes) units_[base ^ b] = b;
    if (bytes.contains(0)) {
      units_[place] |= 1U << 8;
      units_[base] = std::uint32_t{1} << 31 | static_cast<std::uint32_t>(texts_.size());
      texts_ += replacements_.at(front) + '\0';
      bytes.erase(0);
    }
    for (const std::uint8_t b : bytes) {
      add_children(base ^ b, front + static_cast<char>(b));
    }
  }

  static bool is_wide(std::size_t offset) { return offset >= std::size_t{1} << 21; }
  void set_offset(std::size_t place, std::size_t offset) {
    units_[place] |=
        static_cast<std::uint32_t>(is_wide(offset) ? offset >> 8 << 10 | 1U << 9 : offset << 10);
  }

  const Replacements& replacements_;
  std::size_t least_place_;
  std::map<std::size_t, std::uint32_t> units_;
  std::set<std::size_t> bases_;  // else a node would have children of another
  std::string texts_;
};

Vocabulary unigram_vocabulary(const Replacements& replacements) {
  Vocabulary vocabulary;
  vocabulary.source = "test";
  vocabulary.kind = VocabularyKind::unigram;
  vocabulary.bos = 0;
  vocabulary.eos = 1;
  vocabulary.unknown = 2;
  vocabulary.merges_spaces = true;
  vocabulary.character_map = CharacterMapFile(replacements).content();
  add_token(vocabulary, "<s>", TokenType::control);
  add_token(vocabulary, "</s>", TokenType::control);
  add_token(vocabulary, "<unk>", TokenType::unknown);
  return vocabulary;
}

// What the unigram model makes of valid UTF-8, by trying all ways to cut it.
class PlainUnigram {
 public:
  PlainUnigram(const Vocabulary& vocabulary, const Replacements& replacements)
      : vocabulary_(vocabulary), replacements_(replacements) {
    for (std::size_t i = 3; i < vocabulary.tokens.size(); ++i) {
      worst_ = std::min(worst_, double{vocabulary.scores[i]});
    }
  }

  Tokens encode(const std::string& text) {
    text_ = prepared(text);
    best_.clear();
    Tokens tokens;
    for (const Token token : from(0).tokens) {
      const bool goes_on =
          token == *vocabulary_.unknown && !tokens.empty() && tokens.back() == token;
      if (!goes_on) tokens.push_back(token);
    }
    return tokens;
  }

 private:
  struct Cut {
    double score = 0;
    Tokens tokens;
  };

  static std::size_t character_bytes(std::string_view text) {
    std::size_t bytes = 1;
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
    return bytes;
  }

  // With the replacements, and a mark in front of each word.
  std::string prepared(std::string_view text) const {
    std::string replaced;
    while (!text.empty()) {
      std::size_t bytes = character_bytes(text);
      std::string become(text.substr(0, bytes));
      std::size_t longest = 0;
      for (const auto& [source, replacement] : replacements_) {
        if (source.size() <= longest || !text.starts_with(source)) continue;
        longest = bytes = source.size();
        become = replacement;
      }
      replaced += become;
      text.remove_prefix(bytes);
    }
    std::istringstream words(replaced);
    std::string marked;
    for (std::string word; std::getline(words, word, ' ');) {
      if (!word.empty()) marked += "\u2581" + word;
    }
    return marked;
  }

  const Cut& from(std::size_t at) {
    if (const auto known = best_.find(at); known != best_.end()) return known->second;
    const std::string rest = text_.substr(at);
    Cut best;
    if (!rest.empty()) {
      const std::size_t character = character_bytes(rest);
      best.score = -1e9;
      const auto offer = [&](std::size_t bytes, Token token, double score) {
        const Cut& behind = from(at + bytes);
        if (behind.score + score <= best.score) return;
        best = {behind.score + score, {token}};
        best.tokens.insert(best.tokens.end(), behind.tokens.begin(), behind.tokens.end());
      };
      bool is_known = false;
      for (std::size_t i = 3; i < vocabulary_.tokens.size(); ++i) {
        const std::string& token = vocabulary_.tokens[i];
        if (!rest.starts_with(token)) continue;
        is_known |= token.size() == character;
        offer(token.size(), static_cast<Token>(i), double{vocabulary_.scores[i]});
      }
      if (!is_known) offer(character, *vocabulary_.unknown, worst_ - 10);
    }
    return best_[at] = best;
  }

  const Vocabulary& vocabulary_;
  const Replacements& replacements_;
  double worst_ = 0;
  std::string text_;
  std::map<std::size_t, Cut> best_;
};

TEST_CASE("the unigram model takes the tokens with the greatest sum of scores") {
  const Replacements replacements = {{"\t", " "},      {"\n", " "},     {"\u00bd", "1 2"},
                                     {"e", "a"},       {"ee", "b"},     {"eee", ""},
                                     {"c\u0301", "b"}, {"\u3000", " "}, {"d e", "b c"}};
  std::mt19937 random(13);
  std::uniform_real_distribution<float> scores(-12, -1);
  for (int round = 0; round < 40; ++round) {
    Vocabulary vocabulary = unigram_vocabulary(replacements);
    vocabulary.add_bos = round % 2 == 0;
    std::set<std::string> pieces = {"a", "b", "1", "\u4E00"};
    if (round % 4 != 0) pieces.insert("\u2581");
    for (int i = 0; i < 40; ++i) {
      std::string piece = random_text(random, {"a", "b", "c", "1", "\u4E00", "\u00e9"}, 4);
      if (uniform(random, 0, 2) == 0) piece.insert(0, "\u2581");
      if (round % 5 == 0) piece += "\u2581a";  // words cannot be cut apart
      if (!piece.empty()) pieces.insert(piece);
    }
    for (const std::string& piece : pieces) {
      add_token(vocabulary, piece, TokenType::normal, scores(random));
    }
    // Of tokens that become the same bytes the first one counts, whatever the scores are.
    for (const std::string& piece : pieces) {
      if (!piece.starts_with("\u2581") || uniform(random, 0, 1) == 0) continue;
      add_token(vocabulary, " " + piece.substr(3), TokenType::normal, -0.5F);
    }
    const auto tokenizer = make_tokenizer(vocabulary);
    PlainUnigram reference(vocabulary, replacements);
    for (int i = 0; i < 40; ++i) {
      const std::string text =
          random_text(random,
                      {"a", "b", "c", "1", " ", "  ", "\n", "\t", "e", "ee", "\u0301", "\u00bd",
                       "\u4E00", "\u00e9", "\u3000", "x", "d", "\xF0\x9F\x99\x82"},
                      24);
      CAPTURE(round, text);
      CHECK(tokenizer->encode(text, plain) == reference.encode(text));
    }
    // Anything else is survived.
    CHECK_NOTHROW(tokenizer->encode(random_bytes(random, 60), {}));
    CHECK_NOTHROW(tokenizer->encode(random_unicode(random, 60), {}));
  }
}

TEST_CASE("the unigram model keeps white space where the file does not say otherwise") {
  Vocabulary vocabulary = unigram_vocabulary({{"\n", " "}});
  vocabulary.merges_spaces = false;
  add_token(vocabulary, "\u2581", TokenType::normal, -2);
  add_token(vocabulary, "a", TokenType::normal, -2);
  add_token(vocabulary, "\u2581a", TokenType::normal, -3);
  const auto ids = [&](const std::string& text) {
    return make_tokenizer(vocabulary)->encode(text, plain);
  };
  CHECK(ids("  a\n a ") == Tokens{3, 3, 5, 3, 5, 3});
  vocabulary.add_space_prefix = false;
  CHECK(ids("  a\n a ") == Tokens{3, 5, 3, 5, 3});
  CHECK(ids("a") == Tokens{4});
}

TEST_CASE("the unigram model uses byte tokens, and one unknown token without them") {
  Vocabulary vocabulary = unigram_vocabulary({{"x", "y"}});
  add_token(vocabulary, "\u2581", TokenType::normal, -2);
  CHECK(make_tokenizer(vocabulary)->encode("\u4E00\u4E00 \xFF", plain) == Tokens{3, 2, 3, 2});
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add_token(vocabulary, text, TokenType::byte);
  }
  CHECK(make_tokenizer(vocabulary)->encode("\u4E00", plain) ==
        Tokens{3, 4 + 0xE4, 4 + 0xB8, 4 + 0x80});
}

TEST_CASE("a map of characters may have its parts far apart") {
  const Replacements replacements = {{"ab", "x"}, {"abc", "yy"}, {"b", ""}, {"\u00e9", "e"}};
  const CharacterMap map(CharacterMapFile(replacements, (std::size_t{1} << 21) + 5).content());
  for (const auto& [source, replacement] : replacements) {
    const CharacterMap::Replacement found = map.find(source + "-");
    CHECK(found.source_bytes == source.size());
    CHECK(found.text == replacement);
  }
  CHECK(map.find("a").source_bytes == 0);
  CHECK(map.find("").source_bytes == 0);
  CHECK(map.reach("abd") == 2);
  CHECK(map.reach("-") == 0);
}

TEST_CASE("scores that are added up are finite, and unknown words and characters have a token") {
  const auto refusal = [](const Vocabulary& vocabulary) -> std::string {
    try {
      make_tokenizer(vocabulary);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "";
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float score : {infinity, -infinity}) {
    Vocabulary compared = sentencepiece_vocabulary();
    compared.scores[1] = score;
    CHECK(refusal(compared).empty());
    Vocabulary added = unigram_vocabulary({{"x", "y"}});
    CHECK(refusal(added).empty());
    added.scores[1] = score;
    CHECK(refusal(added) == "test: key 'tokenizer.ggml.scores': element 1 is not finite");
  }
  for (Vocabulary vocabulary : {unigram_vocabulary({{"x", "y"}}), word_piece_vocabulary()}) {
    vocabulary.unknown.reset();
    CHECK(refusal(vocabulary)
              .starts_with("test: key 'tokenizer.ggml.unknown_token_id': is missing, but "));
  }
}

TEST_CASE("a malformed map of characters is refused") {
  const std::string good = unigram_vocabulary({{"\u00e9", "e"}, {"x", "yy"}}).character_map;
  const auto refusal = [&](const std::string& map) -> std::string {
    Vocabulary vocabulary = unigram_vocabulary({{"x", "y"}});
    vocabulary.character_map = map;
    try {
      make_tokenizer(vocabulary);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal(good).empty());
  CHECK(refusal("").empty());
  for (const std::string& bad :
       {good.substr(0, 3), good.substr(0, 4), good.substr(0, good.size() - 1),
        good.substr(0, good.size() - 4), std::string(8, '\xFF'), std::string(8, '\0')}) {
    CHECK(refusal(bad).find("tokenizer.ggml.precompiled_charsmap") != std::string::npos);
  }
  const std::string most(CharacterMap::replacement_bytes_max, 'y');
  CHECK(refusal(CharacterMapFile({{"x", most}}).content()).empty());
  CHECK(refusal(CharacterMapFile({{"x", most + 'y'}}).content()).find("257 bytes") !=
        std::string::npos);
  // Any other byte is survived, in a file as well.
  std::mt19937 random(14);
  for (int round = 0; round < 300; ++round) {
    Vocabulary vocabulary = unigram_vocabulary({{"x", "y"}});
    add_token(vocabulary, "\u2581", TokenType::normal, -2);
    std::string& map = vocabulary.character_map;
    map = CharacterMapFile({{"ab", "b"}, {"abc", "x"}, {"b", ""}}).content();
    const int at = uniform(random, 4, static_cast<int>(map.size()) - 2);
    map[static_cast<std::size_t>(at)] ^= static_cast<char>(uniform(random, 1, 255));
    try {
      const auto tokenizer = make_tokenizer(vocabulary);
      for (int i = 0; i < 10; ++i) {
        CHECK_NOTHROW(tokenizer->encode(random_text(random, {"a", "b", "c", "x"}, 600), {}));
      }
    } catch (const ModelError&) {
    }
  }
}

TEST_CASE("WordPiece folds capitals and accents as the file says") {
  Vocabulary vocabulary = word_piece_vocabulary();
  for (const char* piece : {"\u2581resume", "\u2581r\u00e9sum\u00e9", "\u2581R\u00c9SUM\u00c9",
                            "\u2581\u4e2d", "\u2581\u6587", "\u2581\u0438\u043c\u044f"}) {
    add_token(vocabulary, piece, TokenType::normal);
  }
  const auto ids = [&](const std::string& text) {
    return make_tokenizer(vocabulary)->encode(text, plain);
  };
  CHECK(ids("R\u00c9SUM\u00c9") == Tokens{4});
  CHECK(ids("re\u0301sume\u0301") == Tokens{4});  // accents as characters of their own
  CHECK(ids("\u4e2d\u6587") == Tokens{7, 8});
  CHECK(ids("\u0418\u041c\u042f\u00ad \u200b") == Tokens{9});  // what is not seen is dropped
  CHECK(ids("re\x1Csu\x1Fme") == Tokens{4});
  CHECK(ids("resume\u2026") == Tokens{4, 1});  // punctuation is a word
  CHECK(ids("resume\vresume\u0085resume") == Tokens{4, 4, 4});
  vocabulary.strips_accents = false;
  CHECK(ids("R\u00c9SUM\u00c9") == Tokens{5});
  vocabulary.makes_lowercase = false;
  CHECK(ids("R\u00c9SUM\u00c9") == Tokens{6});
}

TEST_CASE("a pair of texts has what the model wants around and between them") {
  Vocabulary vocabulary = word_piece_vocabulary();
  add_token(vocabulary, "\u2581a", TokenType::normal);
  add_token(vocabulary, "\u2581b", TokenType::normal);
  CHECK(make_tokenizer(vocabulary)->encode_pair("a", "b") == Tokens{2, 4, 3, 5});
  vocabulary.add_eos = true;
  CHECK(make_tokenizer(vocabulary)->encode_pair("a", "b") == Tokens{2, 4, 3, 3, 5, 3});
}

TEST_CASE("real vocabularies give any text back") {
  for (const std::string& name : vocabularies) {
    const auto fixture = open_fixture(name);
    if (!fixture) SLUICE_SKIP("no fixture " + name);
    std::mt19937 random(4);
    const std::vector<std::string> words = {
        "the",    " ",      "  ", "\n",   "</s>", "<s>",   "Hello",   "\t",           "12345",
        "\u2581", "<0x41>", "'s", "\r\n", "\xE2", "<unk>", "<|end|>", "<|endoftext|>"};
    for (int round = 0; round < 400; ++round) {
      for (const std::string& text :
           {random_unicode(random, 60), random_bytes(random, 60), random_text(random, words, 20)}) {
        CAPTURE(name, text);
        const Tokens tokens = fixture->tokenizer->encode(text, {});
        REQUIRE(fixture->tokenizer->decode(tokens) == text);
        std::string pieces;
        for (const Token token : tokens) pieces += fixture->tokenizer->piece(token);
        REQUIRE(pieces.ends_with(text));
      }
    }
  }
}

namespace {

// The tokens of a text that comes in pieces of random sizes up to `bytes_max`.
Tokens encode_in_pieces(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& how,
                        std::mt19937& random, int bytes_max) {
  TextEncoder encoder(tokenizer, how);
  Tokens tokens;
  while (!text.empty()) {
    const auto bytes = static_cast<std::size_t>(uniform(random, 0, bytes_max));
    encoder.push(text.substr(0, bytes), tokens);
    text.remove_prefix(std::min(bytes, text.size()));
  }
  encoder.finish(tokens);
  CHECK(encoder.held_bytes() == 0);
  return tokens;
}

// Tokens that are written out overlap in every way: within, across and behind others.
void add_overlapping_specials(Vocabulary& vocabulary) {
  for (const char* text : {"<a>", "<a><b>", "b><c>x", "><", "aa", "aab", "\n\n\n"}) {
    add_token(vocabulary, text, TokenType::user_defined);
  }
  for (const char* text : {"<s><s>", "s><a", "<c>", "  <c>"}) {
    add_token(vocabulary, text, TokenType::control);
  }
}

std::vector<Vocabulary> small_vocabularies() {
  std::vector<Vocabulary> all;
  for (const bool has_spaces_inside : {false, true}) {
    for (const bool control_takes_space : {false, true}) {
      Vocabulary spm = sentencepiece_vocabulary();
      spm.control_takes_space = control_takes_space;
      float score = 0;
      for (const char* text : {"\u2581", "a", "b", "c", "ab", "\u2581a", "\u2581ab", "bc", "abc",
                               "\n", "\n\n", "\u4E00", "\u4E00\u4E00", "ca", "\u2581\u2581"}) {
        add_token(spm, text, TokenType::normal, score -= 1);
      }
      if (has_spaces_inside) add_token(spm, "b\u2581a", TokenType::normal, 1);
      add_overlapping_specials(spm);
      all.push_back(spm);
    }
    Vocabulary lines = character_vocabulary();
    for (const char* text : {"\u2581", "a", "b", "c", "\u4E00", "\n", "ab", "\u2581a", "\n\n"}) {
      add_token(lines, text, TokenType::normal);
    }
    lines.merges = {"a b", "\u2581 a", "b c", "ab c", "\n \n", "c \u4E00"};
    if (has_spaces_inside) lines.merges.push_back("b \u2581");
    add_overlapping_specials(lines);
    all.push_back(lines);
    lines.pre = "mmbert";
    all.push_back(lines);
  }
  Vocabulary sums = unigram_vocabulary({{"\n", " "}, {"a b", "c"}, {".", " ."}, {"<", ""}});
  for (const char* text : {"\u2581", "a", "b", "ab", "\u2581a", "\u2581ab", "bc", "\u4E00"}) {
    add_token(sums, text, TokenType::normal, -1.5F * static_cast<float>(sums.tokens.size()));
  }
  add_overlapping_specials(sums);
  all.push_back(sums);
  Vocabulary longest = longest_pieces_vocabulary();
  for (const char* text :
       {"ab", "abc", " a", "bc", "\n\n", "\u4E00", "ca", "a b", "1.", "\xE4\xB8"}) {
    add_token(longest, text, TokenType::normal);
  }
  add_overlapping_specials(longest);
  all.push_back(longest);
  Vocabulary words = word_piece_vocabulary();
  for (const char* text :
       {"\u2581a", "\u2581b", "\u2581ab", "\u25811", "\u2581.", "a", "bc", "c"}) {
    add_token(words, text, TokenType::normal);
  }
  add_overlapping_specials(words);
  all.push_back(words);
  for (const char* pre :
       {"default", "llama-bpe", "qwen2", "gpt-2", "gpt-4o", "deepseek-llm", "deepseek-v3", "bloom",
        "kimi-k2", "laguna", "tiny_aya", "youtu", "superbpe"}) {
    Vocabulary bytes = byte_vocabulary(pre);
    for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
             {"a", "b"}, {" ", "a"}, {"b", "c"}, {"\n", "\n"}, {"ab", "c"}, {".", "\n"}}) {
      bytes.merges.push_back(mapped(left) + " " + mapped(right));
      add_token(bytes, mapped(left + right), TokenType::normal);
    }
    bytes.merges.emplace_back("\u4E00 a");  // of no bytes
    add_overlapping_specials(bytes);
    all.push_back(bytes);
  }
  return all;
}

}  // namespace

TEST_CASE("a text that comes in pieces has the tokens of the whole") {
  std::mt19937 random(8);
  const std::vector<std::string> alphabet = {
      "a",    "b",    "c",   " ",   "  ",    "\n",     "<a>",    "<a><b>", "b><c>x", "><",
      "<s>",  "</s>", "s><", "<c>", "  <c>", "\u4E00", "\u3002", "1",      "'s",     "\xE4\xB8",
      "\xFF", ".",    ",",   "<",   ">",     "aa",     "aab",    "\n\n\n", "\u2581", "<|x|>"};
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const Vocabulary& vocabulary : small_vocabularies()) {
    tokenizers.push_back(make_tokenizer(vocabulary));
  }
  for (const std::string& name : vocabularies) {
    if (auto fixture = open_fixture(name)) tokenizers.push_back(std::move(fixture->tokenizer));
  }
  for (std::size_t i = 0; i < tokenizers.size(); ++i) {
    for (int round = 0; round < 200; ++round) {
      const std::string text = round % 4 == 0 ? random_bytes(random, 80)
                               : round % 4 == 1
                                   ? random_unicode(random, 40) + random_text(random, alphabet, 20)
                                   : random_text(random, alphabet, 60);
      for (const EncodeOptions& how : {EncodeOptions{}, plain, parsed}) {
        CAPTURE(i, text, how.parse_special);
        const int bytes_max = uniform(random, 1, 20);
        REQUIRE(encode_in_pieces(*tokenizers[i], text, how, random, bytes_max) ==
                tokenizers[i]->encode(text, how));
      }
    }
  }
}

TEST_CASE("a text that comes in pieces is held no longer than it must be") {
  const std::string line = "The rain in Spain, 3.5 mm of it, stays.\n\u4E00\u4E8C\u3002\n\n";
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const Vocabulary& vocabulary : small_vocabularies()) {
    tokenizers.push_back(make_tokenizer(vocabulary));
  }
  for (const std::string& name : vocabularies) {
    if (auto fixture = open_fixture(name)) tokenizers.push_back(std::move(fixture->tokenizer));
  }
  for (const auto& tokenizer : tokenizers) {
    TextEncoder encoder(*tokenizer);
    Tokens tokens;
    std::string text;
    std::size_t held_max = 0;
    for (int i = 0; i < 500; ++i) {
      encoder.push(line, tokens);
      text += line;
      held_max = std::max(held_max, encoder.held_bytes());
    }
    encoder.finish(tokens);
    CHECK(held_max < 4096);
    CHECK(tokens == tokenizer->encode(text, {}));
  }
}

TEST_CASE("what the files say about BOS, EOS and ends") {
  const auto llama = open_fixture("vocab/llama-bpe");
  const auto qwen = open_fixture("vocab/qwen2");
  const auto phi = open_fixture("vocab/phi-3");
  if (!llama || !qwen || !phi) SLUICE_SKIP("no fixtures vocab/*");
  CHECK(llama->tokenizer->encode("", {}) == Tokens{128000});
  CHECK_FALSE(qwen->tokenizer->adds_bos());
  CHECK(qwen->tokenizer->encode("", {}).empty());
  CHECK(qwen->tokenizer->is_end_of_generation(151645));
  CHECK(qwen->tokenizer->is_end_of_generation(151643));
  CHECK(llama->tokenizer->is_end_of_generation(128001));
  CHECK(llama->tokenizer->is_end_of_generation(128008));
  CHECK(llama->tokenizer->is_end_of_generation(128009));
  CHECK(phi->tokenizer->is_end_of_generation(32007));
  // The template's newline behind <|user|> belongs to the token.
  CHECK(phi->tokenizer->encode("<|user|>\nHello<|end|>\n", parsed) == Tokens{32010, 15043, 32007});
}

TEST_CASE("the tokens of a model's story are its text") {
  const auto fixture = open_fixture("models/stories260K");
  if (!fixture) SLUICE_SKIP("no fixture models/stories260K.gguf");
  const Tokens tokens = {1,   403, 407, 261, 378, 432, 383, 286, 261,
                         376, 298, 315, 421, 395, 317, 426, 338};
  std::string pieces;
  for (const Token token : tokens) pieces += fixture->tokenizer->piece(token);
  CHECK(pieces.starts_with(" Once upon a time, there was a little girl"));
  CHECK(" " + fixture->tokenizer->decode(tokens) == pieces);
  CHECK(fixture->tokenizer->encode(pieces.substr(1), {}) == tokens);
}

TEST_CASE("malformed vocabularies in files are refused, harmless ones are not") {
  const std::map<std::string, std::string> wrong = {
      {"vocab_byte_token_bad_hex", "tokenizer.ggml.tokens"},
      {"vocab_duplicate_token", "tokenizer.ggml.tokens"},
      {"vocab_merges_no_space", "tokenizer.ggml.merges"},
      {"vocab_scores_short", "tokenizer.ggml.scores"},
      {"vocab_scores_u8", "tokenizer.ggml.scores"},
      {"vocab_tokens_not_strings", "tokenizer.ggml.tokens"},
      {"vocab_ugm_charsmap_2B", "tokenizer.ggml.precompiled_charsmap"},
  };
  for (const auto& [name, key] : wrong) {
    if (!sluice::test::fixture("malformed/" + name + ".gguf")) SLUICE_SKIP("no fixture " + name);
    CAPTURE(name);
    std::string message;
    try {
      open_fixture("malformed/" + name);
    } catch (const ModelError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find(key) != std::string::npos);
    CHECK(message.find(name) != std::string::npos);  // the file
  }
  CHECK(open_fixture("malformed/vocab_special_id_u32max").has_value());
}

}  // namespace
