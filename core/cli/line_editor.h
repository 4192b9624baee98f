// Lines typed in a terminal. libedit does editing and history; this adds that pasted text stays one
// line, signals end the wait, a new window size is noticed, and Tab completes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/cli/completion.h"
#include "core/cli/line_reader.h"

namespace sluice::cli {

class LineEditor {
 public:
  // Reads the history from the file, and writes it back after each line; without a path there is
  // no history. Tab asks `completer` about the text before the cursor.
  LineEditor(std::filesystem::path history, Completer completer);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // As LineReader::next, but a line keeps the newlines of pasted text, and one that a signal
  // interrupted has what was typed of it. Shows the prompt and the typed text on standard error.
  LineReader::Result next(const std::string& prompt, std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The file for the history of chats, in $XDG_STATE_HOME or ~/.local/state. Empty when there is no
// home folder.
std::filesystem::path chat_history_file();

}  // namespace sluice::cli
