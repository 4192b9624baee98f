// A registry of ollama: the manifest of a model, and the blob of its weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/fetch/reference.h"
#include "core/fetch/remote_file.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

// Throws Error with what the server says.
RemoteFile find_in_ollama(Web& web, const Reference& reference);

// The folder of a registry's models is named by a sum; the host stands in a file in it. Empty:
// none.
std::string ollama_host(const std::filesystem::path& folder);
void write_ollama_host(const std::filesystem::path& folder, const std::string& host);

struct OllamaLayer {
  std::string sha256;
  std::uint64_t bytes = 0;
};

// The weights that a manifest names. Throws Error; `name` is for its message.
OllamaLayer weights_of_manifest(std::string_view manifest, const std::string& name);

}  // namespace sluice::fetch
