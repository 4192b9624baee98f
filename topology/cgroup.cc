#include "topology/cgroup.h"

#include <algorithm>
#include <utility>

namespace sluice::topology {
namespace {

constexpr std::string_view kUp = "..";

using Parts = std::vector<std::string_view>;

struct Mount {
  std::string root;         // the group that is mounted, as the namespace of this process sees it
  std::string point;        // the folder where it is mounted
  std::string controllers;  // of v1: the mount's options, "rw,cpu,cpuacct"; empty for v2
};

// In mountinfo a blank or backslash of a path is written as a backslash and three octal digits.
std::string unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) &&
        octal(text[i + 3])) {
      const int code = (text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0');
      result += static_cast<char>(code);
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool lists(std::string_view comma_list, std::string_view name) {
  const Parts names = pieces(comma_list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The mounts of cgroup file systems of one version, in the order of mountinfo.
std::vector<Mount> read_mounts(const FileRoot& root, CgroupVersion version) {
  const std::string_view wanted = version == CgroupVersion::v1 ? "cgroup" : "cgroup2";
  const std::string text = root.text("/proc/self/mountinfo").value_or("");
  std::vector<Mount> mounts;
  for (const std::string_view line : pieces(text, '\n')) {
    // id parent device root point options [tags] - type source super-options
    const Parts fields = pieces(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4 || dash[1] != wanted) continue;
    Mount mount{unescaped(fields[3]), unescaped(fields[4]), {}};
    if (version == CgroupVersion::v1) mount.controllers = dash[3];
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

// The path of this process's group in the hierarchy of a v1 controller, or in v2 if `controller` is
// empty. Lines are "id:controllers:path", and the path may contain colons.
std::optional<std::string> read_group_path(const FileRoot& root, std::string_view controller) {
  const std::string text = root.text("/proc/self/cgroup").value_or("");
  for (const std::string_view line : pieces(text, '\n')) {
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    const bool found = controller.empty() ? controllers.empty() && line.substr(0, first) == "0"
                                          : lists(controllers, controller);
    if (found) return std::string(path);
  }
  return std::nullopt;
}

std::ptrdiff_t leading_ups(const Parts& parts) {
  const auto end = std::find_if(parts.begin(), parts.end(), [](auto part) { return part != kUp; });
  return end - parts.begin();
}

std::string joined(Parts::const_iterator begin, Parts::const_iterator end) {
  std::string path;
  for (; begin != end; ++begin) path.append("/").append(*begin);
  return path.empty() ? "/" : path;
}

// The visible groups from `path` up to the root of the mount. `path` and mount.root are relative to
// the process's cgroup namespace, so the root of a mount made outside it begins with "..".
std::vector<CgroupLevel> resolve(const FileRoot& files, const Mount& mount, std::string_view path) {
  const Parts top = pieces(mount.root, '/');
  const Parts own = pieces(path, '/');
  std::vector<CgroupLevel> levels;
  const auto [top_end, own_begin] = std::mismatch(top.begin(), top.end(), own.begin(), own.end());
  if (top_end == top.end()) {
    // A group outside the namespace ("..") is not below a mount of the namespace's root.
    if (std::find(own_begin, own.end(), kUp) != own.end()) return levels;
    for (auto end = own.end();; --end) {
      std::filesystem::path folder = mount.point;
      for (auto part = own_begin; part != end; ++part) folder /= *part;
      if (files.has_folder(folder)) levels.push_back({joined(own.begin(), end), folder});
      if (end == own_begin) return levels;
    }
  }
  // The mount is either an ancestor at an unknown distance ("/../..") or the process's own group
  // under its name outside the container. In both cases the root of the mount is a level.
  const std::ptrdiff_t top_ups = leading_ups(top);
  const bool is_ancestor = top_ups > leading_ups(own) && top_ups == std::ssize(top);
  if ((is_ancestor || top_ups == leading_ups(own)) && files.has_folder(mount.point)) {
    levels.push_back({joined(top.begin(), top.end()), mount.point});
  }
  return levels;
}

// One hierarchy may be mounted in several places; this takes the one that shows the most levels.
std::optional<Cgroup> locate(const FileRoot& root, CgroupVersion version,
                             std::string_view controller, std::string_view path) {
  Cgroup best{version, {}};
  for (const Mount& mount : read_mounts(root, version)) {
    if (version == CgroupVersion::v1 && !lists(mount.controllers, controller)) continue;
    std::vector<CgroupLevel> levels = resolve(root, mount, path);
    if (levels.size() > best.levels.size()) best.levels = std::move(levels);
  }
  if (best.levels.empty()) return std::nullopt;
  return best;
}

}  // namespace

std::optional<Cgroup> find_cgroup(const FileRoot& root, std::string_view controller) {
  if (const auto path = read_group_path(root, controller)) {
    return locate(root, CgroupVersion::v1, controller, *path);
  }
  return find_unified_cgroup(root);
}

std::optional<Cgroup> find_unified_cgroup(const FileRoot& root) {
  const auto path = read_group_path(root, "");
  if (!path) return std::nullopt;
  return locate(root, CgroupVersion::v2, "", *path);
}

}  // namespace sluice::topology
