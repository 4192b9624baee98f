// Lines typed in a terminal: editing and history by libedit, with what it does not do itself:
// pasted text stays one line, signals end the waiting, and a new size of the window is noticed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/cli/line_reader.h"

namespace sluice::cli {

class LineEditor {
 public:
  // The history is read from the file, and written back at the end; an empty path keeps none.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // As LineReader::next, but the newlines of pasted text are within the line. The prompt and what
  // is typed are shown on standard error.
  LineReader::Result next(const std::string& prompt, std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Where the history of chats is kept: $XDG_STATE_HOME or ~/.local/state. Empty when there is no
// home.
std::filesystem::path chat_history_file();

}  // namespace sluice::cli
