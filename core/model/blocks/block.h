// A block: what a layer does between reading the residual stream and adding to it. Attention, a
// feed-forward network, a recurrent mixer.
//
// Each kind of block has a Spec, which says all that differs between two layers of two models, and
// three parts: its constructor declares its tensors in the order in which run() reads them (that
// order is the tape), measure() and bind() count and take its buffers, run() computes. Blocks run
// one after the other, so their buffers may lie in the same memory; nothing in them lasts from one
// run() to the next.
#pragma once

#include <cstddef>

#include "core/model/arena.h"
#include "core/model/step.h"

namespace sluice::model {

class Block {
 public:
  virtual ~Block() = default;

  // The widest input of a matrix, for Compute.
  virtual std::size_t size_max() const = 0;

  virtual void measure(Arena& arena, const BufferShape& shape) const = 0;
  virtual void bind(Arena& arena, const BufferShape& shape) = 0;

  // out = block(in), both [columns][embedding]; they may be the same memory. Throws what
  // Compute::multiply throws.
  virtual void run(Pass& pass, const float* in, float* out) = 0;

  // Writes to the cache what run() writes, and computes nothing else: keys and values of columns
  // whose output nobody reads. Nothing in most blocks.
  virtual void store(Pass& /*pass*/, const float* /*in*/) {}

  // Of a block with a recurrent state. run() writes the state after all columns; where only some of
  // them become part of a sequence, replay() writes the state after these. For that run() keeps
  // what the columns in Pass::kept feed into the state: fed_floats() floats each, in the memory of
  // keep_in(), which lasts until the next step. `pass` has the columns that became part, which are
  // those that run() has kept from number `first` on.
  virtual std::size_t fed_floats() const { return 0; }
  virtual void keep_in(float* /*fed*/) {}
  virtual void replay(Pass& /*pass*/, std::size_t /*first*/) {}
};

}  // namespace sluice::model
