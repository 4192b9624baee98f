// The reader on io_uring: the kernel carries out O_DIRECT reads while this process computes, so no
// helper threads are needed. The files are registered, and the buffers too if RLIMIT_MEMLOCK allows
// it. A read that the kernel refuses is done with pread(2) instead.
//
// See io_uring_setup(2), io_uring_register(2).
#pragma once

#include <deque>
#include <liburing.h>
#include <vector>

#include "streaming/data_file.h"
#include "streaming/read_piece.h"
#include "streaming/read_results.h"
#include "streaming/reader.h"
#include "streaming/ring.h"

namespace sluice::streaming {

class UringReader final : public Reader {
 public:
  // The files must be open for direct access. Throws std::system_error when the kernel or the
  // container does not grant io_uring (EPERM, ENOSYS, ENOMEM).
  explicit UringReader(std::vector<DataFile> files, ReadResults results = {});
  ~UringReader() override;
  UringReader(const UringReader&) = delete;
  UringReader& operator=(const UringReader&) = delete;

  std::string_view name() const override { return "uring"; }
  std::span<const ReaderFile> files() const override { return file_facts_; }
  std::uint64_t alignment() const override { return alignment_; }
  std::string attach_buffers(std::span<std::byte> memory, std::uint64_t slot_bytes) override;
  void submit(const ReadRequest& request) override;
  std::optional<Completion> poll() override;
  Completion wait() override;
  bool has_changed(std::uint32_t file) const override { return files_[file].has_changed(); }
  std::string trouble() const override;

 private:
  void start_waiting_pieces();
  void queue_read(std::uint32_t index);
  std::optional<Completion> take_result(const io_uring_cqe& result);

  std::vector<DataFile> files_;
  ReadResults results_;
  int refused_error_ = 0;  // errno of the first read that the kernel refused; 0: none
  std::vector<ReaderFile> file_facts_;
  std::uint64_t alignment_ = 0;
  Ring ring_;
  bool has_registered_buffers_ = false;

  // Pieces handed to the kernel lie in a table as large as the queue; the others wait.
  std::vector<ReadPiece> table_;
  std::vector<std::uint32_t> free_entries_;
  std::deque<ReadPiece> waiting_;
  SlotLedger ledger_;
};

}  // namespace sluice::streaming
