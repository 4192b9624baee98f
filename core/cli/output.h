// What goes to the terminal: results on standard output, progress and remarks on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::cli {

// Writes to standard output and flushes. Returns false when its reader has gone away (a closed
// pipe), which is no error: the reader has what it wanted. Throws std::system_error otherwise.
bool write_output(std::string_view text);

// One line on standard error: "sluice: warning: ...", and the same without "warning".
void warn(std::string_view message);
void remark(std::string_view message);

// A line on standard error that is overwritten as the work goes on. Shows nothing when standard
// error is not a terminal or when `quiet`; leaves nothing behind.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool shown() const { return shown_; }
  void show(std::string_view line);  // at most ten times a second
  void show_now(std::string_view line);
  void clear();

 private:
  bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// "4.96 GiB", "512 B".
std::string format_bytes(std::uint64_t bytes);

// Two columns, the left one as wide as its longest name.
std::string format_facts(const std::vector<std::pair<std::string, std::string>>& facts);

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::cli
