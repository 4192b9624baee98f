// Wakes a waiting thread when the kernel reports that memory gets short.
//
// For a memory group of version 1 the events are thresholds of its usage (memory.txt, "Memory
// thresholds"), reported through an eventfd. For version 2 they are a trigger on its pressure
// (Documentation/accounting/psi.rst) and changes of memory.events; without a group, a trigger on
// the machine's pressure. Events that the kernel or the rights of the process do not allow are left
// out. So the waiting thread must also check memory itself from time to time; it has to anyway,
// because there is pressure only when memory is short already.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "topology/cgroup.h"

namespace sluice::topology {

// The files that MemoryEvents writes to, so that the kernel reports events.
std::vector<std::filesystem::path> trigger_files(const std::optional<Cgroup>& group);

class MemoryEvents {
 public:
  // `group` is the result of find_cgroup({}, "memory"). Sources of events that are not available
  // are left out. Throws std::system_error only when the process can have no eventfd.
  explicit MemoryEvents(const std::optional<Cgroup>& group);
  MemoryEvents(const MemoryEvents&) = delete;
  MemoryEvents& operator=(const MemoryEvents&) = delete;

  // Returns after an event, after wake(), or after `time`.
  void wait(std::chrono::milliseconds time);
  // Ends the present call of wait(), or else the next one. May be called by any thread.
  void wake();

  // The files whose events end a wait.
  const std::vector<std::string>& sources() const { return sources_; }

 private:
  struct Source {
    base::Descriptor descriptor;
    short events;          // of poll(2)
    bool is_consumed;      // whether an event has to be read, so that it is not reported again
    bool is_gone = false;  // the group no longer exists; its descriptor would only report errors
  };

  void add_thresholds(const CgroupLevel& level);
  void add_pressure(const std::string& file);
  void add_changes(const std::string& file);

  int wake_descriptor_;  // owned by the first of polled_
  std::vector<Source> polled_;
  std::vector<base::Descriptor> held_open_;  // thresholds refer to them
  std::vector<std::string> sources_;
};

}  // namespace sluice::topology
