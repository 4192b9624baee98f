// The models that are here: in the caches of the hub, of llama.cpp, of ollama and of this program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::fetch {

struct ListedModel {
  std::string name;  // takes the place of the path wherever a command wants a model
  std::filesystem::path path;
  std::uint64_t bytes = 0;    // of all shards; of an incomplete one, those that are here
  std::string quant;          // as its name says, or else its header; may be empty
  bool is_removable = false;  // brought by this program
  // False for a download that has not ended: its path is that of the partial file, or of the first
  // shard where others are missing. No command can run it.
  bool is_complete = true;
};

// By name. `installed` is the folder of models that came with the program. Reads the headers of
// files whose names do not say how they are quantised; what cannot be read is left out.
std::vector<ListedModel> list_models(const std::filesystem::path& installed);
// The same, and what this program has brought a part of.
std::vector<ListedModel> list_all(const std::filesystem::path& installed);

// The models with this path; or else with this name; or else whose file is called so, with or
// without ".gguf". Those that are complete among others that are not.
std::vector<const ListedModel*> find_models(const std::vector<ListedModel>& models,
                                            std::string_view name);

// The line for people about several that have one name.
std::string ambiguity(const std::vector<const ListedModel*>& found, std::string_view name);

// Removes the files of a model that this program has brought, and what has come of other versions
// of it. Throws UsageError for models of others, Error while a program downloads it, and
// std::system_error.
void remove_model(const ListedModel& model);

}  // namespace sluice::fetch
