#include "streaming/pinned_segments.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

std::uint64_t sum_over(std::span<const std::uint64_t> bytes, std::span<const std::size_t> order) {
  return std::accumulate(order.begin(), order.end(), std::uint64_t{0},
                         [&](std::uint64_t sum, std::size_t turn) { return sum + bytes[turn]; });
}

}  // namespace

PinnedSegments::PinnedSegments(std::span<const std::uint64_t> bytes,
                               std::span<const std::size_t> order)
    : bytes_of_turn_(bytes.begin(), bytes.end()),
      memory_(sum_over(bytes, order)),
      place_of_turn_(bytes.size(), nowhere),
      limit_bytes_(std::numeric_limits<std::uint64_t>::max()) {
  places_.reserve(order.size());
  std::uint64_t at = 0;
  for (const std::size_t turn : order) {
    base::check(place_of_turn_[turn] == nowhere, "a segment has two places");
    place_of_turn_[turn] = places_.size();
    places_.push_back({at, at + bytes[turn]});
    at += bytes[turn];
  }
  memory_.commit(at);
}

void PinnedSegments::limit(std::uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  const bool falls = bytes < limit_bytes_;
  limit_bytes_ = bytes;
  if (!falls || places_.empty() || may_stay(places_.back())) return;
  populate_.reset();  // it may be touching memory beyond the limit
  // Gives back runs of segments rather than single ones, so that pages shared by two are included.
  std::size_t first = may_stay_of(places_.size());
  for (std::size_t i = first; i < places_.size(); ++i) {
    if (places_[i].state == State::streamed || places_[i].state == State::pinned) {
      places_[i].state = State::streamed;
      continue;
    }
    places_[i].is_doomed = true;
    give_back(first, i);
    first = i + 1;
  }
  give_back(first, places_.size());
}

std::size_t PinnedSegments::may_stay_of(std::size_t count) const {
  const auto begin = places_.begin(), end = begin + static_cast<std::ptrdiff_t>(count);
  const auto behind = std::partition_point(
      begin, end, [limit = limit_bytes_](const Place& place) { return place.end <= limit; });
  return static_cast<std::size_t>(behind - begin);
}

// Returns the memory of places [first, last) to the system; none of them is in use. A page at
// either end is kept while a neighbour that lies in it too is in use.
void PinnedSegments::give_back(std::size_t first, std::size_t last) {
  if (first >= last) return;
  for (std::size_t i = first; i != last; ++i) {
    base::check(!is_in_use(i), "the memory of a segment in use was given back");
  }
  std::uint64_t begin = round_down(places_[first].begin, page_bytes);
  for (std::size_t i = first; i-- != 0 && places_[i].end > begin;) {
    if (is_in_use(i)) begin += page_bytes;
  }
  std::uint64_t end = round_up(places_[last - 1].end, page_bytes);
  for (std::size_t i = last; i != places_.size() && places_[i].begin < end; ++i) {
    if (is_in_use(i)) end -= page_bytes;
  }
  memory_.discard(begin, end);
}

std::uint64_t PinnedSegments::limit_bytes() const {
  const base::MutexLock lock(mutex_);
  return limit_bytes_;
}

std::uint64_t PinnedSegments::bytes() const {
  const base::MutexLock lock(mutex_);
  std::uint64_t bytes = 0;
  for (const Place& place : places_) {
    const bool is_there = place.state == State::pinned || place.state == State::held;
    bytes += is_there ? place.end - place.begin : 0;
  }
  return bytes;
}

bool PinnedSegments::is_pinned(std::size_t turn) const {
  const base::MutexLock lock(mutex_);
  const Place* const place = find(turn);
  return place != nullptr && !place->is_doomed &&
         (place->state == State::pinned || place->state == State::held);
}

std::size_t PinnedSegments::next_streamed(std::size_t turn) const {
  const base::MutexLock lock(mutex_);
  while (turn < place_of_turn_.size()) {
    const Place* const place = find(turn);
    if (place == nullptr || place->state == State::streamed) return turn;
    ++turn;
  }
  return turn;
}

void PinnedSegments::populate(std::size_t count, unsigned threads) {
  const base::MutexLock lock(mutex_);
  const std::size_t staying = may_stay_of(count);
  if (staying == 0) return;
  populate_.emplace(memory_.bytes().first(places_[staying - 1].end), threads);
}

void PinnedSegments::stop_populating() {
  const base::MutexLock lock(mutex_);
  populate_.reset();
}

const std::byte* PinnedSegments::acquire(std::size_t turn) {
  const base::MutexLock lock(mutex_);
  Place* const place = find(turn);
  if (place == nullptr || place->state == State::streamed) return nullptr;
  if (place->state != State::pinned) {
    throw std::logic_error("a segment was acquired twice without a release");
  }
  place->state = State::held;
  return memory_.data() + place->begin;
}

bool PinnedSegments::release(std::size_t turn) {
  const base::MutexLock lock(mutex_);
  Place* const place = find(turn);
  if (place == nullptr || place->state != State::held) return false;
  leave(*place);
  return true;
}

std::optional<std::uint64_t> PinnedSegments::place_end(std::size_t turn) const {
  const base::MutexLock lock(mutex_);
  const Place* const place = find(turn);
  return place == nullptr ? std::nullopt : std::optional(place->end);
}

bool PinnedSegments::may_pin(std::size_t turn) const {
  const base::MutexLock lock(mutex_);
  const Place* const place = find(turn);
  return place != nullptr && may_stay(*place);
}

void PinnedSegments::exchange(std::size_t a, std::size_t b) {
  const base::MutexLock lock(mutex_);
  base::check(bytes_of_turn_.at(a) == bytes_of_turn_.at(b),
              "segments of different sizes exchange their places");
  for (const std::size_t turn : {a, b}) {
    Place* const place = find(turn);
    if (place == nullptr) continue;
    if (place->state != State::pinned && place->state != State::streamed) {
      throw std::logic_error("a segment that is held cannot change its place");
    }
    place->state = State::streamed;
  }
  std::swap(place_of_turn_[a], place_of_turn_[b]);
}

std::byte* PinnedSegments::begin_copy(std::size_t turn) {
  const base::MutexLock lock(mutex_);
  Place* const place = find(turn);
  if (place == nullptr || place->state != State::streamed || !may_stay(*place)) return nullptr;
  base::check(place->end - place->begin == bytes_of_turn_[turn],
              "a segment has the place of one of another size");
  place->state = State::copying;
  return memory_.data() + place->begin;
}

std::byte* PinnedSegments::copied_to(std::size_t turn) {
  const base::MutexLock lock(mutex_);
  const Place* const place = find(turn);
  const bool is_copy = place != nullptr && place->state == State::copying;
  return is_copy ? memory_.data() + place->begin : nullptr;
}

void PinnedSegments::end_copy(std::size_t turn) {
  const base::MutexLock lock(mutex_);
  Place* const place = find(turn);
  base::check(place != nullptr && place->state == State::copying,
              "a copy ended that had not begun");
  leave(*place);
}

// Called when the leading thread no longer uses a place (a copy or a hold has ended).
void PinnedSegments::leave(Place& place) {
  if (!std::exchange(place.is_doomed, false)) {
    place.state = State::pinned;
    return;
  }
  place.state = State::streamed;
  const auto index = static_cast<std::size_t>(&place - places_.data());
  give_back(index, index + 1);
}

const PinnedSegments::Place* PinnedSegments::find(std::size_t turn) const {
  const std::size_t place = place_of_turn_.at(turn);
  return place == nowhere ? nullptr : &places_[place];
}

PinnedSegments::Place* PinnedSegments::find(std::size_t turn) {
  return const_cast<Place*>(static_cast<const PinnedSegments*>(this)->find(turn));
}

}  // namespace sluice::streaming
