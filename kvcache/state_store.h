// The recurrent state of layers that keep one: a fixed number of floats for each sequence, whatever
// its length, such as the matrices of a gated delta net or of Mamba-2 and the last inputs of a
// short convolution.
//
// A slot holds the states of all layers of a sequence after one of its positions:
// [layer]{floats}, each layer's part a multiple of 64 bytes. A sequence has two slots, the state
// that stands and the one that a step writes, and more for checkpoints. A step reads from one and
// writes to the other, which costs no more than changing it in place: the whole state goes through
// the processor anyway. So a step that fails leaves the state as it was, nothing is ever copied,
// and a checkpoint or a fork is one more holder of a slot that nobody writes any more.
//
// Used by one thread, but for the memory of different layers or sequences.
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

// What a sequence holds of a StateStore; nothing when no layer keeps a state.
struct SequenceState {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  struct Checkpoint {
    std::uint32_t length, slot;
  };

  std::uint32_t standing = none;        // after the last position of the sequence
  std::uint32_t next = none;            // what a step writes
  std::vector<Checkpoint> checkpoints;  // by ascending lengths
};

class StateStore {
 public:
  // `memory` has room for state_bytes(config), zeroed, 64-byte aligned; it is the caller's.
  StateStore(const CacheConfig& config, std::byte* memory);

  bool is_empty() const { return slot_bytes_ == 0; }  // no layer keeps a state
  bool has_room() const { return slots_.available() >= slots_each_; }

  // The state of a new sequence: zeros. There must be room.
  SequenceState start();
  // That of a sequence which begins with the first `length` positions of another. There must be
  // room, and the other must have its state there.
  SequenceState fork(const SequenceState& source, std::uint32_t length);
  void end(SequenceState& state);

  // What the step wrote stands from now on.
  void advance(SequenceState& state);
  // Keeps the state that stands after `length` positions; the oldest checkpoint makes room.
  void checkpoint(SequenceState& state, std::uint32_t length);
  // Goes back to the state after `length` positions, which must be 0 or that of a checkpoint.
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
  std::size_t slots_each_;  // of a sequence
  std::size_t checkpoints_max_;
  PagePool slots_;
  std::byte* memory_;
};

// The slot of a checkpoint after so many positions.
std::optional<std::uint32_t> find_checkpoint(const SequenceState& state, std::uint32_t length);

}  // namespace sluice::kvcache
