// A ring of io_uring that can read files which are registered with it, and nothing else: the kernel
// refuses all other operations on it (IORING_REGISTER_RESTRICTIONS). A filter of system calls does
// not see what goes through a ring, and a ring without restrictions opens files and sockets.
#pragma once

#include <cstddef>
#include <liburing.h>

namespace sluice::streaming {

class Ring {
 public:
  // The most reads in flight: 32 MiB of pieces, several times what keeps a disk busy.
  static constexpr unsigned depth = 64;

  // Takes a spare one, or else makes one. Throws std::system_error when the kernel or the container
  // does not grant io_uring (EPERM, ENOSYS, ENOMEM).
  Ring();
  // Lets go of the files. Nothing may be in flight, and no buffers registered any more. The ring is
  // a spare one again if it was one.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  io_uring* get() { return &ring_; }
  // What is in flight does not end: the ring cannot be used again.
  void give_up() { is_spare_ = false; }

 private:
  io_uring ring_ = {};
  bool is_spare_ = false;
};

// Makes `count` spare rings, or as many as the kernel grants. For a process that will not be
// allowed to make rings (base/confinement.h): so many readers can then exist at a time.
void make_spare_rings(std::size_t count);

}  // namespace sluice::streaming
