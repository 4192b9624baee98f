#include "core/rows/answer_guide.h"

#include <memory>
#include <utility>

namespace sluice::rows {

constrain::ThoughtGate thought_gate(const chat::Dialogue& dialogue, bool opens_thought,
                                    std::vector<tokenizer::Token> openers) {
  const std::optional<chat::ThinkingForm>& form = dialogue.thinking_form();
  if (!form) return {};
  const auto start = std::make_shared<chat::AnswerStart>(*form);
  return {.answer = [start](std::string_view text) { return start->feed(text); },
          .begins_inside = opens_thought || chat::always_thinks(*form),
          .openers = std::move(openers)};
}

}  // namespace sluice::rows
