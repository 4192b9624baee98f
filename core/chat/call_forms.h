// The forms in which models write calls of tools (see tool_calls.h), read at a place of an answer.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/chat/tool_calls.h"
#include "core/chat/tool_schemas.h"

namespace sluice::chat {

// A place in an answer, and how far beyond it the answer was looked at.
class Cursor {
 public:
  Cursor(std::string_view text, std::size_t at, AnswerEnd end)
      : text_(text), at_(at), seen_(at), end_(end) {}

  std::size_t at() const { return at_; }
  std::size_t seen() const { return seen_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool is_at_end() const { return at_ == text_.size(); }
  bool sees(std::string_view mark) const { return rest().starts_with(mark); }

  void move(std::size_t bytes) { look(at_ += bytes); }
  void move_to(std::size_t position) { look(at_ = position); }
  void skip_space();
  bool skip(std::string_view mark);
  // The text up to one of `stops`, which is not skipped; up to the end where there is none.
  std::string_view up_to(std::string_view stops);
  // The text up to `close`, which is skipped; nothing where it does not come.
  std::optional<std::string_view> through(std::string_view close);
  // The position of the next `mark`, from `position` on; npos if there is none.
  std::size_t find(std::string_view mark, std::size_t position);
  // The position behind white space, from `position` on.
  std::size_t behind_space(std::size_t position);
  // Whether the answer is over there: one that was cut off never is.
  bool is_end(std::size_t position) const { return is_whole() && position == text_.size(); }
  bool is_whole() const { return end_ == AnswerEnd::whole; }
  bool sees_at(std::size_t position, std::string_view mark) const {
    return text_.substr(position).starts_with(mark);
  }
  // The text from `position` up to this place, or the other way round.
  std::string_view between(std::size_t begin, std::size_t end) const {
    return text_.substr(begin, end - begin);
  }
  // Counts what was looked at without a move.
  void look(std::size_t position) { seen_ = std::max(seen_, position); }

 private:
  std::string_view text_;
  std::size_t at_;
  std::size_t seen_;
  AnswerEnd end_;
};

// What a mark of calls is followed by. `read` reads the calls behind the mark, and the mark that
// closes them; false: there are none, and the cursor may stand anywhere.
struct CallForm {
  std::string_view mark;
  bool (*read)(Cursor& cursor, ToolSchemas& tools, std::vector<ToolCall>& calls);
};
std::span<const CallForm> call_forms();

// The form whose mark the text begins with, or null.
const CallForm* call_form_of(std::string_view text);

// Reads an answer that consists of calls without any mark, each of one of the tools.
bool read_unmarked_calls(std::string_view answer, const ToolSchemas& tools,
                         std::vector<ToolCall>& calls);

}  // namespace sluice::chat
