// Output to the terminal: results on standard output, progress and remarks on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::cli {

// Writes to standard output and flushes. Returns false when the reader is gone (a closed pipe, or a
// terminal after SIGHUP), which is no error: it has what it wanted. Throws std::system_error
// otherwise.
bool write_output(std::string_view text);

// The same for a text that a model or a file made: a terminal shows its control characters, but for
// line feeds and tabs, as escapes, so that they cannot command it.
bool show_text(std::string_view text);

// Such a text as the terminal of the descriptor should have it; as it is where there is none.
std::string for_terminal(int descriptor, std::string_view text);

// Ends a job with rows that nobody can have, since write_output() has returned false: throws
// Interrupted after a signal, otherwise Error.
[[noreturn]] void throw_no_reader();

// Says what was written to `path`: on standard output, or on standard error where the path is no
// regular file, which may be standard output itself.
void report_written(const std::filesystem::path& path, std::string_view text);

// Each writes a line to standard error: "sluice: warning: ...", or the same without "warning", with
// control characters as escapes. A terminal breaks it between words.
void warn(std::string_view message);
void remark(std::string_view message);

// A line on standard error that is overwritten while the work goes on, and cleared at the end.
// Shows nothing when standard error is not a terminal, or when `quiet`.
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

// A text for people as standard output shows it: a terminal breaks its lines between words.
std::string fit_terminal(std::string_view text);

// "4.96 GiB", "512 B".
std::string format_bytes(std::uint64_t bytes);

// A speed with as many digits as say something: "0.53", "5.59", "18.9", "1809".
std::string format_speed(double per_s);

// Two columns, the left one as wide as its longest name.
std::string format_facts(const std::vector<std::pair<std::string, std::string>>& facts);

// Measures the seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::cli
