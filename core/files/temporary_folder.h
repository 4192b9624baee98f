// Where temporary files go.
#pragma once

#include <filesystem>

namespace sluice::files {

// $TMPDIR, or /tmp where that is not set. Throws std::system_error when there is no such folder.
std::filesystem::path temporary_folder();

}  // namespace sluice::files
