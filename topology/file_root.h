// The small text files in which the kernel states facts (procfs, sysfs, cgroupfs), read below a
// root folder, and the few formats that they share.
//
// Kernels differ in which files they offer, containers hide some, and emulators invent others. So
// a file that is absent, unreadable or not in the expected format is never an error: the functions
// here return an optional, which is then empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::topology {

// CPU ids, ascending and without repetition.
using CpuList = std::vector<unsigned>;

// The folder below which /proc and /sys are looked up: "/" on a live machine, a recorded tree in
// tests. Paths given to its functions are as the machine itself names them ("/proc/meminfo").
class FileRoot {
 public:
  FileRoot() : folder_("/") {}
  explicit FileRoot(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The whole content of a file; nothing if it cannot be read or is longer than 16 MiB.
  std::optional<std::string> text(const std::filesystem::path& path) const;

  // The content of a file that holds one unsigned decimal number.
  std::optional<std::uint64_t> number(const std::filesystem::path& path) const;

  bool has_folder(const std::filesystem::path& path) const;

 private:
  std::filesystem::path below(const std::filesystem::path& path) const;

  std::filesystem::path folder_;
};

// The pieces between separators. Empty pieces are left out.
std::vector<std::string_view> pieces(std::string_view text, char separator);

// The unsigned decimal number that is the whole text; blanks around it are ignored.
std::optional<std::uint64_t> parse_number(std::string_view text);

// Parses the kernel's list format, "0-3,8". Nothing if the text is malformed, empty, or names a CPU
// beyond the 65536 that kernels support at most.
std::optional<CpuList> parse_cpu_list(std::string_view text);

// The reverse of parse_cpu_list, for messages.
std::string format_cpu_list(const CpuList& cpus);

// The text after "key:" in a file of such lines, like /proc/cpuinfo; of the first such line.
std::optional<std::string_view> find_field(std::string_view text, std::string_view key);

// The value, in bytes, of a line "key:  123 kB", as in /proc/meminfo and /proc/self/status. Nothing
// above an exbibyte.
std::optional<std::uint64_t> find_kilobytes(std::string_view text, std::string_view key);

// The number of a line "key 123", as in memory.stat.
std::optional<std::uint64_t> find_count(std::string_view text, std::string_view key);

}  // namespace sluice::topology
