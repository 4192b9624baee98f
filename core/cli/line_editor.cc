#include "core/cli/line_editor.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <histedit.h>
#include <poll.h>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/terminal.h"
#include "core/cli/wrap.h"
#include "core/files/durable_file.h"
#include "core/text/utf8.h"

namespace sluice::cli {
namespace {

// A signal, or a new window size, is noticed after this time at the latest.
constexpr int wait_milliseconds = 200;
constexpr int history_lines = 1000;
constexpr std::string_view paste_begin = "\x1b[200~";
constexpr std::string_view paste_end = "\x1b[201~";
// Stands for a newline of pasted text while the line is edited: an arrow, or ^M where the locale
// has none. An arrow that is typed is stored as a character that nobody types: it is in the private
// use area.
constexpr wchar_t newline_arrow = 0x21B5;
constexpr wchar_t typed_arrow = 0xE00A;
constexpr wchar_t quote_next = 0x16;  // Ctrl-V: the next character is taken literally

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string as_utf8(wchar_t character) {
  return utf8::encode(static_cast<char32_t>(character));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// The columns of text as libedit shows it: control characters as ^X, tabs up to the next stop.
std::size_t shown_cells(std::size_t column, std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::max<std::size_t>(utf8::character_bytes(text), 1))) {
    if (text[0] == '\t') {
      column += 8 - column % 8;
    } else if (static_cast<unsigned char>(text[0]) < ' ') {
      column += 2;
    } else {
      column += cells_of(text.substr(0, utf8::character_bytes(text)));
    }
  }
  return column;
}

// What all texts begin with, in whole characters.
std::string common_front(const std::vector<std::string>& texts) {
  std::string front = texts.front();
  for (const std::string& text : texts) {
    const auto differ = std::mismatch(front.begin(), front.end(), text.begin(), text.end());
    front.erase(differ.first, front.end());
  }
  front.resize(utf8::valid_prefix(front));
  return front;
}

// The texts in columns, as many as fit.
std::string in_columns(const std::vector<std::string>& texts, std::size_t columns) {
  constexpr std::size_t gap = 2;
  std::size_t width = gap;
  for (const std::string& text : texts) width = std::max(width, cells_of(text) + gap);
  const std::size_t count = std::max<std::size_t>(columns / width, 1);
  std::string out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool ends_line = i % count == count - 1 || i + 1 == texts.size();
    out += texts[i];
    out += ends_line ? "\r\n" : std::string(width - cells_of(texts[i]), ' ');
  }
  return out;
}

// Creates the folder of a file, accessible to its owner only.
void make_folder_of(const std::filesystem::path& file) {
  try {
    files::make_private_folder(file.parent_path());
  } catch (const std::system_error&) {  // a chat goes on without a history
  }
}

}  // namespace

struct LineEditor::State {
  State(std::filesystem::path file, Completer complete)
      : history_file(std::move(file)), history(::history_init()), completer(std::move(complete)) {
    editor = ::el_init("sluice", stdin, stderr, stderr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, history_lines);
    ::history(history, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) ::history(history, &event, H_LOAD, history_file.c_str());
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, history);
    ::el_set(
        editor, EL_PROMPT, +[](EditLine* el) { return of(el).prompt.data(); });
    ::el_set(
        editor, EL_GETCFN, +[](EditLine* el, wchar_t* out) { return of(el).read(out); });
    ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // Wide texts are kept by reference. Of narrow ones libedit keeps copies that it never frees.
    ::el_wset(
        editor, EL_ADDFN, L"complete", L"completes commands and names of files",
        +[](EditLine* el, int) { return of(el).complete(); });
    ::el_set(editor, EL_BIND, "^I", "complete", nullptr);
    size = window_size(STDERR_FILENO);
  }
  ~State() {
    show("\x1b[?2004l");
    ::el_end(editor);
    ::history_end(history);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Adds a line and saves all at once: whatever ends the program afterwards, the line is kept.
  void remember(const std::string& line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
    if (history_file.empty()) return;
    make_folder_of(history_file);
    ::history(history, &event, H_SAVE, history_file.c_str());
  }

  static State& of(EditLine* editor) {
    State* state = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &state);
    return *state;
  }

  // Reads the next character for libedit: returns 1, or 0 at the end, or -1 when a signal came.
  int read(wchar_t* out) {
    while (characters.empty()) {
      if (!take_bytes()) return at_end ? 0 : -1;
      decode_bytes();
    }
    *out = characters.front();
    characters.pop_front();
    return 1;
  }

  std::string_view text_to_cursor() const {
    const LineInfo* line = ::el_line(editor);
    return {line->buffer, static_cast<std::size_t>(line->cursor - line->buffer)};
  }

  std::string typed_text() const {
    const LineInfo* line = ::el_line(editor);
    return {line->buffer, line->lastchar};
  }

  // What Tab does: goes on as far as all completions agree, and lists them when that is nowhere.
  unsigned char complete() {
    const Completions found = completer ? completer(text_to_cursor()) : Completions{};
    if (found.texts.empty()) return CC_ERROR;
    std::string more = common_front(found.texts).substr(found.typed_bytes);
    if (found.texts.size() == 1 && !found.texts.front().ends_with('/')) more += ' ';
    if (!more.empty()) return ::el_insertstr(editor, more.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    show("\r\n" + in_columns(found.texts, size.columns));
    ::el_set(editor, EL_REFRESH);
    return CC_NORM;
  }

  // Draws the line anew after a change of the window. The terminal has broken its rows anew, so the
  // cursor is as many rows below the prompt as its text takes now. Each is cleared for itself: what
  // is cleared from the first row of the screen on would be kept in the terminal's history.
  void follow_window() {
    const WindowSize now = window_size(STDERR_FILENO);
    if (now == size) return;
    size = now;
    const std::size_t cells = shown_cells(cells_of(prompt), text_to_cursor());
    const std::size_t rows = size.columns == 0 ? 0 : cells / size.columns;
    show("\x1b[J");
    for (std::size_t row = 0; row < rows; ++row) show("\r\x1b[K\x1b[A");
    show("\r\x1b[K");
    ::el_resize(editor);
    ::el_set(editor, EL_REFRESH);
  }

  // Waits for input. False at the end, and when a signal came.
  bool take_bytes() {
    while (interrupt_signal() == 0) {
      follow_window();
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, wait_milliseconds) <= 0) {
        if (bytes.empty()) continue;
        is_complete = true;  // the escape is a key, not the beginning of a paste
        return true;
      }
      std::array<char, 4096> buffer;
      const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      at_end = count == 0;
      if (count <= 0) return false;
      bytes.append(buffer.data(), static_cast<std::size_t>(count));
      return true;
    }
    return false;
  }

  void decode_bytes() {
    std::size_t at = 0;
    while (at < bytes.size()) {
      const std::string_view rest = std::string_view(bytes).substr(at);
      const std::string_view mark = is_pasting ? paste_end : paste_begin;
      if (rest.starts_with(mark)) {
        is_pasting = !is_pasting;
        at += mark.size();
        continue;
      }
      const std::size_t length = std::max<std::size_t>(utf8::lead_of(rest[0]).bytes, 1);
      const bool may_go_on = mark.starts_with(rest) || rest.size() < length;
      if (may_go_on && !is_complete) break;
      const std::size_t valid = utf8::character_bytes(rest);
      add(valid == 0 ? L'\uFFFD' : static_cast<wchar_t>(utf8::code_point(rest)));
      at += std::max<std::size_t>(valid, 1);
    }
    is_complete = false;
    bytes.erase(0, at);
  }

  void add(wchar_t character) {
    const bool is_newline = character == '\n' || character == '\r';
    if (character == newline_arrow) character = typed_arrow;
    if (!is_pasting || character >= ' ') return characters.push_back(character);
    if (!is_newline && character != '\t') return;
    if (is_newline) character = newline_sign;
    if (character < ' ') characters.push_back(quote_next);
    characters.push_back(character);
  }

  // The text of an edited line.
  static std::string message_of(std::string line) {
    replace_all(line, as_utf8(newline_arrow), "\n");
    replace_all(line, "\r", "\n");
    replace_all(line, as_utf8(typed_arrow), as_utf8(newline_arrow));
    return line;
  }

  std::filesystem::path history_file;
  History* history;
  Completer completer;
  EditLine* editor = nullptr;
  wchar_t newline_sign = locale_is_utf8() ? newline_arrow : L'\r';
  std::string prompt;
  std::string bytes;               // read, not decoded yet
  std::deque<wchar_t> characters;  // decoded, not given to libedit yet
  WindowSize size;
  bool is_pasting = false;
  bool is_complete = false;  // no more bytes follow for now
  bool at_end = false;
};

LineEditor::LineEditor(std::filesystem::path history, Completer completer)
    : state_(std::make_unique<State>(std::move(history), std::move(completer))) {}

LineEditor::~LineEditor() = default;

LineReader::Result LineEditor::next(const std::string& prompt, std::string& line) {
  state_->prompt = prompt;
  int count = 0;
  show("\x1b[?2004h");  // the terminal puts pasted text between marks, during answers too
  const char* text = ::el_gets(state_->editor, &count);
  if (text == nullptr || count <= 0) {
    if (interrupt_signal() == 0) return LineReader::Result::end;
    line = state_->typed_text();
    ::el_reset(state_->editor);
    return LineReader::Result::interrupted;
  }
  line = text;
  if (line.ends_with('\n')) line.pop_back();
  if (!line.empty()) state_->remember(line);
  line = State::message_of(std::move(line));
  return LineReader::Result::line;
}

std::filesystem::path chat_history_file() {
  const std::filesystem::path state = state_folder();
  return state.empty() ? state : state / "chat_history";
}

}  // namespace sluice::cli
