// The guard: its arithmetic in a made-up time, against neighbours of every speed; and its thread,
// with a made-up machine and a real tape.
#include "core/engine/memory_guard.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "streaming/choose_reader.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace {

using sluice::engine::MemoryGuard;
using sluice::engine::MemoryPolicy;
using sluice::engine::MemorySigns;
using sluice::engine::MemorySource;
using sluice::streaming::StreamedTape;
using sluice::test::is_sanitized;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

// A policy in a machine of 5 GiB, 48 MiB of which are left beside the plan.
struct Machine {
  static constexpr std::uint64_t rest = 500 * MiB, pinned = 5 * GiB - 548 * MiB;

  std::uint64_t usable() const { return 5 * GiB - taken; }
  void look_after(milliseconds pause) {
    now += pause;
    policy.look(usable(), now);
  }
  // Looks until so much time is over.
  void pass(milliseconds time) {
    for (const auto end = now + time; now < end;) look_after(policy.next_look());
  }

  MemoryPolicy policy{rest, pinned};
  MemoryPolicy::Clock::time_point now{seconds(1000)};
  std::uint64_t taken = 0;  // by others
};

}  // namespace

TEST_CASE("with memory enough nothing changes") {
  Machine machine;
  machine.pass(seconds(5));
  CHECK(machine.policy.limit_bytes() == Machine::pinned);
  machine.taken = 47 * MiB;  // at once, and no more than is left
  machine.pass(seconds(1));
  machine.taken = 0;
  machine.pass(seconds(60));
  CHECK(machine.policy.limit_bytes() == Machine::pinned);
}

TEST_CASE("pages that are charged and not yet counted as the process's own change nothing") {
  Machine machine;
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    machine.taken = random() % 6 * 2 * MiB;  // huge pages of up to five threads
    machine.look_after(milliseconds(random() % 12));
    REQUIRE(machine.policy.limit_bytes() == Machine::pinned);
  }
}

TEST_CASE("a plan that fills its budget to the last byte is left alone") {
  MemoryPolicy policy(100 * MiB, 96 * MiB);
  MemoryPolicy::Clock::time_point now{seconds(1000)};
  for (int i = 0; i < 1000; ++i) policy.look(196 * MiB, now += milliseconds(5));
  CHECK(policy.limit_bytes() == 96 * MiB);
}

TEST_CASE("a neighbour of any speed finds the memory that it takes, though looks come late") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    Machine machine;
    machine.pass(milliseconds(random() % 300));
    const double bytes_per_ms = 50e3 * std::exp2(std::uniform_real_distribution<>(0, 4.32)(random));
    INFO("seed " << seed << ", " << bytes_per_ms / 1e3 << " MB/s");
    double taken = 0;
    while (machine.taken < 1200 * MiB) {
      const milliseconds pause = machine.policy.next_look() + milliseconds(random() % 16);
      taken += bytes_per_ms * static_cast<double>(pause.count());
      machine.taken = std::min<std::uint64_t>(1200 * MiB, static_cast<std::uint64_t>(taken));
      // What was allowed until this look and what the neighbour took meanwhile have fitted.
      REQUIRE(Machine::rest + machine.policy.limit_bytes() <= machine.usable());
      machine.look_after(pause);
    }
    // Once it is over, no more is given up than was taken, and the margin.
    machine.pass(seconds(20));
    const std::uint64_t left = machine.usable() - Machine::rest;
    CHECK(machine.policy.limit_bytes() <= left);
    machine.pass(seconds(60));
    CHECK(machine.policy.limit_bytes() + MemoryPolicy::margin_bytes +
              MemoryPolicy::change_bytes_min >=
          left);
  }
}

TEST_CASE("a limit that is lowered costs what it takes, and no reserve") {
  Machine machine;
  machine.pass(seconds(1));
  machine.taken = 1 * GiB;
  machine.policy.group_limit_changed();
  machine.look_after(milliseconds(20));
  const std::uint64_t left = machine.usable() - Machine::rest - MemoryPolicy::margin_bytes;
  CHECK(machine.policy.limit_bytes() == left);
  machine.pass(seconds(1));
  CHECK(machine.policy.limit_bytes() == left);
}

TEST_CASE("memory that is back is pinned again after some quiet, in pieces") {
  Machine machine;
  machine.taken = 1 * GiB;
  machine.look_after(milliseconds(3));
  const std::uint64_t low = machine.policy.limit_bytes();
  CHECK(low < Machine::pinned - 900 * MiB);
  machine.taken = 0;
  machine.pass(MemoryPolicy::calm_min - milliseconds(200));
  CHECK(machine.policy.limit_bytes() == low);
  std::uint64_t before = low;
  for (int i = 0; i < 100 && before != Machine::pinned; ++i) {
    machine.pass(MemoryPolicy::piece_period);
    CHECK(machine.policy.limit_bytes() - before <= 2 * MemoryPolicy::piece_bytes);
    before = machine.policy.limit_bytes();
  }
  CHECK(before == Machine::pinned);
}

TEST_CASE("a neighbour that comes and goes is given way to for longer each time") {
  Machine machine;
  std::vector<int> quiet_seconds;  // before memory was pinned again
  for (int round = 0; round < 5; ++round) {
    machine.taken = 1 * GiB;
    machine.pass(milliseconds(100));
    machine.taken = 0;
    const std::uint64_t low = machine.policy.limit_bytes();
    quiet_seconds.push_back(0);
    while (machine.policy.limit_bytes() == low) {
      machine.pass(seconds(1));
      ++quiet_seconds.back();
    }
  }
  CHECK(std::is_sorted(quiet_seconds.begin(), quiet_seconds.end()));
  CHECK(quiet_seconds.back() >= 8 * quiet_seconds.front());
}

TEST_CASE("refaults and pressure cost a little at a time, until they stop") {
  Machine machine;
  MemoryPolicy& policy = machine.policy;
  policy.look(MemorySigns{1'000'000, 0.0}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned);
  policy.look(MemorySigns{1'000'000 + MemoryPolicy::refaults_max + 1, 0.0}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned - MemoryPolicy::relief_bytes);
  policy.look(MemorySigns{1'000'000 + MemoryPolicy::refaults_max + 1, 0.0}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned - MemoryPolicy::relief_bytes);
  policy.look(MemorySigns{std::nullopt, 50.0}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned - 2 * MemoryPolicy::relief_bytes);
}

TEST_CASE("a sign counts above its limit, and no sooner") {
  Machine machine;
  MemoryPolicy& policy = machine.policy;
  policy.look(MemorySigns{0, MemoryPolicy::pressure_percent_max}, machine.now);
  policy.look(MemorySigns{MemoryPolicy::refaults_max, 0.0}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned);
  policy.look(MemorySigns{MemoryPolicy::refaults_max, 10.1}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned - MemoryPolicy::relief_bytes);
}

TEST_CASE("pressure of the machine counts only while little memory is left") {
  constexpr std::uint64_t pinned = 400 * MiB;
  MemoryPolicy policy(0, pinned);
  MemoryPolicy::Clock::time_point now{seconds(1000)};
  MemorySigns signs{std::nullopt, 50.0};
  signs.is_pressure_of_machine = true;
  policy.look(pinned + MemoryPolicy::ample_bytes + 1, now);
  for (int i = 0; i < 10; ++i) policy.look(signs, now += seconds(1));
  CHECK(policy.limit_bytes() == pinned);
  signs.is_pressure_of_machine = false;
  policy.look(signs, now += seconds(1));
  CHECK(policy.limit_bytes() == pinned - MemoryPolicy::relief_bytes);
  signs.is_pressure_of_machine = true;
  policy.look(pinned - MemoryPolicy::relief_bytes + MemoryPolicy::ample_bytes, now);
  policy.look(signs, now += seconds(1));
  CHECK(policy.limit_bytes() == pinned - 2 * MemoryPolicy::relief_bytes);
}

TEST_CASE("a change is made from its least size on, at the end of its time") {
  // Looks at most 7 ms apart find no speed.
  MemoryPolicy policy(0, 100 * MiB);
  MemoryPolicy::Clock::time_point now{seconds(1000)};
  const auto limit_mib = [&](std::uint64_t usable_bytes, milliseconds pause = milliseconds(1)) {
    policy.look(usable_bytes, now += pause);
    return static_cast<double>(policy.limit_bytes()) / MiB;
  };
  CHECK(limit_mib(100 * MiB) == 100);
  CHECK(limit_mib(99 * MiB) == 83);  // less the margin
  CHECK(limit_mib(91 * MiB + 1) == 83);
  CHECK(limit_mib(91 * MiB) == 75);
  CHECK(limit_mib(46 * MiB) == 30);
  CHECK(limit_mib(54 * MiB - 1) == 30);
  CHECK(limit_mib(54 * MiB, MemoryPolicy::calm_min - milliseconds(2)) == 30);
  CHECK(limit_mib(54 * MiB) == 38);
  CHECK(limit_mib(100 * MiB, MemoryPolicy::piece_period - milliseconds(1)) == 38);
  CHECK(limit_mib(90 * MiB) == 74);
  CHECK(limit_mib(100 * MiB, MemoryPolicy::piece_period) == 100);

  // All is given up, and all is pinned again, however little it is.
  MemoryPolicy small(0, 20 * MiB);
  small.look(19 * MiB, now);
  CHECK(small.limit_bytes() == 3 * MiB);
  small.look(16 * MiB, now);
  CHECK(small.limit_bytes() == 0);
  MemoryPolicy large(0, 132 * MiB);
  large.look(16 * MiB, now);
  for (const std::uint64_t mib : {64, 128, 132}) {
    large.look(132 * MiB, now += 2 * MemoryPolicy::calm_min);
    CHECK(large.limit_bytes() == mib * MiB);
  }
}

TEST_CASE("refaults of pages that were evicted long ago are no sign") {
  constexpr std::uint64_t many = MemoryPolicy::refaults_max + 1;
  Machine machine;
  MemoryPolicy& policy = machine.policy;
  policy.look(MemorySigns{0, 0.0, 500}, machine.now);
  policy.look(MemorySigns{many, 0.0, 500}, machine.now);
  policy.look(MemorySigns{2 * many, 0.0, 499 + many}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned);
  policy.look(MemorySigns{3 * many, 0.0, 499 + 2 * many}, machine.now);
  CHECK(policy.limit_bytes() == Machine::pinned - MemoryPolicy::relief_bytes);
}

TEST_CASE("a counter of refaults that vanishes, comes back or begins anew is no sign") {
  Machine machine;
  using Count = std::optional<std::uint64_t>;
  for (const Count count : {Count(5'000'000), Count(), Count(6'000'000), Count(3), Count(7)}) {
    machine.policy.look(MemorySigns{count, std::nullopt}, machine.now);
    CHECK(machine.policy.limit_bytes() == Machine::pinned);
  }
}

TEST_CASE("it looks the sooner, the less is left") {
  MemoryPolicy policy(100 * MiB, 100 * MiB);
  MemoryPolicy::Clock::time_point now{seconds(1000)};
  policy.look(100 * GiB, now);
  const milliseconds relaxed = policy.next_look();
  policy.look(201 * MiB, now += milliseconds(1));
  CHECK(policy.next_look() <= milliseconds(5));
  CHECK(relaxed > milliseconds(50));
  // As long as 10 GB/s take for what is left.
  for (const auto& [spare_bytes, pause_ms] : {std::pair(0, 3),
                                              {29'000'000, 3},
                                              {40'000'000, 4},
                                              {500'000'000, 50},
                                              {1'000'000'000, 100},
                                              {1'100'000'000, 100}}) {
    MemoryPolicy fresh(100 * MiB, 100 * MiB);
    fresh.look(200 * MiB + static_cast<std::uint64_t>(spare_bytes), now);
    CHECK(fresh.next_look() == milliseconds(pause_ms));
  }
}

namespace {

constexpr std::uint64_t segment_bytes = 2 * MiB;
constexpr std::size_t segments = 64;
constexpr std::uint64_t others_bytes = 100 * MiB;

// Bytes that tell where they come from.
std::byte expected(std::uint64_t offset) {
  return static_cast<std::byte>(offset / 4096 * 37 + 11);
}

class FakeMemory final : public MemorySource {
 public:
  std::uint64_t usable_bytes() override {
    const std::lock_guard lock(mutex_);
    ++looks_;
    has_looked_.notify_all();
    seen_limit_bytes_ = group_limit_bytes_;
    return usable_bytes_;
  }
  std::uint64_t group_limit_bytes() const override { return seen_limit_bytes_; }
  MemorySigns signs() override {
    if (have_signs_failed) throw std::bad_alloc();
    return {};
  }
  void wait(milliseconds time) override {
    std::unique_lock lock(mutex_);
    wakes_.wait_for(lock, time, [this] { return is_woken_; });
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    wakes_.notify_all();
  }

  // Returns when the guard has acted on it. `by_limit`: as the limit of the group is another one.
  void set_usable(std::uint64_t bytes, bool by_limit = false) {
    std::unique_lock lock(mutex_);
    if (by_limit) group_limit_bytes_ = group_limit_bytes_ + bytes - usable_bytes_;
    usable_bytes_ = bytes;
    // The look after the next begins when what follows from the next is done.
    has_looked_.wait(lock, [this, seen = looks_] { return looks_ >= seen + 2; });
  }

  // The same where no thread looks.
  void set_unseen_usable(std::uint64_t bytes) { usable_bytes_ = bytes; }

  std::atomic<bool> have_signs_failed = false;

 private:
  std::mutex mutex_;
  std::condition_variable has_looked_, wakes_;
  bool is_woken_ = false;
  std::uint64_t usable_bytes_ = 1024 * MiB;
  std::uint64_t group_limit_bytes_ = 2048 * MiB;
  std::uint64_t looks_ = 0;
  std::uint64_t seen_limit_bytes_ = 0;  // by the thread of the guard
};

struct Bench {
  explicit Bench(bool have_signs_failed = false) {
    memory.have_signs_failed = have_signs_failed;
    const std::filesystem::path file = folder.path() / "weights";
    std::ofstream out(file, std::ios::binary);
    std::vector<char> page(4096);
    for (std::uint64_t at = 0; at < segments * segment_bytes; at += page.size()) {
      std::fill(page.begin(), page.end(), static_cast<char>(expected(at)));
      out.write(page.data(), static_cast<std::streamsize>(page.size()));
    }
    out.close();
    std::vector<sluice::streaming::Segment> list;
    for (std::size_t i = 0; i < segments; ++i)
      list.push_back({0, i * segment_bytes, segment_bytes});
    const std::vector<std::filesystem::path> files{file};
    auto choice = sluice::streaming::choose_reader(sluice::streaming::Io::pread, files);
    const sluice::streaming::TapeOptions options{96 * MiB, 8, 4};
    tape = std::make_unique<StreamedTape>(list, std::move(choice.reader), options);
    plan.tape = tape->plan();
    plan.lines = {{"everything else", others_bytes, sluice::plan::Kind::anon},
                  {"pinned weights", plan.tape.pinned_bytes, sluice::plan::Kind::anon}};
    start_guard();
  }

  void start_guard() {
    guard.emplace(plan, *tape, memory, [this](const std::string& line) { log.push_back(line); });
  }

  // One step over the tape, with a look at every segment; f(i) while segment i is held.
  template <typename F>
  void step(F&& f) {
    tape->expect_step_end(segments);
    for (std::size_t i = 0; i < segments; ++i) {
      const auto bytes = tape->acquire(i).bytes;
      f(i);
      REQUIRE(bytes.size() == segment_bytes);
      CHECK(bytes.front() == expected(i * segment_bytes));
      CHECK(bytes.back() == expected((i + 1) * segment_bytes - 1));
      tape->release(i);
    }
  }

  sluice::test::TemporaryFolder folder;
  std::unique_ptr<StreamedTape> tape;
  sluice::plan::MemoryPlan plan;
  FakeMemory memory;
  std::vector<std::string> log;
  std::optional<MemoryGuard> guard;
};

}  // namespace

TEST_CASE("weights are given up in the middle of a step, and each change is told once") {
  Bench bench;
  bench.tape->load();
  CHECK(bench.tape->pinned_bytes() == 96 * MiB);
  bench.guard->between_steps();
  CHECK(bench.log.empty());
  bench.step([&](std::size_t i) {
    if (i != 20) return;
    bench.memory.set_usable(others_bytes + 60 * MiB);
    CHECK(bench.tape->pinned_bytes() <= 60 * MiB + segment_bytes);  // one may be held
  });
  CHECK(bench.tape->pinned_bytes() <= 60 * MiB);
  bench.guard->between_steps();
  REQUIRE(bench.log.size() == 1);
  CHECK(bench.log.front().find("memory is short") != std::string::npos);
  bench.guard->between_steps(MemoryGuard::Clock::now() + seconds(10));
  CHECK(bench.log.size() == 1);
  bench.step([](std::size_t) {});  // the same bytes arrive, streamed or pinned
}

TEST_CASE("weights are given up while they are loaded") {
  Bench bench;
  bench.tape->load([&](std::uint64_t loaded, std::uint64_t) {
    if (loaded == 80 * MiB) bench.memory.set_usable(others_bytes + 40 * MiB);
  });
  CHECK(bench.tape->pinned_bytes() <= 40 * MiB);
  CHECK(bench.tape->statistics().loaded_bytes == 80 * MiB);
  bench.step([](std::size_t) {});
}

TEST_CASE("weights are given up though the signs of a shortage cannot be read") {
  Bench bench(true);
  bench.tape->load();
  bench.memory.set_usable(others_bytes + 60 * MiB);
  CHECK(bench.tape->pinned_bytes() <= 60 * MiB);
  bench.step([](std::size_t) {});
}

TEST_CASE("of a limit that is lowered the guard keeps what still fits") {
  Bench bench;
  bench.tape->load();
  bench.memory.set_usable(others_bytes + 60 * MiB, true);
  CHECK(bench.tape->pinned_bytes() <= 60 * MiB - MemoryPolicy::margin_bytes);
  CHECK(bench.tape->pinned_bytes() > 60 * MiB - MemoryPolicy::margin_bytes - segment_bytes);
  bench.step([](std::size_t) {});
}

TEST_CASE("with no memory left everything is streamed, and nothing breaks") {
  Bench bench;
  bench.tape->load();
  bench.memory.set_usable(0);
  CHECK(bench.tape->pinned_bytes() == 0);
  bench.step([](std::size_t) {});
  CHECK(bench.tape->pinned_bytes() == 0);
}

namespace {

// The system counts no threads of root.
bool may_start_no_thread() {
  constexpr uid_t nobody = 65534;
  const rlimit none{0, 0};
  return ::setrlimit(RLIMIT_NPROC, &none) == 0 && (::getuid() != 0 || ::setuid(nobody) == 0);
}

// What is wrong of a guard that gets no thread; empty: nothing.
std::string fault_without_thread(Bench& bench) {
  bench.start_guard();
  if (bench.log.size() != 1 || bench.log[0].find("no thread can be started") == std::string::npos) {
    return "it does not say that it has no thread";
  }
  bench.memory.have_signs_failed = true;
  bench.memory.set_unseen_usable(others_bytes + 60 * MiB);
  bench.guard->between_steps();
  if (bench.tape->pinned_bytes() > 60 * MiB) return "it does not look between steps";
  return bench.log.size() == 2 ? "" : "it does not tell of a change";
}

}  // namespace

TEST_CASE("without a thread it says so and looks between steps, which no look lets fail") {
  if (is_sanitized) SLUICE_SKIP("sanitizers have threads of their own, and follow no fork");
  Bench bench;
  bench.tape->load();
  bench.guard.reset();  // a fork would leave its thread behind
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!may_start_no_thread()) ::_exit(2);
    std::string fault = "it lets a step fail";
    try {
      fault = fault_without_thread(bench);
    } catch (...) {
    }
    std::fputs(fault.c_str(), stderr);
    ::_exit(fault.empty() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) SLUICE_SKIP("the number of threads cannot be limited here");
  CHECK(WEXITSTATUS(status) == 0);
}
