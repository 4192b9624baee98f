#include "core/chat/thinking.h"

#include <algorithm>
#include <utility>

namespace sluice::chat {
namespace {

std::string_view without_space_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}

}  // namespace

std::optional<ThinkingForm> thinking_form(std::string_view template_source) {
  const auto mentions = [template_source](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  if (mentions("<|channel|>analysis")) {
    return ThinkingForm{"<|channel|>analysis<|message|>", "<|end|>",
                        "<|end|><|start|>assistant<|channel|>final<|message|>", true};
  }
  if (mentions("<|channel>"))
    return ThinkingForm{"<|channel>thought", "<channel|>", "\n<channel|>"};
  if (mentions("[THINK]")) return ThinkingForm{"[THINK]", "[/THINK]", "[/THINK]"};
  if (mentions("<think>") || mentions("</think>")) {
    return ThinkingForm{"<think>", "</think>", "\n</think>\n\n"};
  }
  return std::nullopt;
}

bool opens_thought(const ThinkingForm& form, std::string_view prompt) {
  return without_space_behind(prompt).ends_with(form.open);
}

ThinkingSplitter::ThinkingSplitter(const ThinkingForm& form, bool starts_inside,
                                   const std::vector<std::string>& call_marks)
    : marks_([&] {
        std::vector<std::string> marks = {form.open, form.close};
        marks.insert(marks.end(), call_marks.begin(), call_marks.end());
        return marks;
      }()),
      scanner_(marks_),
      is_inside_(starts_inside),
      skips_space_(starts_inside) {}

SplitText ThinkingSplitter::take(const std::vector<MarkerScanner::Event>& events) {
  SplitText result;
  for (const MarkerScanner::Event& event : events) {
    const std::string& text = event.marker ? marks_[*event.marker] : event.text;
    if (is_call_) {
      result.answer += text;
    } else if (event.marker) {
      take_mark(*event.marker, result);
    } else if (!held_call_.empty()) {
      held_call_ += text;
    } else {
      take_text(text, result);
    }
  }
  return result;
}

void ThinkingSplitter::take_mark(std::size_t mark, SplitText& result) {
  constexpr std::size_t open = 0, close = 1;
  if (mark > close && !is_inside_) {
    is_call_ = true;
    result.answer += marks_[mark];
  } else if (mark > close || (mark == open && !held_call_.empty())) {
    held_call_ += marks_[mark];
  } else if (has_text_ && (!is_inside_ || mark == open)) {
    take_text(marks_[mark], result);
  } else {
    take_text(std::exchange(held_call_, {}), result);  // it was a part of the thought
    is_inside_ = mark == open;
    skips_space_ = true;
    has_text_ = false;
    held_space_.clear();
  }
}

SplitText ThinkingSplitter::release(std::size_t thought_bytes) {
  SplitText result;
  const std::string held = std::exchange(held_call_, {});
  take_text(std::string_view(held).substr(0, thought_bytes), result);
  result.answer = held.substr(thought_bytes);
  is_inside_ = result.answer.empty();
  return result;
}

void ThinkingSplitter::take_text(std::string_view text, SplitText& result) {
  if (skips_space_) {
    text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
    if (text.empty()) return;
    skips_space_ = false;
  }
  const std::string_view kept = without_space_behind(text);
  has_text_ = has_text_ || !kept.empty();
  if (!is_inside_) {
    result.answer += text;
    return;
  }
  if (!kept.empty()) {
    result.thought += held_space_;
    result.thought += kept;
    held_space_.clear();
  }
  held_space_ += text.substr(kept.size());
}

AnswerStart::AnswerStart(const ThinkingForm& form) : scanner_(MarkerScanner({form.close})) {
  if (form.is_harmony) scanner_ = HarmonyScanner(false);
}

namespace {

void take(const std::vector<MarkerScanner::Event>& events, std::optional<std::string>& answer) {
  for (const MarkerScanner::Event& event : events) {
    if (event.marker) {
      answer = "";
    } else if (answer) {
      *answer += event.text;
    }
  }
}

void take(const std::vector<HarmonyScanner::Event>& events, std::optional<std::string>& answer) {
  using Kind = HarmonyScanner::Event::Kind;
  for (const HarmonyScanner::Event& event : events) {
    if (event.kind == Kind::header && begins_formed_answer(event.text)) {
      answer = "";
    } else if (event.kind == Kind::body && answer) {
      *answer += event.text;
    }
  }
}

}  // namespace

std::optional<std::string> AnswerStart::feed(std::string_view piece) {
  std::optional<std::string> answer;
  std::visit(
      [&](auto& scanner) {
        take(scanner.feed(piece), answer);
        if (answer) take(scanner.finish(), answer);
      },
      scanner_);
  return answer;
}

}  // namespace sluice::chat
