// Readers on helper threads that do little but block in a system call: `pread`, for where io_uring
// is not granted, and `mmap`.
//
// Both cut requests into pieces and have a few threads work them off in order of submission, so
// that as many system calls are in flight as there are threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "streaming/data_file.h"
#include "streaming/mapped_file.h"
#include "streaming/read_piece.h"
#include "streaming/read_results.h"
#include "streaming/reader.h"

namespace sluice::streaming {

// Four pieces of 512 KiB in flight keep the disks at hand as busy as io_uring with 64 does.
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

 protected:
  explicit ThreadedReader(std::vector<DataFile> files);

  const DataFile& file(std::uint32_t index) const { return files_[index]; }
  std::span<const DataFile> all_files() const { return files_; }

  // The constructor and the destructor of a derived class begin and end the threads, because these
  // call attempt(). Reads that no thread has begun by then are never done.
  void start_threads();
  void stop_threads();

 private:
  // One blocking try at a piece, on any thread: bytes that are now there, or -errno.
  virtual std::int64_t attempt(const ReadPiece& piece) = 0;

  void work();

  std::vector<DataFile> files_;
  std::vector<ReaderFile> file_facts_;
  std::uint64_t alignment_ = 0;

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable has_work_;
  std::condition_variable has_completion_;
  std::deque<ReadPiece> waiting_;
  std::deque<Completion> completions_;
  SlotLedger ledger_;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

// pread(2) into the buffers. What cannot be read directly goes through the page cache and is
// dropped from it piece by piece.
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
// which reports what a touch would punish with SIGBUS. Pages are shared with every process that
// reads the same file, and a file in the page cache is there at once.
//
// What remains: a file that is truncated between still_reaches() and the touch raises SIGBUS all
// the same, as does a page that the kernel has reclaimed under pressure and then cannot read again.
// Replace model files by renaming new ones over them, not by writing into them.
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
  bool still_reaches(std::uint32_t file, std::uint64_t end) const override;

 private:
  std::int64_t attempt(const ReadPiece& piece) override;

  bool is_strict_ = true;
  std::vector<MappedFile> mappings_;
};

}  // namespace sluice::streaming
