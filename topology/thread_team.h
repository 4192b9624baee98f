// A team of threads that run the same function together: fork and join, up to thousands of times a
// second.
//
// The calling thread is member 0. The other members wait for work: they spin for a short time and
// then sleep on a futex. The spin makes a step's many small runs cheap. It is short because a
// hypervisor may take a CPU away at any time: a member that spins may then keep the member it waits
// for from running, and the time it spins counts against the CPU quota.
//
// Threads: only the thread that made a team calls its functions. Memory that the caller wrote
// before run() is visible to all members, and what they wrote is visible to the caller after run().
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/check.h"
#include "topology/file_root.h"

namespace sluice::topology {

class ThreadTeam {
 public:
  // How long a member spins, at most, before it sleeps.
  static constexpr std::chrono::microseconds kSpinBudget{30};

  // A team of one member for each entry of `cpus`. Member i > 0 is a new thread that is pinned to
  // cpus[i]; the caller is not pinned (see pin_calling_thread). If a CPU is named twice, members
  // never spin, because they might occupy the CPU of a member they wait for. New threads block all
  // signals except those that faults raise. Throws std::invalid_argument if `cpus` is empty,
  // std::system_error if a thread cannot be started.
  explicit ThreadTeam(const CpuList& cpus);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  std::size_t size() const;

  // Whether `member` is pinned to its CPU. A container may forbid pinning; the team works anyway.
  // False for member 0, which the team does not pin.
  bool is_pinned(std::size_t member) const;

  // Calls function(member) once on every member and returns when all calls have returned. Allocates
  // nothing. When calls throw, run() still waits for all of them and then rethrows the exception of
  // the lowest member. Throws std::logic_error when called from within a run of the same team.
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

// Pins the calling thread to one CPU; returns false if the system forbids it. Threads that it
// starts later inherit the pinning.
bool pin_calling_thread(unsigned cpu);

// Lets the calling thread run on these CPUs; returns false if the system refuses.
bool allow_calling_thread(const CpuList& cpus);

// Pins the calling thread to one CPU while the object lives; the destructor restores the CPUs that
// the thread could run on before. Create and destroy it on the same thread.
class ScopedPin {
 public:
  explicit ScopedPin(unsigned cpu);
  ~ScopedPin();
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

  bool is_pinned() const { return is_pinned_; }

 private:
  CpuList before_;  // empty if the system did not say
  bool is_pinned_;
};

// The numbers [begin, end).
struct WorkRange {
  std::size_t begin = 0;
  std::size_t end = 0;  // exclusive

  constexpr std::size_t size() const { return end - begin; }
  constexpr bool empty() const { return begin == end; }
};

// Splits [0, total) into `members` parts and returns the part with number `index`. The parts cover
// the total in order and without overlap. Each begins and ends at a multiple of `granularity`,
// except that the last ends at `total`; their sizes differ by at most one such unit. A part may be
// empty. `granularity` and `members` are at least 1, index < members.
constexpr WorkRange split(std::size_t total, std::size_t granularity, std::size_t members,
                          std::size_t index) {
  base::check(granularity > 0 && index < members, "work is split for more members than there are");
  const std::size_t units = total / granularity + (total % granularity != 0 ? 1 : 0);
  const std::size_t each = units / members;
  const std::size_t longer = units % members;  // so many parts, the first ones, have one unit more
  const auto boundary = [&](std::size_t part) {
    const std::size_t unit = each * part + std::min(part, longer);
    return unit == units ? total : unit * granularity;
  };
  return {boundary(index), boundary(index + 1)};
}

// Hands out the numbers [0, total) in parts that threads take as they become free. The CPUs of a
// virtual machine are not equally fast at every moment: work on the other hyper-thread halves the
// speed of one, or another process takes it away. With parts of equal size the team would be as
// slow as its slowest member.
class SharedRange {
 public:
  // `members`: how many threads take from it, at least 1.
  SharedRange(std::size_t total, std::size_t members) : total_(total), members_(members) {}

  // Takes the next part: half of an equal share of what is left, at least one number; empty when
  // nothing is left. Parts become smaller towards the end, so that all members finish at about the
  // same time. Any thread may call it.
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

// Splits 0..count into parts that the members of the team take as they become free, and calls
// f(member, begin, end) for each part. The caller does a single item itself and wakes no thread.
template <class Function>
void for_each_part(ThreadTeam& team, std::size_t count, Function&& f) {
  if (count == 1 || team.size() == 1) {
    f(std::size_t{0}, std::size_t{0}, count);
    return;
  }
  SharedRange items(count, team.size());
  team.run([&](std::size_t member) {
    for (WorkRange part = items.take(); !part.empty(); part = items.take()) {
      f(member, part.begin, part.end);
    }
  });
}

}  // namespace sluice::topology
