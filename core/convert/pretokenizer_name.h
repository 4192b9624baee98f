// How a checkpoint's BPE on bytes splits a text before it merges, by the name that GGUF files have
// for it (tokenizer.ggml.pre).
#pragma once

#include <string_view>

#include "core/convert/config.h"

namespace sluice::convert {

// `tokenizer` is tokenizer.json. `looks_up_words`: a word that is a token is not merged. Throws
// ModelError where the text is split in a way that has no name.
std::string_view pretokenizer_name(const Config& tokenizer, bool looks_up_words);

}  // namespace sluice::convert
