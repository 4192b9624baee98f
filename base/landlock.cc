#include "base/landlock.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptor.h"

// Of newer kernels than Debian 12 has headers of.
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif
#ifndef LANDLOCK_ACCESS_NET_BIND_TCP
#define LANDLOCK_ACCESS_NET_BIND_TCP (1ULL << 0)
#define LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1)
#endif
#ifndef LANDLOCK_SCOPE_SIGNAL
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define LANDLOCK_SCOPE_SIGNAL (1ULL << 1)
#endif

namespace sluice::base {
namespace {

// landlock_ruleset_attr of version 6. An older kernel takes it too, if what it does not know is 0.
struct Ruleset {
  std::uint64_t files = 0;
  std::uint64_t network = 0;
  std::uint64_t scoped = 0;
};

constexpr std::uint64_t read_file = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr std::uint64_t read_folder = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t write_file =
    read_file | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE;
constexpr std::uint64_t write_folder =
    read_folder | write_file | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REFER;

constexpr std::uint64_t remove_in_folder =
    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR;

// All that is governed, so that what no rule allows is refused.
Ruleset governed(int version, bool downloads) {
  Ruleset rules;
  rules.files = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1U) - 1;
  if (version >= 2) rules.files |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rules.files |= LANDLOCK_ACCESS_FS_TRUNCATE;
  if (version >= 4) {
    rules.network = LANDLOCK_ACCESS_NET_BIND_TCP;
    if (!downloads) rules.network |= LANDLOCK_ACCESS_NET_CONNECT_TCP;
  }
  if (version >= 5) rules.files |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
  if (version >= 6) rules.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
  return rules;
}

// Allows what a path is given for: `of_folder` if it is a folder, or else `of_file`. Pipes and
// sockets are beyond rules, and their descriptors refused for one (EBADFD).
int allow(int rules, const std::filesystem::path& path, std::uint64_t of_folder,
          std::uint64_t of_file) {
  const Descriptor at(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat facts {};
  if (!at.is_open() || ::fstat(at.number(), &facts) != 0) {
    const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return is_short ? errno : 0;
  }
  landlock_path_beneath_attr rule{};
  rule.allowed_access = S_ISDIR(facts.st_mode) ? of_folder : of_file;
  rule.parent_fd = at.number();
  if (rule.allowed_access == 0) return 0;
  const long result =
      ::syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U);
  return result == 0 || errno == EBADFD ? 0 : errno;
}

}  // namespace

int landlock_version() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, std::size_t{0},
                                 LANDLOCK_CREATE_RULESET_VERSION);
  return version > 0 ? static_cast<int>(version) : 0;
}

int restrict_files(const FileRights& rights, int version, bool downloads) {
  const Ruleset all = governed(version, downloads);
  const std::uint64_t links = downloads ? LANDLOCK_ACCESS_FS_MAKE_SYM : 0;
  const Descriptor rules(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0U)));
  if (!rules.is_open()) return errno;
  for (const auto& path : rights.read) {
    if (const int error = allow(rules.number(), path, read_folder, read_file)) return error;
  }
  for (const auto& path : rights.write) {
    const int error =
        allow(rules.number(), path, (write_folder | links) & all.files, write_file & all.files);
    if (error != 0) return error;
  }
  for (const auto& path : rights.remove) {
    const int error = allow(rules.number(), path, remove_in_folder, 0);
    if (error != 0) return error;
  }
  return ::syscall(SYS_landlock_restrict_self, rules.number(), 0U) == 0 ? 0 : errno;
}

}  // namespace sluice::base
