// Where the control groups of this process lie in the file system.
//
// Formats: proc(5) for /proc/self/mountinfo, cgroups(7) for /proc/self/cgroup, and
// cgroup_namespaces(7) for how both look from inside a container.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/file_root.h"

namespace sluice::topology {

enum class CgroupVersion { v1, v2 };

// A control group that holds this process, or an ancestor of one.
struct CgroupLevel {
  std::string name;              // as /proc/self/cgroup names it: "/system.slice/job"
  std::filesystem::path folder;  // where its files are: a path for FileRoot
};

// The groups of one hierarchy that apply to this process: its own first, then each parent up to
// the root of the mount. Never empty. If the process's own group is not visible (the mount shows
// less than /proc/self/cgroup names), the list begins at the nearest group that is.
struct Cgroup {
  CgroupVersion version = CgroupVersion::v2;
  std::vector<CgroupLevel> levels;
};

// The groups in which `controller` ("memory", "cpu", "cpuset") limits this process: those of the v1
// hierarchy that has the controller, else those of the v2 hierarchy. (On a hybrid machine the
// answer differs between controllers.) Nothing if no such hierarchy is mounted.
std::optional<Cgroup> find_cgroup(const FileRoot& root, std::string_view controller);

// The groups of the v2 hierarchy, whichever controllers it has. Its pressure files exist even if
// the memory controller belongs to a v1 hierarchy.
std::optional<Cgroup> find_unified_cgroup(const FileRoot& root);

}  // namespace sluice::topology
