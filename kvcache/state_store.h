// The recurrent state of layers that keep one: a fixed number of floats for each sequence, whatever
// its length, such as the matrices of a gated delta net or of Mamba-2 and the last inputs of a
// short convolution.
//
// A slot holds the states of all layers of a sequence after one of its positions:
// [layer]{floats}, each layer's part a multiple of 64 bytes. A sequence has two slots, the current
// state and the one that a step writes, and one more for each checkpoint. A step reads from one
// slot and writes to the other. That costs no more than an update in place, because the whole state
// is read and written anyway. So a step that fails leaves the state as it was, nothing is ever
// copied, and a checkpoint or a fork only shares a slot that is never written again.
//
// Used by one thread; only the memory of different layers or sequences may be used by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "kvcache/layout.h"
#include "kvcache/page_pool.h"

namespace sluice::kvcache {

// The slots that a sequence holds in a StateStore; none when no layer keeps a state.
struct SequenceState {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  struct Checkpoint {
    std::uint32_t length, slot;
  };

  std::uint32_t standing = none;        // slot of the state after the last position
  std::uint32_t next = none;            // slot that a step writes
  std::vector<Checkpoint> checkpoints;  // by ascending length
};

class StateStore {
 public:
  // `memory` has state_bytes(config) zeroed bytes, 64-byte aligned. The caller owns it.
  StateStore(const CacheConfig& config, std::byte* memory);

  bool is_empty() const { return slot_bytes_ == 0; }  // no layer keeps a state
  bool has_room() const { return slots_.available() >= slots_each_; }

  // The state of a new sequence: zeros. There must be room.
  SequenceState start();
  // The state of a sequence that begins with the first `length` positions of another. There must be
  // room, and `source` must have the state of that length.
  SequenceState fork(const SequenceState& source, std::uint32_t length);
  void end(SequenceState& state);

  // Makes the state that the step wrote the current one.
  void advance(SequenceState& state);
  // Keeps the current state, that after `length` positions, as a checkpoint. Drops the oldest one
  // when there are too many.
  void checkpoint(SequenceState& state, std::uint32_t length);
  // Goes back to the state after `length` positions, which must be 0 or the length of a checkpoint.
  void truncate(SequenceState& state, std::uint32_t length);

  // The floats of a layer in a slot.
  std::span<float> layer(std::uint32_t slot, std::size_t layer) const;
  std::span<std::byte> memory(std::uint32_t slot) const;

 private:
  struct Place {
    std::size_t offset, floats;
  };

  std::uint32_t take_zeroed();
  std::uint32_t share(std::uint32_t slot);
  void drop_checkpoints_beyond(SequenceState& state, std::uint32_t length);

  std::vector<Place> places_;  // [layer]
  std::size_t slot_bytes_;
  std::size_t slots_each_;  // slots of each sequence
  std::size_t checkpoints_max_;
  PagePool slots_;
  std::byte* memory_;
};

// The slot of the checkpoint after `length` positions, if there is one.
std::optional<std::uint32_t> find_checkpoint(const SequenceState& state, std::uint32_t length);

}  // namespace sluice::kvcache
