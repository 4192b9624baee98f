// The tape: the weights of a model as a fixed, cyclic sequence of segments.
//
// Every step of a decoder reads the same bytes in the same order, so the next bytes are always
// known. A tape is given the segments once, in the order in which a step visits them, with those
// that stay in memory. From then on `acquire` hands out memory and `release` takes it back;
// segments that come from the disk are read ahead, across the end of a step too.
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
};

class Tape {
 public:
  virtual ~Tape() = default;

  // A segment, valid until release(turn). Blocks until its bytes are in memory. Turns are acquired
  // in ascending order within a step; a step may skip turns, and may end anywhere. Throws
  // std::system_error when the bytes cannot be read; the turn is then not held, and may be
  // acquired again.
  virtual HeldSegment acquire(std::size_t turn) = 0;

  // Gives a segment back. Call it once for every acquire that returned.
  virtual void release(std::size_t turn) = 0;
};

}  // namespace sluice::streaming
