// Lines that break between words: as a whole, and while a text is written to a terminal.
#include "core/cli/wrap.h"

#include <algorithm>
#include <clocale>
#include <random>
#include <sstream>
#include <vector>

#include "core/text/utf8.h"
#include "tests/catch.h"
#include "tests/random_seed.h"

using namespace sluice::cli;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// As much of a terminal as the program uses: it breaks rows anywhere, and knows how to go back.
class Screen {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}

  void write(std::string_view text) {
    while (!text.empty()) {
      const std::size_t bytes = text[0] == '\x1b' ? control(text) : character(text);
      text.remove_prefix(bytes);
    }
  }

  // The rows, without the spaces at their ends.
  std::string text() const {
    std::string all;
    for (const std::vector<std::string>& row : rows_) {
      std::string line;
      for (const std::string& cell : row) line += cell;
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + "\n";
    }
    return all;
  }

 private:
  std::size_t control(std::string_view text) {
    const std::size_t end = text.find_first_of("CK");
    REQUIRE(end != std::string_view::npos);
    if (text[end] == 'K') {
      rows_.back().resize(std::min(column_, rows_.back().size()));
    } else {
      column_ += std::stoul(std::string(text.substr(2, end - 2)));
    }
    return end + 1;
  }

  std::size_t character(std::string_view text) {
    const std::size_t bytes = std::max<std::size_t>(sluice::utf8::character_bytes(text), 1);
    const std::string cell(text.substr(0, bytes));
    if (cell == "\n") {
      begin_row();
    } else if (cell == "\r") {
      column_ = 0;
    } else {
      put(cell, cells_of(cell));
    }
    return bytes;
  }

  void put(const std::string& cell, std::size_t cells) {
    if (column_ + cells > columns_) begin_row();
    std::vector<std::string>& row = rows_.back();
    row.resize(std::max(row.size(), column_ + cells), " ");
    row[column_] = cell;
    for (std::size_t i = 1; i < cells; ++i) row[column_ + i].clear();
    column_ += cells;
  }

  void begin_row() {
    rows_.emplace_back();
    column_ = 0;
  }

  std::size_t columns_;
  std::vector<std::vector<std::string>> rows_{1};
  std::size_t column_ = 0;
};

std::string random_text(std::mt19937_64& random) {
  const std::vector<std::string> letters = {"a", "b", "\xC3\xBC", "\xE2\x82\xAC", "x", "."};
  std::string text;
  for (std::size_t words = random() % 40; words > 0; --words) {
    for (std::size_t length = 1 + random() % 9; length > 0; --length) {
      text += letters[random() % letters.size()];
    }
    text += random() % 8 == 0 ? "\n" : " ";
  }
  return text;
}

}  // namespace

TEST_CASE("a text keeps its words when its lines are broken, and no line is too long") {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::mt19937_64 random(sluice::test::random_seed());
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_text(random);
    const std::size_t columns = 9 + random() % 60;
    const std::string broken = fitted(text, columns);
    INFO(columns << "\n" << text << "\n" << broken);
    CHECK(words_of(broken) == words_of(text));
    CHECK(fitted(broken, columns) == broken);
    for (const std::string& line : lines_of(broken)) CHECK(cells_of(line) <= columns);
    CHECK(fitted(text, 0) == text);
  }
}

TEST_CASE("a line goes on under its last column, and a command behind a backslash") {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  CHECK(fitted("  -n,--number N   How many of them there are in all\n", 32) ==
        "  -n,--number N   How many of\n"
        "                  them there are\n"
        "                  in all\n");
  CHECK(fitted("  sluice run model.gguf -p \"One two three\" -n 3\n", 26) ==
        "  sluice run model.gguf \\\n"
        "      -p \"One two three\" \\\n"
        "      -n 3\n");
  CHECK(fitted("a word and an-endless-word-without-any-end\n", 12) ==
        "a word and\nan-endless-word-without-any-end\n");
  CHECK(front_of("gr\xC3\xBC\xC3\x9F", 3) == "gr\xC3\xBC");
  CHECK(front_of("\xE4\xBD\xA0\xE5\xA5\xBD", 3) == "\xE4\xBD\xA0");
  CHECK(cells_of("e\xCC\x81\xFF") == 2);
}

TEST_CASE("words move to the next line while they are written, however the text is cut") {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  std::mt19937_64 random(sluice::test::random_seed());
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_text(random);
    const std::size_t columns = 10 + random() % 40;
    Screen screen(columns);
    WordWrap wrap;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end =
          sluice::utf8::character_start(text, std::min(text.size(), at + 4 + random() % 9));
      screen.write(wrap.feed(std::string_view(text).substr(at, end - at), columns));
      at = end;
    }
    INFO(columns << "\n" << text << "\n" << screen.text());
    CHECK(words_of(screen.text()) == words_of(text));
    Screen whole(columns);
    whole.write(WordWrap().feed(text, columns));
    CHECK(whole.text() == screen.text());
    // A line ends because the text says so, or because the next word has no room on it.
    const std::vector<std::string> lines = lines_of(screen.text());
    CHECK(lines.size() <= lines_of(fitted(text, columns) + "\n").size() + 1);
    CHECK(WordWrap().feed(text, 0) == text);
  }
}

TEST_CASE("what is longer than a line, or has no spaces, breaks where the line ends") {
  std::setlocale(LC_CTYPE, "C.UTF-8");
  Screen screen(10);
  WordWrap wrap;
  screen.write(wrap.feed("see abcdefghijklmnopqrstuvwxyz end", 10));
  CHECK(screen.text() == "see\nabcdefghij\nklmnopqrst\nuvwxyz end\n");
  Screen wide(7);
  wide.write(WordWrap().feed("\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xBD\xA0\xE5\xA5\xBD", 7));
  CHECK(wide.text() == "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xBD\xA0\n\xE5\xA5\xBD\n");
}
