// The status of a running process in shared memory, for `sluice top`.
//
// Each process has one small segment, named after its process id and the namespace of that id.
// Others may read it; only the process writes it. The fields are atomic words under a sequence lock
// (Lameter 2005, as in the Linux kernel; Boehm 2012 for its memory order): the writer never waits,
// and a reader tries again when the writer overtook it.
//
// A segment is dead when its process is gone (the id is free, or belongs to a process that started
// at another time). The next reader of its namespace that has the right to removes it. Segments of
// other namespaces are skipped, since a reader cannot tell whether they are dead. The contents are
// checked like any input, since everyone can create a segment with such a name: it is read as a
// file, and texts are made printable.
//
// Threads: a publisher belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/speculate/source.h"

namespace sluice::batch {

struct Status {
  static constexpr std::uint64_t unknown_memory = 0;  // no process holds 0 bytes

  std::string command;  // "run", "chat", "batch"; cut to 15 bytes
  std::string model;    // cut to 127 bytes
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;  // that the process holds now, or unknown_memory
  double tokens_per_s = 0;         // of the last moments, prompts and generated text together
  std::uint64_t rows_done = 0;
  std::uint64_t rows = 0;       // 0: the work does not consist of rows
  std::uint64_t sequences = 0;  // running together

  // Of a mixture of experts, since the process began.
  struct Experts {
    double hit_rate;
    double bytes_read_per_token;
  };
  std::optional<Experts> experts = {};
  std::optional<double> seconds_left = {};  // until all rows are done, as far as it is known

  // Of the guesses at tokens, since the process began.
  struct Guesses {
    double tokens_per_step;  // serve::SchedulerCounts::tokens_per_step()
    speculate::DraftCountsByKind by_kind;
  };
  std::optional<Guesses> guesses = {};
};

class StatusPublisher {
 public:
  // Throws std::system_error where there is no shared memory, or none is left.
  StatusPublisher();
  ~StatusPublisher();  // removes the segment
  StatusPublisher(const StatusPublisher&) = delete;
  StatusPublisher& operator=(const StatusPublisher&) = delete;

  // Readers see the process only after it has published once.
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

// The processes of this machine that publish a status, by their ids. Removes segments of dead
// processes. Throws std::system_error where shared memory cannot be listed.
std::vector<LivingStatus> living_statuses();

}  // namespace sluice::batch
