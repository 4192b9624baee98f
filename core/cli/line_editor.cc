#include "core/cli/line_editor.h"

#include <array>
#include <clocale>
#include <cstdio>
#include <deque>
#include <histedit.h>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/text/utf8.h"

namespace sluice::cli {
namespace {

// A signal, or a new window size, is noticed after this time at the latest.
constexpr int wait_milliseconds = 200;
constexpr int history_lines = 1000;
constexpr std::string_view paste_begin = "\x1b[200~";
constexpr std::string_view paste_end = "\x1b[201~";
// Stands for a newline of pasted text while the line is edited. It is in the private use area, so
// nobody types it.
constexpr wchar_t newline_sign = 0xE00A;
constexpr std::string_view newline_sign_utf8 = "\xEE\x80\x8A";
constexpr wchar_t quote_next = 0x16;  // Ctrl-V: the next character is taken literally

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::pair<int, int> window_size() {
  winsize size{};
  ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
  return {size.ws_col, size.ws_row};
}

// Creates the folder of a file, accessible to its owner only.
void make_folder_of(const std::filesystem::path& file) {
  std::error_code ignored;  // a chat goes on without a history
  std::filesystem::create_directories(file.parent_path(), ignored);
}

}  // namespace

struct LineEditor::State {
  explicit State(std::filesystem::path file)
      : history_file(std::move(file)), history(::history_init()) {
    // libedit decodes characters by the locale; what people type is UTF-8. No other thread runs yet
    // that could read the locale.
    std::setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe)
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
    size = window_size();
  }
  ~State() {
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

  std::string typed_text() const {
    const LineInfo* line = ::el_line(editor);
    return {line->buffer, line->lastchar};
  }

  // Waits for input. False at the end, and when a signal came.
  bool take_bytes() {
    while (interrupt_signal() == 0) {
      if (const auto now = window_size(); now != size) {
        size = now;
        ::el_resize(editor);
        ::el_set(editor, EL_REFRESH);
      }
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
    if (!is_pasting || character >= ' ') return characters.push_back(character);
    if (character == '\n' || character == '\r') return characters.push_back(newline_sign);
    if (character == '\t') characters.insert(characters.end(), {quote_next, character});
  }

  std::filesystem::path history_file;
  History* history;
  EditLine* editor = nullptr;
  std::string prompt;
  std::string bytes;               // read, not decoded yet
  std::deque<wchar_t> characters;  // decoded, not given to libedit yet
  std::pair<int, int> size;
  bool is_pasting = false;
  bool is_complete = false;  // no more bytes follow for now
  bool at_end = false;
};

LineEditor::LineEditor(std::filesystem::path history)
    : state_(std::make_unique<State>(std::move(history))) {}

LineEditor::~LineEditor() = default;

LineReader::Result LineEditor::next(const std::string& prompt, std::string& line) {
  state_->prompt = prompt;
  int count = 0;
  show("\x1b[?2004h");  // the terminal puts pasted text between marks
  const char* text = ::el_gets(state_->editor, &count);
  show("\x1b[?2004l");
  if (text == nullptr || count <= 0) {
    if (interrupt_signal() == 0) return LineReader::Result::end;
    line = state_->typed_text();
    ::el_reset(state_->editor);
    return LineReader::Result::interrupted;
  }
  line = text;
  if (line.ends_with('\n')) line.pop_back();
  if (!line.empty()) state_->remember(line);
  for (std::size_t at = 0; (at = line.find(newline_sign_utf8, at)) != std::string::npos; ++at) {
    line.replace(at, newline_sign_utf8.size(), "\n");
  }
  return LineReader::Result::line;
}

std::filesystem::path chat_history_file() {
  const std::filesystem::path state = state_folder();
  return state.empty() ? state : state / "chat_history";
}

}  // namespace sluice::cli
