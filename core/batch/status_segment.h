// What a running process says of itself, in shared memory, for `sluice top`.
//
// Each process has one small segment of its own, named after its id and the namespace that the id
// belongs to, that others may read and only it writes. The fields are atomic words under a sequence
// lock (Lameter 2005, as in the Linux kernel; Boehm 2012 for its memory order): the writer never
// waits, a reader tries again when it was overtaken. A segment whose process is gone (its id is
// free, or now belongs to a process that started at another time) is removed by the next reader of
// its namespace that may; of others a reader cannot know, and passes them over. What lies there is
// checked like any input, since everyone can put anything under such a name: it is read as a file,
// and texts are made printable.
//
// Threads: a publisher belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice::batch {

struct Status {
  static constexpr std::uint64_t unknown_memory = 0;  // no process holds nothing

  std::string command;  // "run", "chat", "batch"; cut to 15 bytes
  std::string model;    // cut to 127 bytes
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;  // that the process holds now, or unknown_memory
  double tokens_per_s = 0;         // of the last moments, prompts and text together
  std::uint64_t rows_done = 0;
  std::uint64_t rows = 0;       // 0: the work is not made of rows
  std::uint64_t sequences = 0;  // that run together
};

class StatusPublisher {
 public:
  // Throws std::system_error where shared memory is not to be had.
  StatusPublisher();
  ~StatusPublisher();  // takes the segment away
  StatusPublisher(const StatusPublisher&) = delete;
  StatusPublisher& operator=(const StatusPublisher&) = delete;

  // Readers do not see the process before it has published once.
  void publish(const Status& status);

 private:
  struct Segment;
  std::unique_ptr<Segment> segment_;
};

struct LivingStatus {
  std::uint64_t pid = 0;
  double seconds = 0;  // since the process began
  Status status;
};

// The processes of this machine that publish, by their ids. Removes segments of dead ones. Throws
// std::system_error where shared memory cannot be listed.
std::vector<LivingStatus> living_statuses();

}  // namespace sluice::batch
