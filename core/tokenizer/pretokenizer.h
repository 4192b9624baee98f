// Pre-tokenizers of byte-level BPE: how a text is cut into the words within which BPE merges. Each
// is one regular expression or a sequence of them, as published in the tokenizer.json of the model
// families; a GGUF file names its own in tokenizer.ggml.pre.
//
// The pieces of a text are in order and add up to it; none is empty. Text is taken as UTF-8. A run
// of bytes that is not valid UTF-8 is a piece of its own, and the text on either side of it is
// split as if it stood alone.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tokenizer/pattern.h"

namespace sluice::tokenizer {

enum class PretokenizerKind {
  fallback,  // "default"
  llama3,
  qwen2,
  qwen35,
  gpt2,
  gpt4o,
  tekken,
  smollm,
  falcon,
  deepseek_llm,
  deepseek_coder,
  deepseek_v3,
  bloom,
  viking,
  seed_coder,
  bailing,
  jais2,
  kimi_k2,
  laguna,
  minicpm5,
  tiny_aya,
  youtu,
  superbpe,
  ufakzeka,
};

// What a value of tokenizer.ggml.pre means.
struct PretokenizerTraits {
  PretokenizerKind kind = PretokenizerKind::fallback;
  bool ignore_merges = false;   // a word that is a token as a whole is that token
  bool adds_bos = false;        // unless tokenizer.ggml.add_bos_token says otherwise
  bool has_bos = true;          // false: the family has no BOS token unless the file names one
  bool adds_separator = false;  // between texts, unless tokenizer.ggml.add_sep_token says otherwise
};

// Nothing when `pre` is not known.
std::optional<PretokenizerTraits> find_pretokenizer(std::string_view pre);

// Immutable; any number of threads may use one.
class Pretokenizer {
 public:
  using Sink = std::function<void(std::string_view)>;

  explicit Pretokenizer(PretokenizerKind kind);

  // Calls `sink` for each piece, in order.
  void split(std::string_view text, const Sink& sink) const;

  // Whether `text` may be cut before its byte `at`, which is neither the first nor behind the last:
  // its two parts have the pieces of the whole, whatever follows. It is so behind a letter, before
  // the end of a line or of a part of a sentence, and behind an ASCII letter before a space: all
  // patterns end a piece there, and none looks farther. A text of a kilobyte seldom has no such
  // place. Only superbpe has pieces of many words, and is cut where ASCII digits begin and end.
  bool may_cut(std::string_view text, std::size_t at) const;

 private:
  void split_from(std::size_t pass, std::string_view piece, const Sink& sink,
                  Pattern::Scratch& scratch) const;

  PretokenizerKind kind_;
  Pattern letter_;
  std::vector<Pattern> passes_;  // each cuts the pieces that the ones before it left
};

// The pieces at once, as views into `text`.
std::vector<std::string_view> split_pretokens(PretokenizerKind kind, std::string_view text);

}  // namespace sluice::tokenizer
