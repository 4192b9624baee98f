// Readers with helper threads that mostly block in a system call: `pread`, for machines that do not
// grant io_uring, and `mmap`.
//
// Both cut requests into pieces, which a few threads read in the order of submission. So there are
// as many system calls in flight as threads.
#pragma once

#include <deque>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "streaming/data_file.h"
#include "streaming/mapped_file.h"
#include "streaming/read_piece.h"
#include "streaming/read_results.h"
#include "streaming/reader.h"

namespace sluice::streaming {

// Four pieces of 512 KiB in flight keep the disks that were measured as busy as io_uring with 64.
inline constexpr unsigned reader_threads = 4;

class ThreadedReader : public Reader {
 public:
  ThreadedReader(const ThreadedReader&) = delete;
  ThreadedReader& operator=(const ThreadedReader&) = delete;

  std::span<const ReaderFile> files() const override { return file_facts_; }
  std::uint64_t alignment() const override { return alignment_; }
  std::string attach_buffers(std::span<std::byte>, std::uint64_t) override { return ""; }
  void submit(const ReadRequest& request) override;
  std::optional<Completion> poll() override;
  Completion wait() override;
  bool has_changed(std::uint32_t file) const override { return files_[file].has_changed(); }

 protected:
  explicit ThreadedReader(std::vector<DataFile> files);

  const DataFile& file(std::uint32_t index) const { return files_[index]; }
  std::span<const DataFile> all_files() const { return files_; }

  // A derived class starts the threads in its constructor and stops them in its destructor, because
  // they call its attempt(). Pieces that no thread has begun when they stop are never read.
  void start_threads();
  void stop_threads();

 private:
  // Tries once to read a piece, blocking, on any thread. Returns the bytes read, or -errno.
  virtual std::int64_t attempt(const ReadPiece& piece) = 0;

  void work();
  Completion take_first() SLUICE_REQUIRES(mutex_);

  std::vector<DataFile> files_;
  std::vector<ReaderFile> file_facts_;
  std::uint64_t alignment_ = 0;

  base::Mutex mutex_;
  base::Condition has_work_;
  base::Condition has_completion_;
  std::deque<ReadPiece> waiting_ SLUICE_GUARDED_BY(mutex_);
  std::deque<Completion> completions_ SLUICE_GUARDED_BY(mutex_);
  SlotLedger ledger_ SLUICE_GUARDED_BY(mutex_);
  bool is_stopping_ SLUICE_GUARDED_BY(mutex_) = false;
  std::vector<base::Thread> threads_;
};

// pread(2) into the buffers. A piece that cannot be read directly is read through the page cache
// and then dropped from it.
class PreadReader final : public ThreadedReader {
 public:
  explicit PreadReader(std::vector<DataFile> files, ReadResults results = {});
  ~PreadReader() override;

  std::string_view name() const override { return "pread"; }
  std::string trouble() const override;

 private:
  std::int64_t attempt(const ReadPiece& piece) override;

  ReadResults results_;
};

// Mapped files. A read is a prefetch in small MADV_WILLNEED calls and then MADV_POPULATE_READ,
// which returns an error where a touch would raise SIGBUS. Pages are shared with all processes that
// read the same file, and a file that is in the page cache needs no read.
//
// SIGBUS remains possible when a file is truncated between has_changed() and the touch, and when
// the kernel has reclaimed a page under pressure and then cannot read it again. Replace model files
// by renaming new ones over them, not by writing into them.
class MmapReader final : public ThreadedReader {
 public:
  // Throws std::system_error when a file cannot be mapped, or when the kernel has no
  // MADV_POPULATE_READ (before Linux 5.14).
  explicit MmapReader(std::vector<DataFile> files);
  ~MmapReader() override;

  std::string_view name() const override { return "mmap"; }
  bool maps_files() const override { return true; }
  const std::byte* mapping(std::uint32_t file) const override;
  void keep_to_requests(bool strictly) override;
  void discard(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) override;

 private:
  std::int64_t attempt(const ReadPiece& piece) override;

  bool is_strict_ = true;
  std::vector<MappedFile> mappings_;
};

}  // namespace sluice::streaming
