// Lays out buffers one after the other in a piece of memory, each aligned to 64 bytes. Without
// memory it only counts the bytes that they would take. Owns nothing.
#pragma once

#include <cstddef>
#include <span>

#include "base/check.h"

namespace sluice::model {

class Arena {
 public:
  Arena() = default;  // counts
  explicit Arena(std::span<std::byte> memory) : memory_(memory) {}

  // Memory for `count` elements; null when this arena only counts.
  template <typename T>
  T* take(std::size_t count) {
    const std::size_t start = at_;
    at_ += (count * sizeof(T) + 63) / 64 * 64;
    if (memory_.data() == nullptr) return nullptr;
    base::check(at_ <= memory_.size(), "buffers take more memory than was counted");
    return reinterpret_cast<T*>(memory_.data() + start);
  }
  float* floats(std::size_t count) { return take<float>(count); }

  std::size_t bytes() const { return at_; }  // taken so far

 private:
  std::span<std::byte> memory_;
  std::size_t at_ = 0;
};

}  // namespace sluice::model
