// Memory limits, control groups and the memory of this process, held against generated trees of
// /proc and /sys of many machines.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/machine_tree.h"
#include "tests/temporary_folder.h"
#include "topology/cgroup.h"
#include "topology/machine.h"
#include "topology/memory_events.h"
#include "topology/process_memory.h"

namespace {

using namespace sluice::topology;
using namespace sluice::test;

const std::string kV1Unlimited = "9223372036854771712\n";

}  // namespace

// ---- Memory limits ----------------------------------------------------------------------------

TEST_CASE("v2: the tightest limit wins, wherever it is, and memory.high counts") {
  Tree tree;
  tree.meminfo(16 * kGiB, 12 * kGiB).v2("/a/b");
  tree.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  tree.write("/sys/fs/cgroup/a/memory.max", std::to_string(6 * kGiB) + "\n");
  MemoryBound bound = usable_memory(read(tree)).value();
  CHECK(bound.limit_bytes == 6 * kGiB);
  CHECK(bound.source == "memory cgroup /a (memory.max)");

  tree.write("/sys/fs/cgroup/a/b/memory.max", std::to_string(5 * kGiB) + "\n");
  CHECK(usable_memory(read(tree))->source == "memory cgroup /a/b (memory.max)");
  tree.write("/sys/fs/cgroup/a/memory.high", std::to_string(4 * kGiB) + "\n");
  bound = usable_memory(read(tree)).value();
  CHECK(bound.limit_bytes == 4 * kGiB);
  CHECK(bound.source == "memory cgroup /a (memory.high)");
  CHECK(memory_bounds(read(tree)).size() == 4);

  tree.meminfo(16 * kGiB, 3 * kGiB);
  CHECK(usable_memory(read(tree))->source == "available memory (MemAvailable)");
}

TEST_CASE("what others in a group hold is noted, and decides which bound is the tightest") {
  Tree tree;
  tree.v2("/a/b").write("/sys/fs/cgroup/a/b/memory.max", std::to_string(4 * kGiB));
  tree.write("/sys/fs/cgroup/a/memory.max", std::to_string(5 * kGiB));
  tree.write("/sys/fs/cgroup/a/memory.current", std::to_string(4 * kGiB));
  tree.write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file " + std::to_string(kGiB) +
                                                 "\nactive_file " + std::to_string(kGiB / 2) +
                                                 "\nslab_reclaimable " + std::to_string(kGiB / 4) +
                                                 "\n");
  tree.write("/proc/self/status", "RssAnon:\t262144 kB\nRssFile:\t999999 kB\n");
  const MemoryBound bound = usable_memory(read(tree)).value();
  CHECK(bound.source == "memory cgroup /a (memory.max)");
  CHECK(bound.limit_bytes == 5 * kGiB);
  CHECK(bound.held_by_others_bytes == 2 * kGiB);
  CHECK(bound.usable_bytes() == 3 * kGiB);

  // Usage above the limit, as after lowering it, leaves nothing rather than less than nothing.
  tree.write("/sys/fs/cgroup/a/memory.current", std::to_string(40 * kGiB));
  CHECK(usable_memory(read(tree))->usable_bytes() == 0);
}

TEST_CASE("what the process holds already counts as available to it") {
  Tree tree;
  tree.meminfo(8 * kGiB, 3 * kGiB);
  tree.write("/proc/self/status", "RssAnon:\t1048576 kB\nRssShmem:\t1048576 kB\n");
  CHECK(usable_memory(read(tree))->usable_bytes() == 5 * kGiB);
}

TEST_CASE("v1: limits, the huge number for none, and parents that do not account") {
  Tree tree;
  const std::string folder = "/sys/fs/cgroup/memory/";
  tree.meminfo(16 * kGiB, 12 * kGiB).v1("/p/q", "/");
  tree.write(folder + "p/q/memory.limit_in_bytes", kV1Unlimited);
  tree.write(folder + "memory.limit_in_bytes", "18446744073709551615\n");
  CHECK(usable_memory(read(tree))->source == "available memory (MemAvailable)");

  tree.write(folder + "p/memory.limit_in_bytes", std::to_string(2 * kGiB) + "\n");
  tree.write(folder + "p/memory.usage_in_bytes", std::to_string(kGiB) + "\n");
  tree.write(folder + "p/memory.stat", "inactive_file 5\ntotal_inactive_file " +
                                           std::to_string(kGiB / 2) + "\ntotal_active_file " +
                                           std::to_string(kGiB / 4) + "\n");
  const MemoryBound bound = usable_memory(read(tree)).value();
  CHECK(bound.source == "memory cgroup /p (memory.limit_in_bytes)");
  CHECK(bound.limit_bytes == 2 * kGiB);
  CHECK(bound.held_by_others_bytes == kGiB / 4);

  tree.write(folder + "p/memory.use_hierarchy", "0\n");
  CHECK(usable_memory(read(tree))->source == "available memory (MemAvailable)");
}

TEST_CASE("v1: a limit outside the container is known by its sum") {
  Tree tree;
  tree.meminfo(16 * kGiB, 12 * kGiB).v1("/", "/");
  const std::string folder = "/sys/fs/cgroup/memory/";
  tree.write(folder + "memory.limit_in_bytes", std::to_string(4 * kGiB));
  tree.write(folder + "memory.stat", "hierarchical_memory_limit " + std::to_string(3 * kGiB));
  CHECK(usable_memory(read(tree))->limit_bytes == 3 * kGiB);
  CHECK(usable_memory(read(tree))->source.find("hierarchical_memory_limit") != std::string::npos);
  CHECK(usable_memory(read(tree))->held_by_others_bytes == 0);
  // What others hold in the container counts there too.
  tree.write(folder + "memory.usage_in_bytes", std::to_string(kGiB));
  CHECK(usable_memory(read(tree))->held_by_others_bytes > kGiB / 2);
  CHECK(usable_memory(read(tree))->limit_bytes == 3 * kGiB);
  tree.write(folder + "memory.stat", "hierarchical_memory_limit " + std::to_string(4 * kGiB));
  CHECK(usable_memory(read(tree))->source == "memory cgroup / (memory.limit_in_bytes)");
}

TEST_CASE("hybrid: v1 controllers beside a v2 hierarchy without any") {
  Tree tree;
  tree.meminfo(16 * kGiB, 12 * kGiB);
  tree.write("/proc/self/mountinfo",
             "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  tree.write("/proc/self/cgroup", "4:memory:/jobs/one\n1:cpu:/gone\n0::/unit\n");
  tree.write("/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", std::to_string(kGiB));
  tree.write("/sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes", "4096\n");
  tree.write("/sys/fs/cgroup/memory/jobs/one/memory.max_usage_in_bytes", "8192\n");
  tree.write("/sys/fs/cgroup/memory/jobs/one/memory.stat",
             "workingset_refault_file 1\ntotal_workingset_refault_file 30\n"
             "total_workingset_refault_anon 4\n");
  tree.write("/sys/fs/cgroup/unified/unit/memory.pressure",
             "some avg10=1.25 avg60=0.00 avg300=0.00 total=77\n"
             "full avg10=0.50 avg60=0.00 avg300=0.00 total=5\n");
  CHECK(usable_memory(read(tree))->limit_bytes == kGiB);
  CHECK_FALSE(read(tree).quota);

  const CgroupMemory memory = cgroup_memory(tree);
  CHECK(memory.name == "/jobs/one");
  CHECK(memory.usage_bytes == 4096U);
  CHECK(memory.peak_bytes == 8192U);
  CHECK(memory.refaults_file == 30U);
  CHECK(memory.refaults_anon == 4U);

  const MemoryPressure pressure = pressure_of(tree);
  CHECK(pressure.source == "/sys/fs/cgroup/unified/unit/memory.pressure");
  CHECK_FALSE(pressure.is_of_machine);
  REQUIRE(pressure.some);
  CHECK(pressure.some->avg10_percent == Approx(1.25));
  CHECK(pressure.some->total_us == 77U);
  REQUIRE(pressure.full);
  CHECK(pressure.full->total_us == 5U);
}

// ---- Where groups lie -------------------------------------------------------------------------

namespace {

// The names of the levels that are found, joined by blanks.
std::string level_names(const Tree& tree) {
  std::string names;
  if (const auto group = find_cgroup(tree.root(), "memory")) {
    for (const CgroupLevel& level : group->levels) {
      names += (names.empty() ? "" : " ") + level.name;
      CHECK(tree.root().has_folder(level.folder));
    }
  }
  return names;
}

}  // namespace

TEST_CASE("groups are found through every way of mounting them") {
  struct Case {
    const char* mount_root;
    const char* path;
    const char* folder;  // that exists below the mount
    const char* levels;
  };
  const Case tested = GENERATE(
      Case{"/", "/", "", "/"}, Case{"/", "/a/b", "a/b", "/a/b /a /"},
      // A namespace: the group's outer name is not visible, its root is.
      Case{"/", "/docker/abc", "", "/"}, Case{"/", "/docker/abc/unit", "docker", "/docker /"},
      // The container's own group bound into it, with its outer name in both files ...
      Case{"/docker/abc", "/docker/abc", "", "/docker/abc"},
      Case{"/docker/abc", "/docker/abc/unit", "unit", "/docker/abc/unit /docker/abc"},
      // ... or in one of them, in either way.
      Case{"/docker/abc", "/", "", "/docker/abc"},
      Case{"/docker/abc", "/docker/abcdef", "", "/docker/abc"},
      // A mount from outside the namespace: an ancestor, at a known or unknown distance.
      Case{"/..", "/../sister", "sister", "/../sister /.."}, Case{"/../..", "/", "", "/../.."},
      Case{"/../..", "/unit", "unit", "/../.."},
      // A process outside the namespace whose mount is inside of it: nothing to be known.
      Case{"/", "/../sister", "", ""}, Case{"/", "/../../x", "", ""},
      Case{"/../other", "/", "", ""});
  Tree tree;
  tree.v2(tested.path, tested.mount_root);
  tree.write(std::string("/sys/fs/cgroup/") + tested.folder + "/cgroup.procs", "");
  CAPTURE(tested.mount_root, tested.path);
  CHECK(level_names(tree) == tested.levels);
}

TEST_CASE("of several mounts of a hierarchy the one that shows the group is taken") {
  Tree tree;
  tree.write("/proc/self/cgroup", "4:memory:/a\n0::/a\n");
  tree.write("/proc/self/mountinfo",
             "1 0 0:1 / /elsewhere rw - cgroup cgroup rw,memory\n"
             "2 0 0:1 / /with\\040blank\\134 rw - cgroup cgroup rw,hugetlb,memory\n"
             "3 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree.write("/elsewhere/tasks", "").write("/with blank\\/a/memory.limit_in_bytes", "12288\n");
  CHECK(level_names(tree) == "/a /");
  CHECK(usable_memory(read(tree))->limit_bytes == 12288);
}

TEST_CASE("what is no escape in the name of a mount is part of it") {
  for (const std::string name : {"/m\\", "/m\\04", "/m\\0x0", "/m\\x00", "/m\\00x", "/m\\08/",
                                 "/m\\800", "/m\\0-0", "/m\\-00", "/m\\00-"}) {
    Tree tree;
    tree.write("/proc/self/cgroup", "0::/a\n");
    tree.write("/proc/self/mountinfo", "3 0 0:1 / " + name + " rw - cgroup2 cgroup2 rw\n");
    tree.write(name + "/a/memory.max", "12288\n");
    CAPTURE(name);
    CHECK(level_names(tree) == "/a /");
    CHECK(usable_memory(read(tree))->limit_bytes == 12288);
  }
}

TEST_CASE("lines that are of no hierarchy are passed over") {
  Tree tree;
  tree.v2("/a").write("/sys/fs/cgroup/a/memory.max", "12288\n");
  // No colon, one colon, a path without a slash, another hierarchy without controllers.
  tree.write("/proc/self/cgroup", "0\n0:\n0::a\n7::/other\n0::/a\n");
  CHECK(level_names(tree) == "/a /");
  // A name between the root of a mount and its ancestors: neither a group of this process nor
  // above.
  Tree beside;
  beside.v2("/", "/../x/..").write("/sys/fs/cgroup/cgroup.procs", "");
  CHECK(level_names(beside).empty());
}

TEST_CASE("a group whose name holds colons and blanks") {
  Tree tree;
  tree.v2("/a:b/c d").write("/sys/fs/cgroup/a:b/c d/memory.max", "4096");
  CHECK(usable_memory(read(tree))->source == "memory cgroup /a:b/c d (memory.max)");
}

TEST_CASE("no cgroup at all: the machine's memory is the bound") {
  Tree tree;
  tree.online("0-1").meminfo(8 * kGiB, 6 * kGiB);
  const Machine machine = read(tree);
  CHECK(machine.memory_groups.empty());
  CHECK_FALSE(machine.quota);
  CHECK(machine.memory_total_bytes == 8 * kGiB);
  CHECK(usable_memory(machine)->usable_bytes() == 6 * kGiB);
  CHECK(cgroup_memory(tree).name.empty());
  tree.write("/proc/meminfo", "MemTotal: 1024 kB\n");
  CHECK(usable_memory(read(tree))->source == "physical memory (MemTotal)");
}

// ---- This process -----------------------------------------------------------------------------

TEST_CASE("the memory of a process, field by field") {
  Tree tree;
  tree.write("/proc/self/status",
             "Name:\tRssAnon: 9 kB\nVmHWM:\t 500 kB\nRssAnon:\t 100 kB\nRssFile:\t 200 kB\n"
             "RssShmem:\t 8 kB\nVmPTE:\t 44 kB\nVmSwap:\t 3 kB\n");
  tree.write("/proc/self/stat", "12 (odd ) 1 2 (name) S 1 2 3 4 5 6 1111 8 2222 10 11\n");
  const ProcessMemory memory = read_process_memory(tree.root());
  CHECK(memory.rss_anon_bytes == 100U * 1024);
  CHECK(memory.rss_file_bytes == 200U * 1024);
  CHECK(memory.rss_shmem_bytes == 8U * 1024);
  CHECK(memory.rss_peak_bytes == 500U * 1024);
  CHECK(memory.page_table_bytes == 44U * 1024);
  CHECK(memory.swapped_bytes == 3U * 1024);
  CHECK(memory.minor_faults == 1111U);
  CHECK(memory.major_faults == 2222U);
  CHECK(memory.unreclaimable_bytes() == 152U * 1024);
  CHECK(memory.peak_bytes() == 544U * 1024);
  CHECK_FALSE(ProcessMemory{}.peak_bytes());
}

TEST_CASE("v2 memory of the group, and counters under their older name") {
  Tree tree;
  tree.v2("/a").write("/sys/fs/cgroup/a/memory.current", "10\n");
  tree.write("/sys/fs/cgroup/a/memory.stat", "workingset_refault 12\n");
  CHECK(cgroup_memory(tree).usage_bytes == 10U);
  CHECK_FALSE(cgroup_memory(tree).peak_bytes);
  CHECK(cgroup_memory(tree).refaults_file == 12U);
  CHECK_FALSE(cgroup_memory(tree).refaults_anon);
  tree.write("/sys/fs/cgroup/a/memory.peak", "20\n");
  CHECK(cgroup_memory(tree).peak_bytes == 20U);
}

TEST_CASE("pressure of the machine where the group has none") {
  Tree tree;
  tree.v2("/a").write("/sys/fs/cgroup/a/memory.pressure", "some avg10=oops total=1\n");
  tree.write("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n");
  const MemoryPressure pressure = pressure_of(tree);
  CHECK(pressure.source == "/proc/pressure/memory");
  CHECK(pressure.is_of_machine);
  CHECK(pressure.some->total_us == 9U);
  CHECK_FALSE(pressure.full);
}

TEST_CASE("a line of pressure counts where it has an average and a total") {
  Tree tree;
  const auto some = [&](const std::string& text) {
    return pressure_of(tree.write("/proc/pressure/memory", text)).some;
  };
  for (const char* bad :
       {"", "some", "some avg10=1.5", "some total=3", "some avg10=inf total=3",
        "some avg10=nan total=3", "some avg10=1e999 total=3", "some avg10=1x total=3",
        "some avg10= total=3", "some avg10=1 total=-3", "some avg10 total=3",
        "full avg60=1 total=3", "somewhat avg10=1 total=3"}) {
    CAPTURE(bad);
    CHECK_FALSE(some(bad));
  }
  const auto found = some("some avg10=1 total\nsome word total=3 avg300=7 avg10=2.5\n");
  REQUIRE(found);  // of the first line that is whole
  CHECK(found->avg10_percent == 2.5);
  CHECK(found->total_us == 3U);
  tree.write("/proc/pressure/memory", "full avg10=1 total=3\n");  // of kernels that have one line
  CHECK(pressure_of(tree).full->total_us == 3U);
}

TEST_CASE("what a process holds is known where its parts are") {
  ProcessMemory memory;
  CHECK_FALSE(memory.resident_bytes());
  memory.rss_anon_bytes = 5;
  CHECK_FALSE(memory.resident_bytes());
  memory.rss_file_bytes = 7;
  CHECK(memory.resident_bytes() == 12U);
  memory.rss_anon_bytes.reset();
  CHECK_FALSE(memory.resident_bytes());
  CHECK_FALSE(memory.peak_bytes());
  memory.rss_peak_bytes = 9;
  CHECK(memory.peak_bytes() == 9U);
  memory.page_table_bytes = 2;
  CHECK(memory.peak_bytes() == 11U);
}

TEST_CASE("recent refaults are those of the group, or of the machine") {
  Tree tree;
  CHECK_FALSE(recent_refaults(tree));
  tree.write("/proc/vmstat", "workingset_refault 99\nworkingset_activate 30\n");
  CHECK(recent_refaults(tree) == 30U);
  tree.write("/proc/vmstat", "workingset_activate_anon 3\nworkingset_activate_file 100\n");
  CHECK(recent_refaults(tree) == 103U);
  tree.write("/proc/self/mountinfo",
             "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  tree.write("/proc/self/cgroup", "0::/unit\n");
  CHECK(recent_refaults(tree) == 103U);
  tree.write("/sys/fs/cgroup/unit/memory.stat", "workingset_activate_file 7\n");
  CHECK(recent_refaults(tree) == 7U);
}

TEST_CASE("of refaults of anonymous pages alone the sum is theirs") {
  CgroupMemory memory;
  memory.refaults_anon = 2;
  CHECK(memory.refaults() == 2U);
}

TEST_CASE("huge pages by the bracketed word") {
  Tree tree;
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  tree.write(file, "always [madvise] never\n");
  CHECK(read(tree).huge_pages == "madvise");
  for (const char* garbled : {"", "always", "] [", "[]", "always ["}) {
    tree.write(file, garbled);
    CHECK_FALSE(read(tree).huge_pages);
  }
}

TEST_CASE("refaults: the sum of what is known, and growth only of counters that go on") {
  CgroupMemory memory;
  CHECK_FALSE(memory.refaults().has_value());
  memory.refaults_file = 5;
  CHECK(memory.refaults() == 5U);
  memory.refaults_anon = 2;
  CHECK(memory.refaults() == 7U);
  CHECK(growth(5U, 7U) == 2U);
  CHECK(growth(7U, 7U) == 0U);
  CHECK_FALSE(growth(7U, 5U).has_value());
  CHECK_FALSE(growth(std::nullopt, 5U).has_value());
  CHECK_FALSE(growth(5U, std::nullopt).has_value());
}

TEST_CASE("a limit of addresses counts, less those that hold no memory") {
  Tree tree;
  tree.meminfo(16 * kGiB, 12 * kGiB);
  const auto limits = [&](const std::string& soft) {
    tree.write("/proc/self/limits",
               "Limit                     Soft Limit           Hard Limit           Units     \n"
               "Max data size             unlimited            unlimited            bytes     \n"
               "Max address space         " +
                   soft + "           unlimited            bytes     \n");
  };
  tree.write("/proc/self/status", "VmSize:\t  524288 kB\nRssAnon:\t  262144 kB\n");
  limits("unlimited");
  CHECK(usable_memory(read(tree))->source == "available memory (MemAvailable)");
  limits(std::to_string(4 * kGiB));
  const MemoryBound bound = usable_memory(read(tree)).value();
  CHECK(bound.source == "address space (ulimit -v)");
  CHECK(bound.limit_bytes == 4 * kGiB);
  // 256 MiB hold no memory, and 8 MiB are for each stack: of four CPUs and four helpers.
  CHECK(bound.usable_bytes() == 4 * kGiB - 256 * kMiB - 8 * 8 * kMiB);
  limits(std::to_string(kMiB));  // less than there is already
  CHECK(usable_memory(read(tree))->usable_bytes() == 0);
  limits("many");
  CHECK(memory_bounds(read(tree)).size() == 1);
  // The kernel counts what can be written to for itself: mapped files are not in it.
  tree.write("/proc/self/status",
             "VmSize:\t 8388608 kB\nVmData:\t  524288 kB\nRssAnon:\t 262144 kB\n");
  tree.write("/proc/self/limits",
             "Max data size  " + std::to_string(2 * kGiB) + "  unlimited  bytes\n");
  const MemoryBound data = usable_memory(read(tree)).value();
  CHECK(data.source == "data segment (ulimit -d)");
  CHECK(data.usable_bytes() == 2 * kGiB - 256 * kMiB - 8 * 8 * kMiB);
}

TEST_CASE("a figure from 2^62 bytes on is no limit, and a size has up to 2^60") {
  Tree tree;
  tree.v2("/a").write("/sys/fs/cgroup/a/memory.max", "4611686018427387903\n");
  CHECK(usable_memory(read(tree))->limit_bytes == 4611686018427387903);
  tree.write("/sys/fs/cgroup/a/memory.max", "4611686018427387904\n");
  CHECK_FALSE(usable_memory(read(tree)));
  CHECK(find_kilobytes("Size: 1125899906842624 kB\n", "Size") == std::uint64_t{1} << 60);
  CHECK_FALSE(find_kilobytes("Size: 1125899906842625 kB\n", "Size"));
}

TEST_CASE("memory limits alone are those of the whole machine") {
  Tree tree;
  tree.meminfo(16 * kGiB, 12 * kGiB).v2("/a/b");
  tree.write("/sys/fs/cgroup/a/b/memory.max", std::to_string(5 * kGiB) + "\n");
  tree.write("/sys/fs/cgroup/a/memory.high", std::to_string(4 * kGiB) + "\n");
  tree.write("/sys/fs/cgroup/a/b/memory.current", std::to_string(2 * kGiB) + "\n");
  tree.write("/proc/self/status", "RssAnon:\t1048576 kB\n");
  const auto group = find_cgroup(tree.root(), "memory");
  const auto all = memory_bounds(read(tree));
  const auto alone = memory_bounds(read_memory_limits(tree.root(), group));
  REQUIRE(alone.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(alone[i].source == all[i].source);
    CHECK(alone[i].usable_bytes() == all[i].usable_bytes());
  }
}

TEST_CASE("a wait for events of memory ends when it is woken, before or meanwhile") {
  for (const bool has_group : {false, true}) {
    MemoryEvents events(has_group ? find_cgroup({}, "memory") : std::nullopt);
    const std::chrono::hours long_time(1);
    events.wake();
    events.wait(long_time);
    std::thread other([&] { events.wake(); });
    events.wait(long_time);
    other.join();
    events.wait(std::chrono::milliseconds(1));
  }
}

TEST_CASE("events of groups that are not there are left out") {
  const Cgroup nowhere{CgroupVersion::v2, {{"/gone", "/sys/fs/cgroup/gone-with-the-wind"}}};
  CHECK(MemoryEvents(nowhere).sources().empty());
  const Cgroup nowhere_v1{CgroupVersion::v1, nowhere.levels};
  CHECK(MemoryEvents(nowhere_v1).sources().empty());
}

TEST_CASE("v1: thresholds are asked for below the limit, and heard where the kernel takes them") {
  const TemporaryFolder folder;
  const Cgroup group{CgroupVersion::v1, {{"/", folder.path()}}};
  const std::string usage = folder / "memory.usage_in_bytes";
  const std::filesystem::path control = folder / "cgroup.event_control";
  const auto sources = [&](const std::string& limit) {
    write(folder / "memory.limit_in_bytes", limit);
    return MemoryEvents(group).sources();
  };
  CHECK(trigger_files(group) == std::vector<std::filesystem::path>{control});
  CHECK(sources("67108864\n").empty());  // no usage, no control
  write(usage, "");
  CHECK(sources("67108864\n").empty());  // no control
  write(control, "");
  CHECK(sources(kV1Unlimited).empty());
  CHECK(sources("garbage").empty());
  CHECK(sources("0\n").empty());
  CHECK(content(control).empty());

  // What the kernel would read: descriptors, and a threshold every 16 MiB.
  CHECK(sources("67108864\n") == std::vector<std::string>{usage});
  const std::string asked = content(control);
  for (const char* threshold : {" 67108864", " 50331648", " 33554432", " 16777216"}) {
    CHECK(asked.find(threshold) != std::string::npos);
  }
  CHECK(std::count(asked.begin(), asked.end(), ' ') == 2 * 4);
  write(control, "");
  CHECK(sources("1073741824\n") == std::vector<std::string>{usage});
  const std::string far = content(control);
  CHECK(std::count(far.begin(), far.end(), ' ') == 2 * 32);

  std::filesystem::remove(control);  // a kernel that refuses
  std::filesystem::create_symlink("/dev/full", control);
  CHECK(sources("67108864\n").empty());
}

TEST_CASE("v2: a change of a group's events ends a wait, and a refused trigger is left out") {
  const TemporaryFolder folder;
  const Cgroup group{CgroupVersion::v2, {{"/a", folder.path()}}};
  const std::string changes = folder / "memory.events", pressure = folder / "memory.pressure";
  write(changes, "high 0\n");
  CHECK(trigger_files(group) == std::vector<std::filesystem::path>{pressure});
  CHECK(MemoryEvents(group).sources() == std::vector<std::string>{changes});
  std::filesystem::create_symlink("/dev/full", pressure);
  CHECK(MemoryEvents(group).sources() == std::vector<std::string>{changes});
  std::filesystem::remove(pressure);
  write(pressure, "");

  MemoryEvents events(group);
  CHECK(events.sources() == std::vector<std::string>{changes, pressure});
  CHECK(content(pressure) == "some 5000 500000");
  for (int turn = 0; turn < 3; ++turn) {
    write(changes, "high 1\n");
    events.wait(std::chrono::hours(1));  // and takes all that has come
  }
}
