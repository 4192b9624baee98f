// Machines that consist of files in a temporary folder: trees of /proc and /sys for the tests of
// the readers in topology.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include "tests/catch.h"
#include "topology/cgroup.h"
#include "topology/file_root.h"
#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::test {

using topology::CpuList;
using topology::FileRoot;
using topology::Machine;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// One such machine; the folder is removed with the object.
class Tree {
 public:
  Tree() {
    std::string pattern = std::filesystem::temp_directory_path() / "sluice-topology-XXXXXX";
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~Tree() { std::filesystem::remove_all(folder_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  FileRoot root() const { return FileRoot(folder_); }

  Tree& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_ / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::remove(file);  // some file systems wait for the disk when one is overwritten
    std::ofstream(file) << text;
    return *this;
  }

  // One online CPU; call online() after the last.
  Tree& cpu(unsigned id, int package, int core, const std::string& siblings) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(id) + "/topology/";
    write(folder + "physical_package_id", std::to_string(package) + "\n");
    write(folder + "core_id", std::to_string(core) + "\n");
    return write(folder + "thread_siblings_list", siblings + "\n");
  }
  Tree& online(const std::string& list) {
    return write("/sys/devices/system/cpu/online", list + "\n");
  }

  // A pure v2 machine whose process is in `path`.
  Tree& v2(const std::string& path, const std::string& mount_root = "/") {
    write("/proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n30 23 0:26 " + mount_root +
                                      " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    return write("/proc/self/cgroup", "0::" + path + "\n");
  }

  // A v1 machine; cpu and cpuacct share a hierarchy, as distributions have it.
  Tree& v1(const std::string& memory_path, const std::string& cpu_path,
           const std::string& mount_root = "/") {
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
          "32 31 0:29 " +
              mount_root +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
              "34 31 0:31 " +
              mount_root +
              " /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "35 31 0:32 " +
              mount_root +
              " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
              "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n");
    return write("/proc/self/cgroup", "9:name=systemd:/user.slice\n4:memory:" + memory_path +
                                          "\n3:cpuset:" + cpu_path + "\n1:cpu,cpuacct:" + cpu_path +
                                          "\n");
  }

  Tree& meminfo(std::uint64_t total_bytes, std::uint64_t available_bytes) {
    return write("/proc/meminfo", "MemTotal:  " + std::to_string(total_bytes / 1024) +
                                      " kB\nMemFree:  1 kB\nMemAvailable:  " +
                                      std::to_string(available_bytes / 1024) + " kB\n");
  }

 private:
  std::filesystem::path folder_;
};

inline Machine read(const Tree& tree, std::optional<CpuList> affinity = CpuList{0, 1, 2, 3}) {
  return topology::read_machine(tree.root(), std::move(affinity));
}

inline topology::CgroupMemory cgroup_memory(const Tree& tree) {
  return topology::read_cgroup_memory(topology::find_cgroup(tree.root(), "memory"), tree.root());
}

inline std::optional<std::uint64_t> recent_refaults(const Tree& tree) {
  return topology::read_recent_refaults(topology::find_unified_cgroup(tree.root()), tree.root());
}

inline topology::MemoryPressure pressure_of(const Tree& tree) {
  return topology::read_memory_pressure(topology::find_unified_cgroup(tree.root()), tree.root());
}

}  // namespace sluice::test
