#include "topology/process_memory.h"

#include <cmath>

#include "base/number.h"
#include "base/trim.h"

namespace sluice::topology {
namespace {

// /proc/self/stat: "pid (name) state ppid ...". The name may hold blanks and parentheses, so
// fields are counted from the last parenthesis; state is field 3 of proc(5).
void read_faults(const FileRoot& root, ProcessMemory& memory) {
  constexpr std::size_t kMinorField = 10 - 3;
  constexpr std::size_t kMajorField = 12 - 3;
  const std::string text = root.text("/proc/self/stat").value_or("");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  const auto fields = pieces(std::string_view(text).substr(name_end + 1), ' ');
  if (fields.size() <= kMajorField) return;
  memory.minor_faults = parse_number(fields[kMinorField]);
  memory.major_faults = parse_number(fields[kMajorField]);
}

// The value of the first of these names that a memory.stat has: kernels renamed the counters.
std::optional<std::uint64_t> first_count(std::string_view text,
                                         std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto count = find_count(text, name)) return count;
  }
  return std::nullopt;
}

// "some avg10=0.12 avg60=0.00 avg300=0.00 total=1234"
std::optional<PressureLine> parse_pressure(std::string_view text, std::string_view kind) {
  for (const std::string_view line : pieces(text, '\n')) {
    const auto fields = pieces(line, ' ');
    if (fields.size() < 2 || fields.front() != kind) continue;
    std::optional<double> average;
    std::optional<std::uint64_t> total;
    for (const std::string_view field : fields) {
      const std::size_t equals = field.find('=');
      if (equals == std::string_view::npos) continue;
      const std::string_view value = base::trimmed(field.substr(equals + 1));
      const std::string_view key = field.substr(0, equals);
      if (key == "total") total = parse_number(value);
      if (key != "avg10") continue;
      const auto parsed = base::whole_number<double>(value);
      if (parsed && std::isfinite(*parsed)) average = parsed;
    }
    if (average && total) return PressureLine{*average, *total};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> ProcessMemory::resident_bytes() const {
  if (!rss_anon_bytes || !rss_file_bytes) return std::nullopt;
  return *rss_anon_bytes + *rss_file_bytes;
}

std::optional<std::uint64_t> ProcessMemory::peak_bytes() const {
  if (!rss_peak_bytes) return std::nullopt;
  return *rss_peak_bytes + page_table_bytes.value_or(0);
}

std::uint64_t ProcessMemory::unreclaimable_bytes() const {
  return rss_anon_bytes.value_or(0) + rss_shmem_bytes.value_or(0) + page_table_bytes.value_or(0);
}

std::optional<std::uint64_t> CgroupMemory::refaults() const {
  if (!refaults_file && !refaults_anon) return std::nullopt;
  return refaults_file.value_or(0) + refaults_anon.value_or(0);
}

std::optional<std::uint64_t> growth(std::optional<std::uint64_t> before,
                                    std::optional<std::uint64_t> now) {
  if (!before || !now || *now < *before) return std::nullopt;
  return *now - *before;
}

ProcessMemory read_process_memory(const FileRoot& root) {
  const std::string status = root.text("/proc/self/status").value_or("");
  ProcessMemory memory;
  memory.rss_anon_bytes = find_kilobytes(status, "RssAnon");
  memory.rss_file_bytes = find_kilobytes(status, "RssFile");
  memory.rss_shmem_bytes = find_kilobytes(status, "RssShmem");
  memory.rss_peak_bytes = find_kilobytes(status, "VmHWM");
  memory.page_table_bytes = find_kilobytes(status, "VmPTE");
  memory.swapped_bytes = find_kilobytes(status, "VmSwap");
  read_faults(root, memory);
  return memory;
}

CgroupMemory read_cgroup_memory(const std::optional<Cgroup>& group, const FileRoot& root) {
  CgroupMemory memory;
  if (!group) return memory;
  const CgroupLevel& own = group->levels.front();
  const bool is_v1 = group->version == CgroupVersion::v1;
  memory.name = own.name;
  memory.usage_bytes =
      root.number(own.folder / (is_v1 ? "memory.usage_in_bytes" : "memory.current"));
  memory.peak_bytes =
      root.number(own.folder / (is_v1 ? "memory.max_usage_in_bytes" : "memory.peak"));
  const std::string stat = root.text(own.folder / "memory.stat").value_or("");
  // v1 counts the group alone and, under "total_", with its descendants; v2 has only the latter.
  // Kernels before 5.9 have one counter, for pages of files.
  memory.refaults_file =
      first_count(stat, {"total_workingset_refault_file", "workingset_refault_file",
                         "total_workingset_refault", "workingset_refault"});
  memory.refaults_anon =
      first_count(stat, {"total_workingset_refault_anon", "workingset_refault_anon"});
  return memory;
}

std::optional<std::uint64_t> read_recent_refaults(const std::optional<Cgroup>& unified,
                                                  const FileRoot& root) {
  // Kernels before 5.9 have one counter, for pages of files.
  const auto of = [](std::string_view stat) -> std::optional<std::uint64_t> {
    const auto files = first_count(stat, {"workingset_activate_file", "workingset_activate"});
    if (!files) return std::nullopt;
    return *files + find_count(stat, "workingset_activate_anon").value_or(0);
  };
  if (unified) {
    const auto own = of(root.text(unified->levels.front().folder / "memory.stat").value_or(""));
    if (own) return own;
  }
  return of(root.text("/proc/vmstat").value_or(""));
}

MemoryPressure read_memory_pressure(const std::optional<Cgroup>& unified, const FileRoot& root) {
  const auto read = [&](const std::filesystem::path& source, bool is_of_machine) {
    const std::string text = root.text(source).value_or("");
    return MemoryPressure{source.string(), is_of_machine, parse_pressure(text, "some"),
                          parse_pressure(text, "full")};
  };
  if (unified) {
    MemoryPressure own = read(unified->levels.front().folder / "memory.pressure", false);
    if (own.some || own.full) return own;
  }
  MemoryPressure all = read("/proc/pressure/memory", true);
  return all.some || all.full ? all : MemoryPressure{};
}

}  // namespace sluice::topology
