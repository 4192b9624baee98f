// The system calls that change files, behind a narrow seam: tests replace them with a disk that is
// full, fails, writes less than asked, or forgets what was never synchronised.
//
// Each member does, returns and reports through errno what its manual page says. Reading needs no
// seam: what is read is checked.
#pragma once

#include <cstddef>
#include <sys/types.h>

namespace sluice::files {

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  virtual int mkostemp(char* pattern, int flags);
  virtual int fchmod(int descriptor, mode_t mode);
  virtual int fallocate(int descriptor, off_t offset, off_t bytes);
  virtual ssize_t write(int descriptor, const void* data, std::size_t bytes);
  virtual ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset);
  virtual int ftruncate(int descriptor, off_t bytes);
  virtual int fsync(int descriptor);
  virtual int fdatasync(int descriptor);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int mkdir(const char* path, mode_t mode);
  virtual int close(int descriptor);
  virtual int posix_fadvise(int descriptor, off_t offset, off_t bytes, int advice);
};

// The real ones. They hold no state.
SystemCalls& kernel();

}  // namespace sluice::files
