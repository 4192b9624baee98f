// What all kinds of tokenizer share: everything except how ordinary text becomes tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/merge.h"
#include "core/tokenizer/piece_table.h"
#include "core/tokenizer/special_tokens.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary.h"

namespace sluice::tokenizer {

// Makes the tokenizer for any vocabulary; checks and classifies it first. Throws ModelError.
std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary);

// Can encode any bytes, and decode returns them, provided that the vocabulary has a token for every
// byte. Bytes that are not valid UTF-8 are encoded with byte tokens. A byte without a token becomes
// the unknown token; if there is none, encode throws ModelError.
class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const final;
  std::size_t encode_piece(std::string_view text, bool is_last, const EncodeOptions& options,
                           EncodePosition& position, std::vector<Token>& out) const final;
  std::vector<Token> encode_parts(std::span<const TextPart> parts, std::span<const Token> barred,
                                  bool continues) const final;
  std::string_view piece(Token token, bool render_special) const final;
  std::string decode(std::span<const Token> tokens, bool render_special) const final;
  bool is_ordinary(Token token) const final;
  bool is_end_of_generation(Token token) const final;
  std::size_t vocabulary_size() const final { return pieces_.size(); }
  std::optional<Token> bos() const final { return bos_; }
  std::optional<Token> eos() const final { return eos_; }
  bool adds_bos() const final { return add_bos_; }
  std::span<const Token> text_end() const final { return text_end_; }
  std::vector<Token> encode_pair(std::string_view query, std::string_view text) const final;
  const std::vector<std::string>& warnings() const final { return warnings_; }

 protected:
  // `vocabulary` must be classified.
  explicit VocabularyTokenizer(const Vocabulary& vocabulary);

  // Appends the tokens of ordinary text. `after_special`: the text stands at the start of the whole
  // text, or behind a token that was written out.
  virtual void encode_fragment(std::string_view text, bool after_special,
                               std::vector<Token>& out) const = 0;

  // Whether ordinary text can be cut before its byte `at`, which is neither the first nor behind
  // the last: its two parts then have the tokens of the whole, whatever follows.
  virtual bool may_cut(std::string_view text, std::size_t at) const = 0;

  // Appends the result of merging `word`: each symbol that is a token, and byte tokens (or one
  // unknown token) for every other symbol.
  void append_symbols(std::string_view word, const Merger& merger, std::vector<Token>& out) const;

  // Appends the tokens of single bytes, or one unknown token. Throws ModelError as encode does.
  void append_bytes(std::string_view bytes, std::vector<Token>& out) const;

  const PieceTable& pieces() const { return pieces_; }
  std::optional<Token> unknown() const { return unknown_; }
  bool add_space_prefix() const { return add_space_prefix_; }

 private:
  std::size_t cut_before(std::string_view text, std::size_t end) const;
  bool is_text(Token token) const;
  void check(Token token) const;

  PieceTable pieces_;
  SpecialTokens special_tokens_;
  std::vector<TokenType> types_;
  std::vector<Token> end_of_generation_;  // ascending
  std::string source_;
  std::vector<std::string> warnings_;
  std::optional<Token> bos_;
  std::optional<Token> eos_;
  std::optional<Token> unknown_;
  std::vector<Token> text_end_;  // see text_end()
  std::vector<Token> pair_end_;  // behind each text of a pair
  std::vector<Token> between_;   // the texts of a pair, besides
  bool add_bos_;
  bool add_space_prefix_;
  // The unknown token may stand for ordinary text, since some byte has no token of its own.
  bool unknown_is_text_ = false;
};

}  // namespace sluice::tokenizer
