// What all folders stand on: checks that end the process, threads that leave signals alone, mutexes
// that clang checks, descriptors that are closed once.
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/file_identity.h"
#include "base/mutex.h"
#include "base/number.h"
#include "base/thread.h"
#include "core/allowance.h"
#include "core/model/arena.h"
#include "kvcache/page_pool.h"
#include "streaming/arena.h"
#include "streaming/pinned_segments.h"
#include "streaming/read_ahead.h"
#include "streaming/read_piece.h"
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

namespace {

// How a process ended that called f(), and what it wrote to standard error.
struct End {
  int signal = 0;  // 0: it returned from f()
  std::string said;
};

End end_of(const std::function<void()>& f) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  Descriptor reading(ends[0]), writing(ends[1]);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);  // Catch has a handler for it
    ::dup2(writing.number(), STDERR_FILENO);
    try {
      f();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  writing.close();
  End end;
  std::array<char, 1024> part;
  for (ssize_t n; (n = ::read(reading.number(), part.data(), part.size())) > 0;) {
    end.said.append(part.data(), static_cast<std::size_t>(n));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

// A reader that says of each read that it has ended twice.
class TwiceReader final : public streaming::Reader {
 public:
  std::string_view name() const override { return "twice"; }
  std::span<const streaming::ReaderFile> files() const override { return files_; }
  std::uint64_t alignment() const override { return 4096; }
  std::string attach_buffers(std::span<std::byte>, std::uint64_t) override { return ""; }
  void submit(const streaming::ReadRequest& request) override { slot_ = request.slot; }
  std::optional<streaming::Completion> poll() override { return wait(); }
  streaming::Completion wait() override {
    streaming::Completion completion;
    completion.slot = slot_;
    return completion;
  }
  bool has_changed(std::uint32_t) const override { return false; }

 private:
  std::vector<streaming::ReaderFile> files_ = {{"file", 1 << 20}};
  std::uint32_t slot_ = 0;
};

struct Breach {
  std::string what;  // as the process says it
  std::function<void()> commit;
};

// One way to break each kind of accounting.
std::vector<Breach> breaches() {
  static const std::array<std::uint64_t, 2> sizes = {4096, 8192};
  static const std::array<std::size_t, 2> order = {0, 1};
  static std::array<std::byte, 128> memory;
  return {
      {"a page was promised that is not there",
       [] {
         kvcache::PagePool pool(1, true, 0);
         pool.take();
         pool.take();
       }},
      {"a page is given back that nobody holds",
       [] {
         kvcache::PagePool pool(2, false, 0);
         pool.reserve(2);
         const std::uint32_t page = pool.take();
         pool.give_back(page);
         pool.give_back(page);
       }},
      {"a page is shared that nobody holds",
       [] {
         kvcache::PagePool pool(2, false, 0);
         pool.share(7);
       }},
      {"more pages are taken back than were promised",
       [] {
         kvcache::PagePool pool(2, false, 0);
         pool.reserve(1);
         pool.cancel(2);
       }},
      {"more pages are promised than there are",
       [] {
         kvcache::PagePool pool(2, false, 0);
         pool.reserve(3);
         static_cast<void>(pool.available());
       }},
      {"a copy ended that had not begun",
       [] { streaming::PinnedSegments(sizes, order).end_copy(1); }},
      {"segments of different sizes exchange their places",
       [] { streaming::PinnedSegments(sizes, order).exchange(0, 1); }},
      {"a segment has two places",
       [] {
         streaming::PinnedSegments(sizes, std::array<std::size_t, 2>{1, 1});
       }},
      {"an arena gives back memory that is not its own",
       [] {
         streaming::Arena arena(8192);
         arena.commit(4096);
         arena.discard(0, 8192);
       }},
      {"a piece ended of a read that nobody has begun", [] { streaming::SlotLedger().end({}); }},
      {"two reads into one slot",
       [] {
         streaming::SlotLedger ledger;
         ledger.begin(3, 1);
         ledger.begin(3, 1);
       }},
      {"a read ended in a slot that awaits none",
       [] {
         TwiceReader reader;
         streaming::ReadAhead read_ahead(reader, 2);
         read_ahead.start({{{0, 0, 4096}, 0, 0}}, streaming::ReadAhead::Order::once);
         read_ahead.acquire(0);
       }},
      {"the ring has more slots than memory",
       [] {
         TwiceReader reader;
         streaming::ReadAhead(reader, 2).use_memory(memory, 4096);
       }},
      {"buffers take more memory than was counted",
       [] {
         model::Arena arena{std::span(memory)};
         arena.floats(16);
         arena.floats(17);
       }},
      {"an allowance ends before what was taken from it",
       [] {
         std::optional<Allowance> allowance(std::in_place, 10);
         const auto held = allowance->take(5);
         allowance.reset();
       }},
  };
}

}  // namespace

TEST_CASE("a broken invariant ends the process with one line, in every build") {
  const End well = end_of([] { base::check(true, "never"); });
  CHECK(well.signal == 0);
  CHECK(well.said.empty());
  for (const Breach& breach : breaches()) {
    INFO(breach.what);
    const End end = end_of(breach.commit);
    CHECK(end.signal == SIGABRT);
    CHECK(end.said.find("sluice: internal error: " + breach.what + " (") == 0);
    CHECK(std::count(end.said.begin(), end.said.end(), '\n') == 1);
    CHECK(end.said.back() == '\n');
  }
}

TEST_CASE("a check says where it stands, and cuts what is too long") {
  CHECK(end_of([] { base::check(false, "this"); }).said.find("this (base_test.cc:") !=
        std::string::npos);
  static const std::string endless(10'000, 'x');
  const End end = end_of([] { base::check(false, endless.c_str()); });
  CHECK(end.signal == SIGABRT);
  CHECK(end.said.size() < 1000);
}

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

TEST_CASE("a text is a number or none, as a whole") {
  using base::whole_number;
  CHECK(whole_number<std::uint64_t>("18446744073709551615") == ~std::uint64_t{0});
  CHECK(whole_number<int>("-7") == -7);
  CHECK(whole_number<int>("007") == 7);
  CHECK(whole_number<std::uint8_t>("fF", 16) == 255);
  CHECK(whole_number<double>("2.5") == 2.5);
  CHECK(whole_number<int>(std::string_view("12x").substr(0, 2)) == 12);  // no byte beyond its end
  for (const char* text : {"", "-", "+7", " 7", "7 ", "7x", "0x7", "7.0", "2147483648"}) {
    INFO(text);
    CHECK_FALSE(whole_number<int>(text));
  }
  CHECK_FALSE(whole_number<std::uint64_t>("-7"));
  CHECK_FALSE(whole_number<std::uint64_t>("18446744073709551616"));
  CHECK_FALSE(whole_number<std::uint8_t>("100", 16));
}

TEST_CASE("a number beyond the range of doubles is 0 or infinite, with its sign") {
  using base::nearest_double;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  CHECK(nearest_double("2.5e3") == 2500);
  CHECK(nearest_double("5e-324") == std::numeric_limits<double>::denorm_min());
  const std::string zeros(400, '0'), most = std::to_string(std::numeric_limits<int>::max());
  for (const std::string& large :
       {std::string("1e400"), std::string("1E+400"), "1" + zeros, "1" + zeros + ".5e-9",
        "0." + zeros + "1e900", "1e" + most, "1.5e9" + most}) {
    INFO(large);
    CHECK(nearest_double(large) == infinite);
    CHECK(nearest_double('-' + large) == -infinite);
  }
  for (const std::string& small :
       {std::string("1e-400"), std::string("1.5E-400"), "0." + zeros + "1", "0." + zeros + "1e9",
        "1" + zeros + "e-900", "1e-" + most, ".5e-9" + most}) {
    INFO(small);
    for (const std::string sign : {"", "-"}) {
      const auto number = nearest_double(sign + small);
      REQUIRE(number == 0);
      CHECK(std::signbit(*number) == (sign == "-"));
    }
  }
  for (const char* text : {"", "-", "+7", " 7", "7 ", "1e400x", "1e-400 "}) {
    INFO(text);
    CHECK_FALSE(nearest_double(text));
  }
}

TEST_CASE("an open file has its name until another takes it, under whatever other names") {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* name) { std::ofstream(folder / name) << "text"; };
  const auto has_name = [&](const Descriptor& file, const char* name) {
    return base::has_name(file.number(), (folder / name).c_str());
  };
  write("a");
  const Descriptor file(::open((folder / "a").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::write(file.number(), "x", 1) == 1);
  CHECK(has_name(file, "a"));
  std::filesystem::create_hard_link(folder / "a", folder / "b");
  CHECK(has_name(file, "b"));
  write("c");
  CHECK_FALSE(has_name(file, "c"));
  std::filesystem::rename(folder / "c", folder / "a");
  CHECK_FALSE(has_name(file, "a"));
  std::filesystem::remove(folder / "a");
  CHECK_FALSE(has_name(file, "a"));
  CHECK(has_name(file, "b"));
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
