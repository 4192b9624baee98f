// The output file of a batch as a journal: whole lines are appended, and after any end of the
// process the file says which rows are done.
//
// Durability: a line is written in one piece as soon as its row is done, which outlives the
// process; fdatasync follows at most once in sync_period and at the end, so that a power loss takes
// the rows of the last second, which the next run computes again. Opening cuts off what a crash has
// left: a last line without its end, and everything from the first NUL byte on, which file systems
// leave where a block was never written. A line that was not written by a batch is refused.
//
// A lock (Boost.Interprocess) keeps other processes from the file as long as the journal lives. It
// is a POSIX record lock: no other descriptor of the file may be closed in this process meanwhile.
//
// Threads: used by one.
#pragma once

#include <boost/interprocess/sync/file_lock.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/batch/result.h"

namespace sluice::batch {

class Journal {
 public:
  static constexpr std::chrono::seconds sync_period{1};

  // Opens or creates the file, locks it and reads what is done. Throws UsageError when another
  // process has the lock or when the file is not the output of a batch, std::system_error for I/O.
  // `restart`: whatever is in the file is thrown away, once it is locked.
  explicit Journal(const std::filesystem::path& path, bool restart = false);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The results in the file when it was opened, in its order.
  const std::vector<ResultFacts>& found() const { return found_; }
  std::uint64_t cut_bytes() const { return cut_bytes_; }  // that opening cut off

  // Appends whole lines. Throws std::system_error when they cannot be written (a full disk); the
  // file then ends with the line before them.
  void append(std::string_view lines);

  void sync();

 private:
  void lock();
  void recover();
  void cut(std::uint64_t size);
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  boost::interprocess::file_lock lock_;
  std::uint64_t size_ = 0;
  std::uint64_t cut_bytes_ = 0;
  std::vector<ResultFacts> found_;
  std::chrono::steady_clock::time_point last_sync_ = std::chrono::steady_clock::now();
};

// Make the content of a file, and its name in its folder, durable. Throw std::system_error.
void sync_file(const std::filesystem::path& path);
void sync_folder_of(const std::filesystem::path& path);

}  // namespace sluice::batch
