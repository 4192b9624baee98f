#include "core/cli/message_reader.h"

#include <string_view>
#include <unistd.h>
#include <utility>

namespace sluice::cli {
namespace {

constexpr std::string_view mark = "\"\"\"";

}  // namespace

MessageReader::MessageReader(Completer completer) {
  if (::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {
    editor_.emplace(chat_history_file(), std::move(completer));
  }
}

LineReader::Result MessageReader::next_line(const std::string& prompt, std::string& line) {
  return editor_ ? editor_->next(prompt, line) : lines_.next(line);
}

LineReader::Result MessageReader::next(std::string& message, bool& is_text) {
  message.clear();
  const LineReader::Result first = next_line("> ", message);
  is_text = first == LineReader::Result::line && message.starts_with(mark);
  if (!is_text) return first;
  message.erase(0, mark.size());
  while (!message.ends_with(mark)) {
    std::string line;
    const LineReader::Result result = next_line(". ", line);
    if (result == LineReader::Result::interrupted) return result;
    if (result == LineReader::Result::end) return LineReader::Result::line;
    message += "\n" + line;
  }
  message.resize(message.size() - mark.size());
  return LineReader::Result::line;
}

}  // namespace sluice::cli
