// Lines from standard input, as a person or a pipe writes them, that a signal can interrupt.
#pragma once

#include <string>

namespace sluice::cli {

class LineReader {
 public:
  enum class Result { line, end, interrupted };

  // Reads the next line, without its end, into `line`; a last line need not have one. `interrupted`
  // when a signal that an InterruptGuard notes came before. Throws std::system_error.
  Result next(std::string& line);

 private:
  bool take_line(std::string& line);

  std::string unread_;
  std::size_t searched_ = 0;  // bytes of unread_ that hold no newline
  bool at_end_ = false;
};

}  // namespace sluice::cli
