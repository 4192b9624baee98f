// Has the system provide memory before it is first written to.
//
// The kernel (and under a hypervisor the host too) takes longer to zero pages than a fast disk
// takes to fill them. So extra threads touch the memory ahead of the reads. This affects only
// speed: when the kernel has no MADV_POPULATE_WRITE (before 5.14), or there is no memory or no
// thread to be had, pages are provided when they are first written.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread.h"

namespace sluice::streaming {

class Populate {
 public:
  // Starts up to `threads` threads that touch `memory` from its start to its end. The memory must
  // stay mapped until the destructor has returned; its content is not changed.
  Populate(std::span<std::byte> memory, unsigned threads);
  // Stops the threads; waits until each has finished the piece it is working on.
  ~Populate();
  Populate(const Populate&) = delete;
  Populate& operator=(const Populate&) = delete;

 private:
  void touch_pieces();

  std::span<std::byte> memory_;
  std::atomic<std::uint64_t> next_{0};  // the first byte that no thread has taken yet
  std::atomic<bool> is_stopping_{false};
  std::vector<base::Thread> threads_;
};

}  // namespace sluice::streaming
