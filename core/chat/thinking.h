// Separates thoughts from the answer: reasoning models write both into one text.
//
//   <think> ... </think> answer                         most models
//   [THINK] ... [/THINK] answer                         Mistral
//   <|channel|>analysis<|message|> ... <|end|> answer   gpt-oss (harmony)
//   <|channel>thought ... <channel|> answer             Gemma 4
//
// The texts are those of the tokens with control tokens written out. The answers of gpt-oss are
// split by core/chat/harmony.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/chat/harmony.h"
#include "core/chat/marker_scanner.h"

namespace sluice::chat {

// How a model marks its thoughts.
struct ThinkingForm {
  std::string open;
  std::string close;
  std::string forced_end;   // ends a thought in the model's place
  bool is_harmony = false;  // the answer consists of messages with headers
};

// The form that a chat template uses; nothing when its model does not reason.
std::optional<ThinkingForm> thinking_form(std::string_view template_source);

// Whether a prompt ends inside of a thought: the opening tag is the last thing in it.
bool opens_thought(const ThinkingForm& form, std::string_view prompt);

// Splits an answer that arrives in pieces. White space at both ends of the thought, and between it
// and the answer, is dropped. Not for harmony.
//
// A mark ends or begins a part only where it can: one in an answer that has begun, or the beginning
// of a thought within a thought, is text that speaks of marks.
//
// Calls of tools may stand in the answer, and models also write them without an end of their
// thought. So from a mark of calls on, the text of a thought is held back: it is a part of the
// thought if that ends later. In the answer nothing behind such a mark is the mark of a thought.
class ThinkingSplitter {
 public:
  // `starts_inside`: the prompt has already opened the thought. `call_marks`: what begins calls.
  ThinkingSplitter(const ThinkingForm& form, bool starts_inside,
                   const std::vector<std::string>& call_marks = {});

  SplitText feed(std::string_view piece) { return take(scanner_.feed(piece)); }
  SplitText finish() { return take(scanner_.finish()); }

  bool is_inside() const { return is_inside_; }  // of a thought, as far as is certain

  // After finish(): the text that is still held back, as the thought has not ended.
  const std::string& held() const { return held_call_; }
  // Says how many bytes of it belong to the thought. The rest is the answer.
  SplitText release(std::size_t thought_bytes);

 private:
  SplitText take(const std::vector<MarkerScanner::Event>& events);
  void take_mark(std::size_t mark, SplitText& result);
  void take_text(std::string_view text, SplitText& result);

  std::vector<std::string> marks_;  // open, close, and those of calls
  MarkerScanner scanner_;
  bool is_inside_;
  bool is_call_ = false;    // everything from here on is the answer
  bool skips_space_;        // white space that comes next is dropped
  bool has_text_ = false;   // the thought or the answer has more than white space
  std::string held_space_;  // white space in the thought; dropped if the thought ends there
  std::string held_call_;   // of the thought, from a mark of calls on
};

// Finds where an answer that has to keep to a form begins, behind a thought.
class AnswerStart {
 public:
  explicit AnswerStart(const ThinkingForm& form);

  // Takes the text as it comes. Once the answer has begun, returns what is already there of it.
  std::optional<std::string> feed(std::string_view piece);

 private:
  std::variant<MarkerScanner, HarmonyScanner> scanner_;
};

// Whether an answer of this form always has markup of thoughts in front.
inline bool always_thinks(const ThinkingForm& form) {
  return form.is_harmony;
}

}  // namespace sluice::chat
