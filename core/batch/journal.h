// The output file of a batch as a journal: whole lines are appended, and however the process ends,
// the file says which rows are done.
//
// Opening changes nothing of it: it locks the file and scans what the disk has of it
// (core/batch/journal_scan.h), and removes what killed processes have left of new versions. The
// caller looks at the result and then calls go_on() or begin_anew(). Both refuse a file that no
// batch has written.
//
// Durability: a line is written in one piece as soon as its row is done, so it survives the end of
// the process. sync_if_due(), called after each step, puts it on the disk within sync_period, or at
// the end of the step if steps take longer. A power loss loses the rows after that; the next run
// computes them again. When synchronising fails, the file is cut back to what is known to be on the
// disk: the system may have lost the rest and still show it.
//
// Results that are written into a file without its name are lost, and so are those that somebody
// else cuts off. So each sync(), and sync_if_due() once in a sync_period, checks that the file
// still has its name and its length, and throws when it was removed, replaced or written to.
//
// A lock (Boost.Interprocess) keeps other processes from the file while the journal lives. It is a
// POSIX record lock, so the process must not close any other descriptor of the file meanwhile.
//
// All members throw std::system_error, with the name of the file, for I/O. Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "core/batch/journal_scan.h"
#include "core/files/system_calls.h"

namespace boost::interprocess {
class file_lock;  // its header is three hundred others
}

namespace sluice::batch {

// Throws Error where the output of a job, which it has made `bytes` long, has lost its name or its
// length: what is written into a file without its name is lost, and so is what somebody else cuts
// off.
void require_own_output(int descriptor, const std::filesystem::path& path, std::uint64_t bytes);

class Journal {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds sync_period{1};

  // Opens the file, or creates it empty. Throws UsageError when it is a pipe or a device or another
  // process has the lock, and what `check` throws during the scan. A new file has `mode`, before
  // the umask of the process.
  explicit Journal(const std::filesystem::path& path, files::SystemCalls& system = files::kernel(),
                   const ScanCheck& check = {}, mode_t mode = 0666);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The contents of the file when it was opened.
  const JournalScan& scan() const { return scan_; }

  // Frees the memory of scan().found.
  void forget_found() { std::vector<ResultFacts>().swap(scan_.found); }

  // Keeps the results, makes them durable, and cuts off anything that a crash has left after them.
  // Where they cannot be made durable, they stay as they were found.
  // Returns the number of bytes cut off. Throws UsageError for a foreign file.
  std::uint64_t go_on();

  // Removes all results, durably. Throws UsageError for a foreign file.
  void begin_anew();

  // Appends whole lines; call go_on() or begin_anew() first. When the lines cannot be written (a
  // full disk) the file is cut back to what it was before.
  void append(std::string_view lines, Clock::time_point now = Clock::now());

  // Replaces the file by one with only some of the results: `kept` has their indices in
  // scan().found, in the new order. Durable and atomic: after a crash there is the old file or the
  // new one. The journal then still holds the old file, which has no name any more, and serves only
  // to keep other processes away: destroy it.
  void replace(std::span<const std::size_t> kept);

  // Scans the file again, including what was appended. Throws Error when it is no longer what was
  // written.
  const JournalScan& rescan();

  // Calls `use` with each line of scan().found, with its newline, in the order of the file.
  using UseLine = std::function<void(const ResultFacts& facts, std::string_view line)>;
  void read(const UseLine& use) const;

  // Puts all lines on the disk. Throws when the file no longer has its name or its length.
  void sync();

  // Synchronises if waiting for the next call would make a line older than sync_period. Assumes
  // that the next call comes after as much time as has passed since the last one.
  void sync_if_due(Clock::time_point now = Clock::now());

  std::uint64_t durable_bytes() const { return durable_bytes_; }  // from its beginning

 private:
  void open(mode_t mode);
  void lock();
  bool has_its_name() const;
  void check_file(Clock::time_point now);
  std::string read_line(std::uint64_t offset, std::size_t bytes) const;
  void refuse_foreign() const;
  void cut(std::uint64_t size);
  [[noreturn]] void fail(int error) const;

  files::SystemCalls& system_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::unique_ptr<boost::interprocess::file_lock> lock_;
  JournalScan scan_;
  std::uint64_t size_ = 0;
  std::uint64_t durable_bytes_ = 0;
  std::optional<Clock::time_point> dirty_since_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point last_check_ = last_look_;  // of the name and the length
};

}  // namespace sluice::batch
