// System calls that are written down, and that can be made to fail: "write" is the name of a call,
// and "write report.json" a call on a file.
#pragma once

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/files/system_calls.h"

namespace sluice::test {

class RecordedCalls : public files::SystemCalls {
 public:
  // Gives the error with which a call shall fail, or 0. `index` counts all calls from 0.
  using Fault = std::function<int(const std::string& call, std::size_t index)>;

  // Letters that mkostemp chose are written as X, and folders are left out.
  std::vector<std::string> calls;
  Fault fault;
  std::size_t write_bytes_max = ~std::size_t{0};  // less than that is asked for: short writes

  int open(const char* path, int flags, mode_t mode) override {
    const std::string kind = (flags & O_DIRECTORY) != 0 ? "open folder" : "open";
    if (fails(kind, path)) return -1;
    return named(SystemCalls::open(path, flags, mode), path);
  }
  int mkostemp(char* pattern, int flags) override {
    const std::string name = std::filesystem::path(pattern).filename();
    if (fails("create", pattern)) return -1;
    const int descriptor = SystemCalls::mkostemp(pattern, flags);
    masked_[pattern] = name;
    return named(descriptor, pattern);
  }
  int fchmod(int descriptor, mode_t mode) override {
    return fails("fchmod", descriptor) ? -1 : SystemCalls::fchmod(descriptor, mode);
  }
  int fallocate(int descriptor, off_t offset, off_t bytes) override {
    return fails("fallocate", descriptor) ? -1 : SystemCalls::fallocate(descriptor, offset, bytes);
  }
  ssize_t write(int descriptor, const void* data, std::size_t bytes) override {
    if (fails("write", descriptor)) return -1;
    return SystemCalls::write(descriptor, data, std::min(bytes, write_bytes_max));
  }
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) override {
    if (fails("write", descriptor)) return -1;
    return SystemCalls::pwrite(descriptor, data, std::min(bytes, write_bytes_max), offset);
  }
  int ftruncate(int descriptor, off_t bytes) override {
    return fails("truncate", descriptor) ? -1 : SystemCalls::ftruncate(descriptor, bytes);
  }
  int fsync(int descriptor) override {
    return fails("sync", descriptor) ? -1 : SystemCalls::fsync(descriptor);
  }
  int fdatasync(int descriptor) override {
    return fails("sync", descriptor) ? -1 : SystemCalls::fdatasync(descriptor);
  }
  int rename(const char* from, const char* to) override {
    if (fails("rename", from, " " + shown(to))) return -1;
    return SystemCalls::rename(from, to);
  }
  int unlink(const char* path) override {
    return fails("unlink", path) ? -1 : SystemCalls::unlink(path);
  }
  int close(int descriptor) override {
    const bool is_failure = fails("close", descriptor);
    names_.erase(descriptor);
    const int result = SystemCalls::close(descriptor);  // it closes even where it reports an error
    return is_failure ? -1 : result;
  }

 private:
  int named(int descriptor, const std::string& path) {
    if (descriptor >= 0) names_[descriptor] = path;
    return descriptor;
  }
  std::string shown(const std::string& path) const {
    const auto at = masked_.find(path);
    return at != masked_.end() ? at->second : std::filesystem::path(path).filename().string();
  }
  bool fails(const std::string& kind, int descriptor) { return fails(kind, names_[descriptor]); }
  bool fails(const std::string& kind, const std::string& path, const std::string& more = "") {
    const std::string call = kind + " " + shown(path) + more;
    const int error = fault ? fault(call, calls.size()) : 0;
    calls.push_back(call);
    if (error != 0) errno = error;
    return error != 0;
  }

  std::map<int, std::string> names_;
  std::map<std::string, std::string> masked_;
};

}  // namespace sluice::test
