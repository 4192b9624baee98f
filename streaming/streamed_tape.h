// The tape of a model within a budget: some segments pinned in memory, the rest streamed from disk
// through a small ring that reads ahead, round and round.
//
// With a reader that copies (uring, pread), pinned segments lie in one anonymous arena and streamed
// ones pass through a ring of buffers. With the mmap reader nothing is copied: pinned segments stay
// in the mapping, and of the streamed ones no more than the ring's length is kept in memory. A tape
// with everything pinned and the mmap reader is a resident model served from the page cache.
//
// Memory: all of it is allocated by the constructor, exactly as plan_tape() says beforehand.
//
// Threads: a tape is used by one thread; the memory handed out may be read by any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "streaming/arena.h"
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

  // Segments in tape order; their file numbers are those of the reader. Loads what is pinned and
  // begins to read ahead. Throws std::invalid_argument for what plan_tape() refuses and for
  // segments outside of their file, std::system_error when memory or bytes cannot be had.
  StreamedTape(std::vector<Segment> segments, std::unique_ptr<Reader> reader,
               const TapeOptions& options, const Progress& progress = {}, Copy copy = {});

  // Throws std::system_error, which names file and offset, when the bytes cannot be read; the turn
  // may be tried again, and the tape stays usable. Throws std::logic_error for misuse.
  std::span<const std::byte> acquire(std::size_t turn) override;
  void release(std::size_t turn) override;

  // The steps that come stop before this turn, until told otherwise, so nothing is read ahead from
  // there on. (Only the last chunk of a prompt needs the output head.) A hint: a step that goes
  // further gets the right bytes, later.
  void expect_step_end(std::size_t turn);

  // Pins as much as fits this budget from now on, between steps (nothing held). Less gives memory
  // back to the system at once; more reads what is missing, and when that fails throws
  // std::system_error and leaves what was pinned before.
  void set_pinned_bytes(std::uint64_t pinned_bytes_max, const Progress& progress = {});

  const TapePlan& plan() const { return plan_; }
  Storage storage(std::size_t turn) const override;
  bool is_pinned(std::size_t turn) const { return places_[turn].is_pinned; }
  TapeStatistics statistics() const;

 private:
  struct Place {
    bool is_pinned = false;
    const std::byte* pinned = nullptr;  // where is_pinned
    std::size_t stop = 0;               // number among the streamed segments, where not pinned
  };

  void check_segments() const;
  void open_ring();
  void close_ring();
  void load(std::size_t pinned_before, const Progress& progress);
  void adopt(TapePlan plan);
  void discard_unpinned(std::size_t pinned_before);
  void start_streaming();
  std::vector<ReadAheadEntry> streamed_entries() const;

  std::vector<Segment> segments_;
  Copy copy_;
  TapeOptions options_;
  TapePlan plan_;

  // Destroyed from the last to the first: the window, the reader (which waits for its reads), and
  // only then the memory that it may be writing to.
  Arena pinned_memory_;
  Arena ring_memory_;
  std::unique_ptr<Reader> reader_;
  ReadAhead read_ahead_;

  std::vector<Place> places_;
  std::vector<std::size_t> streamed_turns_;
  std::size_t step_end_;
  std::uint64_t loaded_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace sluice::streaming
