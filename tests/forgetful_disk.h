// A disk that keeps its promises to the letter and nothing beyond: at a power loss each write since
// the last fsync of its file may be there, or not, or in part, and so may each name that was made,
// changed or removed since the last fsync of its folder, all independently of their order.
//
// The calls go through to a real folder, so that everything else sees what a running system shows.
// lose_power() makes all further calls fail; when those who have files open are gone, restart()
// puts one of the states into the folder that the disk may be in. come_back() leaves everything as
// it was written instead: only the process was killed.
//
// After fail_syncs() synchronising a file fails as Linux has it: what was written before never
// comes to the disk and counts as written, so that the next fsync succeeds, and the system shows it
// until it is dropped from memory.
//
// Used by one thread, for the files of one folder.
#pragma once

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/files/system_calls.h"

namespace sluice::test {

class ForgetfulDisk : public files::SystemCalls {
 public:
  ForgetfulDisk(std::filesystem::path folder, std::uint64_t seed)
      : folder_(std::move(folder)), random_(seed) {}

  int open(const char* path, int flags, mode_t mode) override {
    if (is_off()) return -1;
    const bool is_new = (flags & O_CREAT) != 0 && !std::filesystem::exists(path);
    const int descriptor = SystemCalls::open(path, flags, mode);
    if (descriptor >= 0 && is_new) add(path, descriptor);
    return descriptor;
  }
  int mkostemp(char* pattern, int flags) override {
    if (is_off()) return -1;
    const int descriptor = SystemCalls::mkostemp(pattern, flags);
    if (descriptor >= 0) add(pattern, descriptor);
    return descriptor;
  }
  int fchmod(int descriptor, mode_t mode) override {
    return is_off() ? -1 : SystemCalls::fchmod(descriptor, mode);
  }
  int fallocate(int, off_t, off_t) override {
    if (!is_off()) errno = EOPNOTSUPP;
    return -1;
  }
  ssize_t write(int descriptor, const void* data, std::size_t bytes) override {
    return pwrite(descriptor, data, bytes, ::lseek(descriptor, 0, SEEK_CUR), true);
  }
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) override {
    return pwrite(descriptor, data, bytes, offset, false);
  }
  int ftruncate(int descriptor, off_t bytes) override {
    if (is_off()) return -1;
    files_[file_of(descriptor)].pending.push_back({static_cast<std::size_t>(bytes), {}, true});
    return SystemCalls::ftruncate(descriptor, bytes);
  }
  int fsync(int descriptor) override {
    if (is_off()) return -1;
    struct stat facts {};
    ::fstat(descriptor, &facts);
    if (S_ISDIR(facts.st_mode)) {
      for (const auto& [name, file] : name_changes_) apply_name(name, file);
      name_changes_.clear();
    } else {
      File& file = files_[facts.st_ino];
      if (syncs_to_fail_ > 0) {
        --syncs_to_fail_;
        file.pending.clear();
        file.has_lost = true;
        errno = EIO;
        return -1;
      }
      for (const Change& change : file.pending) apply(file.durable, change, change.bytes.size());
      file.pending.clear();
    }
    return 0;
  }
  int fdatasync(int descriptor) override { return fsync(descriptor); }
  // What is dropped is read from the disk again. Bytes that never came there read as NUL.
  int posix_fadvise(int descriptor, off_t, off_t, int advice) override {
    File& file = files_[file_of(descriptor)];
    if (advice != POSIX_FADV_DONTNEED || !file.has_lost) return 0;
    std::string content = file.durable;
    for (const Change& change : file.pending) apply(content, change, change.bytes.size());
    struct stat facts {};
    ::fstat(descriptor, &facts);
    content.resize(static_cast<std::size_t>(facts.st_size), '\0');
    return SystemCalls::pwrite(descriptor, content.data(), content.size(), 0) == facts.st_size
               ? 0
               : EIO;
  }
  int rename(const char* from, const char* to) override {
    if (is_off()) return -1;
    struct stat facts {};
    ::stat(from, &facts);
    keep_number_of(to);
    name_changes_.push_back({name_of(to), facts.st_ino});
    name_changes_.push_back({name_of(from), std::nullopt});
    return SystemCalls::rename(from, to);
  }
  int unlink(const char* path) override {
    if (is_off()) return -1;
    keep_number_of(path);
    name_changes_.push_back({name_of(path), std::nullopt});
    return SystemCalls::unlink(path);
  }

  void fail_syncs(int count) { syncs_to_fail_ = count; }

  void lose_power() { is_off_ = true; }
  void come_back() { is_off_ = false; }

  void restart() {
    for (const auto& [name, file] : name_changes_) {
      if (random_() % 2 == 0) apply_name(name, file);
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::filesystem::remove(entry);
    }
    std::map<ino_t, File> files;
    std::map<std::string, ino_t> names;
    // In the order in which they were made: names may be random.
    std::vector<std::pair<std::string, ino_t>> in_order(names_.begin(), names_.end());
    std::ranges::stable_sort(in_order, {},
                             [&](const auto& name) { return files_[name.second].order; });
    for (const auto& [name, number] : in_order) {
      const std::filesystem::path path = folder_ / name;
      const std::string content = content_after_loss(files_[number]);
      std::ofstream(path, std::ios::binary) << content;
      struct stat facts {};
      ::stat(path.c_str(), &facts);
      files[facts.st_ino] = {content, {}, files_[number].order};
      names[name] = facts.st_ino;
    }
    files_ = std::move(files);
    names_ = std::move(names);
    name_changes_.clear();
    removed_.clear();
    is_off_ = false;
  }

 private:
  struct Change {
    std::size_t offset = 0;  // or the new size
    std::string bytes;
    bool is_truncation = false;
  };
  struct File {
    std::string durable;
    std::vector<Change> pending;
    std::uint64_t order = 0;
    bool has_lost = false;  // writes that a sync has failed for
  };

  bool is_off() const {
    if (is_off_) errno = EIO;
    return is_off_;
  }
  void add(const std::string& path, int descriptor) {
    const ino_t number = file_of(descriptor);
    name_changes_.push_back({name_of(path), number});
    files_[number].order = ++files_made_;
  }
  // No other file gets the number of one that may come back.
  void keep_number_of(const char* path) {
    base::Descriptor file(::open(path, O_PATH | O_CLOEXEC));
    if (file.is_open()) removed_.push_back(std::move(file));
  }
  static std::string name_of(const std::string& path) {
    return std::filesystem::path(path).filename().string();
  }
  static ino_t file_of(int descriptor) {
    struct stat facts {};
    ::fstat(descriptor, &facts);
    return facts.st_ino;
  }
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset, bool moves_on) {
    if (is_off()) return -1;
    files_[file_of(descriptor)].pending.push_back(
        {static_cast<std::size_t>(offset), std::string(static_cast<const char*>(data), bytes)});
    return moves_on ? SystemCalls::write(descriptor, data, bytes)
                    : SystemCalls::pwrite(descriptor, data, bytes, offset);
  }
  static void apply(std::string& content, const Change& change, std::size_t bytes) {
    if (change.is_truncation) return content.resize(change.offset);
    if (content.size() < change.offset + bytes) content.resize(change.offset + bytes);
    content.replace(change.offset, bytes, change.bytes, 0, bytes);
  }
  void apply_name(const std::string& name, const std::optional<ino_t>& file) {
    if (file) {
      names_[name] = *file;
    } else {
      names_.erase(name);
    }
  }
  // A file may have its new length although its bytes never came: they read as NUL.
  std::string content_after_loss(const File& file) {
    std::string content = file.durable;
    for (const Change& change : file.pending) {
      const std::size_t length = change.bytes.size();
      switch (random_() % 4) {
        case 0:
          break;  // lost
        case 1:
          apply(content, change, length);
          break;
        case 2:
          apply(content, change, random_() % (length + 1));
          break;
        default:
          apply(content, {change.offset, std::string(length, '\0'), change.is_truncation}, length);
      }
    }
    return content;
  }

  std::filesystem::path folder_;
  std::mt19937_64 random_;
  bool is_off_ = false;
  int syncs_to_fail_ = 0;
  std::map<ino_t, File> files_;
  std::uint64_t files_made_ = 0;
  std::vector<base::Descriptor> removed_;
  std::map<std::string, ino_t> names_;                                      // that are durable
  std::vector<std::pair<std::string, std::optional<ino_t>>> name_changes_;  // that are not
};

}  // namespace sluice::test
