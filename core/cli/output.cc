#include "core/cli/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>

#include "core/cli/interrupt.h"
#include "core/cli/terminal.h"
#include "core/cli/wrap.h"
#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::cli {

bool write_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return true;
  const bool has_hung_up = errno == EIO && interrupt_signal() == SIGHUP;
  if (errno == EPIPE || has_hung_up) return false;
  throw std::system_error(errno, std::generic_category(), "cannot write to standard output");
}

bool show_text(std::string_view text) {
  return write_output(for_terminal(STDOUT_FILENO, text));
}

std::string for_terminal(int descriptor, std::string_view text) {
  return ::isatty(descriptor) == 1 ? text::terminal_text(text) : std::string(text);
}

void throw_no_reader() {
  throw_if_interrupted();
  throw Error(ExitCode::io,
              "the program that read standard output has ended, so the rows that are left are not "
              "computed; with -o FILE the same command would go on with them");
}

void report_written(const std::filesystem::path& path, std::string_view text) {
  std::error_code absent;
  if (std::filesystem::is_regular_file(path, absent)) {
    write_output(text);
  } else {
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

// Failures of standard error are ignored here and below: there is nowhere to report them.
void warn(std::string_view message) {
  remark(fmt::format("warning: {}", message));
}

void remark(std::string_view message) {
  const std::string line = fitted(fmt::format("sluice: {}\n", text::terminal_text(message)),
                                  window_size(STDERR_FILENO).columns);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Progress::Progress(bool quiet) : shown_(!quiet && ::isatty(STDERR_FILENO) == 1) {}

void Progress::show(std::string_view line) {
  using namespace std::chrono_literals;
  if (shown_ && std::chrono::steady_clock::now() - last_ >= 100ms) show_now(line);
}

// A line that fills the terminal would scroll. CSI K clears the rest of a longer line from before.
void Progress::show_now(std::string_view line) {
  if (!shown_) return;
  const std::size_t columns = window_size(STDERR_FILENO).columns;
  const std::string safe = text::terminal_text(line);
  line = columns > 0 ? front_of(safe, columns - 1) : safe;
  const std::string text = fmt::format("\r{}\x1b[K", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  dirty_ = true;
  last_ = std::chrono::steady_clock::now();
}

void Progress::clear() {
  if (!dirty_) return;
  std::fputs("\r\x1b[K", stderr);
  dirty_ = false;
}

std::string fit_terminal(std::string_view text) {
  return fitted(text, window_size(STDOUT_FILENO).columns);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string format_speed(double per_s) {
  return fmt::format("{:.{}f}", per_s, per_s < 9.995 ? 2 : per_s < 99.95 ? 1 : 0);
}

std::string format_facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::size_t width = 0;
  for (const auto& [name, value] : facts) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : facts) {
    text += fmt::format("{:<{}}  {}\n", name, width, value);
  }
  return text;
}

}  // namespace sluice::cli
