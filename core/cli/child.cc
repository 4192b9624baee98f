#include "core/cli/child.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "base/descriptor.h"
#include "core/cli/interrupt.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

// The first byte of what a child writes: an ExitCode, or this for a result.
constexpr char result_mark = 'r';

[[noreturn]] void throw_system(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the parent is gone
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string outcome(const std::function<std::string()>& work) {
  const auto failure = [](ExitCode code, const char* message) {
    return std::string(1, static_cast<char>('0' + static_cast<int>(code))) + message;
  };
  try {
    return result_mark + work();
  } catch (const Error& error) {
    return failure(error.code(), error.what());
  } catch (const std::system_error& error) {
    return failure(ExitCode::io, error.what());
  } catch (const Interrupted&) {
    return "";  // the parent has had the signal too
  } catch (const std::exception& error) {
    return failure(ExitCode::failure, error.what());
  }
}

// Reads until the child has closed its end.
std::string read_all(int descriptor) {
  std::string text;
  for (;;) {
    pollfd input{.fd = descriptor, .events = POLLIN, .revents = 0};
    constexpr int wait_ms = 200;
    const int ready = ::poll(&input, 1, wait_ms);
    throw_if_interrupted();
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

// Ends the child, if it has not ended by itself, and forgets it.
class Child {
 public:
  explicit Child(pid_t id) : id_(id) {}
  ~Child() {
    ::kill(id_, SIGTERM);
    while (::waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t id_;
};

}  // namespace

std::string in_child(const std::function<std::string()>& work) {
  const InterruptGuard interrupts;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system("cannot make a pipe");
  base::Descriptor from_child(ends[0]), to_parent(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t id = ::fork();
  if (id < 0) throw_system("cannot start a process");
  if (id == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() == parent) write_all(to_parent.number(), outcome(work));
    ::_exit(0);
  }
  const Child child(id);
  to_parent.close();
  const std::string said = read_all(from_child.number());
  throw_if_interrupted();
  if (said.empty()) throw Error(ExitCode::failure, "the process that fetches a model was ended");
  if (said[0] == result_mark) return said.substr(1);
  const auto code = static_cast<ExitCode>(said[0] - '0');
  throw Error(code, said.substr(1));
}

}  // namespace sluice::cli
