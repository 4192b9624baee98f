// A window of reads that runs ahead of a consumer who visits a fixed sequence over and over.
//
// The window has a few slots. Each slot is free, or has one entry of the sequence that is being
// read, is ready, or is held by the consumer. A free slot at once reads the next entry; after the
// last entry comes the first one again, so the disk does not wait for the end of a step.
//
// The consumer may skip entries and may jump; the window then drops entries that were read but are
// not needed.
//
// Threads: used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "streaming/reader.h"
#include "streaming/tape.h"

namespace sluice::streaming {

// One entry of the sequence. With a reader that maps files, the pages from discard_begin to
// discard_end (file offsets) are discarded when the segment is released or dropped.
struct ReadAheadEntry {
  Segment segment;
  std::uint64_t discard_begin = 0;
  std::uint64_t discard_end = 0;
};

struct ReadAheadStatistics {
  std::uint64_t reads = 0;       // segments whose read was started
  std::uint64_t bytes_read = 0;  // padding for alignment included
  std::uint64_t dropped = 0;     // segments whose read was started, but which were not acquired
  std::uint64_t stalls = 0;      // how often acquire() had to wait for the disk
  std::uint64_t stall_ns = 0;    // time waited for the disk, in all
};

class ReadAhead {
 public:
  enum class Order { cyclic, once };

  // The reader must outlive the window.
  ReadAhead(Reader& reader, std::uint32_t slots);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Gives the window its buffers: the slots lie in `memory` one after the other, `slot_bytes` each.
  // The memory is the caller's. Not needed with a reader that maps files. Only while stopped.
  void use_memory(std::span<std::byte> memory, std::uint64_t slot_bytes);

  // Returns the first entry >= `index` that should be read ahead, or any number beyond the end of
  // the sequence when there is none; `not_yet_known` when that has to wait for read_on_from().
  // Called whenever a slot is free; its answers may change.
  using Next = std::function<std::size_t(std::size_t index)>;
  static constexpr std::size_t not_yet_known = ~std::size_t{0};

  // Sets the sequence and begins to read it from its start. Without `next` all entries are read.
  // Only while nothing is held.
  void start(std::vector<ReadAheadEntry> sequence, Order order, Next next = {});

  // Drops everything and waits for the reads in flight. Only while nothing is held.
  void stop();

  // Entries from `end` on are not read ahead (but may be acquired).
  void set_end(std::size_t end);

  // The bytes of an entry, valid until release(). Blocks until they are in memory. Throws
  // std::system_error, which names file and offset, when they cannot be read; the entry may be
  // acquired again. Throws std::logic_error when it is held already or when all slots are held.
  std::span<const std::byte> acquire(std::size_t index);

  // Says that the consumer needs this entry next. Unless the window has it, reading goes on there.
  // Only for a `next` that knows more than it did.
  void read_on_from(std::size_t index);

  // The bytes of an entry that is held.
  std::span<const std::byte> held(std::size_t index) const;

  // Gives an entry back and reads on. Throws std::logic_error when it is not held.
  void release(std::size_t index);

  std::size_t held_count() const;
  const ReadAheadStatistics& statistics() const { return statistics_; }
  void reset_statistics() { statistics_ = {}; }

 private:
  enum class State { idle, reading, ready, held };

  struct Slot {
    State state = State::idle;
    bool is_dropped = false;       // the read in flight is no longer needed
    std::size_t index = 0;         // entry of the sequence
    std::uint64_t ticket = 0;      // order of submission
    std::uint64_t read_begin = 0;  // file offset of the first byte in the buffer
    Completion result;
  };

  const Slot* find(std::size_t index) const;
  Slot* find(std::size_t index);
  std::size_t next_entry(std::size_t index) const;
  Slot& jump_to(std::size_t index);
  void drop(Slot& slot);
  void drop_before(std::uint64_t ticket);
  void free_slot(Slot& slot);
  void discard(const ReadAheadEntry& entry);
  void read_on();
  void submit(Slot& slot, std::size_t index);
  void take(const Completion& completion);
  void take_finished();
  void wait_for_one();
  void check(const Slot& slot) const;
  std::span<const std::byte> bytes_of(const Slot& slot) const;

  Reader& reader_;
  std::span<std::byte> memory_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<ReadAheadEntry> sequence_;
  Order order_ = Order::cyclic;
  Next wanted_;
  std::size_t end_ = 0;
  std::size_t next_ = 0;  // the next read is the first wanted entry >= this
  std::uint64_t tickets_ = 0;
  ReadAheadStatistics statistics_;
};

// The error that acquire() throws when the bytes of a segment cannot be read.
std::system_error read_failure(const ReaderFile& file, const Segment& segment,
                               const Completion& result);

// Throws std::system_error when the file was changed in use. A reader cannot tell old bytes from
// new ones, and a text that is computed from both is wrong.
void require_unchanged(const Reader& reader, std::uint32_t file);

}  // namespace sluice::streaming
