// Guides for the answers of a conversation: thoughts are free, the answer keeps to the grammar, and
// it may end behind its first call.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/chat/written_call.h"
#include "core/constrain/call_grammar.h"
#include "core/constrain/guide.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

// `openers`: what Dialogue::thought_openers() gives, which looks through the whole vocabulary.
constrain::ThoughtGate thought_gate(const chat::Dialogue& dialogue, bool opens_thought,
                                    std::vector<tokenizer::Token> openers);

// Says when an answer has its first whole call. `dialogue` and `tools` are shared with the result.
constrain::Guide::IsOver first_call_is_over(std::shared_ptr<const chat::Dialogue> dialogue,
                                            bool opens_thought,
                                            std::shared_ptr<const nlohmann::ordered_json> tools);

// How calls are written, with the control tokens of `tokenizer` that occur in it.
constrain::CallSyntax call_syntax(const chat::WrittenCall& form,
                                  const tokenizer::Tokenizer& tokenizer);

// The control tokens that occur in the texts of a syntax.
std::vector<tokenizer::Token> marks_of(const constrain::CallSyntax& syntax);

}  // namespace sluice::rows
