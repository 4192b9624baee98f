// Separates thoughts from the answer: reasoning models write both into one text.
//
//   <think> ... </think> answer                         most models
//   [THINK] ... [/THINK] answer                         Mistral
//   <|channel|>analysis<|message|> ... <|end|> answer   gpt-oss (harmony)
//   <|channel>thought ... <channel|> answer             Gemma 4
//
// The texts are those of the tokens with control tokens written out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/marker_scanner.h"

namespace sluice::chat {

// How a model marks its thoughts.
struct ThinkingForm {
  std::string open;
  std::string close;
  std::string forced_end;                 // ends a thought in the model's place
  std::vector<std::string> dropped = {};  // markup around the answer
};

// The form that a chat template uses; nothing when its model does not reason.
std::optional<ThinkingForm> thinking_form(std::string_view template_source);

// Whether a prompt ends inside of a thought: the opening tag is the last thing in it.
bool opens_thought(const ThinkingForm& form, std::string_view prompt);

struct SplitText {
  std::string thought;
  std::string answer;
};

// Splits an answer that arrives in pieces. White space at both ends of the thought, and between it
// and the answer, is dropped.
class ThinkingSplitter {
 public:
  // `starts_inside`: the prompt has already opened the thought.
  ThinkingSplitter(const ThinkingForm& form, bool starts_inside);

  SplitText feed(std::string_view piece) { return take(scanner_.feed(piece)); }
  SplitText finish() { return take(scanner_.finish()); }

  bool is_inside() const { return is_inside_; }  // of a thought, as far as is certain

 private:
  SplitText take(const std::vector<MarkerScanner::Event>& events);
  void take_text(std::string_view text, SplitText& result);

  MarkerScanner scanner_;
  bool is_inside_;
  bool skips_space_;        // white space that comes next is dropped
  std::string held_space_;  // white space in the thought; dropped if the thought ends there
};

// Finds where the answer begins, behind a thought.
class AnswerStart {
 public:
  explicit AnswerStart(const ThinkingForm& form);

  // Takes the text as it comes. Once the answer has begun, returns what is already there of it.
  std::optional<std::string> feed(std::string_view piece);

 private:
  MarkerScanner scanner_;
};

// Whether an answer of this form always has markup of thoughts in front.
bool always_thinks(const ThinkingForm& form);

// The whole answer at once.
SplitText split_thinking(const ThinkingForm& form, bool starts_inside, std::string_view text);

}  // namespace sluice::chat
