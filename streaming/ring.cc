#include "streaming/ring.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "base/mutex.h"

namespace sluice::streaming {
namespace {

io_uring_restriction may_register(std::uint8_t operation) {
  io_uring_restriction allowed{};
  allowed.opcode = IORING_RESTRICTION_REGISTER_OP;
  allowed.register_op = operation;
  return allowed;
}

io_uring_restriction may_do(std::uint8_t operation) {
  io_uring_restriction allowed{};
  allowed.opcode = IORING_RESTRICTION_SQE_OP;
  allowed.sqe_op = operation;
  return allowed;
}

io_uring_restriction with_flags(std::uint16_t opcode, std::uint8_t flags) {
  io_uring_restriction allowed{};
  allowed.opcode = opcode;
  allowed.sqe_flags = flags;
  return allowed;
}

// liburing 2.3, of Debian 12, declares functions for these two and does not export them. Returns 0
// or an errno.
int register_with(const io_uring& ring, unsigned operation, void* what, std::size_t count) {
  const long result = ::syscall(SYS_io_uring_register, ring.ring_fd, operation, what, count);
  return result < 0 ? errno : 0;
}

// Returns 0 or an errno.
int restrict_and_enable(io_uring& ring) {
  std::array restrictions = {
      may_register(IORING_REGISTER_FILES),
      may_register(IORING_UNREGISTER_FILES),
      may_register(IORING_REGISTER_BUFFERS),
      may_register(IORING_UNREGISTER_BUFFERS),
      may_do(IORING_OP_READ),
      may_do(IORING_OP_READ_FIXED),
      with_flags(IORING_RESTRICTION_SQE_FLAGS_ALLOWED, IOSQE_FIXED_FILE),
      with_flags(IORING_RESTRICTION_SQE_FLAGS_REQUIRED, IOSQE_FIXED_FILE),
  };
  const int error =
      register_with(ring, IORING_REGISTER_RESTRICTIONS, restrictions.data(), restrictions.size());
  return error != 0 ? error : register_with(ring, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
}

// Returns 0 or an errno.
int make(io_uring& ring) {
  if (const int error = -io_uring_queue_init(Ring::depth, &ring, IORING_SETUP_R_DISABLED)) {
    return error;
  }
  const int error = restrict_and_enable(ring);
  if (error != 0) io_uring_queue_exit(&ring);
  return error;
}

struct Spare {
  base::Mutex mutex;
  std::vector<io_uring> rings SLUICE_GUARDED_BY(mutex);
};

Spare& spare() {
  static Spare all;
  return all;
}

}  // namespace

Ring::Ring() {
  Spare& all = spare();
  {
    const base::MutexLock lock(all.mutex);
    if (!all.rings.empty()) {
      ring_ = all.rings.back();
      all.rings.pop_back();
      // A process that was forked may have used the ring since, and this one counts for itself.
      ring_.sq.sqe_head = ring_.sq.sqe_tail = *ring_.sq.ktail;
      is_spare_ = true;
      return;
    }
  }
  if (const int error = make(ring_)) {
    throw std::system_error(error, std::generic_category(), "io_uring cannot be set up");
  }
}

Ring::~Ring() {
  if (!is_spare_) {
    io_uring_queue_exit(&ring_);
    return;
  }
  io_uring_unregister_files(&ring_);
  Spare& all = spare();
  const base::MutexLock lock(all.mutex);
  all.rings.push_back(ring_);
}

void make_spare_rings(std::size_t count) {
  Spare& all = spare();
  const base::MutexLock lock(all.mutex);
  all.rings.reserve(count);
  while (all.rings.size() < count) {
    io_uring ring = {};
    if (make(ring) != 0) return;
    all.rings.push_back(ring);
  }
}

}  // namespace sluice::streaming
