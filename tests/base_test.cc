// What all folders stand on: threads that leave signals alone, mutexes that clang checks,
// descriptors that are closed once.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file_identity.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/temporary_folder.h"

using namespace sluice;
using base::Condition;
using base::Descriptor;
using base::FileIdentity;
using base::Mutex;
using base::MutexLock;
using base::Thread;

TEST_CASE("threads leave signals to the one that starts them, but not their own faults") {
  sigset_t before, inside, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  Thread([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXFSZ, SIGUSR1, SIGPIPE, SIGCHLD}) {
    INFO(signal);
    CHECK(::sigismember(&inside, signal) == 1);
    CHECK(::sigismember(&after, signal) == ::sigismember(&before, signal));
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    CHECK(::sigismember(&inside, fault) == 0);
  }
}

TEST_CASE("a thread is waited for by whoever owns it") {
  std::atomic<int> ended = 0;
  const auto late = [&ended] {
    ::usleep(1000);
    ++ended;
  };
  {
    std::vector<Thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(late);
    Thread moved = std::move(threads.front());
    CHECK_FALSE(threads.front().joinable());
    CHECK(moved.joinable());
    moved = Thread(late);  // waits for the one before
    CHECK(ended >= 1);
  }
  CHECK(ended == 4);
  Thread().join();
}

TEST_CASE("what a mutex guards is seen by all that wait for it") {
  Mutex mutex;
  Condition changed;
  int turn = 0;
  constexpr int turns = 300;
  const auto play = [&](int player) {
    MutexLock lock(mutex);
    while (turn < turns) {
      while (turn < turns && turn % 3 != player) changed.wait(lock);
      if (turn < turns) ++turn;
      changed.notify_all();
      lock.unlock();
      lock.lock();
    }
  };
  std::vector<Thread> players;
  for (int player = 0; player < 3; ++player) players.emplace_back([&, player] { play(player); });
  players.clear();
  CHECK(turn == turns);
  MutexLock lock(mutex);
  CHECK_FALSE(changed.wait_until(lock, std::chrono::steady_clock::now()));
}

TEST_CASE("clang refuses what is not guarded") {
  if (std::system("clang++ --version >/dev/null 2>&1") != 0) SLUICE_SKIP("no clang++");
  const test::TemporaryFolder folder;
  const auto compiles = [&](const std::string& body) {
    std::ofstream(folder / "a.cc") << "#include \"base/mutex.h\"\n"
                                      "using namespace sluice::base;\n"
                                      "struct Counter {\n"
                                      "  int next() { "
                                   << body
                                   << " }\n"
                                      "  int take() SLUICE_REQUIRES(mutex_) { return ++count_; }\n"
                                      "  Mutex mutex_;\n"
                                      "  int count_ SLUICE_GUARDED_BY(mutex_) = 0;\n"
                                      "};\n";
    const std::string command = "clang++ -std=c++20 -fsyntax-only -Wthread-safety -Werror -I '" +
                                std::string(test::source_folder) + "' '" +
                                (folder / "a.cc").string() + "' 2>/dev/null";
    return std::system(command.c_str()) == 0;
  };
  CHECK(compiles("MutexLock lock(mutex_); return ++count_;"));
  CHECK(compiles("MutexLock lock(mutex_); lock.unlock(); lock.lock(); return take();"));
  CHECK_FALSE(compiles("return ++count_;"));
  CHECK_FALSE(compiles("return take();"));
  CHECK_FALSE(compiles("MutexLock lock(mutex_); lock.unlock(); return ++count_;"));
}

TEST_CASE("a descriptor is closed once, by its last owner") {
  const auto is_open = [](int number) { return ::fcntl(number, F_GETFD) != -1; };
  int number = -1;
  {
    Descriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.number();
    Descriptor second = std::move(first);
    CHECK_FALSE(first.is_open());
    CHECK(second.number() == number);
    Descriptor third;
    third = std::move(second);
    CHECK(is_open(number));
    Descriptor& same = third;
    third = std::move(same);
    CHECK(third.number() == number);
    errno = ENOSPC;
  }
  CHECK(errno == ENOSPC);
  CHECK_FALSE(is_open(number));
  Descriptor kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  number = kept.release();
  kept.close();
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("a file is itself until it is written to or replaced") {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
  };
  const auto identity = [&](const char* name) {
    struct stat facts {};
    REQUIRE(::stat((folder / name).c_str(), &facts) == 0);
    return FileIdentity::of(facts);
  };
  write("a", "text");
  write("b", "same");
  const FileIdentity before = identity("a");
  CHECK(identity("a") == before);
  std::filesystem::permissions(folder / "a", std::filesystem::perms::owner_all);
  CHECK(identity("a") == before);  // it reads as before
  CHECK_FALSE(identity("b") == before);
  std::filesystem::rename(folder / "b", folder / "a");
  CHECK_FALSE(identity("a") == before);
  const FileIdentity replaced = identity("a");
  write("a", "longer than it was");
  CHECK_FALSE(identity("a") == replaced);
  std::filesystem::last_write_time(
      folder / "a", std::filesystem::file_time_type::min() + std::chrono::hours(24 * 365 * 200));
  CHECK_FALSE(identity("a").modified_s == replaced.modified_s);
}
