#include "core/files/small_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <system_error>

namespace sluice::files {

std::string read_kept_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const auto fail = [&](const std::error_code& error) {
    throw std::system_error(error, fmt::format("cannot read {}", path.string()));
  };
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::none) fail(error);
  if (type != std::filesystem::file_type::regular) return {};
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) fail(error);
  if (bytes > bytes_max) return {};
  std::ifstream file(path, std::ios::binary);
  if (!file) fail({errno, std::generic_category()});
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail({EIO, std::generic_category()});
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string read_small_file(const std::filesystem::path& path, std::size_t bytes_max) {
  try {
    return read_kept_file(path, bytes_max);
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace sluice::files
