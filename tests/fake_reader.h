// A reader over files in memory that does all a disk and a kernel may do: read less than asked for,
// be interrupted, fail at chosen places, finish out of order and late. Everything follows from a
// seed. It also checks that its caller keeps to the contract of streaming/reader.h.
//
// Single threaded: a read makes progress only inside poll() and wait(), so there is nothing to wait
// for and a test cannot hang; a wait() without a read in flight throws.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/read_piece.h"
#include "streaming/reader.h"

namespace sluice::test {

using FileBytes = std::vector<std::byte>;

inline FileBytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  FileBytes bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

struct BadStretch {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// What a test changes while the reader is in use, and what it wants to know. Outlives the reader.
struct FakeDisk {
  std::vector<FileBytes> files;
  double short_reads = 0;  // probabilities, for each attempt at a piece
  double interruptions = 0;
  double late = 0;                // that a poll finds nothing although something could be done
  std::vector<BadStretch> bad;    // reads that touch these give EIO
  std::vector<BadStretch> wrong;  // reads give other bytes there
  std::vector<std::uint64_t> current_bytes;  // lengths of truncated files; empty: as opened
  bool is_written_to = false;
  bool maps_files = false;
  std::function<void()> on_attempt;  // called before each attempt at a piece

  std::vector<sluice::streaming::ReadRequest> requests;  // all so far
  std::size_t buffer_bytes = 0;                          // attached now
  std::uint64_t resident_bytes_max = 0;  // with maps_files: the most pages in memory so far
  std::size_t in_flight = 0;             // requests
};

class FakeReader final : public streaming::Reader {
 public:
  using ReadPiece = streaming::ReadPiece;

  FakeReader(FakeDisk& disk, std::uint64_t seed) : disk_(disk), random_(seed) {
    for (std::size_t i = 0; i < disk.files.size(); ++i) {
      facts_.push_back({"fake-" + std::to_string(i) + ".gguf", disk.files[i].size()});
      if (disk.maps_files) {
        const std::size_t pages = streaming::round_up(disk.files[i].size(), streaming::page_bytes) /
                                  streaming::page_bytes;
        mappings_.emplace_back(pages * streaming::page_bytes, garbage);
        is_resident_.emplace_back(pages, false);
      }
    }
  }

  // A disk may still be writing: the buffers of reads in flight have to be there.
  ~FakeReader() override {
    for (const ReadPiece& piece : pieces_) scribble(piece.buffer, piece.bytes);
    disk_.in_flight = 0;
  }

  std::string_view name() const override { return "fake"; }
  std::span<const streaming::ReaderFile> files() const override { return facts_; }
  std::uint64_t alignment() const override { return streaming::page_bytes; }
  bool maps_files() const override { return disk_.maps_files; }

  std::string attach_buffers(std::span<std::byte> memory, std::uint64_t slot_bytes) override {
    if (disk_.in_flight != 0) throw std::logic_error("buffers change under reads in flight");
    disk_.buffer_bytes = memory.size();
    buffers_ = memory;
    slot_bytes_ = slot_bytes;
    return "";
  }

  void submit(const streaming::ReadRequest& request) override {
    check(request);
    if (request.slot >= is_busy_.size()) is_busy_.resize(request.slot + std::size_t{1}, false);
    if (is_busy_[request.slot]) throw std::logic_error("two reads in one slot");
    is_busy_[request.slot] = true;
    ++disk_.in_flight;
    disk_.requests.push_back(request);
    // From here on the memory belongs to the disk.
    if (!disk_.maps_files) scribble(request.buffer, request.bytes);
    const std::size_t count = piece_count(request);
    ledger_.begin(request.slot, count);
    for (std::size_t i = 0; i < count; ++i) {
      pieces_.push_back(piece_at(request, facts_[request.file].bytes, i));
    }
  }

  std::optional<streaming::Completion> poll() override {
    if (pieces_.empty() || chance(disk_.late)) return std::nullopt;
    return attempt_one();
  }

  streaming::Completion wait() override {
    while (!pieces_.empty()) {
      if (const auto completion = attempt_one()) return *completion;
    }
    throw std::logic_error("wait without a read in flight would never end");
  }

  const std::byte* mapping(std::uint32_t file) const override { return mappings_[file].data(); }

  void discard(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) override {
    if (!disk_.maps_files) throw std::logic_error("discard is for readers that map files");
    if (offset % streaming::page_bytes != 0 || bytes % streaming::page_bytes != 0) {
      throw std::logic_error("discard of parts of pages");
    }
    scribble(mappings_[file].data() + offset, bytes);
    set_resident(file, offset, bytes, false);
  }

  bool has_changed(std::uint32_t file) const override {
    return disk_.is_written_to || bytes_now(file) != facts_[file].bytes;
  }

 private:
  static constexpr auto garbage = std::byte{0xEE};

  static void scribble(std::byte* memory, std::uint64_t bytes) {
    if (memory != nullptr) std::memset(memory, std::to_integer<int>(garbage), bytes);
  }

  bool chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }

  std::uint64_t bytes_now(std::uint32_t file) const {
    return disk_.current_bytes.empty() ? facts_[file].bytes : disk_.current_bytes[file];
  }

  void check(const streaming::ReadRequest& request) const {
    const auto is_whole = [this](std::uint64_t value) { return value % alignment() == 0; };
    bool fits = is_whole(request.offset) && is_whole(request.bytes) && request.bytes != 0 &&
                request.offset < facts_.at(request.file).bytes;
    if (!disk_.maps_files) {
      fits = fits && request.bytes <= slot_bytes_ &&
             request.buffer == buffers_.data() + request.slot * slot_bytes_ &&
             (request.slot + std::uint64_t{1}) * slot_bytes_ <= buffers_.size() &&
             is_whole(reinterpret_cast<std::uintptr_t>(request.buffer));
    }
    if (!fits) throw std::logic_error("a request breaks the contract of readers");
  }

  void set_resident(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes, bool resident) {
    for (std::uint64_t at = offset; at < offset + bytes; at += streaming::page_bytes) {
      const std::size_t page = at / streaming::page_bytes;
      if (is_resident_[file][page] == resident) continue;
      is_resident_[file][page] = resident;
      resident_bytes_ += resident ? streaming::page_bytes : 0;
      resident_bytes_ -= resident ? 0 : streaming::page_bytes;
    }
    disk_.resident_bytes_max = std::max(disk_.resident_bytes_max, resident_bytes_);
  }

  // One system call on any of the pieces, at the whim of the seed.
  std::optional<streaming::Completion> attempt_one() {
    const std::size_t index = random_() % pieces_.size();
    ReadPiece& piece = pieces_[index];
    if (piece.advance(system_call(piece), alignment()) == ReadPiece::Outcome::again) {
      return std::nullopt;
    }
    const ReadPiece ended = piece;
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(index));
    const auto completion = ledger_.end(ended);
    if (completion) {
      is_busy_[completion->slot] = false;
      --disk_.in_flight;
    }
    return completion;
  }

  std::int64_t system_call(const ReadPiece& piece) {
    if (disk_.on_attempt) disk_.on_attempt();
    if (chance(disk_.interruptions)) return chance(0.5) ? -EINTR : -EAGAIN;
    const std::uint64_t file_bytes = bytes_now(piece.file);
    if (piece.offset >= file_bytes) return 0;
    std::uint64_t bytes = std::min(piece.bytes, file_bytes - piece.offset);
    for (const BadStretch& bad : disk_.bad) {
      const bool touches = piece.offset < bad.end && bad.begin < piece.offset + bytes;
      if (bad.file == piece.file && touches) return -EIO;
    }
    if (chance(disk_.short_reads)) bytes = 1 + random_() % bytes;
    std::byte* const memory =
        disk_.maps_files ? mappings_[piece.file].data() + piece.offset : piece.buffer;
    std::memcpy(memory, disk_.files[piece.file].data() + piece.offset, bytes);
    for (const BadStretch& wrong : disk_.wrong) {
      if (wrong.file != piece.file) continue;
      const std::uint64_t end = std::min(wrong.end, piece.offset + bytes);
      for (std::uint64_t at = std::max(wrong.begin, piece.offset); at < end; ++at) {
        memory[at - piece.offset] ^= std::byte{0x5A};
      }
    }
    if (disk_.maps_files) set_resident(piece.file, piece.offset, piece.bytes, true);
    return static_cast<std::int64_t>(bytes);
  }

  FakeDisk& disk_;
  std::mt19937_64 random_;
  std::vector<streaming::ReaderFile> facts_;
  std::vector<FileBytes> mappings_;
  std::vector<std::vector<bool>> is_resident_;
  std::uint64_t resident_bytes_ = 0;
  std::span<std::byte> buffers_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<bool> is_busy_;
  std::vector<ReadPiece> pieces_;
  streaming::SlotLedger ledger_;
};

}  // namespace sluice::test
