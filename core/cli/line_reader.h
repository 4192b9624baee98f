// Reads lines from standard input (a terminal or a pipe). Signals can interrupt it.
#pragma once

#include <string>

namespace sluice::cli {

class LineReader {
 public:
  enum class Result { line, end, interrupted };

  // Reads the next line into `line`, without its newline; the last line may lack one. Returns
  // `interrupted` when an InterruptGuard recorded a signal first. Throws std::system_error.
  Result next(std::string& line);

 private:
  bool take_line(std::string& line);

  std::string unread_;
  std::size_t searched_ = 0;  // bytes of unread_ known to hold no newline
  bool at_end_ = false;
};

}  // namespace sluice::cli
