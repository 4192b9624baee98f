#include "streaming/uring_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <sys/uio.h>
#include <thread>
#include <utility>

#include "base/check.h"

namespace sluice::streaming {
namespace {

// How often a call is made again when the kernel is short of memory, a millisecond apart: for a
// second.
constexpr unsigned refusals_max = 1000;

// Submits what is queued and waits until a read has ended, or until there is a reason to look
// again. Returns 0, or the errno when the kernel refuses for good. `refusals` counts the passing
// ones.
int submit_and_wait(io_uring* ring, unsigned& refusals) {
  const int submitted = io_uring_submit_and_wait(ring, 1);
  if (submitted >= 0 || submitted == -EINTR) return 0;
  const bool is_passing = submitted == -EAGAIN || submitted == -EBUSY;
  if (!is_passing || ++refusals == refusals_max) return -submitted;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return 0;
}

std::system_error ring_failure(int error, const std::string& what) {
  return {error, std::generic_category(), what};
}

}  // namespace

UringReader::UringReader(std::vector<DataFile> files, ReadResults results)
    : files_(std::move(files)), results_(std::move(results)) {
  std::vector<int> descriptors;
  for (const DataFile& file : files_) {
    alignment_ = std::max(alignment_, file.alignment());
    file_facts_.push_back({file.path(), file.bytes(), file.identity()});
    descriptors.push_back(file.descriptor());
  }
  const int error = -io_uring_register_files(ring_.get(), descriptors.data(),
                                             static_cast<unsigned>(descriptors.size()));
  if (error != 0) throw ring_failure(error, "io_uring cannot register files");
  table_.resize(Ring::depth);
  free_entries_.resize(Ring::depth);
  std::iota(free_entries_.rbegin(), free_entries_.rend(), 0U);
}

UringReader::~UringReader() {
  // The kernel writes into the buffers until the last read has ended.
  waiting_.clear();
  unsigned refusals = 0;
  while (free_entries_.size() < table_.size()) {
    if (submit_and_wait(ring_.get(), refusals) != 0) {
      ring_.give_up();
      break;
    }
    io_uring_cqe* result = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &result) == 0) {
      free_entries_.push_back(static_cast<std::uint32_t>(io_uring_cqe_get_data64(result)));
      io_uring_cqe_seen(ring_.get(), result);
    }
  }
  // The kernel takes a ring apart later, and would keep the pages of its buffers charged until
  // then, where the next engine of this process may already ask what it can have.
  if (has_registered_buffers_) io_uring_unregister_buffers(ring_.get());
}

std::string UringReader::attach_buffers(std::span<std::byte> memory, std::uint64_t slot_bytes) {
  if (has_registered_buffers_) io_uring_unregister_buffers(ring_.get());
  has_registered_buffers_ = false;
  if (memory.empty()) return "";
  std::vector<iovec> buffers;
  for (std::uint64_t begin = 0; begin + slot_bytes <= memory.size(); begin += slot_bytes) {
    buffers.push_back({memory.data() + begin, slot_bytes});
  }
  const int error = -io_uring_register_buffers(ring_.get(), buffers.data(),
                                               static_cast<unsigned>(buffers.size()));
  has_registered_buffers_ = error == 0;
  if (has_registered_buffers_) return "";
  return "uring: the " + std::to_string(memory.size()) + " bytes of buffers are not registered, " +
         "reads cost a little more (" + std::generic_category().message(error) +
         "; see RLIMIT_MEMLOCK, ulimit -l)";
}

void UringReader::submit(const ReadRequest& request) {
  const std::size_t pieces = piece_count(request);
  ledger_.begin(request.slot, pieces);
  for (std::size_t i = 0; i < pieces; ++i) {
    waiting_.push_back(piece_at(request, file_facts_[request.file].bytes, i));
  }
  start_waiting_pieces();
}

void UringReader::start_waiting_pieces() {
  while (!waiting_.empty() && !free_entries_.empty()) {
    const std::uint32_t index = free_entries_.back();
    free_entries_.pop_back();
    table_[index] = waiting_.front();
    waiting_.pop_front();
    queue_read(index);
  }
  // Reads that the kernel does not accept now (EAGAIN, EBUSY, EINTR) stay in the submission queue
  // and are submitted by the next call; wait() throws when the refusals do not end.
  io_uring_submit(ring_.get());
}

void UringReader::queue_read(std::uint32_t index) {
  // There are as many submission entries as table entries, and each piece uses one at a time. A
  // submission entry is free again as soon as the kernel has accepted it.
  io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());
  if (entry == nullptr) throw ring_failure(EBUSY, "io_uring has no submission entry left");
  const ReadPiece& piece = table_[index];
  const auto bytes = static_cast<unsigned>(piece.bytes);
  if (has_registered_buffers_) {
    io_uring_prep_read_fixed(entry, static_cast<int>(piece.file), piece.buffer, bytes, piece.offset,
                             static_cast<int>(piece.slot));
  } else {
    io_uring_prep_read(entry, static_cast<int>(piece.file), piece.buffer, bytes, piece.offset);
  }
  io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(entry, index);
}

std::optional<Completion> UringReader::take_result(const io_uring_cqe& result) {
  const auto index = static_cast<std::uint32_t>(result.user_data);
  base::check(index < table_.size() && free_entries_.size() < table_.size(),
              "io_uring has ended a read that nobody has begun");
  ReadPiece& piece = table_[index];
  const DataFile& file = files_[piece.file];
  std::int64_t outcome = seen(results_, "uring", piece, result.res);
  if (outcome == -EAGAIN || outcome == -EINVAL || outcome == -EOPNOTSUPP) {
    if (refused_error_ == 0) refused_error_ = static_cast<int>(-outcome);
    outcome = file.read(piece, results_);
  }
  if (piece.advance(outcome, file.alignment()) == ReadPiece::Outcome::again) {
    queue_read(index);
    return std::nullopt;
  }
  free_entries_.push_back(index);
  return ledger_.end(piece);
}

std::string UringReader::trouble() const {
  if (std::string refused = refused_direct_reads(files_); !refused.empty()) return refused;
  if (refused_error_ == 0) return "";
  return "uring: the kernel refuses some reads (" +
         std::generic_category().message(refused_error_) + "), these are done with pread";
}

std::optional<Completion> UringReader::poll() {
  std::optional<Completion> completion;
  io_uring_cqe* result = nullptr;
  while (!completion && io_uring_peek_cqe(ring_.get(), &result) == 0) {
    const io_uring_cqe copy = *result;
    io_uring_cqe_seen(ring_.get(), result);
    completion = take_result(copy);
  }
  start_waiting_pieces();
  return completion;
}

Completion UringReader::wait() {
  unsigned refusals = 0;
  while (true) {
    if (const std::optional<Completion> completion = poll()) return *completion;
    if (const int error = submit_and_wait(ring_.get(), refusals)) {
      throw ring_failure(error, "io_uring no longer works");
    }
  }
}

}  // namespace sluice::streaming
