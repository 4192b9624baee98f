#include "core/fetch/places.h"

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <system_error>

#include "base/trim.h"
#include "core/error.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing changes it
  return value == nullptr ? "" : value;
}

// A folder below the home; empty where there is no home.
fs::path in_home(const char* below) {
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / below;
}

fs::path user_cache() {
  const std::string cache = variable("XDG_CACHE_HOME");
  return cache.empty() ? in_home(".cache") : fs::path(cache);
}

fs::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home;
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "huggingface";
}

std::vector<fs::path> folders_of(std::initializer_list<fs::path> candidates) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const fs::path& path : candidates) {
    if (!path.empty() && fs::is_directory(path, ignored)) out.push_back(path);
  }
  return out;
}

}  // namespace

std::string hub_endpoint() {
  std::string endpoint = variable("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.empty() ? "https://huggingface.co" : endpoint;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return;
  throw std::system_error(error, fmt::format("cannot make the folder {} (HF_HOME and "
                                             "XDG_CACHE_HOME choose other places for models)",
                                             path.string()));
}

std::string hub_token() {
  std::string token = variable("HF_TOKEN");
  if (token.empty()) std::ifstream(hub_token_file()) >> token;
  token = base::trimmed(token);
  // A line break in a token would be another header.
  if (token.find_first_of("\r\n") != token.npos) {
    throw UsageError("HF_TOKEN has more than one line: set it to the token alone");
  }
  return token;
}

fs::path hub_token_file() {
  if (const std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return path;
  const fs::path home = hub_home();
  return home.empty() ? home : home / "token";
}

fs::path hub_cache() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  const fs::path home = hub_home();
  return home.empty() ? home : home / "hub";
}

fs::path own_cache() {
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "sluice";
}

fs::path tag_file_of(const fs::path& target) {
  return target.string() + ".etag";
}

std::vector<fs::path> llama_cpp_caches() {
  const std::string named = variable("LLAMA_CACHE");
  const fs::path cache = user_cache();
  return folders_of({named.empty() && !cache.empty() ? cache / "llama.cpp" : fs::path(named)});
}

std::vector<fs::path> ollama_caches() {
  const std::string named = variable("OLLAMA_MODELS");
  if (!named.empty()) return folders_of({fs::path(named)});
  return folders_of({in_home(".ollama/models"), "/usr/share/ollama/.ollama/models"});
}

}  // namespace sluice::fetch
