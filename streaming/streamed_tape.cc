#include "streaming/streamed_tape.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "streaming/alignment.h"
#include "streaming/populate.h"

namespace sluice::streaming {
namespace {

// Where pinned segments begin in the arena: cache lines, and the widest vector loads.
constexpr std::uint64_t pinned_alignment = 64;
constexpr unsigned load_threads = 2;                                 // beside the one that copies
constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 30;  // what one buffer may register

std::uint64_t end_of(const Segment& segment) {
  return segment.offset + segment.bytes;
}

std::uint64_t enclosing_bytes(const Segment& segment, std::uint64_t alignment) {
  return round_up(end_of(segment), alignment) - round_down(segment.offset, alignment);
}

std::uint64_t pinned_cost(const Segment& segment, bool maps_files) {
  return maps_files ? enclosing_bytes(segment, page_bytes)
                    : round_up(segment.bytes, pinned_alignment);
}

void check_geometry(std::span<const Segment> segments, const TapeOptions& options) {
  if (options.slots <= options.held_max) {
    throw std::invalid_argument(
        "a ring of " + std::to_string(options.slots) +
        " slots is too small: " + std::to_string(options.held_max) +
        " segments may be held at once and one more must be read ahead; it needs at least " +
        std::to_string(std::uint64_t{options.held_max} + 1));
  }
  for (const Segment& segment : segments) {
    const bool wraps = segment.offset > std::numeric_limits<std::int64_t>::max() / 2;
    if (segment.bytes == 0 || segment.bytes > segment_bytes_max || wraps) {
      throw std::invalid_argument("a segment of " + std::to_string(segment.bytes) +
                                  " bytes at offset " + std::to_string(segment.offset) +
                                  " is not usable: 1 byte to 1 GiB");
    }
  }
}

// The arena can grow to hold every segment; addresses cost nothing.
std::uint64_t arena_capacity(std::span<const Segment> segments, bool maps_files) {
  if (maps_files) return 0;
  return std::accumulate(
      segments.begin(), segments.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Segment& segment) { return sum + pinned_cost(segment, false); });
}

// How many pages of a mapping streamed segments leave behind: the last one of each, except where
// another segment begins in it, which gives it up in its turn or has it counted as pinned.
std::uint64_t pages_kept(std::span<const Segment> segments, const TapePlan& plan) {
  std::set<std::pair<std::uint32_t, std::uint64_t>> first_pages;
  for (const Segment& segment : segments) {
    first_pages.insert({segment.file, round_down(segment.offset, page_bytes)});
  }
  const auto& order = plan.residency.pin_order;
  return static_cast<std::uint64_t>(
      std::count_if(order.begin() + static_cast<std::ptrdiff_t>(plan.residency.pinned_count),
                    order.end(), [&](std::size_t turn) {
                      const Segment& segment = segments[turn];
                      const std::uint64_t end = end_of(segment);
                      return end % page_bytes != 0 &&
                             first_pages.count({segment.file, round_down(end, page_bytes)}) == 0;
                    }));
}

}  // namespace

TapePlan plan_tape(std::span<const Segment> segments, const TapeOptions& options,
                   std::uint64_t alignment, bool maps_files) {
  check_geometry(segments, options);
  TapePlan plan;
  plan.is_in_page_cache = maps_files;
  std::vector<std::uint64_t> costs;
  for (const Segment& segment : segments) {
    costs.push_back(pinned_cost(segment, maps_files));
    plan.slot_bytes = std::max(plan.slot_bytes, enclosing_bytes(segment, alignment));
  }
  plan.residency = choose_residency(costs, round_down(options.pinned_bytes_max, page_bytes));
  plan.pinned_bytes = round_up(plan.residency.pinned_bytes, page_bytes);
  const auto& order = plan.residency.pin_order;
  for (std::size_t i = plan.residency.pinned_count; i < order.size(); ++i) {
    plan.streamed_bytes_per_step += segments[order[i]].bytes;
  }
  plan.streamed_segments = order.size() - plan.residency.pinned_count;
  if (!maps_files) {
    plan.ring_bytes = options.slots * plan.slot_bytes;
  } else if (plan.streamed_segments != 0) {
    plan.ring_bytes = options.slots * plan.slot_bytes + pages_kept(segments, plan) * page_bytes;
  }
  return plan;
}

StreamedTape::StreamedTape(std::vector<Segment> segments, std::unique_ptr<Reader> reader,
                           const TapeOptions& options, const Progress& progress, Copy copy)
    : segments_(std::move(segments)),
      copy_(std::move(copy)),
      options_(options),
      plan_(plan_tape(segments_, options, reader->alignment(), reader->maps_files())),
      pinned_memory_(arena_capacity(segments_, reader->maps_files())),
      ring_memory_(reader->maps_files() ? 0 : plan_.ring_bytes),
      reader_(std::move(reader)),
      read_ahead_(*reader_, options.slots),
      places_(segments_.size()),
      step_end_(segments_.size()) {
  check_segments();
  load(0, progress);
  start_streaming();
}

void StreamedTape::check_segments() const {
  const auto files = reader_->files();
  for (const Segment& segment : segments_) {
    if (segment.file >= files.size()) {
      throw std::invalid_argument("a segment lies in file " + std::to_string(segment.file) +
                                  ", but there are " + std::to_string(files.size()));
    }
    const ReaderFile& file = files[segment.file];
    if (end_of(segment) > file.bytes) {
      throw std::invalid_argument(file.path.string() + ": a segment ends at offset " +
                                  std::to_string(end_of(segment)) + ", but the file has only " +
                                  std::to_string(file.bytes) + " bytes");
    }
  }
}

void StreamedTape::open_ring() {
  if (reader_->maps_files() || ring_memory_.committed_bytes() != 0) return;
  ring_memory_.commit(plan_.ring_bytes);
  read_ahead_.use_memory(ring_memory_.bytes(), plan_.slot_bytes);
  const std::string note = reader_->attach_buffers(ring_memory_.bytes(), plan_.slot_bytes);
  if (!note.empty() && std::find(notes_.begin(), notes_.end(), note) == notes_.end()) {
    notes_.push_back(note);
  }
}

void StreamedTape::close_ring() {
  if (ring_memory_.committed_bytes() == 0) return;
  reader_->attach_buffers({}, 0);
  read_ahead_.use_memory({}, 0);
  ring_memory_.commit(0);
}

// Brings the segments from `pinned_before` to the end of the plan's pinned ones into memory. They
// come through the ring like all others; copying them on costs less time than the disk needs for
// the next, and packs them without the alignment of reads.
void StreamedTape::load(std::size_t pinned_before, const Progress& progress) {
  const auto& order = plan_.residency.pin_order;
  std::uint64_t place = 0;
  std::uint64_t total_bytes = 0;
  std::vector<ReadAheadEntry> entries;
  for (std::size_t i = 0; i < plan_.residency.pinned_count; ++i) {
    const Segment& segment = segments_[order[i]];
    if (i < pinned_before) {
      place += pinned_cost(segment, false);
    } else {
      entries.push_back({segment, 0, 0});
      total_bytes += segment.bytes;
    }
  }
  std::optional<Populate> populate;
  if (!reader_->maps_files()) {
    const std::uint64_t committed_before =
        std::min(round_up(place, page_bytes), pinned_memory_.committed_bytes());
    pinned_memory_.commit(plan_.pinned_bytes);
    populate.emplace(pinned_memory_.bytes().subspan(committed_before), load_threads);
  }
  if (!entries.empty()) open_ring();
  reader_->keep_to_requests(plan_.streamed_segments != 0);
  read_ahead_.start(std::move(entries), ReadAhead::Order::once);
  std::uint64_t done_bytes = 0;
  for (std::size_t i = pinned_before; i < plan_.residency.pinned_count; ++i) {
    const Segment& segment = segments_[order[i]];
    const std::span<const std::byte> bytes = read_ahead_.acquire(i - pinned_before);
    const std::byte* pinned = bytes.data();
    if (!reader_->maps_files()) {
      std::byte* const copy = pinned_memory_.data() + place;
      if (copy_) {
        copy_(order[i], bytes, copy);
      } else {
        std::memcpy(copy, bytes.data(), bytes.size());
      }
      place += pinned_cost(segment, false);
      pinned = copy;
    }
    read_ahead_.release(i - pinned_before);
    places_[order[i]] = {true, pinned, 0};
    done_bytes += segment.bytes;
    if (progress) progress(done_bytes, total_bytes);
  }
  read_ahead_.stop();
  loaded_bytes_ += total_bytes;
}

void StreamedTape::start_streaming() {
  const std::vector<bool> pinned = plan_.residency.pinned_turns();
  streamed_turns_.clear();
  for (std::size_t turn = 0; turn < segments_.size(); ++turn) {
    if (pinned[turn]) continue;
    places_[turn] = {false, nullptr, streamed_turns_.size()};
    streamed_turns_.push_back(turn);
  }
  if (streamed_turns_.empty()) {
    close_ring();
  } else {
    open_ring();
  }
  reader_->keep_to_requests(!streamed_turns_.empty());
  read_ahead_.reset_statistics();
  read_ahead_.start(streamed_entries(), ReadAhead::Order::cyclic);
  expect_step_end(step_end_);
}

// What of the mapping a streamed segment gives up: its last page, when the next segment begins in
// it, is left to that one, and its first page stays when it is also the last of a pinned segment.
std::vector<ReadAheadEntry> StreamedTape::streamed_entries() const {
  std::set<std::pair<std::uint32_t, std::uint64_t>> pinned_last_pages;
  if (reader_->maps_files()) {
    for (std::size_t turn = 0; turn < segments_.size(); ++turn) {
      if (!places_[turn].is_pinned) continue;
      const Segment& segment = segments_[turn];
      pinned_last_pages.insert({segment.file, round_down(end_of(segment) - 1, page_bytes)});
    }
  }
  std::vector<ReadAheadEntry> entries;
  for (const std::size_t turn : streamed_turns_) {
    ReadAheadEntry entry{segments_[turn], 0, 0};
    if (reader_->maps_files()) {
      const Segment& segment = entry.segment;
      entry.discard_begin = round_down(segment.offset, page_bytes);
      entry.discard_end = round_down(end_of(segment), page_bytes);
      if (pinned_last_pages.count({segment.file, entry.discard_begin}) != 0) {
        entry.discard_begin += page_bytes;
      }
    }
    entries.push_back(entry);
  }
  return entries;
}

std::span<const std::byte> StreamedTape::acquire(std::size_t turn) {
  const Place& place = places_.at(turn);
  if (!place.is_pinned) return read_ahead_.acquire(place.stop);
  const Segment& segment = segments_[turn];
  if (!reader_->still_reaches(segment.file, end_of(segment))) {
    Completion result;
    result.error = std::make_error_code(std::errc::io_error);
    result.is_truncated = true;
    throw read_failure(reader_->files()[segment.file], segment, result);
  }
  return {place.pinned, segment.bytes};
}

Storage StreamedTape::storage(std::size_t turn) const {
  if (!places_[turn].is_pinned) return Storage::ring;
  return plan_.is_in_page_cache ? Storage::mapped : Storage::copied;
}

void StreamedTape::release(std::size_t turn) {
  const Place& place = places_.at(turn);
  if (!place.is_pinned) read_ahead_.release(place.stop);
}

void StreamedTape::expect_step_end(std::size_t turn) {
  step_end_ = turn;
  const auto end = std::lower_bound(streamed_turns_.begin(), streamed_turns_.end(), turn);
  read_ahead_.set_end(static_cast<std::size_t>(end - streamed_turns_.begin()));
}

void StreamedTape::set_pinned_bytes(std::uint64_t pinned_bytes_max, const Progress& progress) {
  read_ahead_.stop();
  const TapePlan before = plan_;
  options_.pinned_bytes_max = pinned_bytes_max;
  try {
    adopt(plan_tape(segments_, options_, reader_->alignment(), reader_->maps_files()));
    load(before.residency.pinned_count, progress);
  } catch (...) {
    read_ahead_.stop();
    adopt(before);
    start_streaming();
    throw;
  }
  start_streaming();
}

// Makes a plan the tape's own; memory that it does not need is given back.
void StreamedTape::adopt(TapePlan plan) {
  const std::size_t pinned_before = plan_.residency.pinned_count;
  plan_ = std::move(plan);
  if (reader_->maps_files()) {
    discard_unpinned(pinned_before);
  } else if (plan_.pinned_bytes < pinned_memory_.committed_bytes()) {
    pinned_memory_.commit(plan_.pinned_bytes);
  }
}

void StreamedTape::discard_unpinned(std::size_t pinned_before) {
  for (std::size_t i = plan_.residency.pinned_count; i < pinned_before; ++i) {
    const Segment& segment = segments_[plan_.residency.pin_order[i]];
    const std::uint64_t begin = round_up(segment.offset, page_bytes);
    const std::uint64_t end = round_down(end_of(segment), page_bytes);
    if (begin < end) reader_->discard(segment.file, begin, end - begin);
  }
}

TapeStatistics StreamedTape::statistics() const {
  TapeStatistics statistics;
  statistics.streaming = read_ahead_.statistics();
  statistics.reader = reader_->name();
  statistics.loaded_bytes = loaded_bytes_;
  statistics.pinned_bytes = plan_.pinned_bytes;
  statistics.huge_page_bytes = pinned_memory_.huge_page_bytes() + ring_memory_.huge_page_bytes();
  statistics.notes = notes_;
  return statistics;
}

}  // namespace sluice::streaming
