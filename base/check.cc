#include "base/check.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace sluice::base {

// Memory may be in any state by now, so this allocates nothing. One write keeps the line whole when
// other threads print too.
void fail_check(const char* what, const char* file, unsigned line) noexcept {
  const char* const slash = std::strrchr(file, '/');
  std::array<char, 512> text;
  const int length = std::snprintf(
      text.data(), text.size(),
      "sluice: internal error: %s (%s:%u); the process ends, please report this line\n", what,
      slash == nullptr ? file : slash + 1, line);
  if (length > 0) {
    const auto bytes = static_cast<std::size_t>(length);
    // Nothing can be done about a standard error that is closed.
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, text.data(), bytes < text.size() ? bytes : text.size() - 1);
  }
  std::abort();
}

}  // namespace sluice::base
