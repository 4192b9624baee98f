// Text to token ids and back, from the vocabulary in a GGUF file: SentencePiece's BPE with scores
// ("llama") and its unigram model ("t5"), BPE with merges on bytes ("gpt2") or characters
// ("gemma4"), WordPiece ("bert"), and the longest tokens from the left ("rwkv").
//
// A tokenizer is immutable after construction; any number of threads may use one.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::gguf {
class Metadata;
}

namespace sluice::tokenizer {

using Token = std::int32_t;

struct EncodeOptions {
  bool add_bos = true;         // put the BOS token in front if the model wants one
  bool parse_special = false;  // recognise control tokens written out in the text
  // Put behind it what the model wants at the end of a text that it reads as a whole, to make a
  // vector of it; a text to be continued has no end.
  bool add_end = false;
};

// Where the encoding of a text stands that comes in pieces (core/tokenizer/text_encoder.h).
struct EncodePosition {
  bool is_at_start = true;        // nothing was encoded yet
  bool is_behind_special = true;  // nothing, or a token that is written out in the text, came last
};

// A part of a text that is put together from markup and from what others wrote.
struct TextPart {
  std::string_view text;
  bool is_markup = false;  // control tokens written out in it count as tokens
};

class Tokenizer {
 public:
  // Throws ModelError when the vocabulary is malformed or of an unsupported kind.
  static std::unique_ptr<Tokenizer> from_metadata(const gguf::Metadata& metadata);
  virtual ~Tokenizer() = default;

  virtual std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const = 0;

  // Encodes `text`, which stands at `position` of a longer text, as far as what follows cannot
  // change its tokens; all of it if it `is_last`. Appends the tokens, moves the position, and
  // returns how many bytes they stand for: 0 if the text cannot be cut, as in a long word. A
  // tokenizer that cannot cut any text encodes only the last.
  virtual std::size_t encode_piece(std::string_view text, bool is_last,
                                   const EncodeOptions& options, EncodePosition& position,
                                   std::vector<Token>& out) const;

  // Encodes the parts as one text, without BOS. Control tokens, and the tokens of `barred`
  // (ascending; they may be user-defined ones), are recognised in markup only. No token is
  // recognised across the border of two parts. `continues`: ordinary text precedes the parts, so no
  // space is put in front. Where markup has a space behind a token, it is the one that encode would
  // put there, not a second one.
  virtual std::vector<Token> encode_parts(std::span<const TextPart> parts,
                                          std::span<const Token> barred, bool continues) const = 0;

  // The bytes of one token within a text; may be only part of a UTF-8 character. Control tokens
  // give nothing unless `render_special`.
  virtual std::string_view piece(Token token, bool render_special = false) const = 0;

  // The text of tokens that start at the beginning of a text: a leading space that encode put there
  // is removed. decode(encode(x)) == x.
  virtual std::string decode(std::span<const Token> tokens, bool render_special = false) const = 0;

  // Whether text as people write it can become this token. Control tokens are not of that kind, nor
  // are those that a vocabulary lists as found before anything else (user-defined ones).
  virtual bool is_ordinary(Token token) const = 0;
  virtual bool is_end_of_generation(Token token) const = 0;
  virtual std::size_t vocabulary_size() const = 0;
  virtual std::optional<Token> bos() const = 0;
  virtual std::optional<Token> eos() const = 0;
  virtual bool adds_bos() const = 0;
  // What EncodeOptions::add_end puts behind a text.
  virtual std::span<const Token> text_end() const { return {}; }
  // The tokens of a query and a text that is rated by it, together: each encoded without
  // specials, and what the model wants around and between them.
  virtual std::vector<Token> encode_pair(std::string_view query, std::string_view text) const;

  // What a user should know, such as an unknown pre-tokenizer and its substitute. Often empty.
  virtual const std::vector<std::string>& warnings() const = 0;
};

// The tokens of the vocabulary for which a predicate holds, ascending.
template <std::predicate<Token> P>
std::vector<Token> tokens_where(const Tokenizer& tokenizer, P&& holds) {
  std::vector<Token> tokens;
  for (std::size_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = static_cast<Token>(id);
    if (holds(token)) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace sluice::tokenizer
