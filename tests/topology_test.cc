// The readers of machine facts and the choice of threads, held against generated trees of /proc and
// /sys of many machines. Memory is in topology_memory_test.cc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/machine_tree.h"
#include "tests/paths.h"
#include "tests/temporary_folder.h"
#include "topology/aligned_bytes.h"
#include "topology/cpu_use.h"
#include "topology/file_root.h"
#include "topology/machine.h"
#include "topology/process_memory.h"

namespace {

using namespace sluice::topology;
using namespace sluice::test;

// Two packages of two cores of two threads, numbered as firmware does: 0-3 first threads.
void two_packages(Tree& tree) {
  for (unsigned id = 0; id < 8; ++id) {
    const unsigned core = id % 4;
    tree.cpu(id, static_cast<int>(core / 2), static_cast<int>(core % 2),
             std::to_string(core) + "," + std::to_string(core + 4));
  }
  tree.online("0-7");
}

}  // namespace

// ---- Formats ----------------------------------------------------------------------------------

TEST_CASE("CPU lists are read and written alike") {
  for (const char* text : {"0", "0-3", "0-1,4", "7,9-11,65535"}) {
    CHECK(format_cpu_list(parse_cpu_list(text).value()) == text);
  }
  CHECK(parse_cpu_list(" 3,1,2,2\n") == CpuList{1, 2, 3});
  CHECK(format_cpu_list({}).empty());
  for (const char* text : {"", "\n", "-", "1-", "-1", "3-1", "a", "0-3x", "0;1", "65536",
                           "0-4294967295", "18446744073709551616", "1 2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_cpu_list(text));
  }
}

TEST_CASE("random CPU lists survive a round trip") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    CpuList cpus;
    for (unsigned cpu = 0; cpu < 200; ++cpu) {
      if (random() % 3 != 0) cpus.push_back(cpu);
    }
    REQUIRE(parse_cpu_list(format_cpu_list(cpus)) == cpus);
  }
}

TEST_CASE("numbers and fields are read whole or not at all") {
  CHECK(parse_number(" 42\n") == 42U);
  CHECK(parse_number("18446744073709551615") == 18446744073709551615U);
  for (const char* text : {"", "max", "-1", "1.5", "0x10", "12 13", "18446744073709551616"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_number(text));
  }
  const std::string text = "Rss:  7 kB\nRssAnon:\t  12 kB\nNote: 5\nOdd: x kB\nLots: " +
                           std::to_string(std::uint64_t{1} << 60) + " kB\n";
  CHECK(find_kilobytes(text, "RssAnon") == 12U * 1024);
  for (const char* key : {"Note", "Odd", "Lots", "rss", ""}) {
    CAPTURE(key);
    CHECK_FALSE(find_kilobytes(text, key));
  }
  CHECK(find_count("anon 1\nfile 2\n", "file") == 2U);
  CHECK_FALSE(find_count("inactive_file 2\nfilex 3\nfile\n", "file"));
}

TEST_CASE("folders and absent files read as nothing") {
  Tree tree;
  tree.write("/proc/self/status", "");
  CHECK(tree.root().text("/proc/self/status") == "");
  CHECK_FALSE(tree.root().text("/proc/self"));
  CHECK_FALSE(tree.root().text("/proc/meminfo"));
  CHECK(tree.root().has_folder("/proc/self"));
  CHECK_FALSE(tree.root().has_folder("/proc/self/status"));
}

TEST_CASE("a file is read up to 16 MiB, and a longer one is as if it were not there") {
  const TemporaryFolder folder;
  const FileRoot root(folder.path());
  constexpr std::uintmax_t most = std::uintmax_t{16} << 20;
  for (const std::uintmax_t bytes : {most, most + 1, most + 4096}) {
    write(folder / "long", "");
    std::filesystem::resize_file(folder / "long", bytes);  // a hole
    const std::optional<std::string> text = root.text("/long");
    CHECK(text.has_value() == (bytes == most));
    if (text) CHECK(text->size() == most);
  }
}

// ---- CPUs -------------------------------------------------------------------------------------

TEST_CASE("two packages with siblings: cores first, one package after the other") {
  Tree tree;
  two_packages(tree);
  const Machine machine = read(tree, CpuList{0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(machine.cpus.size() == 8);
  CHECK(machine.cpus[6].package == 1);
  CHECK(machine.cpus[6].core == 0);
  CHECK(machine.cpus[6].siblings == CpuList{2, 6});

  const ThreadChoice choice = choose_threads(machine);
  CHECK(choice.cpus == CpuList{0, 1, 2, 3});
  CHECK_FALSE(choice.siblings_only);
  CHECK(choice.reason == "4 threads: one for each physical core of the 8 CPUs allowed");
  CHECK(choose_threads(machine, 2).cpus == CpuList{0, 1});
  CHECK(choose_threads(machine, 6).cpus == CpuList{0, 1, 2, 3, 4, 5});
  CHECK(choose_threads(machine, 6).reason.find("siblings") != std::string::npos);
  CHECK(choose_threads(machine, 8).cpus.size() == 8);
}

TEST_CASE("equal core ids in different packages are different cores") {
  Tree tree;
  two_packages(tree);
  // Without lists of siblings, package and core id have to tell.
  for (int id = 0; id < 8; ++id) {
    const std::string cpu = "/sys/devices/system/cpu/cpu" + std::to_string(id);
    tree.write(cpu + "/topology/thread_siblings_list", "garbage");
  }
  const Machine machine = read(tree, CpuList{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(machine.cpus[1].siblings == CpuList{1, 5});
  CHECK(choose_threads(machine).cpus == CpuList{0, 1, 2, 3});
}

TEST_CASE("siblings of one core: both variants are offered") {
  Tree tree;
  tree.cpu(0, 0, 0, "0-1").cpu(1, 0, 0, "0-1").online("0-1");
  const ThreadChoice choice = choose_threads(read(tree));
  CHECK(choice.siblings_only);
  CHECK(choice.cpus == CpuList{0});
  CHECK(choice.alternative_cpus == CpuList{0, 1});
  CHECK(choice.reason ==
        "1 thread, or 2 if that is faster: all CPUs allowed are siblings of one core");

  const ThreadChoice both = choose_threads(read(tree), 2);
  CHECK_FALSE(both.siblings_only);
  CHECK(both.cpus == CpuList{0, 1});

  CHECK(both.alternative_cpus.empty());

  tree.v2("/").write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  CHECK(choose_threads(read(tree)).alternative_cpus == CpuList{0, 1});
  // A quota that carries one thread leaves nothing to choose.
  tree.write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  CHECK(choose_threads(read(tree)).alternative_cpus.empty());
}

TEST_CASE("a mask that leaves one thread of each core is no matter of siblings") {
  Tree tree;
  two_packages(tree);
  const ThreadChoice choice = choose_threads(read(tree, CpuList{5, 6}));
  CHECK(choice.cpus == CpuList{5, 6});
  CHECK_FALSE(choice.siblings_only);
  CHECK(choose_threads(read(tree, CpuList{2, 6})).siblings_only);
}

TEST_CASE("of cores of several kinds those are taken that do most together") {
  const auto chosen = [](const std::vector<unsigned>& capacities, unsigned requested = 0) {
    Tree tree;
    for (unsigned id = 0; id < capacities.size(); ++id) {
      tree.cpu(id, 0, static_cast<int>(id), std::to_string(id));
      tree.write("/sys/devices/system/cpu/cpu" + std::to_string(id) + "/cpu_capacity",
                 std::to_string(capacities[id]) + "\n");
    }
    tree.online("0-" + std::to_string(capacities.size() - 1));
    CpuList all;
    for (unsigned id = 0; id < capacities.size(); ++id) all.push_back(id);
    return choose_threads(read_machine(tree.root(), all), requested);
  };
  CHECK(chosen({1024, 1024, 1024, 1024}).cpus == CpuList{0, 1, 2, 3});
  CHECK(chosen({1024, 4000, 3000, 1024}).cpus == CpuList{0, 1, 2, 3});  // there is none above 1024
  const ThreadChoice fast = chosen({414, 414, 414, 414, 1024, 1024, 1024, 1024});
  CHECK(fast.cpus == CpuList{4, 5, 6, 7});
  CHECK(fast.reason == "4 threads: one for each of the fastest cores of the 8 CPUs allowed");
  // Eight threads at half the speed do as much as four.
  CHECK(chosen({512, 512, 512, 512, 1024, 1024, 1024, 1024}).cpus.size() == 8);
  // One core of a third kind is left to wait for the others rather than alone.
  CHECK(chosen({300, 300, 300, 300, 870, 870, 870, 1024}).cpus == CpuList{7, 4, 5, 6});
  const ThreadChoice alone = chosen({200, 200, 1024});
  CHECK(alone.cpus == CpuList{2});
  CHECK_FALSE(alone.siblings_only);
  CHECK(alone.alternative_cpus.empty());
  CHECK(chosen({414, 414, 1024, 1024}, 3).cpus == CpuList{2, 3, 0});
}

TEST_CASE("offline CPUs and sparse ids") {
  Tree tree;
  tree.cpu(0, 0, 0, "0").cpu(2, 0, 8, "2-3").cpu(3, 0, 8, "2-3").cpu(130, 3, 77, "130");
  tree.online("0,2,130");
  const Machine machine = read(tree, CpuList{0, 1, 2, 3, 130});
  CHECK(machine.allowed_cpus == CpuList{0, 2, 130});
  REQUIRE(machine.cpus.size() == 3);
  CHECK(machine.cpus[2].id == 130);
  CHECK(machine.cpus[1].siblings == CpuList{2});
  CHECK(choose_threads(machine).cpus == CpuList{0, 2, 130});
}

TEST_CASE("a machine without sysfs takes its CPUs from cpuinfo, each a core") {
  Tree tree;
  tree.write("/proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\n"
             "flags\t\t: fpu avx2 fma avx512f nonsense avx512_vnni\n\n"
             "processor\t: 1\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: fpu\n");
  const Machine machine = read(tree, CpuList{0, 1});
  REQUIRE(machine.cpus.size() == 2);
  CHECK(machine.cpus[1].siblings == CpuList{1});
  CHECK(machine.cpus[1].package == -1);
  CHECK(machine.model_name == "Some CPU @ 2.0GHz");
  CHECK(machine.flags == std::vector<std::string>{"avx2", "fma", "avx512f", "avx512_vnni"});
  CHECK(choose_threads(machine).cpus == CpuList{0, 1});
}

TEST_CASE("the firmware may have no ids, or ids that are none") {
  Tree tree;
  // The first two say -1: no package, and one core for both. Others are too large, or no number.
  tree.cpu(0, -1, -1, "x").cpu(1, -1, -1, "x").cpu(2, 0, 0, "x").cpu(3, 0, 0, "x").online("0-3");
  const std::string folder = "/sys/devices/system/cpu/";
  tree.write(folder + "cpu2/topology/core_id", "2147483648\n");
  tree.write(folder + "cpu3/topology/core_id", "zero\n");
  tree.write(folder + "cpu3/topology/physical_package_id", "99999999999\n");
  const Machine machine = read(tree);
  REQUIRE(machine.cpus.size() == 4);
  CHECK(machine.cpus[0].siblings == CpuList{0, 1});
  CHECK(machine.cpus[1].siblings == CpuList{0, 1});
  CHECK(machine.cpus[0].package == -1);
  CHECK(machine.cpus[0].core == -1);
  CHECK(machine.cpus[2].siblings == CpuList{2});
  CHECK(machine.cpus[2].core == 2);
  CHECK(machine.cpus[2].package == 0);
  CHECK(machine.cpus[3].siblings == CpuList{3});
  CHECK(machine.cpus[3].package == -1);
}

TEST_CASE("facts that are begun and not told are passed over") {
  Tree tree;
  tree.online("0").v2("/a/b");
  tree.write("/proc/cpuinfo", "CPU implementer\t: 0x41\nmodel name\t:\nHardware\t: Board\n");
  tree.write("/proc/self/limits", "Max address space\n");
  const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index0/";
  tree.write(cache + "level", "1\n").write(cache + "size", "0K\n").write(cache + "type", "Data\n");
  // Of two quotas the tighter one counts, also where it is the nearer one.
  tree.write("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  tree.write("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  const Machine machine = read(tree);
  CHECK(machine.model_name == "Board");
  CHECK(machine.address_limits.empty());
  CHECK_FALSE(machine.caches.l1d_bytes);
  CHECK(machine.quota->source == "cpu cgroup /a/b (cpu.max)");
}

TEST_CASE("a CPU that is allowed and not online counts as a core of its own") {
  Tree tree;
  two_packages(tree);
  const Machine machine = read(tree, CpuList{9, 11});
  CHECK(machine.allowed_cpus == CpuList{9, 11});
  CHECK(choose_threads(machine).cpus == CpuList{9, 11});
  CHECK(choose_threads(machine).reason ==
        "2 threads: one for each physical core of the 2 CPUs allowed");
}

TEST_CASE("a machine of ARM is called by its board and its core") {
  Tree tree;
  const auto name_of = [&](const std::string& cpuinfo) {
    tree.online("0").write("/proc/cpuinfo", "processor\t: 0\n" + cpuinfo);
    return read(tree).model_name;
  };
  const std::string n1 = "CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
  CHECK(name_of(n1) == "Neoverse N1");
  CHECK(name_of("CPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nModel\t\t: Raspberry Pi 5\n") ==
        "Raspberry Pi 5 (Cortex-A76)");
  CHECK(name_of("CPU implementer\t: 0x61\nCPU part\t: 0x022\n") == "implementer 0x61, part 0x022");
  CHECK(name_of("CPU part\t: 0xd0b\n").empty());
}

TEST_CASE("features of ARM and caches of the first CPU") {
  Tree tree;
  tree.online("0").write("/proc/cpuinfo", "processor : 0\nFeatures : fp asimd i8mm asimddp\n");
  const auto cache = [&](int index, const char* level, const char* type, const char* size) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    tree.write(folder + "level", level).write(folder + "type", type).write(folder + "size", size);
  };
  cache(0, "1\n", "Data\n", "48K\n");
  cache(1, "1\n", "Instruction\n", "64K\n");
  cache(2, "2\n", "Unified\n", "2048K\n");
  cache(3, "3\n", "Unified\n", "480M\n");
  const Machine machine = read(tree);
  CHECK(machine.flags == std::vector<std::string>{"asimd", "i8mm", "asimddp"});
  CHECK(machine.caches.l1d_bytes == 48U * 1024);
  CHECK(machine.caches.l2_bytes == 2 * kMiB);
  CHECK(machine.caches.l3_bytes == 480 * kMiB);
  cache(2, "2\n", "Unified\n", "4294967295G\n");
  cache(3, "3\n", "Unified\n", "4294967296G\n");
  CHECK(read(tree).caches.l2_bytes == std::uint64_t{4294967295} << 30);
  CHECK_FALSE(read(tree).caches.l3_bytes);
  cache(2, "2\n", "Unified\n", "4096\n");
  cache(3, "3\n", "Unified\n", "2M\n");
  CHECK(read(tree).caches.l2_bytes == 4096U);
  CHECK(read(tree).caches.l3_bytes == 2 * kMiB);
  cache(2, "2\n", "Unified\n", "many\n");
  cache(3, "3\n", "Unified\n", "18446744073709551615G\n");
  CHECK_FALSE(read(tree).caches.l2_bytes);
  CHECK_FALSE(read(tree).caches.l3_bytes);
}

TEST_CASE("a request beyond the allowed CPUs is refused in a clear line") {
  Tree tree;
  two_packages(tree);
  const Machine machine = read(tree, CpuList{1, 2, 3});
  std::string message;
  try {
    choose_threads(machine, 4);
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  CHECK(message ==
        "4 threads were requested, but this process may run on 3 CPUs only (1-3): request at most "
        "3");
  CHECK_THROWS_AS(choose_threads(Machine{}), std::invalid_argument);
}

// ---- Quotas and cpusets -----------------------------------------------------------------------

TEST_CASE("a quota carries its whole CPUs, at least one, and maybe one more for the rest") {
  struct Case {
    const char* text;
    std::optional<double> cpus;
    std::size_t threads, alternative;
  };
  const Case tested = GENERATE(
      Case{"50000 100000\n", 0.5, 1, 0}, Case{"150000 100000\n", 1.5, 1, 2},
      Case{"200000 100000\n", 2.0, 2, 0}, Case{"299999 100000\n", 2.99999, 2, 3},
      Case{"800000 100000\n", 8.0, 4, 0}, Case{"max 100000\n", {}, 4, 0}, Case{"max\n", {}, 4, 0},
      Case{"", {}, 4, 0}, Case{"100000\n", {}, 4, 0}, Case{"100000 0\n", {}, 4, 0},
      Case{"0 100000\n", {}, 4, 0}, Case{"-5 100000\n", {}, 4, 0}, Case{"a b c\n", {}, 4, 0});
  Tree tree;
  tree.online("0-3").v2("/job").write("/sys/fs/cgroup/job/cpu.max", tested.text);
  const Machine machine = read(tree);
  CAPTURE(tested.text);
  REQUIRE(machine.quota.has_value() == tested.cpus.has_value());
  if (tested.cpus) {
    CHECK(machine.quota->cpus == Approx(*tested.cpus));
    CHECK(machine.quota->source == "cpu cgroup /job (cpu.max)");
  }
  const ThreadChoice choice = choose_threads(machine);
  CHECK(choice.cpus.size() == tested.threads);
  CHECK(choice.alternative_cpus.size() == tested.alternative);
}

TEST_CASE("a request by number is honoured beyond the quota, and says so") {
  Tree tree;
  tree.online("0-3").v2("/job").write("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  const ThreadChoice choice = choose_threads(read(tree), 3);
  CHECK(choice.cpus == CpuList{0, 1, 2});
  CHECK(choice.reason ==
        "3 threads, as requested, beyond the quota of 1.5 CPUs of cpu cgroup /job (cpu.max)");
}

TEST_CASE("the tightest quota of all levels counts, in both versions") {
  Tree second;
  second.online("0-3").v2("/a/b/c");
  second.write("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
  second.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  second.write("/sys/fs/cgroup/a/cpu.max", "100000 50000\n");
  const Machine machine = read(second);
  REQUIRE(machine.quota);
  CHECK(machine.quota->cpus == Approx(2.0));
  CHECK(machine.quota->source == "cpu cgroup /a (cpu.max)");

  // Of equal ones the nearest is named.
  second.write("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
  CHECK(read(second).quota->source == "cpu cgroup /a/b (cpu.max)");

  Tree first;
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct/";
  first.online("0-3").v1("/", "/x/y");
  first.write(folder + "x/y/cpu.cfs_quota_us", "-1\n");
  first.write(folder + "x/y/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(read(first).quota);
  first.write(folder + "x/cpu.cfs_quota_us", "50000\n");
  first.write(folder + "x/cpu.cfs_period_us", "100000\n");
  REQUIRE(read(first).quota);
  CHECK(read(first).quota->cpus == Approx(0.5));
  CHECK(read(first).quota->source == "cpu cgroup /x (cpu.cfs_quota_us)");
  CHECK(choose_threads(read(first)).cpus.size() == 1);
}

TEST_CASE("a quota of nothing, or of no time, is none") {
  Tree tree;
  tree.online("0-3").v2("/a");
  for (const char* text : {"0 100000\n", "50000 0\n", "50000\n", "50000 100000 1\n", "max 100000\n",
                           "50000 max\n", "\n"}) {
    CAPTURE(text);
    CHECK_FALSE(read(tree.write("/sys/fs/cgroup/a/cpu.max", text)).quota);
  }
  tree.write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  CHECK(read(tree).quota->cpus == 1.5);
  CHECK(choose_threads(read(tree), 1).reason == "1 thread, as requested");
  CHECK(choose_threads(read(tree), 2).reason ==
        "2 threads, as requested, beyond the quota of 1.5 CPUs of cpu cgroup /a (cpu.max)");
}

TEST_CASE("a cpuset narrower than the affinity, own, inherited, or pointless") {
  Tree tree;
  tree.online("0-3").v2("/a/b").write("/sys/fs/cgroup/a/b/cpuset.cpus.effective", "1-2\n");
  CHECK(read(tree).allowed_cpus == CpuList{1, 2});
  CHECK(read(tree, CpuList{2, 3}).allowed_cpus == CpuList{2});
  tree.write("/sys/fs/cgroup/a/b/cpuset.cpus.effective", "\n");
  tree.write("/sys/fs/cgroup/a/cpuset.cpus.effective", "3\n");
  CHECK(read(tree).allowed_cpus == CpuList{3});
  CHECK(read(tree, CpuList{0}).allowed_cpus == CpuList{0});  // they cannot both be true
  CHECK(read(tree, CpuList{3, 3, 0, 3}).allowed_cpus == CpuList{3});

  Tree first;
  first.online("0-3").v1("/", "/set").write("/sys/fs/cgroup/cpuset/set/cpuset.cpus", "0,3\n");
  CHECK(read(first).allowed_cpus == CpuList{0, 3});
  first.write("/sys/fs/cgroup/cpuset/set/cpuset.effective_cpus", "3\n");
  CHECK(read(first).allowed_cpus == CpuList{3});
}

// ---- Hostile trees ----------------------------------------------------------------------------

TEST_CASE("an empty machine and a live one are both read") {
  Tree tree;
  const Machine empty = read(tree, CpuList{4});
  CHECK(empty.allowed_cpus == CpuList{4});
  CHECK(choose_threads(empty).cpus == CpuList{4});
  CHECK_FALSE(usable_memory(empty));
  CHECK_FALSE(read_process_memory(tree.root()).rss_anon_bytes);
  CHECK(read(tree, CpuList{}).allowed_cpus.empty());
  CHECK_FALSE(read_machine(tree.root()).allowed_cpus.empty());  // the kernel's own answer

  const Machine live = read_machine();
  CHECK_FALSE(live.allowed_cpus.empty());
  CHECK_FALSE(choose_threads(live).cpus.empty());
  REQUIRE(usable_memory(live));
  CHECK(usable_memory(live)->usable_bytes() <= live.memory_total_bytes.value() + live.own_bytes);
  const ProcessMemory own = read_process_memory();
  CHECK(own.rss_anon_bytes.value() > 0);
  CHECK(own.rss_peak_bytes.value() >= own.rss_anon_bytes.value());
}

TEST_CASE("memory that this process touches shows in its figures") {
  constexpr std::size_t kBytes = 32 * kMiB;
  const ProcessMemory before = read_process_memory();
  const std::vector<char> touched(kBytes, 1);
  const ProcessMemory after = read_process_memory();
  CHECK(touched.back() == 1);
  CHECK(after.rss_anon_bytes.value() >= before.rss_anon_bytes.value() + kBytes / 2);
  // QEMU tells of no faults.
  if (*emulator == '\0') {
    CHECK(after.minor_faults.value() > before.minor_faults.value());
  }
}

TEST_CASE("garbage in any file is at worst an absent fact") {
  const std::vector<std::string> files = {
      "/proc/cpuinfo",
      "/proc/meminfo",
      "/proc/self/mountinfo",
      "/proc/self/cgroup",
      "/proc/self/status",
      "/proc/self/stat",
      "/proc/self/smaps_rollup",
      "/proc/pressure/memory",
      "/sys/devices/system/cpu/online",
      "/sys/devices/system/cpu/cpu0/topology/core_id",
      "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
      "/sys/devices/system/cpu/cpu0/cache/index0/size",
      "/sys/fs/cgroup/a/cpu.max",
      "/sys/fs/cgroup/a/memory.max",
      "/sys/fs/cgroup/a/memory.high",
      "/sys/fs/cgroup/a/memory.current",
      "/sys/fs/cgroup/a/memory.stat",
      "/sys/fs/cgroup/a/cpuset.cpus.effective",
      "/sys/kernel/mm/transparent_hugepage/enabled"};
  const std::string alphabet =
      "0123456789-,:/.[]()=\\ \t\n kKMBmax\0"
      "avg10totalsome";
  std::mt19937 random(5);
  Tree tree;  // one for all: half of its files are left as the round before made them
  for (int round = 0; round < 150; ++round) {
    tree.v2("/a").online("0-3").meminfo(kGiB, kGiB);
    for (const std::string& file : files) {
      if (random() % 2 == 0) continue;
      std::string text;
      for (std::size_t i = random() % 60; i > 0; --i) text += alphabet[random() % alphabet.size()];
      tree.write(file, text);
    }
    const Machine machine = read(tree);
    for (const MemoryBound& bound : memory_bounds(machine)) {
      REQUIRE(bound.held_by_others_bytes <= bound.limit_bytes);
    }
    const ThreadChoice choice = choose_threads(machine);
    REQUIRE_FALSE(choice.cpus.empty());
    REQUIRE(choice.cpus.size() <= machine.allowed_cpus.size());
    REQUIRE(choice.alternative_cpus.size() <= machine.allowed_cpus.size());
    read_process_memory(tree.root());
    cgroup_memory(tree);
    pressure_of(tree);
  }
}

TEST_CASE("a choice never leaves the mask, repeats a CPU, or wastes a core") {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    Machine machine;
    const auto threads_per_core = static_cast<unsigned>(1 + random() % 3);
    for (unsigned id = 0; id < 12; ++id) {
      const unsigned first = id / threads_per_core * threads_per_core;
      Cpu cpu{id, static_cast<int>(first / 6), static_cast<int>(first), {}};
      for (unsigned sibling = first; sibling < first + threads_per_core; ++sibling) {
        cpu.siblings.push_back(sibling);
      }
      machine.cpus.push_back(cpu);
      if (random() % 2 == 0) machine.allowed_cpus.push_back(id);
    }
    if (machine.allowed_cpus.empty()) continue;
    std::vector<unsigned> cores;
    for (const unsigned id : machine.allowed_cpus) cores.push_back(id / threads_per_core);
    cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
    for (unsigned requested = 0; requested <= machine.allowed_cpus.size(); ++requested) {
      const ThreadChoice choice = choose_threads(machine, requested);
      REQUIRE(choice.cpus.size() == (requested == 0 ? cores.size() : requested));
      CpuList sorted = choice.cpus;
      std::sort(sorted.begin(), sorted.end());
      REQUIRE(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
      REQUIRE(std::includes(machine.allowed_cpus.begin(), machine.allowed_cpus.end(),
                            sorted.begin(), sorted.end()));
      std::vector<unsigned> used;
      for (const unsigned id : sorted) used.push_back(id / threads_per_core);
      used.erase(std::unique(used.begin(), used.end()), used.end());
      REQUIRE(used.size() == std::min(cores.size(), choice.cpus.size()));
    }
  }
}

TEST_CASE("the time that others take is all that is busy and not this process") {
  Tree tree;
  const auto times = [&](const std::string& stat, double own) {
    return read_cpu_times(tree.write("/proc/stat", stat).root(), own);
  };
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto before = times("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n", 1);
  // 200 of 1,000 ticks are busy, of which 40 are stolen by the host; this process has 150.
  const auto after = times("cpu  230 10 60 1550 100 5 5 40 77 3\nctxt 1\n", 1 + 150 / ticks);
  REQUIRE(before);
  REQUIRE(after);
  CHECK(after->all - before->all == Approx(1000 / ticks));
  CHECK(share_of_others(*before, *after) == Approx(0.05));
  CHECK(share_of_others(*after, *before) == 0);
  CHECK(share_of_others(*after, *after) == 0);
  for (const char* bad :
       {"", "cpu", "cpu  1 2 3", "cpu  1 2 3 4 x 6 7 8", "intr 1\n", "cpu  1 2 3 4 5 6 7 -8"}) {
    INFO(bad);
    CHECK_FALSE(times(bad, 0));
  }
  CHECK_FALSE(read_cpu_times(Tree().root(), 0));
}

TEST_CASE("the time of this process is the kernel's own where nobody gives another") {
  Tree tree;
  tree.write("/proc/stat", "cpu  1 2 3 4 5 6 7 8\n");
  const auto used = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double before = used();
  const auto times = read_cpu_times(tree.root());
  REQUIRE(times);
  CHECK(times->own >= before - 1e-5);  // std::clock() counts in microseconds
  CHECK(times->own <= used() + 1e-5);
}

TEST_CASE("memory for threads is zeroed, begins at a page, and is refused by its size") {
  AlignedBytes bytes(10'000);
  REQUIRE(bytes.size() == 10'000);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) %
            static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) ==
        0);
  CHECK(std::all_of(bytes.data(), bytes.data() + bytes.size(),
                    [](std::byte byte) { return byte == std::byte{0}; }));
  bytes.data()[9'999] = std::byte{7};
  const std::byte* const place = bytes.data();
  AlignedBytes taken(std::move(bytes));
  AlignedBytes other;
  CHECK((other.data() == nullptr && other.size() == 0));
  other = std::move(taken);
  CHECK(other.data() == place);
  CHECK(other.data()[9'999] == std::byte{7});
  CHECK(AlignedBytes(0).data() == nullptr);
  const std::size_t most = std::size_t{1} << 62;  // more than there are addresses
  CHECK_THROWS_WITH(AlignedBytes(most, " for a test"),
                    "cannot allocate 4611686018427387904 bytes for a test: Cannot allocate memory");
}
