// What the normalizer and the pre-tokenizer of tokenizer.json do to a text before SentencePiece
// sees it, as far as GGUF files have words for it.
#pragma once

#include <string>
#include <string_view>

#include "core/convert/config.h"

namespace sluice::convert {

inline constexpr std::string_view space_mark = "\xE2\x96\x81";  // of SentencePiece

// How text is prepared for BPE on characters: spaces become marks, and there may be one in front.
struct SpaceRules {
  bool replaces_spaces = false;
  bool adds_prefix = false;
  bool is_only_first = false;  // not behind tokens that are written out
};

// How text is prepared for SentencePiece's unigram model.
struct UnigramRules {
  bool merges_spaces = false;
  SpaceRules spaces;
  std::string character_map;  // of SentencePiece, empty without one
};

// Of `tokenizer`, which is tokenizer.json. They throw ModelError where a step does anything else.
SpaceRules space_rules(const Config& tokenizer);
UnigramRules unigram_rules(const Config& tokenizer);

// In front of BPE on bytes readers change no text. Composed characters are what people write.
void require_no_preparation(const Config& tokenizer);

}  // namespace sluice::convert
