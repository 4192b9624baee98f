// Texts for a terminal: how wide characters are, and lines that break between words.
//
// Widths are those of wcwidth() in the locale that main() sets, whose characters are UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::cli {

// How many columns a character takes: 0 for a combining mark, 2 for a wide one.
std::size_t cells_of(char32_t character);

// The same of a text of one line. A byte that belongs to no character takes one.
std::size_t cells_of(std::string_view text);

// The longest front of a line that takes at most so many columns.
std::string_view front_of(std::string_view line, std::size_t columns);

// Breaks the lines of a text that are longer than `columns`; 0 breaks none. A line goes on under
// its last column of text, which stands behind two spaces or more, or where it began. A line that
// is indented by two and has no columns is a command: it goes on behind a backslash.
std::string fitted(std::string_view text, std::size_t columns);

// Breaks a text between words while it is written to a terminal. The beginning of a word is shown
// at once; when the word turns out not to fit, it moves to the next line.
class WordWrap {
 public:
  // What to write for the next piece of the text, which has whole characters. `columns` may change;
  // with 0 the piece comes back as it is.
  std::string feed(std::string_view piece, std::size_t columns);

 private:
  void begin_word();
  void add_character(std::string_view character, std::size_t cells, std::size_t columns);

  std::string out_;
  std::string word_;            // as far as it has been shown on the present line
  std::size_t word_cells_ = 0;  // of it
  std::size_t column_ = 0;      // where the next character goes
};

}  // namespace sluice::cli
