// Where models lie, and where they are looked for: this program's and other programs' caches.
//
// All paths come from the environment, and are empty where it has no home.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::fetch {

// $HF_ENDPOINT, without a slash at the end; otherwise https://huggingface.co.
std::string hub_endpoint();
// Makes a folder, and those above it that are missing. Throws std::system_error, which says what
// chooses another place.
void make_folder(const std::filesystem::path& path);

// $HF_TOKEN, or what the file $HF_TOKEN_PATH or the hub's folder has; empty: none. Throws
// UsageError for a text that cannot be one.
std::string hub_token();
std::filesystem::path hub_token_file();

// $HF_HUB_CACHE, $HF_HOME/hub, or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();
// $XDG_CACHE_HOME/sluice, or ~/.cache/sluice: for what is not from the hub.
std::filesystem::path own_cache();
// What a URL led to has a file beside it that says its version.
std::filesystem::path tag_file_of(const std::filesystem::path& target);
// Of other programs, read and never changed. Those that are not there are left out.
std::vector<std::filesystem::path> llama_cpp_caches();
std::vector<std::filesystem::path> ollama_caches();

}  // namespace sluice::fetch
