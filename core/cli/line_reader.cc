#include "core/cli/line_reader.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/cli/interrupt.h"

namespace sluice::cli {
namespace {

// A signal usually ends the wait at once; one that came just before it is noticed after this time.
constexpr int wait_milliseconds = 500;

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category(), "cannot read standard input");
}

// Whether there is something to read, which may be the end.
bool wait_for_input() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&input, 1, wait_milliseconds);
  if (ready < 0 && errno != EINTR) fail();
  return ready > 0;
}

}  // namespace

LineReader::Result LineReader::next(std::string& line) {
  while (!take_line(line)) {
    if (interrupt_signal() != 0) return Result::interrupted;
    if (at_end_ && unread_.empty()) return Result::end;
    if (at_end_) {
      line = std::exchange(unread_, {});
      return Result::line;
    }
    if (!wait_for_input()) continue;
    std::array<char, 65536> buffer;
    const ssize_t bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (bytes < 0) {
      // A terminal that is gone gives errors too, after SIGHUP.
      if (interrupt_signal() == 0 && errno != EINTR && errno != EAGAIN) fail();
      continue;
    }
    if (bytes > 0) unread_.append(buffer.data(), static_cast<std::size_t>(bytes));
    at_end_ = bytes == 0;
  }
  return Result::line;
}

bool LineReader::take_line(std::string& line) {
  const std::size_t end = unread_.find('\n', searched_);
  searched_ = end == std::string::npos ? unread_.size() : 0;
  if (end == std::string::npos) return false;
  line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace sluice::cli
