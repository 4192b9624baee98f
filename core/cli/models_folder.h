// Where models lie, and which of them says how fast the disk there is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/fetch/listing.h"

namespace sluice::cli {

// The folder that a download would be written to, or the next above it that is there; or the folder
// `asked`. Throws UsageError if that is none.
std::filesystem::path models_folder(const std::string& asked = "");

// Whether the file is below the folder, as their names say; a folder is in itself.
bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder);

// The largest of them that lies in the folder; the largest of all if none does; null if there are
// none.
const fetch::ListedModel* model_to_read(const std::vector<fetch::ListedModel>& models,
                                        const std::filesystem::path& folder);

// Whether the model is large enough to measure its disk with.
bool tells_of_disk(const fetch::ListedModel* model);

// The file of the model if it does; else the folder, whose disk it is.
std::filesystem::path file_of_disk(const fetch::ListedModel* model,
                                   const std::filesystem::path& folder);

}  // namespace sluice::cli
