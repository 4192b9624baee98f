#include "topology/thread_team.h"

#include <atomic>
#include <climits>
#include <cstdint>
#include <exception>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::topology {
namespace {

// Words that different members write to lie two cache lines apart, because processors fetch lines
// in pairs.
constexpr std::size_t kApartBytes = 128;

// Tells the processor that this thread is waiting, so that its sibling gets the core's resources.
// On aarch64 `yield` does nothing where cores have one thread; a barrier for instructions takes
// about as long as the pause of x86.
void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

bool pin(pthread_t thread, unsigned cpu) {
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
      CPU_ALLOC(cpu + 1), [](cpu_set_t* set) { CPU_FREE(set); });
  if (!mask) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, mask.get());
  CPU_SET_S(cpu, bytes, mask.get());
  return ::pthread_setaffinity_np(thread, bytes, mask.get()) == 0;
}

bool has_duplicates(CpuList cpus) {
  std::sort(cpus.begin(), cpus.end());
  return std::adjacent_find(cpus.begin(), cpus.end()) != cpus.end();
}

// A number that one thread changes and others wait for. A waiter spins for the budget and then
// sleeps on the number itself (futex(2)).
//
// No wake-up is lost: a waiter counts itself as a sleeper and then looks at the value again; a
// writer changes the value and then looks for sleepers. All four are sequentially consistent, so
// one of the two sees the other. When the wake-up comes before the sleep, the kernel finds the
// value changed and does not let the waiter sleep.
class alignas(kApartBytes) Signal {
 public:
  std::uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Only while no other thread uses the signal.
  void reset(std::uint32_t value) { value_.store(value, std::memory_order_relaxed); }

  // Returns the new value.
  std::uint32_t add(std::uint32_t change) { return value_.fetch_add(change) + change; }

  void wake_sleepers() {
    if (sleepers_.load() > 0) ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX);
  }

  // Returns the value once `done` holds of it.
  template <class Done>
  std::uint32_t await(std::chrono::nanoseconds spin_budget, Done done) {
    std::uint32_t value = spin(spin_budget, done);
    if (done(value)) return value;
    sleepers_.fetch_add(1);
    for (value = value_.load(); !done(value); value = value_.load()) {
      ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, value, nullptr);
    }
    sleepers_.fetch_sub(1);
    return value;
  }

 private:
  template <class Done>
  std::uint32_t spin(std::chrono::nanoseconds budget, Done done) const {
    constexpr int kPausesPerLook = 16;  // reading the clock costs more than a pause
    std::uint32_t value = load();
    if (done(value) || budget.count() == 0) return value;
    const auto deadline = std::chrono::steady_clock::now() + budget;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        pause_briefly();
        value = load();
        if (done(value)) return value;
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return value;
  }

  std::atomic<std::uint32_t> value_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t),
              "a futex is the word itself");

}  // namespace

class ThreadTeam::Shared {
 public:
  explicit Shared(const CpuList& cpus) : members_(cpus.size()) {
    if (!has_duplicates(cpus)) spin_budget_ = kSpinBudget;
  }

  ~Shared() {
    stopping_ = true;
    rounds_.add(1);
    rounds_.wake_sleepers();
    for (Member& member : members_) member.thread.join();
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void start(const CpuList& cpus) {
    for (std::size_t i = 1; i < members_.size(); ++i) {
      members_[i].thread = base::Thread([this, i] { serve(i); });
      ::pthread_setname_np(members_[i].thread.native_handle(), "sluice-team");
      members_[i].is_pinned = pin(members_[i].thread.native_handle(), cpus[i]);
    }
  }

  std::size_t size() const { return members_.size(); }
  bool is_pinned(std::size_t member) const { return members_.at(member).is_pinned; }

  void run(Job job, const void* context) {
    if (members_.size() == 1) return job(context, 0);
    if (running_.exchange(true)) {
      throw std::logic_error("ThreadTeam::run was called from within a run of the same team");
    }
    job_ = job;
    context_ = context;
    pending_.reset(static_cast<std::uint32_t>(members_.size() - 1));
    rounds_.add(1);
    rounds_.wake_sleepers();
    call(0);
    pending_.await(spin_budget_, [](std::uint32_t pending) { return pending == 0; });
    running_ = false;
    rethrow_first();
  }

 private:
  struct Member {
    base::Thread thread;
    std::exception_ptr error;
    bool is_pinned = false;
  };

  void call(std::size_t member) noexcept {
    try {
      job_(context_, member);
    } catch (...) {
      members_[member].error = std::current_exception();
      has_error_.store(true, std::memory_order_relaxed);  // ordered by pending_
    }
  }

  // The main function of a member's thread.
  void serve(std::size_t member) {
    for (std::uint32_t seen = 0;;) {
      seen = rounds_.await(spin_budget_, [seen](std::uint32_t round) { return round != seen; });
      if (stopping_) return;
      call(member);
      if (pending_.add(std::uint32_t{0} - 1) == 0) pending_.wake_sleepers();
    }
  }

  void rethrow_first() {
    if (!has_error_.exchange(false, std::memory_order_relaxed)) return;
    std::exception_ptr first;
    for (Member& member : members_) {
      std::exception_ptr error = std::exchange(member.error, nullptr);
      if (!first) first = std::move(error);
    }
    std::rethrow_exception(first);
  }

  Signal rounds_;   // grows by one with each run
  Signal pending_;  // number of members, without the caller, that have not finished this run

  std::vector<Member> members_;  // entry 0 is the caller and has no thread
  std::chrono::nanoseconds spin_budget_{0};

  // Written by the caller before it adds to rounds_, read by members after they have seen that.
  Job job_ = nullptr;
  const void* context_ = nullptr;
  bool stopping_ = false;

  std::atomic<bool> running_{false};
  std::atomic<bool> has_error_{false};
};

ThreadTeam::ThreadTeam(const CpuList& cpus) {
  if (cpus.empty()) throw std::invalid_argument("a thread team needs at least one CPU");
  shared_ = std::make_unique<Shared>(cpus);
  shared_->start(cpus);
}

ThreadTeam::~ThreadTeam() = default;

std::size_t ThreadTeam::size() const {
  return shared_->size();
}

bool ThreadTeam::is_pinned(std::size_t member) const {
  return shared_->is_pinned(member);
}

void ThreadTeam::run_job(Job job, const void* context) {
  shared_->run(job, context);
}

bool pin_calling_thread(unsigned cpu) {
  return pin(::pthread_self(), cpu);
}

ScopedPin::ScopedPin(unsigned cpu) {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) before_.push_back(i);
    }
  }
  is_pinned_ = !before_.empty() && pin_calling_thread(cpu);
}

bool allow_calling_thread(const CpuList& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

ScopedPin::~ScopedPin() {
  // If this fails the thread stays pinned, which costs speed and nothing else.
  if (is_pinned_) static_cast<void>(allow_calling_thread(before_));
}

}  // namespace sluice::topology
