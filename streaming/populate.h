// Has the system provide memory before it is first written to.
//
// Zeroing pages takes the kernel (and under a hypervisor the host as well) longer than a fast disk
// needs to fill them. So while the first bytes are being read, threads of their own touch what
// comes after. Only speed depends on it: where the kernel lacks MADV_POPULATE_WRITE (before 5.14),
// or memory or threads cannot be had, pages come when they are written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace sluice::streaming {

class Populate {
 public:
  // Touches `memory` from its start to its end on up to `threads` threads. The memory must stay
  // mapped until the destructor has returned; its content is not changed.
  Populate(std::span<std::byte> memory, unsigned threads);
  // Stops, and waits for the pieces at hand.
  ~Populate();
  Populate(const Populate&) = delete;
  Populate& operator=(const Populate&) = delete;

 private:
  void touch_pieces();

  std::span<std::byte> memory_;
  std::atomic<std::uint64_t> next_{0};  // the first byte that no thread has taken on
  std::atomic<bool> is_stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::streaming
