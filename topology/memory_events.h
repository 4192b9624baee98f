// Wakes a thread that waits when the kernel says that memory gets short.
//
// Of a memory group of version 1: thresholds of its usage (memory.txt, "Memory thresholds"), by an
// eventfd. Of version 2: a trigger of its pressure (Documentation/accounting/psi.rst) and changes
// of memory.events; where there is no group, a trigger of the machine's pressure. What the kernel
// or the rights of the process do not allow is left out: whoever waits has to look at times of its
// own too, which is what it does in any case, since pressure is felt only when memory is short
// already.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "topology/cgroup.h"

namespace sluice::topology {

class MemoryEvents {
 public:
  // `group`: that of find_cgroup({}, "memory"). Never throws for what is not to be had.
  explicit MemoryEvents(const std::optional<Cgroup>& group);
  ~MemoryEvents();
  MemoryEvents(const MemoryEvents&) = delete;
  MemoryEvents& operator=(const MemoryEvents&) = delete;

  // Returns after an event, after wake(), or when the time is over.
  void wait(std::chrono::milliseconds time);
  // Ends a wait, this one or the next. May be called by any thread.
  void wake();

  // The files whose events are heard.
  const std::vector<std::string>& sources() const { return sources_; }

 private:
  struct Source {
    int descriptor;
    short events;          // of poll(2)
    bool is_consumed;      // by reading
    bool is_gone = false;  // the group is, and would report an error for ever
  };

  void add_thresholds(const CgroupLevel& level);
  void add_pressure(const std::string& file);
  void add_changes(const std::string& file);

  int wake_descriptor_;
  std::vector<Source> polled_;  // the first is wake_descriptor_
  std::vector<int> held_open_;  // that a threshold refers to
  std::vector<std::string> sources_;
};

}  // namespace sluice::topology
