#include "core/cli/health.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <system_error>
#include <unistd.h>

#include "core/cli/output.h"
#include "core/files/durable_file.h"
#include "topology/file_root.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

// The numbers of statfs(2) for file systems that read otherwise than a disk does.
struct FileSystem {
  std::uint32_t magic;
  const char* name;
  const char* trouble;
};
constexpr std::array file_systems = {
    FileSystem{0x01021994, "tmpfs", "its files take up memory themselves"},
    FileSystem{0x858458f6, "ramfs", "its files take up memory themselves"},
    FileSystem{0x6969, "NFS", "reads go over the network"},
    FileSystem{0xff534d42, "CIFS", "reads go over the network"},
    FileSystem{0xfe534d42, "SMB", "reads go over the network"},
    FileSystem{0x01021997, "9p", "reads go through another system"},
    FileSystem{0x65735546, "FUSE", "reads go through another program"},
};

const FileSystem* unusual_file_system(const std::filesystem::path& folder) {
  struct statfs facts {};
  if (::statfs(folder.c_str(), &facts) != 0) return nullptr;
  const auto magic = static_cast<std::uint32_t>(facts.f_type);
  const auto* const found = std::ranges::find(file_systems, magic, &FileSystem::magic);
  return found == file_systems.end() ? nullptr : found;
}

// Whether the disk has to move a head to another place. A partition has its disk as its parent. The
// disks of virtual machines say so whatever lies behind them, so they are not asked.
bool is_rotational(const topology::FileRoot& root, const std::filesystem::path& folder) {
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0) return false;
  const std::filesystem::path block =
      fmt::format("/sys/dev/block/{}:{}", major(facts.st_dev), minor(facts.st_dev));
  const std::string uevent = root.text(block / "uevent").value_or("");
  if (uevent.find("DEVNAME=vd") != std::string::npos) return false;
  if (uevent.find("DEVNAME=xvd") != std::string::npos) return false;
  std::optional<std::uint64_t> value = root.number(block / "queue/rotational");
  if (!value) value = root.number(block / "../queue/rotational");
  return value.value_or(0) != 0;
}

}  // namespace

std::string_view health_name(Health health) {
  constexpr std::array<std::string_view, 3> names = {"good", "slow", "broken"};
  return names.at(static_cast<std::size_t>(health));
}

HealthCheck check_processor(kernels::Isa isa) {
  const bool is_fast = isa != kernels::Isa::scalar;
  return {"processor", is_fast ? Health::good : Health::slow,
          is_fast ? fmt::format("kernels for {}", kernels::isa_name(isa))
                  : "no kernels for its instruction sets: arithmetic is many times slower",
          is_fast ? "" : "use a machine with AVX2 or better, or unset SLUICE_ISA"};
}

HealthCheck check_threads(const topology::Machine& machine, const topology::ThreadChoice& threads) {
  HealthCheck check{"threads", Health::good, threads.reason};
  if (machine.quota && machine.quota->cpus < 1) {
    check.health = Health::slow;
    check.found =
        fmt::format("a quota of {:.2f} CPUs ({})", machine.quota->cpus, machine.quota->source);
    check.remedy = "give the container at least one CPU: what exceeds a quota stops for a while";
  } else if (threads.siblings_only) {
    check.found += "; both hardware threads are of one core";
  }
  return check;
}

HealthCheck check_memory(const topology::Machine& machine) {
  const std::optional<topology::MemoryBound> bound = topology::usable_memory(machine);
  if (!bound) return {"memory", Health::good, "the kernel does not say how much there is"};
  HealthCheck check{"memory", Health::good,
                    fmt::format("{} usable of {} ({})", format_bytes(bound->usable_bytes()),
                                format_bytes(bound->limit_bytes), bound->source)};
  if (bound->usable_bytes() < gib / 2) {
    check.health = Health::slow;
    check.remedy = "end other programs, or raise the limit: little of a model stays in memory";
  }
  return check;
}

HealthCheck check_huge_pages(const topology::Machine& machine) {
  const std::string mode = machine.huge_pages.value_or("unknown");
  if (mode != "never") return {"huge pages", Health::good, mode};
  return {"huge pages", Health::slow, "never",
          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"};
}

HealthCheck check_swap(const topology::FileRoot& root) {
  const std::string text = root.text("/proc/swaps").value_or("");
  const std::size_t areas = topology::pieces(text, '\n').size();
  if (areas <= 1) return {"swap", Health::good, "none"};  // the first line has the titles
  return {"swap", Health::good,
          fmt::format("{} area{}; a plan does not count it, so weights are not swapped out unless "
                      "other programs take memory that was free",
                      areas - 1, areas == 2 ? "" : "s")};
}

HealthCheck check_disk(const topology::FileRoot& root, const std::filesystem::path& folder) {
  const std::string place = fmt::format("models in {}", folder.string());
  if (const FileSystem* const system = unusual_file_system(folder)) {
    return {"disk", Health::slow,
            fmt::format("{}, on {}: {}", place, system->name, system->trouble),
            "keep models that do not fit into memory on a local disk"};
  }
  if (is_rotational(root, folder)) {
    return {"disk", Health::slow, fmt::format("{}, on a disk that rotates", place),
            "keep models that do not fit into memory on an SSD; mixtures of experts above all"};
  }
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return {"disk", Health::good, place};
  HealthCheck check{"disk", Health::good,
                    fmt::format("{}, {} free", place, format_bytes(space.available))};
  if (space.available < gib) {
    check.health = Health::slow;
    check.remedy = "make room: a model of 8B takes about 5 GiB";
  }
  return check;
}

HealthCheck check_reading(const ReadingFacts& facts) {
  if (facts.notes.empty()) return {"reading", Health::good, facts.reader};
  return {"reading", Health::slow,
          fmt::format("{}; {}", facts.reader, fmt::join(facts.notes, "; ")),
          "allow io_uring (sysctl kernel.io_uring_disabled=0, the seccomp profile of the "
          "container), and keep models on a file system with direct I/O (ext4, XFS, Btrfs)"};
}

HealthCheck check_open_files(std::uint64_t most) {
  constexpr std::uint64_t wanted = 1024;
  HealthCheck check{"open files", Health::good, fmt::format("up to {}", most)};
  if (most < wanted) {
    check.health = Health::slow;
    check.remedy = fmt::format("ulimit -n {}, for a server with many clients", wanted);
  }
  return check;
}

HealthCheck check_sandbox(const base::Confinement& possible) {
  if (!possible.is_whole()) {
    return {"sandbox", Health::good, fmt::format("not whole: {}", possible.lacking)};
  }
  return {"sandbox", Health::good,
          fmt::format("files (Landlock {}) and system calls (seccomp)", possible.landlock_version)};
}

HealthCheck check_state_folder(const std::filesystem::path& folder) {
  HealthCheck check{"state folder", Health::broken, "", "set XDG_STATE_HOME to a folder of yours"};
  if (folder.empty()) {
    check.found = "there is no home folder: conversations and measurements are not kept";
    return check;
  }
  const auto is_usable = [&] {
    try {
      files::make_private_folder(folder);
      return ::access(folder.c_str(), W_OK | X_OK) == 0;
    } catch (const std::system_error&) {
      return false;
    }
  };
  if (!is_usable()) {
    check.found = fmt::format(
        "nothing can be written to {}: conversations and measurements are "
        "not kept",
        folder.string());
    return check;
  }
  return {"state folder", Health::good, folder.string()};
}

}  // namespace sluice::cli
