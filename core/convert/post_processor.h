// The templates of tokenizer.json that put tokens around a text, or around two ("post_processor").
#pragma once

#include <string>

#include "core/convert/config.h"

namespace sluice::convert {

// Whether a text begins with the token. `tokenizer` is tokenizer.json, here and below.
bool begins_with_token(const Config& tokenizer, const std::string& token);

// What stands behind a text; empty if nothing does.
std::string token_behind_text(const Config& tokenizer);

// Whether two of these tokens stand between a query and a text by the template of pairs, as in
// RoBERTa, where BERT has one.
bool has_two_between_pair(const Config& tokenizer, const std::string& token);

}  // namespace sluice::convert
