#include "core/fetch/ollama.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/fetch/hub_cache.h"
#include "core/fetch/places.h"
#include "core/fetch/sha256.h"
#include "core/files/durable_file.h"
#include "core/text/limited_json.h"

namespace sluice::fetch {
namespace {

constexpr std::string_view media_type = "application/vnd.ollama.image.model";
constexpr std::string_view host_file = "host";
constexpr std::uint64_t manifest_bytes_max = std::uint64_t{1} << 20;
constexpr JsonLimits manifest_limits{
    .what = "manifest", .values_max = 10'000, .members_max = 1000, .depth_max = 16};

// As the list of models shows it.
std::string name_of(const Reference& reference) {
  std::string_view repository = reference.repository;
  constexpr std::string_view usual = "library/";
  if (reference.is_default_host && repository.starts_with(usual)) {
    repository.remove_prefix(usual.size());
  }
  return fmt::format("ollama:{}{}:{}",
                     reference.is_default_host ? "" : host_of(reference.url) + "/", repository,
                     reference.revision);
}

}  // namespace

std::string ollama_host(const std::filesystem::path& folder) {
  return read_text(folder / host_file);
}

void write_ollama_host(const std::filesystem::path& folder, const std::string& host) {
  if (ollama_host(folder) == host) return;
  make_folder(folder);
  files::DurableFile file(folder / host_file);
  file.write(host);
  file.commit();
}

OllamaLayer weights_of_manifest(std::string_view manifest, const std::string& name) {
  constexpr std::string_view algorithm = "sha256:";
  try {
    const LimitedJson json = parse_limited_json(manifest, manifest_limits);
    for (const auto& layer : json.value.at("layers")) {
      if (layer.at("mediaType").get<std::string>() != media_type) continue;
      const auto digest = layer.at("digest").get<std::string>();
      const auto& size = layer.at("size");
      if (!size.is_number_unsigned()) continue;
      OllamaLayer out{digest.substr(digest.starts_with(algorithm) ? algorithm.size() : 0),
                      size.get<std::uint64_t>()};
      if (is_sha256(out.sha256)) return out;
    }
  } catch (const std::exception&) {
    throw Error(ExitCode::io, fmt::format("{}: its manifest is no manifest of a model", name));
  }
  throw Error(ExitCode::io, fmt::format("{}: its manifest names no weights", name));
}

RemoteFile find_in_ollama(Web& web, const Reference& reference) {
  const std::string base = reference.url + "/v2/" + reference.repository;
  Request request;
  request.url = base + "/manifests/" + reference.revision;
  request.headers = {"Accept: application/vnd.docker.distribution.manifest.v2+json"};
  request.body_bytes_max = manifest_bytes_max;
  const Answer answer = web.ask(request);
  RemoteFile out;
  out.name = name_of(reference);
  if (answer.status != 200) throw_answer(out.name, answer);
  const OllamaLayer layer = weights_of_manifest(answer.body, out.name);
  out.url = base + "/blobs/sha256:" + layer.sha256;
  out.bytes = layer.bytes;
  out.sha256 = layer.sha256;
  out.version = layer.sha256;
  return out;
}

}  // namespace sluice::fetch
