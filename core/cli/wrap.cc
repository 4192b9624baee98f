#include "core/cli/wrap.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <wchar.h>

#include "core/text/utf8.h"

namespace sluice::cli {
namespace {

// The bytes of what `text` begins with: a character, or a byte that belongs to none.
std::size_t step_of(std::string_view text) {
  return std::max<std::size_t>(utf8::character_bytes(text), 1);
}

std::size_t cells_of_step(std::string_view text) {
  return utf8::character_bytes(text) == 0 ? 1 : cells_of(utf8::code_point(text));
}

// Where the text of a line begins, and where a line that goes on continues.
struct Margins {
  std::size_t first;
  std::size_t next;
  bool is_command;
};

// The last column of text that leaves at least a third of the line.
Margins margins_of(std::string_view line, std::size_t columns) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  Margins margins{first, first, first == 2};
  for (std::size_t gap = line.find("  ", first); gap != std::string_view::npos;) {
    const std::size_t begin = std::min(line.find_first_not_of(' ', gap), line.size());
    if (begin > columns * 2 / 3) break;
    margins = {begin, begin, false};
    gap = line.find("  ", begin);
  }
  if (margins.is_command) margins.next = first + 4;
  return margins;
}

// Breaks one line. A command is not broken within quotes.
std::string broken(std::string_view line, std::size_t columns) {
  const Margins margins = margins_of(line, columns);
  const std::string_view end = margins.is_command ? " \\\n" : "\n";
  const std::size_t room = columns - std::min(columns, end.size() - 1);
  std::string out, present(line.substr(0, margins.first));
  std::size_t used = cells_of(present);
  char quote = 0;
  bool is_empty = true;
  for (std::size_t at = margins.first; at < line.size();) {
    std::size_t stop = at;
    for (; stop < line.size() && (line[stop] != ' ' || quote != 0); ++stop) {
      if (!margins.is_command || (line[stop] != '"' && line[stop] != '\'')) continue;
      if (quote == 0 || quote == line[stop]) quote = quote == 0 ? line[stop] : '\0';
    }
    const std::string_view word = line.substr(at, stop - at);
    const bool is_last = stop == line.size();
    if (!is_empty && used + 1 + cells_of(word) > (is_last ? columns : room)) {
      out += std::exchange(present, std::string(margins.next, ' ')) + std::string(end);
      used = margins.next;
      is_empty = true;
    }
    if (!is_empty) present += ' ';
    present += word;
    used += cells_of(word) + (is_empty ? 0 : 1);
    is_empty = false;
    at = std::min(line.find_first_not_of(' ', stop), line.size());
  }
  return out + present;
}

}  // namespace

std::size_t cells_of(char32_t character) {
  const int cells = ::wcwidth(static_cast<wchar_t>(character));
  return cells < 0 ? 1 : static_cast<std::size_t>(cells);
}

std::size_t cells_of(std::string_view text) {
  std::size_t cells = 0;
  for (std::size_t at = 0; at < text.size(); at += step_of(text.substr(at))) {
    cells += cells_of_step(text.substr(at));
  }
  return cells;
}

std::string_view front_of(std::string_view line, std::size_t columns) {
  std::size_t cells = 0, at = 0;
  while (at < line.size()) {
    cells += cells_of_step(line.substr(at));
    if (cells > columns) break;
    at += step_of(line.substr(at));
  }
  return line.substr(0, at);
}

std::string fitted(std::string_view text, std::size_t columns) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    out += columns == 0 || cells_of(line) <= columns ? std::string(line) : broken(line, columns);
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

std::string WordWrap::feed(std::string_view piece, std::size_t columns) {
  if (columns == 0) return std::string(piece);
  while (!piece.empty()) {
    const std::string_view character = piece.substr(0, step_of(piece));
    add_character(character, cells_of_step(piece), columns);
    piece.remove_prefix(character.size());
  }
  return std::exchange(out_, {});
}

void WordWrap::begin_word() {
  word_.clear();
  word_cells_ = 0;
}

void WordWrap::add_character(std::string_view character, std::size_t cells, std::size_t columns) {
  constexpr std::size_t tab = 8;
  const bool is_space = character == " " || character == "\t";
  if (character == "\t") cells = tab - column_ % tab;
  const bool is_full = column_ + cells > columns;
  if (is_space || character == "\n") {
    begin_word();
    // A space that has no room stands for the end of the line.
    out_ += is_space && is_full ? "\n" : character;
    column_ = is_space && !is_full ? column_ + cells : 0;
    return;
  }
  if (cells > 1) begin_word();             // scripts of wide characters have no spaces
  if (is_full && word_cells_ < column_) {  // the word moves to the next line
    if (word_cells_ > 0) out_ += fmt::format("\r\x1b[{}C\x1b[K", column_ - word_cells_);
    out_ += "\n" + word_;
    column_ = word_cells_;
  }
  if (column_ > 0 && column_ + cells > columns) {  // a word of more than a line
    out_ += "\n";
    begin_word();
    column_ = 0;
  }
  out_ += character;
  word_ += character;
  word_cells_ += cells;
  column_ += cells;
}

}  // namespace sluice::cli
