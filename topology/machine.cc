#include "topology/machine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <memory>
#include <sched.h>
#include <unistd.h>
#include <utility>

#include "base/trim.h"
#include "topology/cgroup.h"
#include "topology/process_memory.h"

namespace sluice::topology {
namespace {

constexpr std::string_view kCpuFolder = "/sys/devices/system/cpu";

// Numbers from here on mean "no limit": v1 writes LONG_MAX in whole pages, very old kernels
// ULLONG_MAX, instead of a word.
constexpr std::uint64_t kUnlimitedBytes = std::uint64_t{1} << 62;

constexpr std::uint64_t kCapacityMax = 1024;  // of a CPU, beside the fastest

std::filesystem::path cpu_folder(unsigned id) {
  return std::filesystem::path(kCpuFolder) / fmt::format("cpu{}", id);
}

// ---- CPUs -------------------------------------------------------------------------------------

// The affinity of the calling thread. The kernel refuses masks shorter than its own and does not
// say how long that is, so the mask grows until it fits.
std::optional<CpuList> read_affinity() {
  for (unsigned capacity = CPU_SETSIZE; capacity <= 65536; capacity *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(capacity), [](cpu_set_t* set) { CPU_FREE(set); });
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    if (!mask) return std::nullopt;
    if (::sched_getaffinity(0, bytes, mask.get()) == 0) {
      CpuList cpus;
      for (unsigned cpu = 0; cpu < capacity; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, mask.get())) cpus.push_back(cpu);
      }
      return cpus;
    }
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

// The ids of online CPUs: from sysfs, else the processors that cpuinfo lists.
CpuList read_online(const FileRoot& root, std::string_view cpuinfo) {
  const std::string text = root.text(std::filesystem::path(kCpuFolder) / "online").value_or("");
  if (const auto online = parse_cpu_list(text)) return *online;
  std::string processors;
  for (const std::string_view line : pieces(cpuinfo, '\n')) {
    if (const auto id = find_field(line, "processor")) processors.append(*id).append(",");
  }
  return parse_cpu_list(processors).value_or(CpuList{});
}

// Reads an id, which is -1 if the firmware does not report it.
std::optional<int> read_id(const FileRoot& root, const std::filesystem::path& path) {
  const std::string text = root.text(path).value_or("");
  if (base::trimmed(text) == "-1") return -1;
  const auto value = parse_number(text);
  if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

// The hardware threads of a core, from sysfs. The file has two names; the current one is tried
// first.
std::optional<CpuList> read_siblings(const FileRoot& root, unsigned id) {
  for (const std::string_view name : {"core_cpus_list", "thread_siblings_list"}) {
    const std::string text = root.text(cpu_folder(id) / "topology" / name).value_or("");
    auto siblings = parse_cpu_list(text);
    if (siblings && std::binary_search(siblings->begin(), siblings->end(), id)) return siblings;
  }
  return std::nullopt;
}

CpuList intersection(const CpuList& a, const CpuList& b) {
  CpuList both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// If the lists of siblings are missing, CPUs with the same ids of package and core are siblings. A
// CPU without these ids is a core of its own.
std::vector<Cpu> read_cpus(const FileRoot& root, const CpuList& online) {
  std::vector<Cpu> cpus;
  std::map<std::pair<int, int>, CpuList> cores;
  for (const unsigned id : online) {
    const std::filesystem::path topology = cpu_folder(id) / "topology";
    const std::optional<int> core = read_id(root, topology / "core_id");
    Cpu cpu{id,
            read_id(root, topology / "physical_package_id").value_or(-1),
            core.value_or(static_cast<int>(id)),
            {},
            std::min(root.number(cpu_folder(id) / "cpu_capacity").value_or(0), kCapacityMax)};
    if (const auto siblings = read_siblings(root, id)) {
      cpu.siblings = intersection(*siblings, online);
    } else if (!core) {
      cpu.siblings = {id};
    }
    cores[{cpu.package, cpu.core}].push_back(id);
    cpus.push_back(std::move(cpu));
  }
  for (Cpu& cpu : cpus) {
    if (cpu.siblings.empty()) cpu.siblings = cores[{cpu.package, cpu.core}];
  }
  return cpus;
}

// The CPUs of the nearest cpuset that names any. (A v1 set may be empty; in v2 an empty set
// inherits that of its parent.)
std::optional<CpuList> read_cpuset(const FileRoot& root) {
  const std::optional<Cgroup> group = find_cgroup(root, "cpuset");
  if (!group) return std::nullopt;
  for (const CgroupLevel& level : group->levels) {
    for (const std::string_view name :
         {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"}) {
      const std::string text = root.text(level.folder / name).value_or("");
      if (auto cpus = parse_cpu_list(text)) return cpus;
    }
  }
  return std::nullopt;
}

// The online CPUs that affinity and cpuset allow. A restriction that would leave no CPU is ignored:
// it must be out of date or wrong, as the process does run somewhere.
CpuList allowed(const CpuList& online, const std::optional<CpuList>& affinity,
                const std::optional<CpuList>& cpuset) {
  CpuList result = affinity && !affinity->empty() ? *affinity : online;
  if (result.empty()) result = cpuset.value_or(CpuList{});
  for (const CpuList& restriction : {cpuset.value_or(result), online}) {
    CpuList both = intersection(result, restriction);
    if (!both.empty()) result = std::move(both);
  }
  return result;
}

// ---- CPU kind ---------------------------------------------------------------------------------

struct ArmCore {
  std::string_view implementer, part;  // as cpuinfo writes them
  std::string_view name;
};

// Cores of the machines that models are run on; MIDR_EL1 in the manual of each has the numbers.
constexpr ArmCore kArmCores[] = {
    {"0x41", "0xd03", "Cortex-A53"},  {"0x41", "0xd08", "Cortex-A72"},
    {"0x41", "0xd0b", "Cortex-A76"},  {"0x41", "0xd41", "Cortex-A78"},
    {"0x41", "0xd0c", "Neoverse N1"}, {"0x41", "0xd40", "Neoverse V1"},
    {"0x41", "0xd49", "Neoverse N2"}, {"0x41", "0xd4f", "Neoverse V2"},
    {"0x41", "0xd84", "Neoverse V3"}, {"0x41", "0xd8e", "Neoverse N3"},
    {"0xc0", "0xac3", "AmpereOne"},   {"0xc0", "0xac4", "AmpereOne A"},
};

// The first core of a machine of Arm; empty on others.
std::string read_arm_core(std::string_view cpuinfo) {
  const auto implementer = find_field(cpuinfo, "CPU implementer");
  const auto part = find_field(cpuinfo, "CPU part");
  if (!implementer || !part) return {};
  for (const ArmCore& core : kArmCores) {
    if (core.implementer == *implementer && core.part == *part) return std::string(core.name);
  }
  return fmt::format("implementer {}, part {}", *implementer, *part);
}

// The processor; on Arm, where cpuinfo has a name for some boards alone, the board and its core.
std::string read_model_name(std::string_view cpuinfo) {
  std::string core = read_arm_core(cpuinfo);
  for (const std::string_view key : {"model name", "Model", "cpu model", "Hardware"}) {
    const auto name = find_field(cpuinfo, key);
    if (!name || name->empty()) continue;
    return core.empty() ? std::string(*name) : fmt::format("{} ({})", *name, core);
  }
  return core;
}

std::vector<std::string> read_flags(std::string_view cpuinfo) {
  constexpr std::array<std::string_view, 27> kRelevant = {
      "sse4_2",      "avx",         "avx2",        "fma",      "f16c",       "avx_vnni",
      "avx512f",     "avx512bw",    "avx512vl",    "avx512dq", "avx512vbmi", "avx512_vbmi2",
      "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8",   "amx_bf16",
      "hypervisor",  "asimd",       "asimdhp",     "asimddp",  "i8mm",       "bf16",
      "sve",         "sve2",        "svei8mm"};
  const std::string_view key = find_field(cpuinfo, "flags") ? "flags" : "Features";
  std::vector<std::string> flags;
  for (const std::string_view flag : pieces(find_field(cpuinfo, key).value_or(""), ' ')) {
    const bool relevant = std::find(kRelevant.begin(), kRelevant.end(), flag) != kRelevant.end();
    if (relevant) flags.emplace_back(flag);
  }
  return flags;
}

// "48K", "2048K", "1M"
std::optional<std::uint64_t> parse_cache_size(std::string_view text) {
  text = base::trimmed(text);
  unsigned shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('G')) shift = 30;
  if (shift > 0) text.remove_suffix(1);
  const auto number = parse_number(text);
  if (!number || *number == 0 || *number >= kUnlimitedBytes >> shift) return std::nullopt;
  return *number << shift;
}

CacheSizes read_caches(const FileRoot& root, unsigned cpu) {
  constexpr int kIndicesMax = 16;  // kernels list four or five
  CacheSizes caches;
  for (int index = 0; index < kIndicesMax; ++index) {
    const auto folder = cpu_folder(cpu) / "cache" / fmt::format("index{}", index);
    const auto level = root.number(folder / "level");
    const auto size = parse_cache_size(root.text(folder / "size").value_or(""));
    const std::string type = root.text(folder / "type").value_or("");
    if (!level || !size || base::trimmed(type) == "Instruction") continue;
    if (*level == 1) caches.l1d_bytes = size;
    if (*level == 2) caches.l2_bytes = size;
    if (*level == 3) caches.l3_bytes = size;
  }
  return caches;
}

// ---- Control groups ---------------------------------------------------------------------------

std::optional<double> quota_of(std::optional<std::uint64_t> quota_us,
                               std::optional<std::uint64_t> period_us) {
  if (!quota_us || !period_us || *quota_us == 0 || *period_us == 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

// v1: two files, where a quota of -1 means none. v2: cpu.max, "max 100000" or "150000 100000".
std::optional<double> read_level_quota(const FileRoot& root, const CgroupLevel& level,
                                       CgroupVersion version) {
  if (version == CgroupVersion::v1) {
    return quota_of(root.number(level.folder / "cpu.cfs_quota_us"),
                    root.number(level.folder / "cpu.cfs_period_us"));
  }
  const std::string text = root.text(level.folder / "cpu.max").value_or("");
  const auto fields = pieces(base::trimmed(text), ' ');
  if (fields.size() != 2) return std::nullopt;
  return quota_of(parse_number(fields[0]), parse_number(fields[1]));
}

std::optional<CpuQuota> read_quota(const FileRoot& root) {
  const std::optional<Cgroup> group = find_cgroup(root, "cpu");
  if (!group) return std::nullopt;
  const std::string_view file =
      group->version == CgroupVersion::v1 ? "cpu.cfs_quota_us" : "cpu.max";
  std::optional<CpuQuota> tightest;
  for (const CgroupLevel& level : group->levels) {
    const auto cpus = read_level_quota(root, level, group->version);
    if (!cpus || (tightest && tightest->cpus <= *cpus)) continue;
    tightest = CpuQuota{*cpus, fmt::format("cpu cgroup {} ({})", level.name, file)};
  }
  return tightest;
}

std::optional<std::uint64_t> limited(std::optional<std::uint64_t> bytes) {
  return bytes && *bytes < kUnlimitedBytes ? bytes : std::nullopt;
}

// Page cache is reclaimable, active or not; so are the kernel's own caches, which v1 does not
// report.
std::uint64_t reclaimable_bytes(std::string_view stat, bool is_v1) {
  const auto count = [&](std::string_view key) {
    return limited(find_count(stat, key)).value_or(0);
  };
  if (is_v1) return count("total_inactive_file") + count("total_active_file");
  return count("inactive_file") + count("active_file") + count("slab_reclaimable");
}

MemoryGroup read_memory_group(const FileRoot& root, const CgroupLevel& level, bool is_v1) {
  const std::string stat = root.text(level.folder / "memory.stat").value_or("");
  const auto bytes = [&](std::string_view file) {
    return limited(root.number(level.folder / file));
  };
  MemoryGroup group;
  group.name = level.name;
  group.is_v1 = is_v1;
  group.limit_bytes = bytes(is_v1 ? "memory.limit_in_bytes" : "memory.max");
  if (!is_v1) group.high_bytes = bytes("memory.high");
  group.usage_bytes = bytes(is_v1 ? "memory.usage_in_bytes" : "memory.current");
  group.reclaimable_bytes = reclaimable_bytes(stat, is_v1);
  if (is_v1)
    group.hierarchical_limit_bytes = limited(find_count(stat, "hierarchical_memory_limit"));
  return group;
}

std::vector<MemoryGroup> read_memory_groups(const FileRoot& root,
                                            const std::optional<Cgroup>& group) {
  std::vector<MemoryGroup> groups;
  if (!group) return groups;
  const bool is_v1 = group->version == CgroupVersion::v1;
  for (const CgroupLevel& level : group->levels) {
    // Before Linux 5.11 a v1 parent could decline to account for its children (memory.txt).
    const bool is_parent = !groups.empty();
    if (is_v1 && is_parent && root.number(level.folder / "memory.use_hierarchy") == 0U) break;
    groups.push_back(read_memory_group(root, level, is_v1));
  }
  return groups;
}

// "always [madvise] never"
std::optional<std::string> read_huge_pages(const FileRoot& root) {
  const std::string text = root.text("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']');
  if (begin == std::string::npos || end == std::string::npos || end <= begin + 1) {
    return std::nullopt;
  }
  return text.substr(begin + 1, end - begin - 1);
}

}  // namespace

namespace {

// A line of /proc/self/limits: "Max address space  SOFT  HARD  bytes", where SOFT may be
// "unlimited".
std::optional<std::uint64_t> find_limit(std::string_view limits, std::string_view name) {
  for (const std::string_view line : pieces(limits, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto fields = pieces(base::trimmed(line.substr(name.size())), ' ');
    return fields.empty() ? std::nullopt : limited(parse_number(fields.front()));
  }
  return std::nullopt;
}

// Of the second the kernel counts what is private and can be written to: all but the mapped files.
std::vector<AddressLimit> read_address_limits(const FileRoot& root) {
  const std::string limits = root.text("/proc/self/limits").value_or("");
  const std::string status = root.text("/proc/self/status").value_or("");
  std::vector<AddressLimit> found;
  const auto add = [&](const char* name, std::string_view limit, std::string_view size) {
    const auto bytes = find_limit(limits, limit);
    if (bytes) found.push_back({name, *bytes, find_kilobytes(status, size).value_or(0)});
  };
  add("address space (ulimit -v)", "Max address space", "VmSize");
  add("data segment (ulimit -d)", "Max data size", "VmData");
  return found;
}

// Addresses of stacks that a run will have beyond those of now, by the usual limit of stacks.
std::uint64_t stack_address_bytes(const Machine& machine) {
  constexpr std::uint64_t stack = std::uint64_t{8} << 20, helpers = 4;
  return (machine.allowed_cpus.size() + helpers) * stack;
}

}  // namespace

Machine read_memory_limits(const FileRoot& root, const std::optional<Cgroup>& group) {
  const std::string meminfo = root.text("/proc/meminfo").value_or("");
  Machine machine;
  machine.memory_groups = read_memory_groups(root, group);
  machine.memory_total_bytes = find_kilobytes(meminfo, "MemTotal");
  machine.memory_available_bytes = find_kilobytes(meminfo, "MemAvailable");
  machine.own_bytes = read_process_memory(root).unreclaimable_bytes();
  return machine;
}

Machine read_machine(const FileRoot& root, std::optional<CpuList> affinity) {
  const std::string cpuinfo = root.text("/proc/cpuinfo").value_or("");
  const CpuList online = read_online(root, cpuinfo);
  if (affinity) {
    std::sort(affinity->begin(), affinity->end());
    affinity->erase(std::unique(affinity->begin(), affinity->end()), affinity->end());
  } else {
    affinity = read_affinity();
  }

  Machine machine = read_memory_limits(root, find_cgroup(root, "memory"));
  machine.allowed_cpus = allowed(online, affinity, read_cpuset(root));
  machine.cpus = read_cpus(root, online.empty() ? machine.allowed_cpus : online);
  machine.model_name = read_model_name(cpuinfo);
  machine.flags = read_flags(cpuinfo);
  if (!machine.cpus.empty()) machine.caches = read_caches(root, machine.cpus.front().id);
  machine.quota = read_quota(root);
  machine.address_limits = read_address_limits(root);
  machine.huge_pages = read_huge_pages(root);
  machine.page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return machine;
}

std::vector<MemoryBound> memory_bounds(const Machine& machine) {
  std::vector<MemoryBound> bounds;
  std::uint64_t others_max = 0;  // in any group that is seen
  for (const MemoryGroup& group : machine.memory_groups) {
    const std::uint64_t mine = group.reclaimable_bytes + machine.own_bytes;
    // Only the root group of version 2 reports no usage, and it has no limit.
    const std::uint64_t usage = group.usage_bytes.value_or(0);
    const std::uint64_t others = usage > mine ? usage - mine : 0;
    others_max = std::max(others_max, others);
    const auto add = [&](std::optional<std::uint64_t> limit, std::string_view file) {
      if (!limit) return;
      bounds.push_back({fmt::format("memory cgroup {} ({})", group.name, file), *limit,
                        std::min(others, *limit)});
    };
    add(group.limit_bytes, group.is_v1 ? "memory.limit_in_bytes" : "memory.max");
    add(group.high_bytes, "memory.high");
  }
  // A hierarchical limit of v1 that is tighter than every visible one belongs to a group outside
  // the container, and the groups that are seen are parts of it.
  if (!machine.memory_groups.empty()) {
    const MemoryGroup& own = machine.memory_groups.front();
    const auto& limit = own.hierarchical_limit_bytes;
    const bool known = std::any_of(bounds.begin(), bounds.end(), [&](const MemoryBound& bound) {
      return limit && bound.limit_bytes <= *limit;
    });
    if (limit && !known) {
      bounds.push_back({"a memory cgroup outside this container (hierarchical_memory_limit)",
                        *limit, std::min(others_max, *limit)});
    }
  }
  for (const AddressLimit& limit : machine.address_limits) {
    const std::uint64_t empty = limit.bytes - std::min(limit.bytes, machine.own_bytes);
    bounds.push_back({limit.name, limit.limit_bytes,
                      std::min(limit.limit_bytes, empty + stack_address_bytes(machine))});
  }
  if (machine.memory_available_bytes) {
    bounds.push_back({"available memory (MemAvailable)",
                      *machine.memory_available_bytes + machine.own_bytes, 0});
  } else if (machine.memory_total_bytes) {
    bounds.push_back({"physical memory (MemTotal)", *machine.memory_total_bytes, 0});
  }
  std::stable_sort(bounds.begin(), bounds.end(), [](const MemoryBound& a, const MemoryBound& b) {
    return a.usable_bytes() < b.usable_bytes();
  });
  return bounds;
}

std::optional<MemoryBound> usable_memory(const Machine& machine) {
  std::vector<MemoryBound> bounds = memory_bounds(machine);
  if (bounds.empty()) return std::nullopt;
  return std::move(bounds.front());
}

}  // namespace sluice::topology
