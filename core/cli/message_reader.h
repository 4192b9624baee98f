// Reads messages from a terminal or a pipe. Each line is a message, except that text between """
// and """, and text pasted into a terminal, is one message.
#pragma once

#include <optional>
#include <string>

#include "core/cli/line_editor.h"
#include "core/cli/line_reader.h"

namespace sluice::cli {

class MessageReader {
 public:
  // Lines are edited, with this completer, when both standard input and standard error are a
  // terminal.
  explicit MessageReader(Completer completer);

  // As LineReader::next. `is_text`: the message was between marks and is no command. A message that
  // a signal interrupted has what is known of it.
  LineReader::Result next(std::string& message, bool& is_text);

 private:
  LineReader::Result next_line(const std::string& prompt, std::string& line);

  LineReader lines_;
  std::optional<LineEditor> editor_;
};

}  // namespace sluice::cli
