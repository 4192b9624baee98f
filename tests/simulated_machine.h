// The machine of a simulation: its time, its disks and its memory, all of which follow from a seed.
//
// Used by one thread, but for SteppedMemory, which a memory guard shares.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "core/engine/memory_guard.h"
#include "tests/forgetful_disk.h"

namespace sluice::test {

// Time that passes only when somebody says so, and what is to happen in it.
class VirtualTime {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::microseconds;

  Clock::time_point now() const { return now_; }
  Duration since_start() const { return std::chrono::duration_cast<Duration>(now_ - start_); }

  void at(Duration from_now, std::function<void()> happens) {
    events_.emplace(now_ + from_now, std::move(happens));
  }
  // Lets what is due happen, each at its time. What happens may let time pass, too.
  void pass(Duration time) {
    const Clock::time_point end = now_ + time;
    while (!is_happening_ && !events_.empty() && events_.begin()->first <= end) happen();
    now_ = std::max(now_, end);
  }
  // The same, but nothing happens before the next pass().
  void delay(Duration time) { now_ += time; }
  // Returns false when nothing is to happen any more.
  bool pass_to_next() {
    if (events_.empty()) return false;
    happen();
    return true;
  }
  void forget_events() { events_.clear(); }

 private:
  void happen() {
    const auto event = events_.extract(events_.begin());
    now_ = std::max(now_, event.key());
    is_happening_ = true;
    event.mapped()();
    is_happening_ = false;
  }

  // Parts of the program look at the real time too: this one is ahead of it.
  Clock::time_point start_ = Clock::now(), now_ = start_;
  std::multimap<Clock::time_point, std::function<void()>> events_;
  bool is_happening_ = false;
};

// What happens to all disks of a machine at a time.
struct DiskTroubles {
  std::mt19937_64 random;
  bool is_full = false;
  std::uint64_t errors_one_in = 0;        // of so many calls one gives EIO; 0: none
  std::uint64_t short_writes_one_in = 0;  // of so many writes one writes less; 0: none
  std::uint64_t calls_until_kill = 0;     // 0: none
  std::function<void()> on_call = {};     // before each
  std::function<void()> kill = {};
  std::uint64_t errors = 0, full = 0, short_writes = 0;  // so far
};

// A disk that forgets, is full, fails and writes less than asked.
class SimulatedDisk final : public ForgetfulDisk {
 public:
  SimulatedDisk(const std::filesystem::path& folder, std::uint64_t seed, DiskTroubles& troubles)
      : ForgetfulDisk(folder, seed), troubles_(troubles) {}

  int open(const char* path, int flags, mode_t mode) override {
    return fails((flags & O_CREAT) != 0) ? -1 : ForgetfulDisk::open(path, flags, mode);
  }
  int mkostemp(char* pattern, int flags) override {
    return fails(true) ? -1 : ForgetfulDisk::mkostemp(pattern, flags);
  }
  ssize_t write(int descriptor, const void* data, std::size_t bytes) override {
    return fails(true) ? -1 : ForgetfulDisk::write(descriptor, data, perhaps_fewer(bytes));
  }
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) override {
    return fails(true) ? -1 : ForgetfulDisk::pwrite(descriptor, data, perhaps_fewer(bytes), offset);
  }
  int ftruncate(int descriptor, off_t bytes) override {
    return fails(false) ? -1 : ForgetfulDisk::ftruncate(descriptor, bytes);
  }
  int fsync(int descriptor) override {
    return fails(false) ? -1 : ForgetfulDisk::fsync(descriptor);
  }
  int rename(const char* from, const char* to) override {
    return fails(false) ? -1 : ForgetfulDisk::rename(from, to);
  }
  int unlink(const char* path) override { return fails(false) ? -1 : ForgetfulDisk::unlink(path); }

 private:
  bool fails(bool wants_room) {
    if (troubles_.on_call) troubles_.on_call();
    if (troubles_.calls_until_kill != 0 && --troubles_.calls_until_kill == 0) troubles_.kill();
    if (wants_room && troubles_.is_full) {
      ++troubles_.full;
      errno = ENOSPC;
      return true;
    }
    if (!is_one_of(troubles_.errors_one_in)) return false;
    ++troubles_.errors;
    errno = EIO;
    return true;
  }
  std::size_t perhaps_fewer(std::size_t bytes) {
    if (bytes < 2 || !is_one_of(troubles_.short_writes_one_in)) return bytes;
    ++troubles_.short_writes;
    return 1 + troubles_.random() % (bytes - 1);
  }
  bool is_one_of(std::uint64_t number) { return number != 0 && troubles_.random() % number == 0; }

  DiskTroubles& troubles_;
};

// The memory of a machine, at which a guard looks when it is told to.
class SteppedMemory final : public engine::MemorySource {
 public:
  explicit SteppedMemory(const VirtualTime& time) : time_(time) {}

  engine::MemoryPolicy::Clock::time_point now() const override { return time_.now(); }
  std::uint64_t usable_bytes() override { return seen_ = usable; }
  engine::MemorySigns signs() override { return {}; }
  void wait(std::chrono::milliseconds time) override {
    std::unique_lock lock(mutex_);
    next_look_ = time;
    waits_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return may_look_ || is_ending_; });
    may_look_ = false;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }

  // Waits until the guard has had the look with which it begins. Returns the time until the next.
  std::chrono::milliseconds first_look() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waits_; });
    return next_look_;
  }
  // Lets the guard look once more, and returns when it has.
  std::chrono::milliseconds look() {
    std::unique_lock lock(mutex_);
    may_look_ = true;
    waits_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return waits_; });
    return next_look_;
  }

  std::uint64_t seen() const { return seen_; }  // at the last look
  std::uint64_t usable = ~std::uint64_t{0};     // changed between looks

 private:
  const VirtualTime& time_;
  std::uint64_t seen_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::milliseconds next_look_{0};
  bool waits_ = false, may_look_ = false, is_ending_ = false;
};

}  // namespace sluice::test
