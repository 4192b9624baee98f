#include "core/files/temporary_folder.h"

#include <system_error>

namespace sluice::files {

std::filesystem::path temporary_folder() {
  std::error_code absent;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(absent);
  if (!absent) return folder;
  throw std::system_error(absent, "TMPDIR names no folder; let it name one, or unset it");
}

}  // namespace sluice::files
