#include "topology/file_root.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>

#include "base/descriptor.h"
#include "base/number.h"
#include "base/trim.h"

namespace sluice::topology {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{16} << 20;
constexpr std::uint64_t kCpusMax = 65536;
// An exbibyte. A larger figure must be an error in the file, and sums of such might overflow.
constexpr std::uint64_t kKilobytesMax = std::uint64_t{1} << 50;

// Uses read(2) rather than a stream, which could not tell an empty file from a folder or from a
// file whose read fails (some of the kernel's do).
std::optional<std::string> read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> part;
  while (text.size() <= kFileBytesMax) {
    const ssize_t bytes = ::read(descriptor, part.data(), part.size());
    if (bytes == 0) return text;
    if (bytes > 0) {
      text.append(part.data(), static_cast<std::size_t>(bytes));
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::filesystem::path FileRoot::below(const std::filesystem::path& path) const {
  return folder_ / path.relative_path();
}

std::optional<std::string> FileRoot::text(const std::filesystem::path& path) const {
  const base::Descriptor file(::open(below(path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return std::nullopt;
  return read_all(file.number());
}

std::optional<std::uint64_t> FileRoot::number(const std::filesystem::path& path) const {
  const std::optional<std::string> content = text(path);
  if (!content) return std::nullopt;
  return parse_number(*content);
}

bool FileRoot::has_folder(const std::filesystem::path& path) const {
  std::error_code error;
  return std::filesystem::is_directory(below(path), error);
}

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find(separator), text.size());
    if (length > 0) result.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return result;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  return base::whole_number<std::uint64_t>(base::trimmed(text));
}

std::optional<CpuList> parse_cpu_list(std::string_view text) {
  CpuList cpus;
  for (const std::string_view piece : pieces(base::trimmed(text), ',')) {
    const std::size_t dash = piece.find('-');
    const auto first = parse_number(piece.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(piece.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kCpusMax) return std::nullopt;
    for (std::uint64_t cpu = *first; cpu <= *last; ++cpu) {
      cpus.push_back(static_cast<unsigned>(cpu));
    }
  }
  if (cpus.empty()) return std::nullopt;
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string format_cpu_list(const CpuList& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::optional<std::string_view> find_field(std::string_view text, std::string_view key) {
  for (const std::string_view line : pieces(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || base::trimmed(line.substr(0, colon)) != key) continue;
    return base::trimmed(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> find_kilobytes(std::string_view text, std::string_view key) {
  constexpr std::string_view kUnit = "kB";
  const std::optional<std::string_view> field = find_field(text, key);
  if (!field || !field->ends_with(kUnit)) return std::nullopt;
  const auto kilobytes = parse_number(field->substr(0, field->size() - kUnit.size()));
  if (!kilobytes || *kilobytes > kKilobytesMax) return std::nullopt;
  return *kilobytes * 1024;
}

std::optional<std::uint64_t> find_count(std::string_view text, std::string_view key) {
  for (const std::string_view line : pieces(text, '\n')) {
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
      return parse_number(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace sluice::topology
