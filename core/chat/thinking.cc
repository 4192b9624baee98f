#include "core/chat/thinking.h"

#include <array>

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
    return ThinkingForm{"<|channel|>analysis<|message|>",
                        "<|end|>",
                        "<|end|><|start|>assistant<|channel|>final<|message|>",
                        {"<|start|>assistant", "<|channel|>final<|message|>", "<|return|>"}};
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

ThinkingSplitter::ThinkingSplitter(const ThinkingForm& form, bool starts_inside)
    : scanner_([&form] {
        std::vector<std::string> markers = {form.open, form.close};
        markers.insert(markers.end(), form.dropped.begin(), form.dropped.end());
        return markers;
      }()),
      is_inside_(starts_inside),
      skips_space_(starts_inside) {}

SplitText ThinkingSplitter::take(const std::vector<MarkerScanner::Event>& events) {
  SplitText result;
  for (const MarkerScanner::Event& event : events) {
    if (!event.marker) {
      take_text(event.text, result);
    } else if (*event.marker < 2) {
      is_inside_ = *event.marker == 0;
      skips_space_ = true;
      held_space_.clear();
    }
  }
  return result;
}

void ThinkingSplitter::take_text(std::string_view text, SplitText& result) {
  if (skips_space_) {
    text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
    if (text.empty()) return;
    skips_space_ = false;
  }
  if (!is_inside_) {
    result.answer += text;
    return;
  }
  const std::string_view kept = without_space_behind(text);
  if (!kept.empty()) {
    result.thought += held_space_;
    result.thought += kept;
    held_space_.clear();
  }
  held_space_ += text.substr(kept.size());
}

namespace {

// In most forms the answer follows the end of the thought. Where more markup follows that, it is at
// the end of what ends a thought in the model's place.
std::string answer_marker(const ThinkingForm& form) {
  for (const std::string& markup : form.dropped) {
    if (form.forced_end.ends_with(markup)) return markup;
  }
  return form.close;
}

}  // namespace

AnswerStart::AnswerStart(const ThinkingForm& form) : scanner_({answer_marker(form)}) {}

std::optional<std::string> AnswerStart::feed(std::string_view piece) {
  std::optional<std::string> answer;
  const auto take = [&](const std::vector<MarkerScanner::Event>& events) {
    for (const MarkerScanner::Event& event : events) {
      if (event.marker) {
        answer = "";
      } else if (answer) {
        *answer += event.text;
      }
    }
  };
  take(scanner_.feed(piece));
  if (answer) take(scanner_.finish());
  return answer;
}

bool always_thinks(const ThinkingForm& form) {
  return answer_marker(form) != form.close;
}

SplitText split_thinking(const ThinkingForm& form, bool starts_inside, std::string_view text) {
  ThinkingSplitter splitter(form, starts_inside);
  SplitText result = splitter.feed(text);
  const SplitText rest = splitter.finish();
  result.thought += rest.thought;
  result.answer += rest.answer;
  return result;
}

}  // namespace sluice::chat
