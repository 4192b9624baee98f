// Parses a template into its tree, by the grammar of Jinja 3.1 with its extension for break and
// continue and the `generation` blocks of the transformers library. Statements that need other
// files (include, import, extends) are refused.
#pragma once

#include <string_view>

#include "core/chat/jinja/syntax.h"

namespace sluice::chat::jinja {

// Throws SyntaxError, which names the line.
Statements parse(std::string_view source);

}  // namespace sluice::chat::jinja
