// A vocabulary as plain data, as a GGUF file describes it. Tokenizers are built from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::tokenizer {

// Values of tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  undefined = 0,  // treated as normal
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,  // found in text before anything else, and printed
  unused = 5,
  byte = 6,
};

enum class VocabularyKind {
  sentencepiece,    // tokenizer.ggml.model "llama": characters, scores
  byte_level,       // "gpt2": bytes, merges
  character_level,  // "gemma4", and some of "gpt2": characters, merges
  word_pieces,      // "bert": words, longest pieces
  longest_pieces,   // "rwkv": bytes, longest pieces
  unigram,          // "t5": pieces with the greatest sum of scores
};

struct Vocabulary {
  std::string source;  // names the file in messages
  VocabularyKind kind = VocabularyKind::sentencepiece;
  std::string pre;  // tokenizer.ggml.pre, empty when missing

  std::vector<std::string> tokens;  // the index is the id
  std::vector<TokenType> types;     // one for each token; empty: to be guessed from the texts
  std::vector<float> scores;        // of sentencepiece and unigram: one for each token
  std::vector<std::string> merges;  // of the other kinds: "left right", best first

  std::optional<Token> bos;
  std::optional<Token> eos;
  std::optional<Token> eot;
  std::optional<Token> eom;
  std::optional<Token> unknown;
  std::optional<Token> separator;
  std::optional<Token> fim_pad;
  std::optional<Token> fim_rep;
  std::optional<Token> fim_sep;
  std::vector<Token> more_ends;  // besides eos, in files that name several

  bool add_bos = true;
  bool add_eos = false, add_separator = false;  // behind a text of which a vector is made
  // Of word_pieces: what is done to a text first.
  bool makes_lowercase = true, strips_accents = true;
  // Of sentencepiece and unigram: a text is encoded as if a space stood before it.
  bool add_space_prefix = true;
  // Of unigram: white space becomes one space in front of each word; and what characters become
  // first (character_map.h).
  bool merges_spaces = false;
  std::string character_map;
  // White space to the right of a control token belongs to the token (Phi-3). This applies only to
  // text that is parsed for control tokens, as templates are; nothing is removed from other text.
  bool control_takes_space = false;
  // The same of these tokens alone.
  std::vector<Token> takes_space;

  // The ids that end a generation, in ascending order; classify_tokens() fills it.
  std::vector<Token> end_of_generation;

  std::vector<std::string> warnings;
};

// Reads the tokenizer.ggml.* keys and checks each by itself. An id of 2^32-1 or -1 means that there
// is no such token. Throws ModelError.
Vocabulary load_vocabulary(const gguf::Metadata& metadata);

// Of a token where tokens of all lengths are looked for at each place of a text: of any in
// word_pieces, longest_pieces and unigram, and of those that are written out in the other kinds. A
// byte of a text costs at most so many look-ups.
inline constexpr std::size_t piece_bytes_max = 1024;

// The most tokens, and the most merges: several times those of any model. Even one without a text
// takes more memory here than in the file.
inline constexpr std::size_t entries_max = std::size_t{1} << 21;

// Throws ModelError, naming the key, when the parts do not fit together: lengths that differ, a
// token that occurs twice, a byte token that names no byte, a score that is not a number, a merge
// that does not have two parts, an id out of range, a token above piece_bytes_max.
void check_vocabulary(const Vocabulary& vocabulary);

// Completes what files leave out or get wrong: guesses missing types, turns tokens with known texts
// into control tokens, and collects the end-of-generation set. The vocabulary must have been
// checked.
void classify_tokens(Vocabulary& vocabulary);

struct MergeParts {
  std::string_view left;
  std::string_view right;
};

// The parts of a merge, with one space between them; the left part may begin with a space of its
// own. Nothing when `merge` is not of that form.
std::optional<MergeParts> split_merge(std::string_view merge);

// The byte that a text of the form <0xHH> names.
std::optional<std::uint8_t> byte_token_value(std::string_view text);

// "FILE: key 'KEY': WHAT", as gguf::Metadata words it.
ModelError vocabulary_error(const Vocabulary& vocabulary, std::string_view key,
                            std::string_view what);

}  // namespace sluice::tokenizer
