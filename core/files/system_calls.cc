#include "core/files/system_calls.h"

#include <cstdio>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice::files {

int SystemCalls::open(const char* path, int flags, mode_t mode) {
  return ::open(path, flags, mode);
}

int SystemCalls::mkostemp(char* pattern, int flags) {
  return ::mkostemp(pattern, flags);
}

int SystemCalls::fchmod(int descriptor, mode_t mode) {
  return ::fchmod(descriptor, mode);
}

// Not posix_fallocate(3), which writes to every block where the file system cannot reserve space.
int SystemCalls::fallocate(int descriptor, off_t offset, off_t bytes) {
  return ::fallocate(descriptor, 0, offset, bytes);
}

ssize_t SystemCalls::write(int descriptor, const void* data, std::size_t bytes) {
  return ::write(descriptor, data, bytes);
}

ssize_t SystemCalls::pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) {
  return ::pwrite(descriptor, data, bytes, offset);
}

int SystemCalls::ftruncate(int descriptor, off_t bytes) {
  return ::ftruncate(descriptor, bytes);
}

int SystemCalls::fsync(int descriptor) {
  return ::fsync(descriptor);
}

int SystemCalls::fdatasync(int descriptor) {
  return ::fdatasync(descriptor);
}

int SystemCalls::posix_fadvise(int descriptor, off_t offset, off_t bytes, int advice) {
  return ::posix_fadvise(descriptor, offset, bytes, advice);
}

int SystemCalls::rename(const char* from, const char* to) {
  return ::rename(from, to);
}

int SystemCalls::unlink(const char* path) {
  return ::unlink(path);
}

int SystemCalls::mkdir(const char* path, mode_t mode) {
  return ::mkdir(path, mode);
}

int SystemCalls::close(int descriptor) {
  return ::close(descriptor);
}

SystemCalls& kernel() {
  static SystemCalls calls;
  return calls;
}

}  // namespace sluice::files
