// What clients may make a program hold: one number that all comes out of, in bytes of memory, or
// in places of a queue.
//
// Whoever keeps something for a client takes its bytes first, and refuses the client where they are
// not there. The destructor of Held gives them back, so that it cannot be forgotten. New work must
// leave a reserve, which only work that has begun may use: it need not be given up for newcomers.
//
// Always: what is held together is at most bytes(); so bytes() is what a plan has to count.
//
// Threads: an Allowance may be used by any; a Held belongs to one at a time. The Allowance must
// outlive what was taken from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"

namespace sluice {

class Allowance {
 public:
  explicit Allowance(std::uint64_t bytes, std::uint64_t reserve_bytes = 0)
      : bytes_(bytes), reserve_bytes_(reserve_bytes) {}
  ~Allowance() {
    base::check(used_ == bytes_for_good_, "an allowance ends before what was taken from it");
  }
  Allowance(const Allowance&) = delete;
  Allowance& operator=(const Allowance&) = delete;

  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept
        : from_(other.from_), bytes_(std::exchange(other.bytes_, std::uint64_t{0})) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(from_, other.from_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Held() {
      if (from_ != nullptr) from_->give_back(bytes_);
    }

    std::uint64_t bytes() const { return bytes_; }

    // Holds this many bytes from now on; more may come out of the reserve. Returns false, and
    // changes nothing, where they are not there.
    [[nodiscard]] bool resize(std::uint64_t bytes) { return resize_leaving(0, bytes); }

    // The same, as new work has it: the reserve stays.
    [[nodiscard]] bool resize_as_new(std::uint64_t bytes) {
      return resize_leaving(from_ == nullptr ? 0 : from_->reserve_bytes_, bytes);
    }

   private:
    friend class Allowance;
    Held(Allowance& from, std::uint64_t bytes) : from_(&from), bytes_(bytes) {}

    bool resize_leaving(std::uint64_t left_bytes, std::uint64_t bytes) {
      if (from_ == nullptr) return bytes == 0;
      if (bytes > bytes_ && !from_->add(bytes - bytes_, left_bytes)) return false;
      if (bytes < bytes_) from_->give_back(bytes_ - bytes);
      bytes_ = bytes;
      return true;
    }

    Allowance* from_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  // For new work. Nothing where less than the reserve would be left; none (0) is always there.
  std::optional<Held> take(std::uint64_t bytes) {
    if (bytes != 0 && !add(bytes, reserve_bytes_)) return std::nullopt;
    return Held(*this, bytes);
  }

  // Makes it larger, by some bytes that are in use for good and others for clients.
  void extend(std::uint64_t bytes_for_good, std::uint64_t bytes) {
    bytes_for_good_ += bytes_for_good;
    bytes_ += bytes_for_good + bytes;
    used_ += bytes_for_good;
  }

  std::uint64_t bytes() const { return bytes_; }
  // The most that new work could ever take.
  std::uint64_t bytes_for_one() const { return bytes_ - bytes_for_good_ - reserve_bytes_; }
  std::uint64_t used() const { return used_; }

 private:
  bool add(std::uint64_t bytes, std::uint64_t left_bytes) {
    std::uint64_t used = used_;
    do {
      base::check(used <= bytes_, "clients hold more than was planned for them");
      const std::uint64_t free = bytes_ - used;
      if (free < left_bytes || free - left_bytes < bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }

  void give_back(std::uint64_t bytes) {
    const std::uint64_t before = used_.fetch_sub(bytes);
    base::check(bytes <= before, "clients give back more than they have taken");
  }

  std::atomic<std::uint64_t> bytes_;
  std::atomic<std::uint64_t> bytes_for_good_{0};
  std::uint64_t reserve_bytes_;
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace sluice
