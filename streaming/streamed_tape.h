// The tape of a model within a budget: some segments pinned in memory, the rest streamed from disk
// through a small ring that reads ahead, round and round.
//
// With a reader that copies (uring, pread), pinned segments lie in one anonymous arena and streamed
// ones pass through a ring of buffers. With the mmap reader nothing is copied: pinned segments stay
// in the mapping, and of the streamed ones no more than the ring's length is kept in memory. A tape
// with everything pinned and the mmap reader is a resident model served from the page cache.
//
// Of the experts of a mixture some lie in memory, in places that pass from one expert to another
// (streaming/expert_policy.h); of the others a step streams those that it needs, and no more. An
// expert that gets a place is copied there from the ring, at best by its holder while it computes.
// With the mmap reader the places stay with the experts that had them first.
//
// Memory: no more than plan_tape() says beforehand. limit_pinned_bytes() can lower the pinned part
// at any moment; segments beyond the limit are streamed from then on. When the limit rises again,
// segments are pinned as they pass through the ring, which costs no extra read.
//
// Threads: a tape is used by one thread. Only limit_pinned_bytes(), pinned_bytes() and
// pinned_bytes_allowed() may be called by any thread. Any number of threads may read the memory
// handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "streaming/arena.h"
#include "streaming/expert_demand.h"
#include "streaming/expert_policy.h"
#include "streaming/expert_statistics.h"
#include "streaming/pinned_segments.h"
#include "streaming/read_ahead.h"
#include "streaming/reader.h"
#include "streaming/residency.h"
#include "streaming/segment_sums.h"
#include "streaming/tape.h"

namespace sluice::streaming {

struct TapeOptions {
  std::uint64_t pinned_bytes_max = 0;
  std::uint32_t slots = 16;    // segments in the ring
  std::uint32_t held_max = 8;  // segments acquired at the same time, at most; less than slots
  // For the estimate of what a step streams: the tokens of a step, each with experts of its own.
  std::uint32_t step_tokens = 1;
  std::size_t first_pinned = no_turn;  // see pin_order()
};

// What a tape will allocate.
struct TapePlan {
  Residency residency;  // its bytes are bytes of memory, padding included
  // Memory of the pinned segments, a multiple of page_bytes and at most the budget. It is
  // anonymous, or page cache if is_in_page_cache (then this is an upper bound, as neighbours share
  // pages).
  std::uint64_t pinned_bytes = 0;
  std::uint64_t slot_bytes = 0;  // the longest segment, padded to the alignment of reads
  // Memory of the ring, of the same kind. When nothing is streamed, a ring of buffers is used only
  // to load the pinned segments, and freed after that.
  std::uint64_t ring_bytes = 0;
  bool is_in_page_cache = false;

  std::uint64_t streamed_segments = 0;
  std::uint64_t streamed_bytes = 0;  // of the segments themselves
  // The part of them that a step of TapeOptions::step_tokens tokens reads. Of experts it is the
  // mean, if a token takes any of them as likely as any other.
  std::uint64_t streamed_bytes_per_step = 0;
  std::uint64_t streamed_expert_bytes_per_step = 0;  // the part of it that is experts

  std::uint64_t peak_bytes() const { return pinned_bytes + ring_bytes; }
};

// Calculates the memory of a tape; the memory plan and the tape itself both use this function.
// `alignment` and `maps_files` are those of the reader. Throws std::invalid_argument when a segment
// is empty or longer than 1 GiB, or when the ring has no more slots than may be held.
TapePlan plan_tape(std::span<const Segment> segments, const TapeOptions& options,
                   std::uint64_t alignment, bool maps_files,
                   std::span<const ExpertGroup> experts = {});

// Memory that a tape needs for each segment besides, in its lists of places, sums and reads.
inline constexpr std::uint64_t list_bytes_per_segment = 144;

struct TapeStatistics {
  ReadAheadStatistics streaming;          // since the tape was loaded
  std::uint64_t loaded_bytes = 0;         // of pinned segments, read by load()
  std::uint64_t pinned_bytes = 0;         // now
  std::uint64_t huge_page_bytes = 0;      // how much of the anonymous memory lies in huge pages
  std::vector<ExpertStatistics> experts;  // by group
};

class StreamedTape final : public Tape {
 public:
  // Called with the bytes of pinned segments loaded so far, and in all.
  using Progress = std::function<void(std::uint64_t loaded_bytes, std::uint64_t total_bytes)>;

  // Copies the bytes of a segment that is being pinned. It may change their form but not their
  // length; acquire() then hands out the new form. `to` is 64-byte aligned.
  using Copy =
      std::function<void(std::size_t turn, std::span<const std::byte> from, std::byte* to)>;

  // `segments` are in tape order, and so are `experts`; the file numbers of segments are those of
  // the reader. Reads nothing yet.
  // Throws std::invalid_argument for what plan_tape() refuses and for segments outside their file,
  // std::system_error when there is not enough memory.
  StreamedTape(std::vector<Segment> segments, std::unique_ptr<Reader> reader,
               const TapeOptions& options, Copy copy = {}, std::vector<ExpertGroup> experts = {});

  // Loads the pinned segments, as far as the limit allows, and begins to read ahead. Places of
  // experts stay empty until they are used, unless all experts have one. Call it once,
  // before the first step. Throws std::system_error when bytes cannot be read.
  void load(const Progress& progress = {});

  // Throws std::system_error, which names file and offset, when the bytes cannot be read; the turn
  // may be acquired again, and the tape stays usable. Throws std::logic_error for misuse.
  HeldSegment acquire(std::size_t turn) override;
  void release(std::size_t turn) override { give_back(turn, false); }
  void keep(std::size_t turn) override { give_back(turn, true); }
  void expect_experts(std::size_t group, std::span<const ExpertUse> uses,
                      std::size_t tokens) override;
  bool is_in_memory(std::size_t turn) const override;

  // Says that the coming steps end before this turn, so nothing from there on is read ahead. (Only
  // the last chunk of a prompt needs the output head.) Call it between steps, with nothing held. A
  // hint only: a step that goes further still gets the right bytes, but waits for them.
  void expect_step_end(std::size_t turn);

  // Limits the pinned segments to this many bytes from now on; a segment that is held is dropped
  // when it is released. A limit above the plan pins no more than was planned. Has no effect with a
  // reader that maps files: there the system reclaims pages itself.
  void limit_pinned_bytes(std::uint64_t bytes) { pinned_.limit(bytes); }

  std::uint64_t pinned_bytes() const;  // at this moment
  // That may be pinned at this moment: places of experts fill only as experts are used.
  std::uint64_t pinned_bytes_allowed() const;

  std::string_view reader_name() const { return reader_->name(); }  // "uring"
  // Lines for the user, e.g. that buffers are not registered.
  const std::vector<std::string>& notes() const { return notes_; }
  // See Reader::trouble().
  std::string trouble() const { return reader_->trouble(); }

  const TapePlan& plan() const { return plan_; }
  TapeStatistics statistics() const;  // reads /proc: for reports
  std::span<const ExpertStatistics> expert_statistics() const { return expert_statistics_; }

 private:
  void check_segments() const;
  void open_ring();
  void close_ring();
  std::span<const std::byte> read(std::size_t turn, std::size_t entry);
  void copy(std::size_t turn, std::span<const std::byte> bytes, std::byte* to) const;
  void give_back(std::size_t turn, bool is_copied);
  void start_streaming();
  std::size_t next_streamed(std::size_t turn);
  std::size_t next_not_in_memory(std::size_t turn) const;
  bool is_expert_in_memory(const ExpertGroup& group, std::uint32_t expert) const;
  void make_policies();
  void hand_out_places(std::size_t group, std::span<const ExpertUse> uses, std::size_t tokens);
  bool places_move() const { return !policies_.empty(); }
  std::vector<ReadAheadEntry> streamed_entries() const;

  std::vector<Segment> segments_;
  Copy copy_;
  TapePlan plan_;
  std::vector<bool> is_mapped_;  // by turn: whether the segment is pinned in the mapping
  ExpertDemand demand_;
  std::vector<ExpertStatistics> expert_statistics_;  // by group
  // By group; empty when experts keep their places.
  std::vector<ExpertPolicy> policies_;
  std::vector<std::vector<std::uint64_t>> place_ends_;  // by group and place, in pinned_
  SegmentSums sums_;                                    // of all that came through the ring

  // The order matters for destruction, from the last to the first: the window, the reader (which
  // waits for its reads), and only then the memory that these reads write to.
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
