// Lays out buffers one after the other in a piece of memory, each aligned to 64 bytes. Without
// memory it only counts the bytes that they would take. Owns nothing.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sluice::model {

class Arena {
 public:
  Arena() = default;  // counts
  explicit Arena(std::byte* memory) : memory_(memory) {}

  // Memory for `count` elements; null when this arena only counts.
  template <typename T>
  T* take(std::size_t count) {
    std::byte* start = memory_ == nullptr ? nullptr : memory_ + at_;
    at_ += (count * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(start);
  }
  float* floats(std::size_t count) { return take<float>(count); }

  std::size_t bytes() const { return at_; }  // taken so far

 private:
  std::byte* memory_ = nullptr;
  std::size_t at_ = 0;
};

}  // namespace sluice::model
