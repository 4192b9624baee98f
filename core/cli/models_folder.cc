#include "core/cli/models_folder.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/fetch/places.h"

namespace sluice::cli {

std::filesystem::path models_folder(const std::string& asked) {
  std::filesystem::path folder = asked.empty() ? fetch::hub_cache() : std::filesystem::path(asked);
  std::error_code error;
  if (!asked.empty() && !std::filesystem::is_directory(folder, error)) {
    throw UsageError(fmt::format("{}: no such folder", asked));
  }
  while (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  return folder.empty() ? "." : folder;
}

bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const std::filesystem::path below = file.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

const fetch::ListedModel* model_to_read(const std::vector<fetch::ListedModel>& models,
                                        const std::filesystem::path& folder) {
  const auto rank = [&](const fetch::ListedModel& model) {
    return std::pair(lies_in(model.path, folder), model.bytes);
  };
  const auto found = std::ranges::max_element(models, {}, rank);
  return found == models.end() ? nullptr : &*found;
}

bool tells_of_disk(const fetch::ListedModel* model) {
  constexpr std::uint64_t much = std::uint64_t{256} << 20;
  return model != nullptr && model->bytes >= much;
}

std::filesystem::path file_of_disk(const fetch::ListedModel* model,
                                   const std::filesystem::path& folder) {
  return tells_of_disk(model) ? model->path : folder;
}

}  // namespace sluice::cli
