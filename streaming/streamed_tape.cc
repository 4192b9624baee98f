#include "streaming/streamed_tape.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

// Alignment of pinned segments in the arena: a cache line, and the widest vector load.
constexpr std::uint64_t pinned_alignment = 64;
constexpr unsigned load_threads = 2;                                 // besides the copying thread
constexpr std::uint64_t segment_bytes_max = std::uint64_t{1} << 30;  // io_uring's limit per buffer

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

// Bytes that each segment takes when it is pinned, by turn. In the arena, where experts exchange
// their places, a segment of an expert takes as much as the largest that may lie there.
std::vector<std::uint64_t> pinned_costs(std::span<const Segment> segments,
                                        std::span<const ExpertGroup> experts, bool maps_files) {
  std::vector<std::uint64_t> costs;
  for (const Segment& segment : segments) costs.push_back(pinned_cost(segment, maps_files));
  if (maps_files) return costs;
  for (const ExpertGroup& group : experts) {
    for (std::size_t i = 0; i < group.turns_each; ++i) {
      std::uint64_t most = 0;
      for (std::size_t e = 0; e < group.experts; ++e) {
        most = std::max(most, costs[group.first_turn_of(e) + i]);
      }
      for (std::size_t e = 0; e < group.experts; ++e) costs[group.first_turn_of(e) + i] = most;
    }
  }
  return costs;
}

// The turns that lie in the arena, in the order in which they are copied there.
std::span<const std::size_t> copied_turns(const TapePlan& plan) {
  const std::span<const std::size_t> order = plan.residency.pin_order;
  return order.first(plan.is_in_page_cache ? 0 : plan.residency.pinned_count);
}

// How many pages of a mapping streamed segments leave in memory. Each leaves its last page if it
// ends inside one (see streamed_entries). Such a page is not counted if another segment begins in
// it: that segment discards the page later, or has it counted as pinned. But a step may leave out
// an expert, and with it what it would discard.
std::uint64_t pages_kept(std::span<const Segment> segments, const TapePlan& plan,
                         bool has_experts) {
  std::set<std::pair<std::uint32_t, std::uint64_t>> first_pages;
  for (const Segment& segment : segments) {
    first_pages.insert({segment.file, round_down(segment.offset, page_bytes)});
  }
  const auto& order = plan.residency.pin_order;
  return static_cast<std::uint64_t>(std::count_if(
      order.begin() + static_cast<std::ptrdiff_t>(plan.residency.pinned_count), order.end(),
      [&](std::size_t turn) {
        const Segment& segment = segments[turn];
        const std::uint64_t end = end_of(segment);
        return end % page_bytes != 0 &&
               (has_experts || first_pages.count({segment.file, round_down(end, page_bytes)}) == 0);
      }));
}

}  // namespace

TapePlan plan_tape(std::span<const Segment> segments, const TapeOptions& options,
                   std::uint64_t alignment, bool maps_files, std::span<const ExpertGroup> experts) {
  check_geometry(segments, options);
  TapePlan plan;
  plan.is_in_page_cache = maps_files;
  for (const Segment& segment : segments) {
    plan.slot_bytes = std::max(plan.slot_bytes, enclosing_bytes(segment, alignment));
  }
  plan.residency = choose_residency(pinned_costs(segments, experts, maps_files),
                                    round_down(options.pinned_bytes_max, page_bytes), experts,
                                    options.first_pinned);
  plan.pinned_bytes = round_up(plan.residency.pinned_bytes, page_bytes);
  const auto& order = plan.residency.pin_order;
  std::vector<std::uint64_t> expert_bytes(experts.size());  // by group
  for (std::size_t i = plan.residency.pinned_count; i < order.size(); ++i) {
    const std::uint64_t bytes = segments[order[i]].bytes;
    plan.streamed_bytes += bytes;
    const auto group = find_group(experts, order[i]);
    if (group == experts.end()) {
      plan.streamed_bytes_per_step += bytes;
    } else {
      expert_bytes[static_cast<std::size_t>(group - experts.begin())] += bytes;
    }
  }
  for (std::size_t g = 0; g < experts.size(); ++g) {
    plan.streamed_expert_bytes_per_step += static_cast<std::uint64_t>(
        static_cast<double>(expert_bytes[g]) * experts[g].share_needed(options.step_tokens));
  }
  plan.streamed_bytes_per_step += plan.streamed_expert_bytes_per_step;
  plan.streamed_segments = order.size() - plan.residency.pinned_count;
  base::check(order.size() == segments.size() && plan.pinned_bytes <= options.pinned_bytes_max,
              "a plan pins more than its budget, or forgets segments");
  if (!maps_files) {
    plan.ring_bytes = options.slots * plan.slot_bytes;
  } else if (plan.streamed_segments != 0) {
    plan.ring_bytes =
        options.slots * plan.slot_bytes + pages_kept(segments, plan, !experts.empty()) * page_bytes;
  }
  return plan;
}

StreamedTape::StreamedTape(std::vector<Segment> segments, std::unique_ptr<Reader> reader,
                           const TapeOptions& options, Copy copy, std::vector<ExpertGroup> experts)
    : segments_(std::move(segments)),
      copy_(std::move(copy)),
      plan_(plan_tape(segments_, options, reader->alignment(), reader->maps_files(), experts)),
      is_mapped_(segments_.size(), false),
      demand_(std::move(experts)),
      expert_statistics_(demand_.groups().size()),
      sums_(segments_.size()),
      pinned_(pinned_costs(segments_, demand_.groups(), false), copied_turns(plan_)),
      ring_memory_(reader->maps_files() ? 0 : plan_.ring_bytes),
      reader_(std::move(reader)),
      read_ahead_(*reader_, options.slots),
      step_end_(segments_.size()) {
  check_segments();
  if (!plan_.is_in_page_cache) {
    base::check(pinned_.capacity_bytes() == plan_.pinned_bytes,
                "a tape reserves other memory for pinned segments than was planned");
  }
  reader_->keep_to_requests(plan_.streamed_segments != 0);
  if (plan_.is_in_page_cache) {
    is_mapped_ = plan_.residency.pinned_turns();
  } else if (plan_.residency.pinned_count != segments_.size()) {
    make_policies();
  }
}

// The places of a group are those of its first experts.
void StreamedTape::make_policies() {
  for (const ExpertGroup& group : demand_.groups()) {
    std::vector<std::uint64_t>& place_ends = place_ends_.emplace_back();
    for (std::size_t e = 0; e < group.experts; ++e) {
      const auto end = pinned_.place_end(group.first_turn_of(e + 1) - 1);
      if (end) place_ends.push_back(*end);
    }
    policies_.emplace_back(group.experts, place_ends.size());
  }
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

// Pinned segments are read into the ring like all others and copied to the arena from there. A copy
// takes less time than the disk needs for the next segment, and drops the padding of aligned reads.
void StreamedTape::load(const Progress& progress) {
  const Residency& residency = plan_.residency;
  const std::span<const std::size_t> turns =
      std::span(residency.pin_order)
          .first(places_move() ? residency.dense_count : residency.pinned_count);
  std::vector<ReadAheadEntry> entries;
  entries.reserve(turns.size());
  std::uint64_t total_bytes = 0;
  for (const std::size_t turn : turns) {
    entries.push_back({segments_[turn], 0, 0});
    total_bytes += segments_[turn].bytes;
  }
  if (!entries.empty()) open_ring();
  pinned_.populate(plan_.is_in_page_cache ? 0 : turns.size(), load_threads);
  read_ahead_.start(std::move(entries), ReadAhead::Order::once);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (!is_mapped_[turns[i]] && !pinned_.may_pin(turns[i])) break;
    const std::span<const std::byte> bytes = read(turns[i], i);
    if (std::byte* const place = pinned_.begin_copy(turns[i])) {
      copy(turns[i], bytes, place);
      pinned_.end_copy(turns[i]);
    }
    read_ahead_.release(i);
    loaded_bytes_ += segments_[turns[i]].bytes;
    if (progress) progress(loaded_bytes_, total_bytes);
  }
  pinned_.stop_populating();
  read_ahead_.stop();
  read_ahead_.reset_statistics();
  if (next_not_in_memory(0) == segments_.size()) {
    close_ring();
  } else {
    start_streaming();
  }
}

// The bytes of a turn, which is an entry of the present sequence. They are held.
std::span<const std::byte> StreamedTape::read(std::size_t turn, std::size_t entry) {
  const std::span<const std::byte> bytes = read_ahead_.acquire(entry);
  if (sums_.are_as_before(turn, segments_[turn].offset, bytes)) return bytes;
  read_ahead_.release(entry);
  const Segment& segment = segments_[turn];
  throw std::system_error(ESTALE, std::generic_category(),
                          reader_->files()[segment.file].path.string() + ": bytes " +
                              std::to_string(segment.offset) + " to " +
                              std::to_string(end_of(segment)) +
                              " are not what they were: it was written to, or its disk fails; "
                              "start again");
}

void StreamedTape::copy(std::size_t turn, std::span<const std::byte> bytes, std::byte* to) const {
  base::check(bytes.size() == segments_[turn].bytes, "a segment is copied in part");
  if (copy_) {
    copy_(turn, bytes, to);
  } else {
    std::memcpy(to, bytes.data(), bytes.size());
  }
}

void StreamedTape::start_streaming() {
  open_ring();
  read_ahead_.start(streamed_entries(), ReadAhead::Order::cyclic,
                    [this](std::size_t turn) { return next_streamed(turn); });
  read_ahead_.set_end(step_end_);
  is_streaming_ = true;
}

std::size_t StreamedTape::next_streamed(std::size_t turn) {
  while (true) {
    turn = demand_.next(turn);
    const std::size_t found = next_not_in_memory(turn);
    demand_.pass(found);
    if (found == segments_.size()) return found;
    if (found == turn) return demand_.is_known(turn) ? turn : ReadAhead::not_yet_known;
    turn = found;
  }
}

std::size_t StreamedTape::next_not_in_memory(std::size_t turn) const {
  if (!plan_.is_in_page_cache) return pinned_.next_streamed(turn);
  const auto at =
      std::find(is_mapped_.begin() + static_cast<std::ptrdiff_t>(turn), is_mapped_.end(), false);
  return static_cast<std::size_t>(at - is_mapped_.begin());
}

void StreamedTape::expect_experts(std::size_t group, std::span<const ExpertUse> uses,
                                  std::size_t tokens) {
  const ExpertGroup& experts = demand_.groups()[group];
  demand_.expect(group, uses);
  ExpertStatistics& statistics = expert_statistics_[group];
  statistics.tokens += tokens;
  statistics.uses += uses.size();
  for (const ExpertUse& use : uses) {
    if (is_expert_in_memory(experts, use.expert)) {
      ++statistics.hits;
      continue;
    }
    for (std::size_t i = 0; i < experts.turns_each; ++i) {
      statistics.missed_bytes += segments_[experts.first_turn_of(use.expert) + i].bytes;
    }
  }
  if (places_move()) hand_out_places(group, uses, tokens);
  if (!is_streaming_) return demand_.pass(segments_.size());  // nothing is read ahead
  const std::size_t next = next_streamed(experts.first_turn);
  if (next != ReadAhead::not_yet_known) read_ahead_.read_on_from(next);
}

bool StreamedTape::is_expert_in_memory(const ExpertGroup& group, std::uint32_t expert) const {
  const std::size_t first = group.first_turn_of(expert);
  for (std::size_t turn = first; turn < first + group.turns_each; ++turn) {
    if (!is_in_memory(turn)) return false;
  }
  return true;
}

// An expert that gets a place is copied there while it is held, like every segment that has a place
// and is streamed.
void StreamedTape::hand_out_places(std::size_t group, std::span<const ExpertUse> uses,
                                   std::size_t tokens) {
  const std::vector<std::uint64_t>& ends = place_ends_[group];
  const auto usable = std::ranges::upper_bound(ends, pinned_.limit_bytes()) - ends.begin();
  const ExpertGroup& experts = demand_.groups()[group];
  for (const ExpertPolicy::Exchange& exchange :
       policies_[group].use(uses, tokens, static_cast<std::size_t>(usable))) {
    for (std::size_t i = 0; i < experts.turns_each; ++i) {
      pinned_.exchange(experts.first_turn_of(exchange.gains) + i,
                       experts.first_turn_of(exchange.loses) + i);
    }
  }
}

// All segments, with the pages of the mapping that each discards when it is streamed. A segment
// discards neither a last page that it fills only in part (the next segment may begin there) nor a
// first page that is also the last page of a pinned segment.
std::vector<ReadAheadEntry> StreamedTape::streamed_entries() const {
  std::set<std::pair<std::uint32_t, std::uint64_t>> pinned_last_pages;
  if (reader_->maps_files()) {
    for (std::size_t turn = 0; turn < segments_.size(); ++turn) {
      if (!is_mapped_[turn]) continue;
      const Segment& segment = segments_[turn];
      pinned_last_pages.insert({segment.file, round_down(end_of(segment) - 1, page_bytes)});
    }
  }
  std::vector<ReadAheadEntry> entries;
  entries.reserve(segments_.size());
  for (const Segment& segment : segments_) {
    ReadAheadEntry entry{segment, 0, 0};
    if (reader_->maps_files()) {
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

HeldSegment StreamedTape::acquire(std::size_t turn) {
  const Segment& segment = segments_.at(turn);
  if (const std::byte* const pinned = pinned_.acquire(turn)) {
    return {{pinned, segment.bytes}, Storage::copied};
  }
  if (is_mapped_[turn]) {
    require_unchanged(*reader_, segment.file);
    return {{reader_->mapping(segment.file) + segment.offset, segment.bytes}, Storage::mapped};
  }
  if (!is_streaming_) start_streaming();
  const std::uint64_t waited_before_ns = read_ahead_.statistics().stall_ns;
  HeldSegment held{read(turn, turn), Storage::ring};
  held.place = pinned_.begin_copy(turn);
  const std::span<const ExpertGroup> groups = demand_.groups();
  if (const auto group = find_group(groups, turn); group != groups.end()) {
    expert_statistics_[static_cast<std::size_t>(group - groups.begin())].stall_ns +=
        read_ahead_.statistics().stall_ns - waited_before_ns;
  }
  return held;
}

void StreamedTape::give_back(std::size_t turn, bool is_copied) {
  if (pinned_.release(turn) || is_mapped_.at(turn)) return;
  const std::span<const std::byte> bytes = read_ahead_.held(turn);
  if (std::byte* const place = pinned_.copied_to(turn)) {
    if (!is_copied) copy(turn, bytes, place);
    pinned_.end_copy(turn);
  }
  read_ahead_.release(turn);
}

void StreamedTape::expect_step_end(std::size_t turn) {
  step_end_ = turn;
  read_ahead_.set_end(turn);
  if (!is_streaming_ || next_not_in_memory(0) != segments_.size()) return;
  read_ahead_.stop();
  close_ring();
  is_streaming_ = false;
}

bool StreamedTape::is_in_memory(std::size_t turn) const {
  return is_mapped_[turn] || pinned_.is_pinned(turn);
}

std::uint64_t StreamedTape::pinned_bytes() const {
  return plan_.is_in_page_cache ? plan_.pinned_bytes : round_up(pinned_.bytes(), page_bytes);
}

std::uint64_t StreamedTape::pinned_bytes_allowed() const {
  return std::min(plan_.pinned_bytes, pinned_.limit_bytes());
}

TapeStatistics StreamedTape::statistics() const {
  TapeStatistics statistics;
  statistics.streaming = read_ahead_.statistics();
  statistics.loaded_bytes = loaded_bytes_;
  statistics.pinned_bytes = pinned_bytes();
  statistics.huge_page_bytes = pinned_.huge_page_bytes() + ring_memory_.huge_page_bytes();
  statistics.experts = expert_statistics_;
  return statistics;
}

}  // namespace sluice::streaming
