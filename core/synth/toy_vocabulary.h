// A toy vocabulary of SentencePiece kind: control tokens, all bytes, the printable characters, and
// word-like pieces of syllables, so that any text can be tokenised and random text can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::synth {

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;  // values of tokenizer.ggml.token_type
};

inline constexpr std::uint32_t unknown_token = 0;
inline constexpr std::uint32_t begin_token = 1;
inline constexpr std::uint32_t end_token = 2;
inline constexpr std::size_t unprintable_tokens = 3 + 256;  // control tokens and bytes, in front

// The smallest is `unprintable_tokens`.
Vocabulary toy_vocabulary(std::size_t size);

// The same for WordPiece, as GGUF files have it: U+2581 stands in front of what begins a word, and
// nothing in front of what goes on with one. There are no scores. The smallest is 5 tokens.
enum class WordPieceMark : std::uint32_t { padding, unknown, begin, separator, mask };
Vocabulary toy_word_pieces(std::size_t size);

// The same for SentencePiece's unigram model, as XLM-RoBERTa has it: marks in front, and no bytes.
// The smallest is 4 tokens.
enum class UnigramMark : std::uint32_t { begin, padding, end, unknown };
Vocabulary toy_unigram(std::size_t size);

}  // namespace sluice::synth
