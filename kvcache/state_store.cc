#include "kvcache/state_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace sluice::kvcache {

StateStore::StateStore(const CacheConfig& config, std::byte* memory)
    : slot_bytes_(state_slot_bytes(config)),
      slots_each_(slot_bytes_ == 0 ? 0 : state_slots_each(config)),
      checkpoints_max_(config.checkpoints),
      slots_(slots_each_ * config.sequences, true, 0),
      memory_(memory) {
  std::size_t offset = 0;
  for (const LayerShape& shape : config.layers) {
    places_.push_back({offset, shape.state_floats});
    offset += layer_state_bytes(shape);
  }
}

SequenceState StateStore::start() {
  if (is_empty()) return {};
  slots_.reserve(slots_each_);
  SequenceState made;
  made.standing = take_zeroed();
  made.next = slots_.take();
  return made;
}

SequenceState StateStore::fork(const SequenceState& source, std::uint32_t length) {
  if (is_empty() || length == 0) return start();
  slots_.reserve(slots_each_);
  SequenceState made;
  for (const SequenceState::Checkpoint& kept : source.checkpoints) {
    if (kept.length <= length) made.checkpoints.push_back({kept.length, share(kept.slot)});
  }
  made.standing = share(find_checkpoint(source, length).value_or(source.standing));
  made.next = slots_.take();
  return made;
}

void StateStore::end(SequenceState& state) {
  if (state.standing == SequenceState::none) return;
  drop_checkpoints_beyond(state, 0);
  slots_.give_back(state.standing);
  slots_.give_back(state.next);
  slots_.cancel(slots_each_);
  state = {};
}

void StateStore::advance(SequenceState& state) {
  if (is_empty()) return;
  slots_.give_back(state.standing);
  state.standing = std::exchange(state.next, SequenceState::none);
  state.next = slots_.take();
}

void StateStore::checkpoint(SequenceState& state, std::uint32_t length) {
  if (is_empty() || checkpoints_max_ == 0 || length == 0) return;
  if (find_checkpoint(state, length)) return;
  if (state.checkpoints.size() == checkpoints_max_) {
    slots_.give_back(state.checkpoints.front().slot);
    state.checkpoints.erase(state.checkpoints.begin());
  }
  state.checkpoints.push_back({length, share(state.standing)});
}

void StateStore::truncate(SequenceState& state, std::uint32_t length) {
  if (is_empty()) return;
  drop_checkpoints_beyond(state, length);
  slots_.give_back(state.standing);
  const auto kept = find_checkpoint(state, length);
  base::check(length == 0 || kept.has_value(), "a state that was not kept is gone back to");
  state.standing = length == 0 ? take_zeroed() : share(*kept);
}

std::span<float> StateStore::layer(std::uint32_t slot, std::size_t layer) const {
  const Place& place = places_[layer];
  return {reinterpret_cast<float*>(memory(slot).data() + place.offset), place.floats};
}

std::span<std::byte> StateStore::memory(std::uint32_t slot) const {
  base::check(slot < slots_.pages(), "a state lies in no slot");
  return {memory_ + slot * slot_bytes_, slot_bytes_};
}

std::uint32_t StateStore::take_zeroed() {
  const std::uint32_t slot = slots_.take();
  std::memset(memory(slot).data(), 0, slot_bytes_);
  return slot;
}

std::uint32_t StateStore::share(std::uint32_t slot) {
  slots_.share(slot);
  return slot;
}

void StateStore::drop_checkpoints_beyond(SequenceState& state, std::uint32_t length) {
  while (!state.checkpoints.empty() && state.checkpoints.back().length > length) {
    slots_.give_back(state.checkpoints.back().slot);
    state.checkpoints.pop_back();
  }
}

std::optional<std::uint32_t> find_checkpoint(const SequenceState& state, std::uint32_t length) {
  const auto found =
      std::ranges::find(state.checkpoints, length, &SequenceState::Checkpoint::length);
  if (found == state.checkpoints.end()) return {};
  return found->slot;
}

}  // namespace sluice::kvcache
