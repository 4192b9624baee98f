// A team of threads that run the same function together: fork and join, as often as thousands of
// times a second.
//
// The calling thread is member 0; the others wait for work with a short spin and then asleep on a
// futex. The spin makes a step's many small runs cheap. It is short because the CPUs of a virtual
// machine are taken away at any time: a member that spins may keep the one from running that it
// waits for, and what it burns counts against the CPU quota.
//
// Threads: a team belongs to the thread that made it, which alone calls its functions. The memory
// that the caller wrote before run() is visible to all members, and what they wrote is visible to
// the caller after it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "topology/file_root.h"

namespace sluice::topology {

class ThreadTeam {
 public:
  // How long a member spins, at most, before it sleeps.
  static constexpr std::chrono::microseconds kSpinBudget{30};

  // A team of one member for each entry of `cpus`. Member i > 0 is a new thread that is pinned to
  // cpus[i]; the caller stays where it is (see pin_calling_thread). Where a CPU is named twice,
  // members never spin, for they would do so on the CPU of those they wait for. New threads
  // block signals, but for those that faults raise. Throws std::invalid_argument where `cpus` is
  // empty, std::system_error where a thread cannot be started.
  explicit ThreadTeam(const CpuList& cpus);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::size_t size() const;

  // Whether member i runs on its CPU only. A container may forbid pinning; the team works anyway.
  // False for member 0, which the team leaves alone.
  bool is_pinned(std::size_t member) const;

  // Calls function(member) once on every member and returns when all have returned. Allocates
  // nothing. When calls throw, all are still waited for, and the exception of the lowest member
  // is rethrown. Throws std::logic_error when called from within a run of the same team.
  template <class Function>
  void run(Function&& function) {
    const auto body = [&function](std::size_t member) { std::invoke(function, member); };
    using Body = decltype(body);
    run_job([](const void* context, std::size_t member) { (*static_cast<Body*>(context))(member); },
            &body);
  }

 private:
  using Job = void (*)(const void* context, std::size_t member);
  class Shared;

  void run_job(Job job, const void* context);

  std::unique_ptr<Shared> shared_;
};

// Confines the calling thread to one CPU; false where the system forbids it. Threads that it
// starts later inherit the confinement.
bool pin_calling_thread(unsigned cpu);

// Lets the calling thread run on these CPUs; false where the system refuses.
bool allow_calling_thread(const CpuList& cpus);

// Confines the thread until the end of its life, when the thread may again run where it might
// before. Made and destroyed by one thread.
class ScopedPin {
 public:
  explicit ScopedPin(unsigned cpu);
  ~ScopedPin();
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

  bool is_pinned() const { return is_pinned_; }

 private:
  CpuList before_;  // empty where the system would not tell
  bool is_pinned_;
};

// A part of the numbers from 0 to a total.
struct WorkRange {
  std::size_t begin = 0;
  std::size_t end = 0;  // exclusive

  constexpr std::size_t size() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
};

// The part of 0..total that falls to one of `members`. The parts cover the total in order and
// without overlap; each begins at a multiple of `granularity` and, but for the last of all, ends
// at one; they differ by at most one such unit. A part may be empty. `granularity` and `members`
// are at least 1, index < members.
constexpr WorkRange split(std::size_t total, std::size_t granularity, std::size_t members,
                          std::size_t index) {
  assert(granularity > 0 && index < members);
  const std::size_t units = total / granularity + (total % granularity != 0 ? 1 : 0);
  const std::size_t each = units / members;
  const std::size_t longer = units % members;  // the first so many parts have one unit more
  const auto boundary = [&](std::size_t part) {
    const std::size_t unit = each * part + std::min(part, longer);
    return unit == units ? total : unit * granularity;
  };
  return {boundary(index), boundary(index + 1)};
}

// The numbers from 0 to a total, for the members of a team to take as they get on. The CPUs of a
// virtual machine are not equally fast from one moment to the next: the neighbour on the other
// hyper-thread halves one of them, another process takes it away. With parts of equal size the team
// would be as slow as its slowest member.
class SharedRange {
 public:
  // `members`: how many threads take from it, at least 1.
  SharedRange(std::size_t total, std::size_t members) : total_(total), members_(members) {}

  // The next part, one half of an equal share of what is left; empty when nothing is. Parts become
  // smaller towards the end, so that all members end together. Any thread may call it.
  WorkRange take() {
    std::size_t begin = next_.load(std::memory_order_relaxed);
    std::size_t end = 0;
    do {
      const std::size_t left = total_ - begin;
      if (left == 0) return {};
      end = begin + std::max<std::size_t>(1, left / (2 * members_));
    } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return {begin, end};
  }

 private:
  std::size_t total_, members_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace sluice::topology
