#include "core/fetch/listing.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/fetch/begun.h"
#include "core/fetch/hub.h"
#include "core/fetch/hub_cache.h"
#include "core/fetch/ollama.h"
#include "core/fetch/places.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"
#include "core/gguf/quant_name.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

// Empty for what is no model.
std::string quant_in_header(const fs::path& path) {
  try {
    return gguf::quant_name(gguf::Model::open(path, {.header_only = true}));
  } catch (const std::exception&) {
    return "";
  }
}

std::vector<fs::path> shard_paths(const fs::path& path) {
  std::vector<fs::path> out;
  for (const std::string& name : shards_of(path.filename().string())) {
    out.push_back(path.parent_path() / name);
  }
  return out;
}

// Folders that may not be read, and those that are not there, have none.
fs::recursive_directory_iterator files_below(const fs::path& folder) {
  std::error_code ignored;
  return {folder, fs::directory_options::skip_permission_denied, ignored};
}

class Listing {
 public:
  void add(std::string name, const fs::path& path, bool is_removable, bool is_complete = true) {
    ListedModel model{std::move(name), path, 0, "", is_removable, is_complete};
    const std::vector<fs::path> shards = shard_paths(path);
    // What is here first stands for the model.
    std::error_code absent;
    const auto is_there = [&](const fs::path& shard) { return fs::exists(shard, absent); };
    const auto first = std::ranges::find_if(shards, is_there);
    if (first == shards.end() || *first != path) return;
    for (const fs::path& shard : shards) {
      const std::uintmax_t bytes = fs::file_size(shard, absent);
      if (absent) model.is_complete = false;
      if (!absent) model.bytes += bytes;
    }
    model.quant = quant_in_name(path.filename().string());
    if (model.quant.empty()) model.quant = quant_in_header(path);
    if (!model.is_complete && !is_removable) return;
    models_.push_back(std::move(model));
  }

  // Files that lie in a folder without any order. What a URL led to may have any name: a pull that
  // has ended has left the file with its version beside it.
  void add_folder(const fs::path& folder, bool is_removable) {
    std::error_code absent;
    const auto has_version = [&](const fs::path& file) {
      return fs::exists(tag_file_of(file), absent);
    };
    for (const auto& entry : files_below(folder)) {
      const bool is_model =
          entry.path().extension() == ".gguf" || (is_removable && has_version(entry.path()));
      if (!is_model || !entry.is_regular_file(absent)) continue;
      // A pull that ends between shards leaves some without it.
      const bool is_complete =
          !is_removable || std::ranges::all_of(shard_paths(entry.path()), has_version);
      add(entry.path().stem().string(), entry.path(), is_removable, is_complete);
    }
  }

  // models--OWNER--REPO: the snapshots that a ref leads to, and others by their commit.
  void add_repository(const fs::path& folder) {
    constexpr std::string_view prefix = "models--";
    std::string repository = folder.filename().string();
    const std::size_t dashes = repository.find("--", prefix.size());
    if (!repository.starts_with(prefix) || dashes == repository.npos) return;
    repository.replace(dashes, 2, "/");
    repository.erase(0, prefix.size());
    const std::string newest = read_text(folder / "refs/main");
    std::error_code absent;
    for (const auto& snapshot : fs::directory_iterator(folder / "snapshots", absent)) {
      const std::string commit = snapshot.path().filename().string();
      const std::string revision = commit == newest ? "" : "@" + commit;
      for (const auto& entry : files_below(snapshot.path())) {
        if (entry.path().extension() != ".gguf" || !entry.is_regular_file(absent)) continue;
        const fs::path file = entry.path().lexically_relative(snapshot.path());
        add(fmt::format("hf:{}{}/{}", repository, revision, file.generic_string()), entry.path(),
            was_pulled(entry.path()));
      }
    }
  }

  // manifests/HOST/SPACE/NAME/TAG
  void add_ollama(const fs::path& cache) {
    std::error_code absent;
    const fs::path manifests = cache / "manifests";
    for (const auto& entry : files_below(manifests)) {
      if (!entry.is_regular_file(absent)) continue;
      std::string name = entry.path().parent_path().lexically_relative(manifests).generic_string();
      for (const std::string_view usual : {"registry.ollama.ai/", "library/"}) {
        if (name.starts_with(usual)) name.erase(0, usual.size());
      }
      try {
        const OllamaLayer layer = weights_of_manifest(read_text(entry.path()), name);
        add(fmt::format("ollama:{}:{}", name, entry.path().filename().string()),
            cache / "blobs" / ("sha256-" + layer.sha256), false);
      } catch (const Error&) {
        continue;  // a model without weights of its own, or another file
      }
    }
  }

  // ollama/SPACE/NAME/TAG-SUM.gguf; of other registries than ollama's own below a folder for each.
  void add_own_ollama(const fs::path& folder) {
    std::error_code absent;
    for (const auto& entry : files_below(folder)) {
      const std::string file = entry.path().stem().string();
      if (entry.path().extension() != ".gguf" || !entry.is_regular_file(absent)) continue;
      std::string name = entry.path().parent_path().lexically_relative(folder).generic_string();
      if (name.starts_with("library/")) name.erase(0, 8);
      const std::string registry = name.substr(0, name.find('/'));
      if (const std::string host = ollama_host(folder / registry); !host.empty()) {
        name.replace(0, registry.size(), host);
      }
      add(fmt::format("ollama:{}:{}", name, file.substr(0, file.rfind('-'))), entry.path(), true);
    }
  }

  void add_begun(const BegunDownload& download) {
    std::error_code absent;
    const std::uintmax_t bytes = fs::file_size(download.partial, absent);
    if (absent) return;
    models_.push_back({download.name, download.partial, bytes, quant_in_name(download.name),
                       /*is_removable=*/true, /*is_complete=*/false});
  }

  std::vector<ListedModel> take() {
    std::ranges::sort(models_, {}, [](const ListedModel& model) {
      return std::pair(model.name, model.path.string());
    });
    return std::move(models_);
  }

 private:
  std::vector<ListedModel> models_;
};

}  // namespace

std::vector<ListedModel> list_models(const fs::path& installed) {
  std::vector<ListedModel> models = list_all(installed);
  std::erase_if(models, [](const ListedModel& model) { return !model.is_complete; });
  return models;
}

std::vector<ListedModel> list_all(const fs::path& installed) {
  Listing listing;
  std::error_code absent;
  listing.add_folder(installed, false);
  for (const auto& entry : fs::directory_iterator(hub_cache(), absent)) {
    listing.add_repository(entry.path());
  }
  for (const fs::path& cache : llama_cpp_caches()) listing.add_folder(cache, false);
  for (const fs::path& cache : ollama_caches()) listing.add_ollama(cache);
  if (!own_cache().empty()) {
    listing.add_folder(own_cache() / "urls", true);
    listing.add_own_ollama(own_cache() / "ollama");
    for (const BegunDownload& download : begun_downloads()) listing.add_begun(download);
  }
  return listing.take();
}

std::vector<const ListedModel*> find_models(const std::vector<ListedModel>& models,
                                            std::string_view name) {
  const auto is_called = [&](const ListedModel& model) {
    // A partial file's own name says little; that of its model stands at the end of the reference.
    const fs::path file =
        model.is_complete ? model.path.filename() : fs::path(model.name).filename();
    return file == name || file.stem() == name;
  };
  const auto those = [&](const auto& is_meant) {
    std::array<std::vector<const ListedModel*>, 2> found;  // incomplete and complete
    for (const ListedModel& model : models) {
      if (is_meant(model)) found[model.is_complete ? 1 : 0].push_back(&model);
    }
    return found[1].empty() ? found[0] : found[1];
  };
  auto found = those([&](const auto& one) { return one.path == name; });
  if (found.empty()) found = those([&](const auto& one) { return one.name == name; });
  return found.empty() ? those(is_called) : found;
}

std::string ambiguity(const std::vector<const ListedModel*>& found, std::string_view name) {
  std::vector<std::string> paths;
  for (const ListedModel* model : found) paths.push_back(model->path.string());
  return fmt::format("{} models are called {}: name one by its path, {}", found.size(),
                     text::quoted(name),
                     text::printable(fmt::format("{}", fmt::join(paths, " or ")), 2000));
}

void remove_model(const ListedModel& model) {
  if (!model.is_removable) {
    throw UsageError(fmt::format(
        "{} was not brought by `sluice pull`, and stays: remove it with the program that did ({})",
        model.name, model.path.string()));
  }
  const std::vector<fs::path> shards = shard_paths(model.path);
  const auto is_of_model = [&](const BegunDownload& download) {
    return download.partial == model.path || (model.is_complete && download.name == model.name) ||
           std::ranges::any_of(shards, [&](const fs::path& shard) {
             return download.partial.string().starts_with(shard.string() + ".");
           });
  };
  for (const BegunDownload& download : begun_downloads()) {
    if (!is_of_model(download) || remove_begun(download)) continue;
    throw Error(ExitCode::io, fmt::format("{} is being downloaded by another program: end that "
                                          "first",
                                          download.name));
  }
  for (const fs::path& shard : shards) {
    if (fs::is_symlink(shard)) {
      if (was_pulled(shard)) remove_pulled(shard);
      continue;
    }
    files::remove_file(shard);
    files::remove_file(tag_file_of(shard));
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(shard.parent_path(), ignored)) {
      const std::string name = entry.path().filename().string();
      const bool is_lock = entry.path().extension() == ".lock";
      if (is_lock && name.starts_with(shard.filename().string() + ".")) fs::remove(entry, ignored);
    }
    fs::remove(shard.parent_path(), ignored);  // if it is empty
  }
}

}  // namespace sluice::fetch
