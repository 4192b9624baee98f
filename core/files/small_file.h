// Reading a file of the program's own as one text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace sluice::files {

// The whole file. Empty when there is none, when it cannot be read, when it is no regular file (a
// pipe would block), or when it has more than bytes_max bytes: none of these is what was written.
std::string read_small_file(const std::filesystem::path& path, std::size_t bytes_max);

// The same of a file that must not be taken for absent: throws std::system_error when it is there
// and cannot be read.
std::string read_kept_file(const std::filesystem::path& path, std::size_t bytes_max);

}  // namespace sluice::files
