// The tape of a model within a budget: some segments pinned in memory, the rest streamed from disk
// through a small ring that reads ahead, round and round.
//
// With a reader that copies (uring, pread), pinned segments lie in one anonymous arena and streamed
// ones pass through a ring of buffers. With the mmap reader nothing is copied: pinned segments stay
// in the mapping, and of the streamed ones no more than the ring's length is kept in memory. A tape
// with everything pinned and the mmap reader is a resident model served from the page cache.
//
// Memory: no more than plan_tape() says beforehand. What is pinned can be limited further at any
// moment: segments behind the limit are streamed from then on. When the limit rises again, segments
// are pinned as they pass through the ring, which costs no read.
//
// Threads: a tape is used by one thread, but for limit_pinned_bytes() and pinned_bytes(), which any
// may call; the memory handed out may be read by any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "streaming/arena.h"
#include "streaming/pinned_segments.h"
#include "streaming/read_ahead.h"
#include "streaming/reader.h"
#include "streaming/residency.h"
#include "streaming/tape.h"

namespace sluice::streaming {

struct TapeOptions {
  std::uint64_t pinned_bytes_max = 0;
  std::uint32_t slots = 16;    // segments in the ring
  std::uint32_t held_max = 8;  // segments that are acquired at the same time; less than slots
};

// What a tape will allocate.
struct TapePlan {
  Residency residency;  // in bytes of memory, see pinned_bytes
  // Memory of the pinned segments, a multiple of 4096 and at most the budget. Anonymous, or pages
  // of the page cache when is_in_page_cache (then an upper bound: neighbours share pages).
  std::uint64_t pinned_bytes = 0;
  std::uint64_t slot_bytes = 0;  // the longest segment with the alignment that reads need
  // Memory of the ring, of the same kind. When nothing is streamed, a ring of buffers serves only
  // to load the pinned segments and is given back after that.
  std::uint64_t ring_bytes = 0;
  bool is_in_page_cache = false;

  std::uint64_t streamed_segments = 0;
  std::uint64_t streamed_bytes_per_step = 0;  // of the segments themselves

  std::uint64_t peak_bytes() const { return pinned_bytes + ring_bytes; }
};

// The one calculation of a tape's memory: for the memory plan, and for the tape itself. Of the
// reader only alignment() and maps_files() matter. Throws std::invalid_argument when a segment is
// empty or too long, or when the ring has no slot besides those that may be held.
TapePlan plan_tape(std::span<const Segment> segments, const TapeOptions& options,
                   std::uint64_t alignment, bool maps_files);

struct TapeStatistics {
  ReadAheadStatistics streaming;      // since the tape was loaded
  std::string reader;                 // "uring"
  std::uint64_t loaded_bytes = 0;     // of pinned segments
  std::uint64_t pinned_bytes = 0;     // now
  std::uint64_t huge_page_bytes = 0;  // of the anonymous memory, what lies in huge pages
  std::vector<std::string> notes;     // lines for the user, e.g. that buffers are not registered
};

class StreamedTape final : public Tape {
 public:
  // Called with the bytes of pinned segments loaded so far, and in all.
  using Progress = std::function<void(std::uint64_t loaded_bytes, std::uint64_t total_bytes)>;

  // Copies the bytes of a segment that is being pinned, and may give them another form of the same
  // length: what acquire() then hands out. `to` is 64-byte aligned.
  using Copy =
      std::function<void(std::size_t turn, std::span<const std::byte> from, std::byte* to)>;

  // Segments in tape order; their file numbers are those of the reader. Nothing is in memory yet.
  // Throws std::invalid_argument for what plan_tape() refuses and for segments outside of their
  // file, std::system_error when memory cannot be had.
  StreamedTape(std::vector<Segment> segments, std::unique_ptr<Reader> reader,
               const TapeOptions& options, Copy copy = {});

  // Brings what is pinned into memory, as far as the limit allows, and begins to read ahead. To be
  // called once, before the first step. Throws std::system_error when bytes cannot be read.
  void load(const Progress& progress = {});

  // Throws std::system_error, which names file and offset, when the bytes cannot be read; the turn
  // may be tried again, and the tape stays usable. Throws std::logic_error for misuse.
  HeldSegment acquire(std::size_t turn) override;
  void release(std::size_t turn) override;

  // To be called between steps (nothing held): those that come stop before this turn, until told
  // otherwise, so nothing is read ahead from there on. (Only the last chunk of a prompt needs the
  // output head.) A hint: a step that goes further gets the right bytes, later.
  void expect_step_end(std::size_t turn);

  // Of the pinned segments no more than this stays, now and until told otherwise; what is held goes
  // when it is released. No more is ever pinned than was planned. Has no effect with a reader that
  // maps files: its pages are the system's to take back.
  void limit_pinned_bytes(std::uint64_t bytes) { pinned_.limit(bytes); }

  std::uint64_t pinned_bytes() const;  // at this moment

  // See Reader::trouble().
  std::string trouble() const { return reader_->trouble(); }

  const TapePlan& plan() const { return plan_; }
  bool is_pinned(std::size_t turn) const;
  TapeStatistics statistics() const;

 private:
  void check_segments() const;
  void open_ring();
  void close_ring();
  void bring_in(std::size_t turn, std::span<const std::byte> bytes);
  void start_streaming();
  std::size_t next_streamed(std::size_t turn) const;
  std::vector<ReadAheadEntry> streamed_entries() const;
  void check_still_there(const Segment& segment) const;

  std::vector<Segment> segments_;
  Copy copy_;
  TapePlan plan_;
  std::vector<bool> is_mapped_;  // by turn: pinned, in the mapping

  // Destroyed from the last to the first: the window, the reader (which waits for its reads), and
  // only then the memory that it may be writing to.
  PinnedSegments pinned_;
  Arena ring_memory_;
  std::unique_ptr<Reader> reader_;
  ReadAhead read_ahead_;

  bool is_streaming_ = false;
  std::size_t step_end_;
  std::uint64_t loaded_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace sluice::streaming
