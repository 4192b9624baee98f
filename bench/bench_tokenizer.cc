// Encoding of text, by all kinds of tokenizer and the more common pre-tokenizers.
//
//   build/release/bench/bench_tokenizer
//   build/release/bench/bench_tokenizer --benchmark_filter=byte_level
//
// The vocabularies are synthetic: syllables and words of two or three of them, of which the text is
// made too. The text (1 MiB unless --text-kib says otherwise) is words, numbers, punctuation, lines
// of code and other scripts, the same in every run. "unbroken" is a word without an end, the worst
// that a tokenizer can be given, and "spaces" is nothing but them.
#include <CLI/CLI.hpp>
#include <array>
#include <fmt/format.h>
#include <string_view>

#include "bench/support.h"
#include "core/synth/random_blocks.h"
#include "core/synth/toy_vocabulary.h"
#include "core/tokenizer/vocabulary_tokenizer.h"

namespace sluice::bench {
namespace {

using tokenizer::Tokenizer;
using tokenizer::TokenType;
using tokenizer::Vocabulary;

constexpr std::string_view consonants = "tnsrldmkpbvghf";
constexpr std::string_view vowels = "aeiou";

std::vector<std::string> syllables() {
  std::vector<std::string> all;
  for (const char consonant : consonants) {
    for (const char vowel : vowels) all.push_back({consonant, vowel});
  }
  return all;
}

// A number below `end`.
std::size_t draw(synth::Random& random, std::size_t end) {
  return static_cast<std::size_t>(random.next() % end);
}

std::string random_word(synth::Random& random) {
  std::string word;
  for (std::size_t i = 1 + draw(random, 4); i > 0; --i) {
    word += consonants[draw(random, consonants.size())];
    word += vowels[draw(random, vowels.size())];
  }
  if (draw(random, 8) == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

std::string mixed_text(std::size_t bytes) {
  constexpr std::array<std::string_view, 12> others = {
      ", ",
      ". ",
      "\n\n",
      " 3.14159",
      " 2026",
      "'s ",
      " (see 7)",
      "  if (x[i] <= 0) {\n    ",
      " \xCF\x86\xCF\x89\xCF\x82",             // Greek
      " \xD0\xBC\xD0\xB8\xD1\x80",             // Cyrillic
      "\xE6\xB0\xB4\xE9\x97\xA8\xE3\x80\x82",  // Chinese
      " \xF0\x9F\x8C\x8A"};                    // an emoji
  synth::Random random(1, 0);
  std::string text;
  while (text.size() < bytes) {
    text += draw(random, 5) == 0 ? std::string(others[draw(random, others.size())])
                                 : ' ' + random_word(random);
  }
  return text;
}

std::string unbroken_text(std::size_t bytes) {
  synth::Random random(2, 0);
  std::string text;
  while (text.size() < bytes) {
    for (const char c : random_word(random)) text += static_cast<char>(c | 0x20);
  }
  return text;
}

std::string spaces(std::size_t bytes) {
  return std::string(bytes, ' ');
}

Vocabulary sentencepiece_vocabulary() {
  constexpr std::size_t tokens = 32'000;
  synth::Vocabulary toy = synth::toy_vocabulary(tokens);
  Vocabulary vocabulary;
  vocabulary.source = "synthetic";
  vocabulary.tokens = std::move(toy.tokens);
  vocabulary.scores = std::move(toy.scores);
  for (const std::int32_t type : toy.types) {
    vocabulary.types.push_back(static_cast<TokenType>(type));
  }
  vocabulary.unknown = synth::unknown_token;
  vocabulary.bos = synth::begin_token;
  vocabulary.eos = synth::end_token;
  return vocabulary;
}

std::string two_bytes(unsigned code) {
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// The character that stands for a byte in byte-level vocabularies (GPT-2's table): printable ones
// for themselves, the others, in order, for the characters from U+0100 on.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> alphabet;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (byte >= '!' && byte <= '~') {
      alphabet.emplace_back(1, static_cast<char>(byte));
    } else {
      const bool is_printable = byte >= 0xA1 && byte != 0xAD;
      alphabet.push_back(two_bytes(is_printable ? byte : next++));
    }
  }
  return alphabet;
}

// Syllables and pairs of syllables, all with and without `space` in front.
void add_merges(Vocabulary& vocabulary, const std::string& space) {
  const auto add_merge = [&](const std::string& left, const std::string& right) {
    vocabulary.merges.push_back(left + ' ' + right);
    vocabulary.tokens.push_back(left + right);
  };
  const std::vector<std::string> all = syllables();
  for (const std::string& s : all) add_merge(s.substr(0, 1), s.substr(1));
  for (const std::string& s : all) add_merge(space, s);
  for (const std::string& first : all) {
    for (const std::string& second : all) add_merge(space + first, second);
  }
  for (const std::string& first : all) {
    for (const std::string& second : all) add_merge(first, second);
  }
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::normal);
}

Vocabulary byte_level_vocabulary(std::string_view pre) {
  Vocabulary vocabulary;
  vocabulary.source = "synthetic";
  vocabulary.kind = tokenizer::VocabularyKind::byte_level;
  vocabulary.pre = pre;
  vocabulary.add_bos = false;
  vocabulary.tokens = byte_alphabet();
  add_merges(vocabulary, std::string(vocabulary.tokens[' ']));
  return vocabulary;
}

// Byte tokens, letters, and the space as SentencePiece writes it.
Vocabulary character_level_vocabulary() {
  Vocabulary vocabulary;
  vocabulary.source = "synthetic";
  vocabulary.kind = tokenizer::VocabularyKind::character_level;
  vocabulary.add_bos = false;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  }
  vocabulary.types.assign(256, TokenType::byte);
  for (const char letter : consonants) vocabulary.tokens.emplace_back(1, letter);
  for (const char letter : vowels) vocabulary.tokens.emplace_back(1, letter);
  vocabulary.tokens.emplace_back(tokenizer::space_mark);
  add_merges(vocabulary, std::string(tokenizer::space_mark));
  return vocabulary;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  constexpr tokenizer::EncodeOptions options = {.add_bos = false, .parse_special = false};
  std::size_t tokens = 0;
  const double seconds =
      time_iterations(state, [&] { tokens = tokenizer.encode(text, options).size(); });
  state.counters["MB/s"] = static_cast<double>(text.size()) / seconds / 1e6;
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void add_texts(const std::string& name, Vocabulary vocabulary, std::size_t text_bytes) {
  const std::shared_ptr<const Tokenizer> tokenizer =
      tokenizer::make_tokenizer(std::move(vocabulary));
  using MakeText = std::string (*)(std::size_t);
  for (const auto& [kind, make] : {std::pair<std::string_view, MakeText>{"mixed", mixed_text},
                                   {"unbroken", unbroken_text},
                                   {"spaces", spaces}}) {
    add(fmt::format("encode/{}/{}", name, kind), [tokenizer,
                                                  text = make(text_bytes)](benchmark::State& s) {
      encode(s, *tokenizer, text);
    })->Unit(benchmark::kMillisecond);
  }
}

void register_benchmarks(std::size_t text_bytes) {
  add_texts("sentencepiece", sentencepiece_vocabulary(), text_bytes);
  add_texts("character_level", character_level_vocabulary(), text_bytes);
  for (const std::string_view pre : {"gpt-2", "llama-bpe", "qwen2", "tekken"}) {
    add_texts(fmt::format("byte_level/{}", pre), byte_level_vocabulary(pre), text_bytes);
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  std::size_t text_kib = 1024;
  Program program;
  program.description = "Measures how fast text becomes tokens.";
  program.add_options = [&](CLI::App& app) {
    app.add_option("--text-kib", text_kib, "length of the text (default: 1024)")
        ->check(CLI::Range(1, 1 << 20));
  };
  program.register_benchmarks = [&] { register_benchmarks(text_kib * 1024); };
  return run_program(program, argc, argv);
}
