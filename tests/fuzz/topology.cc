// Trees of /proc, /sys and control groups: up to twelve files, each a part: a byte that says which
// file, and its contents.
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "topology/cgroup.h"
#include "topology/cpu_use.h"
#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t files_max = 12;
constexpr const char* names[] = {"proc/self/mountinfo",
                                 "proc/self/cgroup",
                                 "proc/self/status",
                                 "proc/self/stat",
                                 "proc/self/limits",
                                 "proc/meminfo",
                                 "proc/stat",
                                 "proc/cpuinfo",
                                 "proc/pressure/memory",
                                 "sys/devices/system/cpu/online",
                                 "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
                                 "sys/devices/system/cpu/cpu0/topology/core_id",
                                 "sys/devices/system/cpu/cpu0/topology/physical_package_id",
                                 "sys/devices/system/cpu/cpu0/cache/index0/size",
                                 "sys/devices/system/cpu/cpu0/cache/index0/level",
                                 "sys/devices/system/cpu/cpu0/cache/index0/type",
                                 "sys/kernel/mm/transparent_hugepage/enabled",
                                 "sys/fs/cgroup/memory.max",
                                 "sys/fs/cgroup/memory.high",
                                 "sys/fs/cgroup/memory.current",
                                 "sys/fs/cgroup/memory.stat",
                                 "sys/fs/cgroup/memory.pressure",
                                 "sys/fs/cgroup/cpu.max",
                                 "sys/fs/cgroup/cpuset.cpus.effective",
                                 "sys/fs/cgroup/a/memory.max",
                                 "sys/fs/cgroup/a/memory.current",
                                 "sys/fs/cgroup/a/memory.stat",
                                 "sys/fs/cgroup/memory/memory.limit_in_bytes",
                                 "sys/fs/cgroup/memory/memory.usage_in_bytes",
                                 "sys/fs/cgroup/memory/memory.stat",
                                 "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                                 "sys/fs/cgroup/cpu/cpu.cfs_period_us"};

bool make_folders() {
  for (const char* const name : names) {
    fs::create_directories((scratch_folder() / name).parent_path());
  }
  return true;
}

// The files of one input, below the folder of this process; they go, the folders stay.
class Tree {
 public:
  explicit Tree(const std::vector<std::string_view>& parts) {
    static const bool has_folders = make_folders();
    require(has_folders, "folders are made once");
    for (const std::string_view part : parts) {
      if (part.empty()) continue;
      const auto number = static_cast<unsigned char>(part[0]) % std::size(names);
      files_.push_back(std::make_unique<InputFile>(part.substr(1), names[number]));
    }
  }

 private:
  std::vector<std::unique_ptr<InputFile>> files_;
};

}  // namespace

void run(std::string_view input) {
  const Tree tree(split(input, files_max));
  const topology::FileRoot root(scratch_folder());
  const topology::Machine machine = topology::read_machine(root, topology::CpuList{0, 1});
  for (const topology::MemoryBound& bound : topology::memory_bounds(machine)) {
    require(bound.held_by_others_bytes <= bound.limit_bytes, "others hold no more than the limit");
    require(!bound.source.empty(), "a bound has a source");
  }
  static_cast<void>(topology::usable_memory(machine));
  try {
    const topology::ThreadChoice choice = topology::choose_threads(machine);
    require(!choice.cpus.empty(), "there is a thread");
    static_cast<void>(topology::choose_threads(machine, 2));
  } catch (const std::invalid_argument&) {
  }
  const topology::ProcessMemory memory = topology::read_process_memory(root);
  static_cast<void>(memory.peak_bytes());
  static_cast<void>(memory.resident_bytes());
  static_cast<void>(memory.unreclaimable_bytes());
  const auto group = topology::find_cgroup(root, "memory");
  static_cast<void>(topology::read_cgroup_memory(group, root).refaults());
  const auto unified = topology::find_unified_cgroup(root);
  static_cast<void>(topology::read_recent_refaults(unified, root));
  static_cast<void>(topology::read_memory_pressure(unified, root));
  const auto times = topology::read_cpu_times(root, 1.0);
  if (times) {
    const double share = topology::share_of_others({}, *times);
    require(share >= 0 && share <= 1, "a share is one");
  }
}

std::vector<std::string> seeds() {
  const auto file = [](std::string_view name, const std::string& contents) {
    for (std::size_t i = 0; i < std::size(names); ++i) {
      if (names[i] == name) return static_cast<char>(i) + contents;
    }
    require(false, "there is such a file");
    return contents;
  };
  const std::string v2 =
      file("proc/self/mountinfo",
           "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  const std::string v1 = file("proc/self/mountinfo",
                              "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 "
                              "0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  return {
      joined({v2, file("proc/self/cgroup", "0::/a\n"),
              file("sys/fs/cgroup/a/memory.max", "1073741824\n"),
              file("sys/fs/cgroup/a/memory.current", "5000000\n"),
              file("sys/fs/cgroup/a/memory.stat", "anon 4096\nfile 81920\nslab_reclaimable 5\n"),
              file("sys/fs/cgroup/cpu.max", "150000 100000\n"),
              file("sys/fs/cgroup/memory.pressure",
                   "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=1\n"),
              file("proc/meminfo", "MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable: 9 kB\n")}),
      joined({v1, file("proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/\n"),
              file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
              file("sys/fs/cgroup/memory/memory.usage_in_bytes", "123456\n"),
              file("sys/fs/cgroup/memory/memory.stat",
                   "total_cache 4096\nhierarchical_memory_limit 100000\ntotal_inactive_file 1\n"),
              file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
              file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")}),
      joined({file("sys/devices/system/cpu/online", "0-1\n"),
              file("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,1\n"),
              file("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
              file("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
              file("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
              file("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
              file("proc/cpuinfo", "model name\t: x\nflags\t\t: avx2 fma\n"),
              file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")}),
      joined({file("proc/self/status", "Name: a\nVmHWM:\t 5 kB\nRssAnon:\t 3 kB\nRssFile: 1 kB\n"),
              file("proc/self/stat", "1 (a b) c) S 1 1 1 0 -1 4194304 5 0 7 0 3 4 0 0 20 0 1 0 9"),
              file("proc/self/limits", "Limit  Soft  Hard\nMax address space 100 unlimited\n"),
              file("proc/stat", "cpu  10 2 3 100 5 0 1 0 0 0\ncpu0 1 2\n"),
              file("proc/pressure/memory", "some avg10=0.10 avg60=0 avg300=0 total=5\n")})};
}

}  // namespace sluice::fuzz
