// Guides for the answers of a conversation: thoughts are free, the answer keeps to the grammar.
#pragma once

#include <vector>

#include "core/chat/dialogue.h"
#include "core/constrain/guide.h"

namespace sluice::rows {

// `openers`: what Dialogue::thought_openers() gives, which looks through the whole vocabulary.
constrain::ThoughtGate thought_gate(const chat::Dialogue& dialogue, bool opens_thought,
                                    std::vector<tokenizer::Token> openers);

}  // namespace sluice::rows
