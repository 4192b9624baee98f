#include "core/cli/terminal.h"

#include <algorithm>
#include <cstdlib>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/text/lower_case.h"

namespace sluice::cli {

WindowSize window_size(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

std::size_t columns_for_text(int descriptor) {
  constexpr std::size_t usual = 80, least = 20, most = 100;
  const char* set = std::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): nothing changes it
  std::size_t columns = set == nullptr ? 0 : std::strtoul(set, nullptr, 10);
  if (columns < least) columns = window_size(descriptor).columns;
  return columns == 0 ? usual : std::min(columns, most);
}

// main() sets another locale than the user's, so this looks where setlocale() would.
std::string locale_name() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing changes it
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

bool locale_is_utf8() {
  const std::string name = text::lower_case(locale_name());
  return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
}

bool locale_is_other() {
  const std::string name = locale_name();
  return !locale_is_utf8() && !name.empty() && name != "C" && name != "POSIX";
}

HiddenKeys::HiddenKeys() : is_terminal_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (!is_terminal_) return;
  termios hidden = before_;
  hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  hidden.c_lflag |= NOFLSH;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &hidden);
}

HiddenKeys::~HiddenKeys() {
  if (is_terminal_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

}  // namespace sluice::cli
