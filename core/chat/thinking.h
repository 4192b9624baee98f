// Thoughts apart from the answer: models that reason write both into one text.
//
//   <think> ... </think> answer                          most models; [THINK] ... [/THINK] of
//   Mistral
//   <|channel|>analysis<|message|> ... <|end|> answer     gpt-oss (harmony)
//   <|channel>thought ... <channel|> answer               Gemma 4
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
  std::string forced_end;                 // what ends a thought in the place of the model
  std::vector<std::string> dropped = {};  // markup around the answer
};

// The form that a chat template speaks of; nothing when its model does not reason.
std::optional<ThinkingForm> thinking_form(std::string_view template_source);

// Whether a prompt ends within a thought: its opening tag is the last thing in it.
bool opens_thought(const ThinkingForm& form, std::string_view prompt);

struct SplitText {
  std::string thought;
  std::string answer;
};

// Takes an answer in pieces, as it is generated. White space at both ends of the thought, and
// between it and the answer, belongs to neither.
class ThinkingSplitter {
 public:
  // `starts_inside`: the prompt has opened the thought.
  ThinkingSplitter(const ThinkingForm& form, bool starts_inside);

  SplitText feed(std::string_view piece) { return take(scanner_.feed(piece)); }
  SplitText finish() { return take(scanner_.finish()); }

  bool is_inside() const { return is_inside_; }  // a thought, as far as is certain

 private:
  SplitText take(const std::vector<MarkerScanner::Event>& events);
  void take_text(std::string_view text, SplitText& result);

  MarkerScanner scanner_;
  bool is_inside_;
  bool skips_space_;        // white space that comes next belongs to nothing
  std::string held_space_;  // of the thought; dropped if it ends there
};

// The whole answer at once.
SplitText split_thinking(const ThinkingForm& form, bool starts_inside, std::string_view text);

}  // namespace sluice::chat
