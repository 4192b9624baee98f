#include "core/chat/tool_calls.h"

#include <algorithm>
#include <utility>

#include "core/chat/call_forms.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

// Calls that stand together in a text.
struct Found {
  std::size_t begin, end;
  std::vector<ToolCall> calls;
};

// Attempts that fail may look far ahead, one after the other, so all of them together look at this
// many times the text. What comes after that is no call.
constexpr std::size_t failed_looks_max = 16;

std::vector<Found> find_marked_calls(std::string_view text, ToolSchemas& tools, AnswerEnd end) {
  std::vector<Found> found;
  std::size_t looks_left = failed_looks_max * text.size();
  std::size_t at = 0;
  while (looks_left > 0 && (at = text.find_first_of("<[", at)) != std::string_view::npos) {
    const CallForm* form = call_form_of(text.substr(at));
    if (form == nullptr) {
      ++at;
      continue;
    }
    Cursor cursor(text, at + form->mark.size(), end);
    std::vector<ToolCall> calls;
    if (form->read(cursor, tools, calls) && !calls.empty()) {
      found.push_back({at, cursor.at(), std::move(calls)});
      at = cursor.at();
    } else if (end == AnswerEnd::cut && cursor.seen() >= text.size()) {
      break;  // it may become a call, and what stands in it a part of that
    } else {
      looks_left -= std::min(looks_left, cursor.seen() - at);
      at += form->mark.size();
    }
  }
  return found;
}

// All calls of an answer, in order.
std::vector<Found> find_calls(std::string_view answer, const Json& tools, AnswerEnd end) {
  ToolSchemas schemas(tools);
  std::vector<ToolCall> unmarked;
  if (read_unmarked_calls(answer, schemas, unmarked)) {
    return {{0, answer.size(), std::move(unmarked)}};
  }
  return find_marked_calls(answer, schemas, end);
}

}  // namespace

const std::vector<std::string>& call_marks() {
  static const std::vector<std::string> marks = {"<tool_call>", "<|tool_call>",
                                                 "<|tool_call_start|>", "[TOOL_CALLS]"};
  return marks;
}

const std::vector<std::string>& possible_call_marks() {
  static const std::vector<std::string> marks = [] {
    std::vector<std::string> all;
    for (const CallForm& form : call_forms()) all.emplace_back(form.mark);
    return all;
  }();
  return marks;
}

AnswerWithCalls parse_tool_calls(std::string_view answer, const Json& tools, AnswerEnd end) {
  ToolCallStream stream(tools);
  std::string content = stream.feed(answer);
  AnswerWithCalls result = stream.finish(end);
  result.content.insert(0, content);
  return result;
}

std::optional<std::size_t> ToolCallStream::first_call_in(std::string_view text,
                                                         AnswerEnd end) const {
  ToolSchemas schemas(tools_);
  const std::vector<Found> found = find_marked_calls(text, schemas, end);
  return found.empty() ? std::nullopt : std::optional(found.front().begin);
}

ToolCallStream::ToolCallStream(Json tools, std::string mark)
    : tools_(std::move(tools)),
      mark_(std::move(mark)),
      marks_(mark_.empty() ? possible_call_marks() : std::vector{mark_}),
      scanner_(marks_) {}

std::string ToolCallStream::feed(std::string_view piece) {
  return take(scanner_.feed(piece));
}

std::string ToolCallStream::take(const std::vector<MarkerScanner::Event>& events) {
  std::string content;
  for (const MarkerScanner::Event& event : events) {
    const std::string& text = event.marker ? marks_[*event.marker] : event.text;
    if (event.marker && (mark_.empty() || !has_content_)) is_call_ = true;
    if (is_call_) {
      held_ += text;
    } else {
      take_text(text, content);
    }
  }
  return content;
}

// An answer that begins with a bracket may be a call as a whole; any other answer may have a call
// behind a mark.
void ToolCallStream::take_text(std::string_view text, std::string& content) {
  const std::size_t begin = text.find_first_not_of(white_space);
  const bool is_first = !has_content_ && begin != std::string_view::npos;
  if (is_first && mark_.empty() && (text[begin] == '{' || text[begin] == '[')) {
    is_call_ = true;
    space_ += text.substr(0, begin);
    held_ = text.substr(begin);
  } else {
    add_content(text, content);
  }
}

// White space at the end is kept back: in front of a call it belongs to the call.
void ToolCallStream::add_content(std::string_view text, std::string& content) {
  const std::size_t end = text.find_last_not_of(white_space) + 1;
  if (end > 0) {
    content += std::exchange(space_, {});
    content += text.substr(0, end);
    has_content_ = true;
  }
  space_ += text.substr(end);
}

AnswerWithCalls ToolCallStream::finish(AnswerEnd end) {
  AnswerWithCalls result{take(scanner_.finish()), {}};
  const std::string held = std::exchange(held_, {});
  std::vector<Found> all = find_calls(held, tools_, end);
  all.push_back({held.size(), held.size(), {}});
  std::size_t kept = 0;  // what stands before is in the content or in a call
  for (Found& found : all) {
    std::string_view text = std::string_view(held).substr(kept, found.begin - kept);
    if (kept > 0 && !has_content_) {
      space_.clear();
      text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
    }
    add_content(text, result.content);
    std::ranges::move(found.calls, std::back_inserter(result.calls));
    kept = found.end;
  }
  if (result.calls.empty()) result.content += space_;
  space_.clear();
  return result;
}

}  // namespace sluice::chat
