// The output file of a batch as a journal: whole lines are appended, and after any end of the
// process the file says which rows are done.
//
// Opening changes nothing: it locks the file and looks through it (core/batch/journal_scan.h). The
// caller judges what was found, and then either goes on with it or begins anew. A file that no
// batch has written can neither be gone on with nor begun anew.
//
// Durability: a line is written in one piece as soon as its row is done, which outlives the
// process. sync_if_due(), called after each step, has it on the disk within sync_period, or at the
// end of the step if steps take longer; a power loss takes the rows after that, which the next run
// computes again. Where synchronising fails, the file is cut back to what is known to be on the
// disk: the system may have forgotten the rest and still show it.
//
// A lock (Boost.Interprocess) keeps other processes from the file as long as the journal lives. It
// is a POSIX record lock: no other descriptor of the file may be closed in this process meanwhile.
//
// All members throw std::system_error, which names the file, for I/O. Used by one thread.
#pragma once

#include <boost/interprocess/sync/file_lock.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "core/batch/journal_scan.h"
#include "core/files/system_calls.h"

namespace sluice::batch {

class Journal {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds sync_period{1};

  // Opens the file, or creates it empty. Throws UsageError when it is not a regular file or another
  // process has the lock, and what `check` throws while the file is looked through.
  explicit Journal(const std::filesystem::path& path, files::SystemCalls& system = files::kernel(),
                   const ScanCheck& check = {});
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // What was in the file when it was opened.
  const JournalScan& scan() const { return scan_; }

  // Gives back what scan().found takes.
  void forget_found() { scan_.found = {}; }

  // Keeps the results, makes them durable, and cuts off what a crash has left after them. Returns
  // how many bytes that was. Throws UsageError for a foreign file.
  std::uint64_t go_on();

  // Throws the results away, durably. Throws UsageError for a foreign file.
  void begin_anew();

  // Appends whole lines, after one of the above. When they cannot be written (a full disk) the file
  // ends with the line before them.
  void append(std::string_view lines, Clock::time_point now = Clock::now());

  // Replaces the file by one that holds only these of the results of scan(), in this order; `kept`
  // has their places in scan().found. Durable, and in one step: a crash leaves the old file or the
  // new one. The journal stays with the old file, which has no name any more, and has no other use
  // then than to keep others away: destroy it.
  void replace(std::span<const std::size_t> kept);

  // Looks through the file again, with what was appended.
  const JournalScan& rescan();

  void sync();

  // Synchronises when lines would otherwise be older than sync_period at the next call, if that
  // comes as long after this one as this one after the last.
  void sync_if_due(Clock::time_point now = Clock::now());

  std::uint64_t durable_bytes() const { return durable_bytes_; }  // of the file's front

 private:
  void open();
  void lock();
  bool has_its_name() const;
  void refuse_foreign() const;
  void cut(std::uint64_t size);
  [[noreturn]] void fail(int error) const;

  files::SystemCalls& system_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  boost::interprocess::file_lock lock_;
  JournalScan scan_;
  std::uint64_t size_ = 0;
  std::uint64_t durable_bytes_ = 0;
  std::optional<Clock::time_point> dirty_since_;
  Clock::time_point last_look_ = Clock::now();
};

}  // namespace sluice::batch
