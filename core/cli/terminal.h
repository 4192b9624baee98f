// The terminal that a person sits at: its size, its characters, and the keys that are typed there.
#pragma once

#include <cstddef>
#include <string>
#include <termios.h>

namespace sluice::cli {

struct WindowSize {
  std::size_t columns = 0;  // 0: no terminal, or one that does not say
  std::size_t rows = 0;
  bool operator==(const WindowSize&) const = default;
};
WindowSize window_size(int descriptor);

// The columns of a text for people: $COLUMNS or those of the terminal, up to 100; 80 where there is
// neither.
std::size_t columns_for_text(int descriptor);

// The name of the user's locale for characters, such as "en_GB.UTF-8"; empty when none is set.
std::string locale_name();

// Whether that locale's characters are UTF-8, or others beyond ASCII. Without a locale, and in C,
// both are false.
bool locale_is_utf8();
bool locale_is_other();

// While it lives, the terminal does not show the keys that are typed; they wait for who reads next.
// Ctrl-C loses none of them. Does nothing when standard input is not a terminal.
class HiddenKeys {
 public:
  HiddenKeys();
  ~HiddenKeys();
  HiddenKeys(const HiddenKeys&) = delete;
  HiddenKeys& operator=(const HiddenKeys&) = delete;

 private:
  termios before_{};
  bool is_terminal_;
};

}  // namespace sluice::cli
