// The tape: the weights of a model as a fixed, cyclic sequence of segments.
//
// Every step of a decoder reads the same bytes in the same order, so the next bytes are always
// known. A tape is given the segments once, in the order in which a step visits them, with those
// that stay in memory. From then on `acquire` hands out memory and `release` takes it back;
// segments that come from the disk are read ahead, across the end of a step too.
//
// Experts of a mixture are the exception: which of them a step needs is known only when the router
// of their layer has run. The consumer then says so, and only these are read (docs/experts.md).
//
// A segment is a byte range of a file; the tape does not know what the bytes mean. This header is
// what the consumer of a tape sees; streaming/streamed_tape.h is the tape itself.
//
// Threads: acquire and release are called by one thread (the one that leads a step). The memory
// handed out may be read by any number of threads between the two calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::streaming {

// A range of bytes of one of the files of a model. The index of a segment in the sequence given
// to a tape is its turn.
struct Segment {
  std::uint32_t file = 0;    // index into the files given to the tape
  std::uint64_t offset = 0;  // bytes from the start of that file
  std::uint64_t bytes = 0;
};

// The experts of one layer. Their segments are consecutive turns: those of expert 0 first, then
// those of expert 1, and so on, the same number for each.
struct ExpertGroup {
  std::size_t first_turn = 0;
  std::size_t experts = 0;
  std::size_t turns_each = 0;
  std::size_t used = 0;  // how many of them a token takes

  // The share of the experts that a step of `tokens` tokens needs, if each token takes any of them
  // as likely as any other.
  double share_needed(std::size_t tokens) const;

  std::size_t end_turn() const { return first_turn + experts * turns_each; }
  std::size_t first_turn_of(std::size_t expert) const { return first_turn + expert * turns_each; }
};

// The group that has a turn; the end of `groups` for a turn that is no expert's.
std::span<const ExpertGroup>::iterator find_group(std::span<const ExpertGroup> groups,
                                                  std::size_t turn);

// An expert that a step needs, and how many of the step's tokens take it.
struct ExpertUse {
  std::uint32_t expert = 0;
  std::uint32_t tokens = 0;
};

// Where the bytes of a segment are while it is held.
enum class Storage {
  ring,    // streamed; its place is used for other segments after release()
  mapped,  // pinned, in the mapping of the file
  copied,  // pinned, in memory of the tape, in the form that its copy function gave it
};

// A segment in memory.
struct HeldSegment {
  std::span<const std::byte> bytes;
  Storage storage;
  // Where a segment of the ring will stay from now on; null when it will not. Its holder may write
  // the copy there, in the form that the tape's copy function gives it, and then call keep().
  std::byte* place = nullptr;
};

class Tape {
 public:
  virtual ~Tape() = default;

  // A segment, valid until release(turn). Blocks until its bytes are in memory. Turns are acquired
  // in ascending order within a step; a step may skip turns, and may end anywhere. Throws
  // std::system_error when the bytes cannot be read; the turn is then not held, and may be
  // acquired again.
  virtual HeldSegment acquire(std::size_t turn) = 0;

  // Gives a segment back. Call it once for every acquire that returned. If the segment has a place,
  // the tape copies it there.
  virtual void release(std::size_t turn) = 0;

  // release() of a segment whose holder has written the copy itself.
  virtual void keep(std::size_t turn) = 0;

  // Says which experts of a group the step needs, by ascending number. `tokens` is how many tokens
  // the step has. Call it before any of these experts is acquired; they may then be acquired in any
  // order in which those that are not in memory keep theirs.
  virtual void expect_experts(std::size_t group, std::span<const ExpertUse> uses,
                              std::size_t tokens) = 0;

  // Whether acquire(turn) would not have to wait for a read. A hint: it may change at any moment.
  virtual bool is_in_memory(std::size_t turn) const = 0;
};

}  // namespace sluice::streaming
