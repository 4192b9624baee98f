#include "core/batch/journal_scan.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <span>
#include <system_error>
#include <utility>

#include "core/files/read_at.h"
#include "streaming/data_file.h"

namespace sluice::batch {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

// Results are JSON, which escapes control characters.
bool has_control_character(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// Removes `expected` from the front of `text`, or as much of it as is there. False when they
// differ.
bool take(std::string_view& text, std::string_view expected) {
  const std::size_t bytes = std::min(text.size(), expected.size());
  if (text.substr(0, bytes) != expected.substr(0, bytes)) return false;
  text.remove_prefix(bytes);
  return true;
}

// Whether `text` is a beginning of a line that starts with `head`, a row number and `next`.
bool begins_with_row(std::string_view text, std::string_view head, std::string_view next) {
  if (!take(text, head)) return false;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 && !text.empty()) return false;
  text.remove_prefix(digits);
  return take(text, next);
}

bool could_begin_result(std::string_view text) {
  return !has_control_character(text) &&
         (begins_with_row(text, R"({"row":)", R"(,"id":)") ||
          begins_with_row(text, R"({"id":"batch_req_)", R"(","custom_id":)"));
}

bool could_end_result(std::string_view text) {
  return !has_control_character(text) && (text.empty() || text.ends_with('}'));
}

}  // namespace

bool JournalScanner::add(std::string_view piece) {
  scan_.bytes += piece.size();
  while (!piece.empty() && !is_foreign_) {
    const std::size_t end = std::min(piece.find_first_of("\n\0"sv), piece.size());
    if (end > result_bytes_max - line_.size()) {
      judge(false);
      break;
    }
    line_ += piece.substr(0, end);
    if (end == piece.size()) break;
    if (piece[end] == '\n') {
      end_line();
    } else {
      tear();
      is_damaged_ = follows_damage_ = true;
    }
    piece.remove_prefix(end + 1);
  }
  return !is_foreign_;
}

void JournalScanner::judge(bool belongs) {
  if (belongs || is_foreign_) return;
  is_foreign_ = true;
  scan_.foreign_line = line_number_;
}

// Results after damage are intact, but everything from the damage on is cut off.
void JournalScanner::end_line() {
  if (follows_damage_) {
    judge(could_end_result(line_));
  } else {
    const std::optional<ResultFacts> facts = read_result(line_);
    judge(facts.has_value());
    if (facts && !is_damaged_) {
      scan_.found.push_back(*facts);
      ErrorExample& example = scan_.examples[facts->code];
      if (facts->is_error && example.row == 0) example = {facts->row, error_message(line_)};
      scan_.whole_bytes += facts->line_bytes;
    }
  }
  ++line_number_;
  line_.clear();
  follows_damage_ = false;
}

// The line ends without a newline.
void JournalScanner::tear() {
  if (line_.empty()) return;
  judge(follows_damage_ ? !has_control_character(line_) : could_begin_result(line_));
  line_.clear();
}

JournalScan JournalScanner::finish() {
  tear();
  if (is_foreign_) {
    scan_.verdict = JournalVerdict::foreign;
  } else if (!scan_.found.empty()) {
    scan_.verdict = JournalVerdict::results;
  } else if (scan_.bytes != 0) {
    scan_.verdict = JournalVerdict::torn;
  }
  return std::move(scan_);
}

JournalScan scan_journal(std::string_view bytes) {
  JournalScanner scanner;
  scanner.add(bytes);
  return scanner.finish();
}

JournalScan scan_journal(int descriptor, const ScanCheck& check) {
  JournalScanner scanner;
  std::string piece(piece_bytes, '\0');
  for (std::uint64_t offset = 0;;) {
    if (check) check(offset);
    const std::size_t n =
        files::read_at(descriptor, std::as_writable_bytes(std::span(piece)), offset);
    if (n == 0 || !scanner.add(std::string_view(piece).substr(0, n))) return scanner.finish();
    offset += n;
  }
}

JournalScan scan_journal_file(const std::filesystem::path& path) {
  const streaming::DataFile file(path, streaming::DataFile::Access::buffered);
  try {
    return scan_journal(file.descriptor());
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), fmt::format("cannot read {}", path.string()));
  }
}

}  // namespace sluice::batch
