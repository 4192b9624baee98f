#include "core/files/small_file.h"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace sluice::files {

std::string read_small_file(const std::filesystem::path& path, std::size_t bytes_max) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > bytes_max) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace sluice::files
