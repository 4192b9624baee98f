// Mutexes that the compiler checks: clang's -Wthread-safety refuses an access to a member that is
// SLUICE_GUARDED_BY(mutex_) where that mutex is not held. (The mutexes of libstdc++ carry no such
// annotations.) Other compilers see plain mutexes.
//
//     base::Mutex mutex_;
//     base::Condition changed_;
//     std::deque<Piece> waiting_ SLUICE_GUARDED_BY(mutex_);
//
//     base::MutexLock lock(mutex_);
//     while (waiting_.empty()) changed_.wait(lock);
//
// A wait stands in a loop and takes no predicate, because the compiler looks at a lambda as at a
// function that holds nothing. For the same reason an algorithm gets copies of guarded members.
//
// See https://clang.llvm.org/docs/ThreadSafetyAnalysis.html.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SLUICE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SLUICE_THREAD_ANNOTATION(x)
#endif

// Of a member: it may be used only by who holds the mutex.
#define SLUICE_GUARDED_BY(mutex) SLUICE_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: its caller holds the mutex.
#define SLUICE_REQUIRES(mutex) SLUICE_THREAD_ANNOTATION(requires_capability(mutex))

namespace sluice::base {

class SLUICE_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex from here to the end of the block; may let go of it in between.
class SLUICE_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SLUICE_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() SLUICE_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() SLUICE_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }
  void lock() SLUICE_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// Lets threads wait for a change of what a mutex guards. Wakes up for no reason too.
class Condition {
 public:
  // The lock is held again when these return. false: the time is over.
  void wait(MutexLock& lock) { condition_.wait(lock.lock_); }
  template <class Clock, class Duration>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& time) {
    return condition_.wait_until(lock.lock_, time) == std::cv_status::no_timeout;
  }

  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sluice::base
