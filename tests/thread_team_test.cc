// The thread team: every member runs every job once, whatever the sizes, and the work that is
// split over them is done exactly once.
#include "topology/thread_team.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <pthread.h>
#include <random>
#include <sched.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/catch.h"
#include "topology/machine.h"

namespace {

using sluice::topology::CpuList;
using sluice::topology::for_each_part;
using sluice::topology::SharedRange;
using sluice::topology::split;
using sluice::topology::ThreadTeam;
using sluice::topology::WorkRange;

// CPUs for a team of any size: those of this process, again and again.
CpuList cpus_for(std::size_t members) {
  const CpuList allowed = sluice::topology::read_machine().allowed_cpus;
  CpuList cpus;
  for (std::size_t i = 0; i < members; ++i) cpus.push_back(allowed[i % allowed.size()]);
  return cpus;
}

// A sum that a member writes to and nobody else, on a line of its own.
struct alignas(128) Slot {
  std::uint64_t sum = 0;
  std::uint64_t calls = 0;
};

void free_function(std::size_t) {}

// The states of the threads of this process but the calling one, a letter each: R, S, ...
std::string other_threads() {
  std::string states;
  const std::string own = std::to_string(::gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == own) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    const std::size_t name_end = stat.rfind(") ");
    if (name_end != std::string::npos) states += stat.at(name_end + 2);
  }
  return states;
}

// Whether a condition comes true before patience ends, however slow the machine.
template <class Condition>
bool holds_in_the_end(Condition condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("every member runs every job once and sees what the caller wrote before") {
  const std::size_t members = GENERATE(1, 2, 3, 4);
  const std::uint64_t runs = members <= 2 ? 100'000 : 10'000;
  ThreadTeam team(cpus_for(members));
  REQUIRE(team.size() == members);

  // Plain memory on purpose: the order that run() promises is all that protects it.
  std::vector<Slot> slots(members);
  std::uint64_t input = 0;
  std::uint64_t expected = 0;
  bool agreed = true;
  for (std::uint64_t run = 0; run < runs; ++run) {
    input = run * 0x9e3779b97f4a7c15U;
    team.run([&](std::size_t member) {
      slots[member].sum += input ^ member;
      ++slots[member].calls;
    });
    expected += input ^ (members - 1);
    for (const Slot& slot : slots) agreed = agreed && slot.calls == run + 1;
    agreed = agreed && slots.back().sum == expected;
  }
  CHECK(agreed);
}

TEST_CASE("jobs of uneven length are all waited for, awake or asleep") {
  const std::size_t members = GENERATE(2, 3, 4);
  ThreadTeam team(cpus_for(members));
  std::mt19937 random(7);
  std::atomic<std::size_t> finished{0};
  for (std::size_t run = 1; run <= 200; ++run) {
    // Far beyond the spin, on a member that changes: the others and the caller have to sleep.
    const std::size_t slow = random() % (members + 1);
    team.run([&](std::size_t member) {
      if (member == slow) std::this_thread::sleep_for(3 * ThreadTeam::kSpinBudget);
      finished.fetch_add(1, std::memory_order_relaxed);
    });
    REQUIRE(finished.load(std::memory_order_relaxed) == run * members);
    if (run % 4 == 0) std::this_thread::sleep_for(3 * ThreadTeam::kSpinBudget);
  }
}

TEST_CASE("the caller is member 0 and the others are threads of their own") {
  const std::size_t members = GENERATE(1, 2, 4);
  ThreadTeam team(cpus_for(members));
  std::vector<std::thread::id> ids(members);
  team.run([&](std::size_t member) { ids[member] = std::this_thread::get_id(); });
  CHECK(ids[0] == std::this_thread::get_id());
  for (std::size_t i = 0; i < members; ++i) {
    for (std::size_t j = i + 1; j < members; ++j) CHECK(ids[i] != ids[j]);
  }
  std::vector<std::thread::id> again(members);
  team.run([&](std::size_t member) { again[member] = std::this_thread::get_id(); });
  CHECK(ids == again);
}

TEST_CASE("members that report to be pinned run on their CPU") {
  const CpuList cpus = cpus_for(3);
  ThreadTeam team(cpus);
  CHECK_FALSE(team.is_pinned(0));
  for (int run = 0; run < 100; ++run) {
    std::vector<int> ran_on(3);
    team.run([&](std::size_t member) { ran_on[member] = ::sched_getcpu(); });
    for (std::size_t member = 1; member < 3; ++member) {
      if (team.is_pinned(member)) REQUIRE(ran_on[member] == static_cast<int>(cpus[member]));
    }
  }
}

TEST_CASE("a CPU that cannot be had is told, and the team works without it") {
  const unsigned beyond = 60'000;
  ThreadTeam team({cpus_for(1).front(), beyond});
  CHECK_FALSE(team.is_pinned(1));
  std::vector<int> calls(2);
  team.run([&](std::size_t member) { ++calls[member]; });
  CHECK(calls == std::vector<int>{1, 1});
  CHECK_FALSE(sluice::topology::pin_calling_thread(beyond));
}

TEST_CASE("pinning the calling thread confines it and what it starts") {
  bool pinned = false;
  CpuList left;
  const unsigned cpu = cpus_for(2).back();
  std::thread([&] {
    pinned = sluice::topology::pin_calling_thread(cpu);
    left = sluice::topology::read_machine().allowed_cpus;
  }).join();
  if (!pinned) SLUICE_SKIP("the system forbids pinning");
  CHECK(left == CpuList{cpu});
}

TEST_CASE("a scoped pin gives the thread back what it had") {
  const CpuList before = sluice::topology::read_machine().allowed_cpus;
  {
    const sluice::topology::ScopedPin pin(cpus_for(1).front());
    if (!pin.is_pinned()) SLUICE_SKIP("the system forbids pinning");
    CHECK(sluice::topology::read_machine().allowed_cpus == CpuList{cpus_for(1).front()});
  }
  CHECK(sluice::topology::read_machine().allowed_cpus == before);
}

TEST_CASE("a team needs a CPU") {
  CHECK_THROWS_AS(ThreadTeam(CpuList{}), std::invalid_argument);
}

TEST_CASE("an exception of any member reaches the caller after all have finished") {
  const std::size_t members = GENERATE(1, 2, 3, 4);
  ThreadTeam team(cpus_for(members));
  for (int round = 0; round < 50; ++round) {
    for (std::size_t thrower = 0; thrower < members; ++thrower) {
      std::atomic<std::size_t> calls{0};
      std::string message;
      try {
        team.run([&](std::size_t member) {
          calls.fetch_add(1);
          if (member >= thrower) throw std::runtime_error("member " + std::to_string(member));
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      REQUIRE(message == "member " + std::to_string(thrower));
      REQUIRE(calls.load() == members);
    }
    // Nothing of it is left behind for the next run.
    std::atomic<std::size_t> calls{0};
    team.run([&](std::size_t) { calls.fetch_add(1); });
    REQUIRE(calls.load() == members);
  }
}

TEST_CASE("a run within a run is refused rather than deadlocked") {
  ThreadTeam team(cpus_for(2));
  const std::size_t offender = GENERATE(0, 1);
  CHECK_THROWS_AS(team.run([&](std::size_t member) {
    if (member == offender) team.run(free_function);
  }),
                  std::logic_error);
  team.run(free_function);
}

TEST_CASE("callables of every kind are run") {
  ThreadTeam team(cpus_for(2));
  team.run(free_function);
  team.run(&free_function);
  struct Counter {
    std::atomic<int> calls{0};
    void operator()(std::size_t) { calls.fetch_add(1); }
  } counter;
  team.run(counter);
  const auto constant = [&counter](std::size_t) { counter.calls.fetch_add(1); };
  team.run(constant);
  CHECK(counter.calls.load() == 4);
}

TEST_CASE("a team may be destroyed unused, while its members spin, and while they sleep") {
  ThreadTeam(cpus_for(2)).run([](std::size_t) {});  // a sanitizer starts a thread with the first
  const std::size_t threads_before = other_threads().size();
  for (int round = 0; round < 200; ++round) {
    const bool used = round % 3 != 0;
    const bool asleep = round % 3 == 2;
    ThreadTeam team(cpus_for(1 + static_cast<std::size_t>(round) % 4));
    if (used) team.run(free_function);
    if (asleep) std::this_thread::sleep_for(5 * ThreadTeam::kSpinBudget);
  }
  // The kernel takes a joined thread off the list a moment later.
  const auto gone = [&] { return other_threads().size() == threads_before; };
  CHECK(holds_in_the_end(gone));
}

TEST_CASE("idle members sleep, before the first run and between runs") {
  ThreadTeam team(cpus_for(GENERATE(2, 4)));
  const auto asleep = [] {
    const std::string states = other_threads();
    return states.find_first_not_of('S') == std::string::npos;
  };
  CHECK(holds_in_the_end(asleep));
  for (int run = 0; run < 1000; ++run) team.run(free_function);
  CHECK(other_threads().size() >= team.size() - 1);
  CHECK(holds_in_the_end(asleep));
}

TEST_CASE("signals of the process go to the caller, faults to whom they concern") {
  ThreadTeam team(cpus_for(2));
  bool interrupt_blocked = false;
  bool bus_error_blocked = true;
  team.run([&](std::size_t member) {
    if (member == 0) return;
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    interrupt_blocked = sigismember(&mask, SIGINT) == 1;
    bus_error_blocked = sigismember(&mask, SIGBUS) == 1;
  });
  CHECK(interrupt_blocked);
  CHECK_FALSE(bus_error_blocked);
  sigset_t own;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &own);
  CHECK(sigismember(&own, SIGINT) == 0);
}

namespace {

// What split() promises, held against all parts of one total.
bool splits_well(std::size_t total, std::size_t granularity, std::size_t members) {
  std::size_t end = 0;
  std::size_t units_min = std::numeric_limits<std::size_t>::max();
  std::size_t units_max = 0;
  for (std::size_t index = 0; index < members; ++index) {
    const WorkRange part = split(total, granularity, members, index);
    if (part.begin != end || part.end < part.begin) return false;
    if (part.begin % granularity != 0 && part.begin != total) return false;
    if (part.end % granularity != 0 && part.end != total) return false;
    const std::size_t units =
        part.size() / granularity + (part.size() % granularity != 0 ? 1U : 0U);
    units_min = std::min(units_min, units);
    units_max = std::max(units_max, units);
    end = part.end;
  }
  return end == total && units_max - units_min <= 1;
}

}  // namespace

TEST_CASE("split covers the total exactly, in balanced multiples of the granularity") {
  for (std::size_t total = 0; total <= 130; ++total) {
    for (std::size_t granularity : {1, 2, 3, 7, 16, 64, 200}) {
      for (std::size_t members = 1; members <= 9; ++members) {
        CAPTURE(total, granularity, members);
        REQUIRE(splits_well(total, granularity, members));
      }
    }
  }
}

TEST_CASE("split holds for totals at the end of what a size can say") {
  std::mt19937_64 random(11);
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t total : {most, most - 1, most / 2, std::size_t{1} << 63}) {
    for (int i = 0; i < 200; ++i) {
      const std::size_t granularity = random() >> (random() % 64) | 1;
      const std::size_t members = 1 + random() % 64;
      CAPTURE(total, granularity, members);
      REQUIRE(splits_well(total, granularity, members));
    }
  }
}

TEST_CASE("a shared range is taken whole, in parts that become smaller") {
  for (std::size_t total = 0; total <= 130; ++total) {
    for (std::size_t members = 1; members <= 9; ++members) {
      CAPTURE(total, members);
      SharedRange range(total, members);
      std::size_t end = 0;
      std::size_t size_max = std::max<std::size_t>(1, total / (2 * members));
      for (WorkRange part = range.take(); !part.empty(); part = range.take()) {
        REQUIRE(part.begin == end);
        REQUIRE(part.size() <= size_max);
        size_max = part.size();
        end = part.end;
      }
      REQUIRE(end == total);
      REQUIRE(range.take().empty());
    }
  }
}

TEST_CASE("each item of a shared loop falls to one member") {
  ThreadTeam team(cpus_for(4));
  for (const std::size_t count : {0, 1, 2, 3, 9, 1000}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> taken(count);
      std::atomic<int> strays = 0;
      for_each_part(team, count, [&](std::size_t member, std::size_t begin, std::size_t end) {
        if (member >= team.size() || end > count) ++strays;
        for (std::size_t n = begin; n < end; ++n) ++taken[n];
      });
      REQUIRE(std::ranges::all_of(taken, [](const auto& times) { return times == 1; }));
      REQUIRE(strays == 0);
    }
  }
}

TEST_CASE("what a member that is held up does not take, the others do") {
  ThreadTeam team(cpus_for(2));
  SharedRange range(1000, team.size());
  std::atomic<bool> is_exhausted = false;
  std::size_t by_slow = 0;
  team.run([&](std::size_t member) {
    if (member == 0) {
      by_slow = range.take().size();
      while (!is_exhausted) std::this_thread::yield();
      CHECK(range.take().empty());
    } else {
      while (!range.take().empty()) {
      }
      is_exhausted = true;
    }
  });
  CHECK(by_slow <= 250);
}

TEST_CASE("a split that is known at compile time is computed there") {
  static_assert(split(100, 16, 2, 0).end == 64);
  static_assert(split(100, 16, 2, 1).begin == 64 && split(100, 16, 2, 1).end == 100);
  static_assert(split(5, 16, 2, 1).empty());
  SUCCEED();
}
