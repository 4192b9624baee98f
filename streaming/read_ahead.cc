#include "streaming/read_ahead.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "streaming/alignment.h"

namespace sluice::streaming {

std::system_error read_failure(const ReaderFile& file, const Segment& segment,
                               const Completion& result) {
  const std::string place = file.path.string() + ": ";
  const std::string what =
      result.is_truncated
          ? "ends before offset " + std::to_string(segment.offset + segment.bytes) +
                ", it was truncated while in use"
          : "cannot read at offset " + std::to_string(std::max(result.offset, segment.offset)) +
                " (of " + std::to_string(segment.bytes) + " bytes from " +
                std::to_string(segment.offset) + ")";
  return {result.error, place + what};
}

void require_unchanged(const Reader& reader, std::uint32_t file) {
  if (!reader.has_changed(file)) return;
  throw std::system_error(ESTALE, std::generic_category(),
                          reader.files()[file].path.string() +
                              ": was written to or truncated while in use; start again");
}

ReadAhead::ReadAhead(Reader& reader, std::uint32_t slots) : reader_(reader), slots_(slots) {}

ReadAhead::~ReadAhead() = default;  // the destructor of the reader waits for reads in flight

void ReadAhead::use_memory(std::span<std::byte> memory, std::uint64_t slot_bytes) {
  base::check(memory.empty() || slots_.size() * slot_bytes <= memory.size(),
              "the ring has more slots than memory");
  memory_ = memory;
  slot_bytes_ = slot_bytes;
}

void ReadAhead::start(std::vector<ReadAheadEntry> sequence, Order order, Next next) {
  stop();
  sequence_ = std::move(sequence);
  order_ = order;
  wanted_ = std::move(next);
  end_ = sequence_.size();
  next_ = 0;
  read_on();
}

void ReadAhead::stop() {
  if (held_count() != 0) throw std::logic_error("a tape cannot change while segments are held");
  for (Slot& slot : slots_) drop(slot);
  const auto is_reading = [](const Slot& slot) { return slot.state == State::reading; };
  while (std::any_of(slots_.begin(), slots_.end(), is_reading)) take(reader_.wait());
  sequence_.clear();
  end_ = 0;
}

void ReadAhead::set_end(std::size_t end) {
  end_ = std::min(end, sequence_.size());
}

std::span<const std::byte> ReadAhead::acquire(std::size_t index) {
  take_finished();
  Slot* found = find(index);
  if (found != nullptr && found->state == State::held) {
    throw std::logic_error("a segment was acquired twice without a release");
  }
  Slot& slot = found != nullptr ? *found : jump_to(index);
  drop_before(slot.ticket);
  read_on();
  if (slot.state == State::reading) {
    ++statistics_.stalls;
    while (slot.state == State::reading) wait_for_one();
  }
  try {
    check(slot);
  } catch (const std::system_error&) {
    free_slot(slot);
    throw;
  }
  slot.state = State::held;
  return bytes_of(slot);
}

std::span<const std::byte> ReadAhead::held(std::size_t index) const {
  const Slot* const slot = find(index);
  if (slot == nullptr || slot->state != State::held) {
    throw std::logic_error("a segment was released that is not held");
  }
  return bytes_of(*slot);
}

void ReadAhead::release(std::size_t index) {
  Slot* const slot = find(index);
  if (slot == nullptr || slot->state != State::held) {
    throw std::logic_error("a segment was released that is not held");
  }
  free_slot(*slot);
  take_finished();
  read_on();
}

std::size_t ReadAhead::held_count() const {
  return static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.state == State::held; }));
}

const ReadAhead::Slot* ReadAhead::find(std::size_t index) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [index](const Slot& slot) {
    return slot.state != State::idle && !slot.is_dropped && slot.index == index;
  });
  return found == slots_.end() ? nullptr : &*found;
}

ReadAhead::Slot* ReadAhead::find(std::size_t index) {
  return const_cast<Slot*>(std::as_const(*this).find(index));
}

std::size_t ReadAhead::next_entry(std::size_t index) const {
  return wanted_ ? wanted_(index) : index;
}

// Called when the consumer wants an entry that is not in the window. Restarts the window there;
// slots with reads in flight become free as these reads end.
ReadAhead::Slot& ReadAhead::jump_to(std::size_t index) {
  if (held_count() == slots_.size()) {
    throw std::logic_error("all " + std::to_string(slots_.size()) + " slots of the ring are held");
  }
  for (Slot& slot : slots_) drop(slot);
  const auto is_idle = [](const Slot& slot) { return slot.state == State::idle; };
  auto idle = std::find_if(slots_.begin(), slots_.end(), is_idle);
  while (idle == slots_.end()) {
    wait_for_one();
    idle = std::find_if(slots_.begin(), slots_.end(), is_idle);
  }
  submit(*idle, index);
  next_ = index + 1;
  return *idle;
}

void ReadAhead::drop(Slot& slot) {
  if (slot.state == State::idle || slot.state == State::held || slot.is_dropped) return;
  ++statistics_.dropped;
  if (slot.state == State::reading) {
    slot.is_dropped = true;
  } else {
    free_slot(slot);
  }
}

void ReadAhead::drop_before(std::uint64_t ticket) {
  for (Slot& slot : slots_) {
    if (slot.ticket < ticket) drop(slot);
  }
}

void ReadAhead::free_slot(Slot& slot) {
  base::check(slot.state != State::idle && slot.state != State::reading,
              "a slot was freed that is free, or being read into");
  slot.state = State::idle;
  slot.is_dropped = false;
  discard(sequence_[slot.index]);
}

// Discards the pages of an entry except those that another slot needs: neighbouring entries share
// pages, and the same entry may have been dropped and then requested again.
void ReadAhead::discard(const ReadAheadEntry& entry) {
  std::uint64_t begin = entry.discard_begin;
  std::uint64_t end = entry.discard_end;
  for (const Slot& other : slots_) {
    if (begin >= end) return;
    if (other.state == State::idle || other.is_dropped) continue;
    const Segment& needed = sequence_[other.index].segment;
    if (needed.file != entry.segment.file) continue;
    const std::uint64_t needed_begin = round_down(needed.offset, page_bytes);
    const std::uint64_t needed_end = round_up(needed.offset + needed.bytes, page_bytes);
    if (needed_end <= begin || end <= needed_begin) continue;
    if (begin < needed_begin) {
      end = needed_begin;
    } else {
      begin = needed_end;
    }
  }
  if (begin < end) reader_.discard(entry.segment.file, begin, end - begin);
}

void ReadAhead::read_on_from(std::size_t index) {
  if (find(index) == nullptr) next_ = index;
  read_on();
}

// Starts reads into all free slots. Stops at an entry that is in the window already: the window
// then holds the whole sequence, and reads on when that entry is released.
void ReadAhead::read_on() {
  for (Slot& slot : slots_) {
    if (slot.state != State::idle) continue;
    std::size_t index = next_entry(next_);
    if (index >= end_ && index != not_yet_known) {
      if (order_ == Order::once) return;
      index = next_entry(0);
    }
    if (index >= end_ || find(index) != nullptr) return;
    submit(slot, index);
    next_ = index + 1;
  }
}

void ReadAhead::submit(Slot& slot, std::size_t index) {
  base::check(slot.state == State::idle, "a read begins in a slot that is not free");
  const Segment& segment = sequence_[index].segment;
  const auto number = static_cast<std::uint32_t>(&slot - slots_.data());
  const std::uint64_t alignment = reader_.alignment();
  ReadRequest request;
  request.slot = number;
  request.file = segment.file;
  request.offset = round_down(segment.offset, alignment);
  request.bytes = round_up(segment.offset + segment.bytes, alignment) - request.offset;
  if (!memory_.empty()) {
    if (request.bytes > slot_bytes_) throw std::logic_error("a segment exceeds its slot");
    request.buffer = memory_.data() + number * slot_bytes_;
  }
  slot = {State::reading, false, index, ++tickets_, request.offset, {}};
  ++statistics_.reads;
  statistics_.bytes_read += request.bytes;
  reader_.submit(request);
}

void ReadAhead::take(const Completion& completion) {
  base::check(completion.slot < slots_.size(), "a read ended in a slot that does not exist");
  Slot& slot = slots_[completion.slot];
  base::check(slot.state == State::reading, "a read ended in a slot that awaits none");
  slot.result = completion;
  slot.state = State::ready;
  if (slot.is_dropped) free_slot(slot);
}

void ReadAhead::take_finished() {
  while (const std::optional<Completion> completion = reader_.poll()) take(*completion);
}

void ReadAhead::wait_for_one() {
  const auto begin = std::chrono::steady_clock::now();
  take(reader_.wait());
  const auto waited = std::chrono::steady_clock::now() - begin;
  statistics_.stall_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count());
}

void ReadAhead::check(const Slot& slot) const {
  const Segment& segment = sequence_[slot.index].segment;
  if (slot.result.error) throw read_failure(reader_.files()[segment.file], segment, slot.result);
  require_unchanged(reader_, segment.file);
}

std::span<const std::byte> ReadAhead::bytes_of(const Slot& slot) const {
  const Segment& segment = sequence_[slot.index].segment;
  if (reader_.maps_files()) {
    return {reader_.mapping(segment.file) + segment.offset, segment.bytes};
  }
  const auto number = static_cast<std::uint64_t>(&slot - slots_.data());
  const std::uint64_t begin = segment.offset - slot.read_begin;
  base::check(begin + segment.bytes <= slot_bytes_, "a segment reaches beyond its slot");
  return {memory_.data() + number * slot_bytes_ + begin, segment.bytes};
}

}  // namespace sluice::streaming
