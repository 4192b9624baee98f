#include "streaming/threaded_reader.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

// MADV_WILLNEED silently stops at the read-ahead size of the device, which may be as low as this.
constexpr std::uint64_t prefetch_bytes = std::uint64_t{128} << 10;

// mincore() tells of each page. An emulator may tell a program of larger ones than its host has, of
// which it then fills in all.
constexpr std::uint64_t least_page_bytes = 4096;

}  // namespace

ThreadedReader::ThreadedReader(std::vector<DataFile> files) : files_(std::move(files)) {
  for (const DataFile& file : files_) {
    alignment_ = std::max(alignment_, file.alignment());
    file_facts_.push_back({file.path(), file.bytes(), file.identity()});
  }
}

void ThreadedReader::start_threads() {
  threads_.reserve(reader_threads);
  try {
    for (unsigned i = 0; i < reader_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw;  // with fewer threads reads are slower, but correct
  }
}

void ThreadedReader::stop_threads() {
  {
    const base::MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  threads_.clear();
}

void ThreadedReader::submit(const ReadRequest& request) {
  {
    const base::MutexLock lock(mutex_);
    const std::size_t pieces = piece_count(request);
    ledger_.begin(request.slot, pieces);
    for (std::size_t i = 0; i < pieces; ++i) {
      waiting_.push_back(piece_at(request, file_facts_[request.file].bytes, i));
    }
  }
  has_work_.notify_all();
}

void ThreadedReader::work() {
  base::MutexLock lock(mutex_);
  while (true) {
    while (!is_stopping_ && waiting_.empty()) has_work_.wait(lock);
    if (is_stopping_) return;
    ReadPiece piece = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const std::uint64_t alignment = files_[piece.file].alignment();
    while (piece.advance(attempt(piece), alignment) == ReadPiece::Outcome::again) {
    }
    lock.lock();
    if (const std::optional<Completion> completion = ledger_.end(piece)) {
      completions_.push_back(*completion);
      has_completion_.notify_one();
    }
  }
}

std::optional<Completion> ThreadedReader::poll() {
  const base::MutexLock lock(mutex_);
  if (completions_.empty()) return std::nullopt;
  return take_first();
}

Completion ThreadedReader::wait() {
  base::MutexLock lock(mutex_);
  while (completions_.empty()) has_completion_.wait(lock);
  return take_first();
}

Completion ThreadedReader::take_first() {
  const Completion completion = completions_.front();
  completions_.pop_front();
  return completion;
}

PreadReader::PreadReader(std::vector<DataFile> files, ReadResults results)
    : ThreadedReader(std::move(files)), results_(std::move(results)) {
  start_threads();
}

PreadReader::~PreadReader() {
  stop_threads();
}

std::int64_t PreadReader::attempt(const ReadPiece& piece) {
  return file(piece.file).read(piece, results_);
}

std::string PreadReader::trouble() const {
  return refused_direct_reads(all_files());
}

MmapReader::MmapReader(std::vector<DataFile> files) : ThreadedReader(std::move(files)) {
  // What is open, and not what has its name by now.
  for (const DataFile& file : all_files()) {
    mappings_.emplace_back(file.path(), file.descriptor());
    if (mappings_.back().bytes().size() != file.bytes()) {
      throw std::system_error(EIO, std::generic_category(),
                              file.path().string() + ": changed its length while it was opened");
    }
  }
  // A call with length zero touches nothing; it only checks that the kernel knows the advice.
  const auto bytes = mappings_.empty() ? std::span<const std::byte>() : mappings_[0].bytes();
  if (!bytes.empty() && madvise(const_cast<std::byte*>(bytes.data()), 0, MADV_POPULATE_READ) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "the kernel has no MADV_POPULATE_READ (Linux 5.14)");
  }
  start_threads();
}

MmapReader::~MmapReader() {
  stop_threads();
}

const std::byte* MmapReader::mapping(std::uint32_t file_index) const {
  return mappings_[file_index].bytes().data();
}

std::int64_t MmapReader::attempt(const ReadPiece& piece) {
  const std::uint64_t file_bytes = file(piece.file).current_identity().bytes;
  if (file_bytes < piece.needed_end) {
    return static_cast<std::int64_t>(file_bytes > piece.offset ? file_bytes - piece.offset : 0);
  }
  auto* const begin = const_cast<std::byte*>(mapping(piece.file)) + piece.offset;
  for (std::uint64_t done = 0; is_strict_ && done < piece.bytes; done += prefetch_bytes) {
    madvise(begin + done, std::min(prefetch_bytes, piece.bytes - done), MADV_WILLNEED);
  }
  if (madvise(begin, piece.bytes, MADV_POPULATE_READ) == 0) {
    return static_cast<std::int64_t>(piece.bytes);
  }
  // EFAULT: a touch would have raised SIGBUS. Either the file has just become shorter, and the next
  // attempt will find that, or the disk has failed.
  if (errno != EFAULT) return -errno;
  return file(piece.file).current_identity().bytes < piece.needed_end ? -EAGAIN : -EIO;
}

void MmapReader::keep_to_requests(bool strictly) {
  is_strict_ = strictly;
  // MADV_WILLNEED works with MADV_RANDOM, but it reads into small pages, and reclaim does not see
  // that pages are in use. A model that fits into memory needs neither: with MADV_HUGEPAGE its
  // pages are populated by faults, 2 MiB at a time where the file system supports that, and the
  // page tables that a product walks through are 512 times smaller.
  for (const MappedFile& mapped : mappings_) {
    const auto bytes = mapped.bytes();
    if (bytes.empty()) continue;
    auto* const begin = const_cast<std::byte*>(bytes.data());
    madvise(begin, bytes.size(), strictly ? MADV_RANDOM : MADV_NORMAL);
    madvise(begin, bytes.size(), strictly ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
}

void MmapReader::discard(std::uint32_t file_index, std::uint64_t offset, std::uint64_t bytes) {
  // A thread that populates pages nearby may map some of these again between the two calls (the
  // kernel faults around), which keeps them in memory. So check, and try again.
  auto* const begin = const_cast<std::byte*>(mapping(file_index)) + offset;
  std::vector<unsigned char> pages(bytes / least_page_bytes);
  for (int attempt = 0; attempt < 3; ++attempt) {
    // The order matters: pages that are mapped are not dropped from the page cache.
    madvise(begin, bytes, MADV_DONTNEED);
    posix_fadvise(file(file_index).descriptor(), static_cast<off_t>(offset),
                  static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
    const bool is_known = mincore(begin, bytes, pages.data()) == 0;
    const auto is_cached = [](unsigned char page) { return (page & 1U) != 0; };
    if (!is_known || std::none_of(pages.begin(), pages.end(), is_cached)) return;
  }
}

}  // namespace sluice::streaming
