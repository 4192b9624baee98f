// What a confined process can and cannot do. Each attempt is made in a child, since nothing gives
// its rights back.
#include "base/confinement.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <liburing.h>
#include <netinet/in.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "base/thread.h"
#include "streaming/ring.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice;
using test::TemporaryFolder;

constexpr int unconfined = 99;

// How a child ends that gives up all rights but these and then tries something: the errno of the
// attempt, 0 if it worked, or minus the signal that ended it.
int outcome_of(const base::FileRights& rights, const std::function<int()>& attempt,
               base::Confinement (*confine)(const base::FileRights&) = base::confine) {
  const pid_t child = ::fork();
  if (child == 0) {
    streaming::make_spare_rings(1);
    if (!confine(rights).is_whole()) ::_exit(unconfined);
    ::_exit(attempt() & 0x7F);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Of a system call that gives -1 when it fails.
int error_of(long result) {
  return result == -1 ? errno : 0;
}

int open_error(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  return error_of(descriptor);
}

bool skips() {
  return !base::possible_confinement().is_whole();
}

void skip() {
  SLUICE_SKIP("this kernel, or this build, has no whole sandbox: " +
              base::possible_confinement().lacking);
}

struct Files {
  Files() {
    for (const char* name : {"read", "write", "other"}) {
      std::filesystem::create_directory(folder / name);
      test::write(folder / name / "file", "text");
    }
  }
  base::FileRights rights() const { return {{folder / "read"}, {folder / "write"}, {}}; }
  std::filesystem::path in(const char* name) const { return folder / name / "file"; }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a confined process has the files that it kept") {
  if (skips()) return skip();
  const Files files;
  const auto outcome = [&](const char* name, int flags) {
    return outcome_of(files.rights(), [&] { return open_error(files.in(name), flags); });
  };
  CHECK(outcome("read", O_RDONLY) == 0);
  CHECK(outcome("read", O_RDWR) == EACCES);
  CHECK(outcome("write", O_RDWR) == 0);
  CHECK(outcome("other", O_RDONLY) == EACCES);
  CHECK(outcome("other", O_WRONLY) == EACCES);
  const auto make = [&](const char* name) {
    return outcome_of(files.rights(), [&] {
      return open_error(files.folder / name / "new", O_RDWR | O_CREAT | O_EXCL);
    });
  };
  CHECK(make("read") == EACCES);
  CHECK(make("other") == EACCES);
  CHECK(make("write") == 0);
  const auto remove = [&](const char* name, const base::FileRights& rights) {
    return outcome_of(rights, [&] { return error_of(::unlink(files.in(name).c_str())); });
  };
  CHECK(remove("read", files.rights()) == EACCES);
  CHECK(remove("write", files.rights()) == 0);
  CHECK(remove("other", {{}, {}, {files.folder / "other"}}) == 0);
  // A name that leads elsewhere counts as where it leads.
  std::filesystem::create_symlink(files.in("read"), files.folder / "write" / "link");
  CHECK(outcome_of(files.rights(), [&] {
          return open_error(files.folder / "write" / "link", O_WRONLY);
        }) == EACCES);
}

TEST_CASE("a process with too few descriptors for its rules says so, and keeps its files") {
  if (skips()) return skip();
  const Files files;
  const pid_t child = ::fork();
  if (child == 0) {
    const int next = ::dup(0);
    ::close(next);
    const auto most = static_cast<rlim_t>(next) + 1;  // for the rules, and for no path of them
    const rlimit limit = {most, most};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const std::string lacking = base::confine(files.rights()).lacking;
    const bool is_told = lacking.find("Too many open files") != std::string::npos;
    ::_exit(is_told && open_error(files.in("other"), O_RDONLY) == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("what is open before stays open") {
  if (skips()) return skip();
  const Files files;
  CHECK(outcome_of({{}, {}, {}}, [] { return error_of(::dup(0)); }) == 0);
  const int descriptor = ::open(files.in("other").c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(outcome_of({{}, {}, {}}, [&] {
          char byte = 0;
          return error_of(::read(descriptor, &byte, 1));
        }) == 0);
  ::close(descriptor);
}

TEST_CASE("what only an attacker tries ends the process") {
  if (skips()) return skip();
  const std::vector<std::pair<const char*, std::function<long()>>> attempts = {
      {"a program",
       [] {
         std::array<char*, 1> none = {nullptr};
         return ::execve("/bin/true", none.data(), none.data());
       }},
      {"a connection", [] { return ::connect(0, nullptr, 0); }},
      {"tracing", [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }},
      {"a namespace", [] { return ::syscall(SYS_unshare, 0x10000000); }},
      {"a mount", [] { return ::syscall(SYS_mount, "none", "/proc", "tmpfs", 0, nullptr); }},
  };
  for (const auto& [name, attempt] : attempts) {
    INFO(name);
    CHECK(outcome_of({{"/proc"}, {}, {}}, [run = attempt] { return error_of(run()); }) == -SIGSYS);
  }
}

TEST_CASE("sockets and code are refused") {
  if (skips()) return skip();
  const std::vector<std::tuple<const char*, int, std::function<long()>>> attempts = {
      {"a TCP socket", EPERM, [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"a UDP socket", EPERM, [] { return ::socket(AF_INET6, SOCK_DGRAM, 0); }},
      {"a unix socket", EPERM, [] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }},
      {"code in new memory", EACCES,
       [] {
         void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         return memory == MAP_FAILED ? -1L : 0L;
       }},
      {"code of a file", EACCES,
       [] {
         const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
         void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
         return memory == MAP_FAILED ? -1L : 0L;
       }},
      {"code of data", EACCES,
       [] {
         static std::array<std::uint8_t, 8192> data;
         const auto address = reinterpret_cast<std::uintptr_t>(data.data()) & ~std::uintptr_t{4095};
         return ::mprotect(reinterpret_cast<void*>(address), 4096, PROT_READ | PROT_EXEC);
       }},
  };
  for (const auto& [name, error, attempt] : attempts) {
    INFO(name);
    CHECK(outcome_of({{"/proc"}, {}, {}}, [run = attempt] { return error_of(run()); }) == error);
  }
}

TEST_CASE("calls that this program does not make fail") {
  if (skips()) return skip();
  const auto outcome = [](const std::function<long()>& call) {
    return outcome_of({{}, {}, {}}, [&] { return error_of(call()); });
  };
  io_uring_params ring{};
  CHECK(outcome([&] { return ::syscall(SYS_io_uring_setup, 1, &ring); }) == EPERM);
  CHECK(outcome([] { return ::kill(::getppid(), SIGTERM); }) == EPERM);
  CHECK(outcome([] { return ::ioctl(0, TIOCSTI, "x"); }) == EPERM);  // types for somebody
  CHECK(outcome([] { return ::syscall(SYS_memfd_create, "x", 0); }) == ENOSYS);
  CHECK(outcome([] { return ::syscall(SYS_swapon, "/x", 0); }) == ENOSYS);
  CHECK(outcome([] { return ::syscall(SYS_chdir, "/"); }) == ENOSYS);
  // Landlock does not govern modes, nor, at first, lengths.
  const Files files;
  CHECK(outcome([&] { return ::chmod(files.in("other").c_str(), 0777); }) == ENOSYS);
  CHECK(outcome([&] { return ::truncate(files.in("other").c_str(), 0); }) == ENOSYS);
}

TEST_CASE("memory, threads and processes of the same program work on") {
  if (skips()) return skip();
  CHECK(outcome_of({{}, {}, {}}, [] {
          std::vector<char> memory(std::size_t{64} << 20, 'x');
          int seen = 0;
          base::Thread([&] { seen = memory.back(); }).join();
          const pid_t child = ::fork();
          if (child == 0) ::_exit(3);
          int status = 0;
          ::waitpid(child, &status, 0);
          return seen == 'x' && WEXITSTATUS(status) == 3 ? 0 : 1;
        }) == 0);
  // Threads that were started later are confined, too.
  CHECK(outcome_of({{}, {}, {}}, [] {
          int error = 0;
          base::Thread([&] { error = open_error("/etc/passwd", O_RDONLY); }).join();
          return error;
        }) == EACCES);
}

namespace {

// What an operation gives on a ring, or -1 where it cannot even be submitted.
int result_of(io_uring* ring, const std::function<void(io_uring_sqe*)>& prepare) {
  io_uring_sqe* const entry = io_uring_get_sqe(ring);
  prepare(entry);
  io_uring_cqe* result = nullptr;
  if (io_uring_submit_and_wait(ring, 1) < 0 || io_uring_peek_cqe(ring, &result) != 0) return -1;
  const int got = result->res;
  io_uring_cqe_seen(ring, result);
  return got;
}

}  // namespace

TEST_CASE("a ring reads the files that are registered with it, and does nothing else") {
  const Files files;
  const int descriptor = ::open(files.in("read").c_str(), O_RDONLY | O_CLOEXEC);
  try {
    streaming::Ring ring;
    REQUIRE(io_uring_register_files(ring.get(), &descriptor, 1) == 0);
    std::array<char, 4> text{};
    CHECK(result_of(ring.get(), [&](io_uring_sqe* entry) {
            io_uring_prep_read(entry, 0, text.data(), text.size(), 0);
            io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
          }) == 4);
    CHECK(std::string(text.data(), text.size()) == "text");
    CHECK(result_of(ring.get(), [&](io_uring_sqe* entry) {
            io_uring_prep_read(entry, descriptor, text.data(), text.size(), 0);
          }) == -EACCES);
    CHECK(result_of(ring.get(), [&](io_uring_sqe* entry) {
            io_uring_prep_write(entry, 0, text.data(), text.size(), 0);
            io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
          }) == -EACCES);
    CHECK(result_of(ring.get(), [&](io_uring_sqe* entry) {
            io_uring_prep_openat(entry, AT_FDCWD, files.in("other").c_str(), O_RDONLY, 0);
          }) == -EACCES);
    CHECK(result_of(ring.get(), [](io_uring_sqe* entry) {
            io_uring_prep_rw(45, entry, AF_INET, nullptr, 0, SOCK_STREAM);  // IORING_OP_SOCKET
          }) < 0);
    CHECK(result_of(ring.get(), [](io_uring_sqe* entry) { io_uring_prep_nop(entry); }) == -EACCES);
  } catch (const std::system_error& error) {
    SLUICE_SKIP("no io_uring here: " + std::string(error.what()));
  }
  ::close(descriptor);
}

namespace {

// Reads four bytes through a ring, the only one that there is. Returns 0, EPERM where the kernel
// grants none, or the number of what went wrong.
int read_through_ring(int descriptor) {
  try {
    streaming::Ring ring;
    std::array<char, 4> text{};
    if (io_uring_register_files(ring.get(), &descriptor, 1) != 0) return 101;
    const int got = result_of(ring.get(), [&](io_uring_sqe* entry) {
      io_uring_prep_read(entry, 0, text.data(), text.size(), 0);
      io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    });
    if (got != 4) return 102;
    try {
      const streaming::Ring second;
      return 103;
    } catch (const std::system_error&) {
      return 0;
    }
  } catch (const std::system_error&) {
    return EPERM;
  }
}

}  // namespace

TEST_CASE("a confined process, and those that it forks, read through a ring that was made before") {
  if (skips()) return skip();
  const Files files;
  const int outcome = outcome_of({{files.folder.path()}, {}, {}}, [&] {
    const int descriptor = ::open(files.in("read").c_str(), O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 6; ++i) {
      const pid_t child = i % 2 == 0 ? 0 : ::fork();
      if (i % 2 == 0 || child == 0) {
        const int result = read_through_ring(descriptor);
        if (i % 2 == 1) ::_exit(result);
        if (result != 0) return result;
        continue;
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    }
    return 0;
  });
  CHECK((outcome == 0 || outcome == EPERM));
}

namespace {

// A socket of this machine that listens to connections.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    REQUIRE(::bind(socket_, generic(), bytes) == 0);
    REQUIRE(::listen(socket_, 1) == 0);
    REQUIRE(::getsockname(socket_, generic(), &bytes) == 0);
  }
  ~Listener() { ::close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  long connect() { return ::connect(new_socket(), generic(), sizeof address_); }
  static int new_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

 private:
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }
  sockaddr_in address_{};
  int socket_;
};

}  // namespace

TEST_CASE("a process that downloads keeps connections, and what it was given") {
  if (skips()) return skip();
  const Files files;
  Listener listener;
  const auto outcome = [&](const std::function<long()>& attempt) {
    return outcome_of(
        files.rights(), [&] { return error_of(attempt()); }, base::confine_download);
  };
  const auto opened = [&](const char* name, int flags) {
    return outcome_of(
        files.rights(), [&] { return open_error(files.in(name), flags); }, base::confine_download);
  };
  CHECK(outcome([&] { return listener.connect(); }) == 0);
  CHECK(opened("read", O_RDONLY) == 0);
  CHECK(opened("write", O_RDWR) == 0);
  CHECK(outcome([&] { return ::symlink("file", (files.folder / "write/link").c_str()); }) == 0);

  CHECK(opened("read", O_RDWR) == EACCES);
  CHECK(opened("other", O_RDONLY) == EACCES);
  CHECK(opened("other", O_WRONLY) == EACCES);
  CHECK(outcome([&] { return ::symlink("file", (files.folder / "read/link").c_str()); }) == EACCES);
  CHECK(outcome([&] { return ::unlink(files.in("other").c_str()); }) == EACCES);
  io_uring_params ring{};
  CHECK(outcome([&] { return ::syscall(SYS_io_uring_setup, 1, &ring); }) == EPERM);
  CHECK(outcome([] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }) == EPERM);
  CHECK(outcome([] { return ::listen(Listener::new_socket(), 1); }) == -SIGSYS);
  CHECK(outcome([] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }) == -SIGSYS);
  CHECK(outcome([] {
          std::array<char*, 1> none = {nullptr};
          return ::execve("/bin/true", none.data(), none.data());
        }) == -SIGSYS);
}

TEST_CASE("a thread that serves connections keeps less") {
  if (skips()) return skip();
  const Files files;
  const auto in_thread = [&](const std::function<int()>& attempt) {
    return outcome_of(files.rights(), [&] {
      int error = 0;
      base::Thread([&] {
        const base::FileRights rights{{files.folder / "write"}, {}, {files.folder / "write"}};
        error = base::confine_serving_thread(rights).is_whole() ? attempt() : unconfined;
      }).join();
      return error;
    });
  };
  CHECK(in_thread([&] { return open_error(files.in("write"), O_RDONLY); }) == 0);
  CHECK(in_thread([&] { return open_error(files.in("write"), O_RDWR); }) == EACCES);
  CHECK(in_thread([&] { return open_error(files.in("read"), O_RDONLY); }) == EACCES);
  CHECK(in_thread([&] { return error_of(::mkdir((files.folder / "write/x").c_str(), 0700)); }) ==
        EPERM);
  CHECK(in_thread([&] { return error_of(::fork()); }) == EPERM);
  CHECK(in_thread([&] { return error_of(::unlink(files.in("write").c_str())); }) == 0);
  CHECK(in_thread([] { return error_of(::socket(AF_INET, SOCK_STREAM, 0)); }) == EPERM);
}
