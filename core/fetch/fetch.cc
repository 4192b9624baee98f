#include "core/fetch/fetch.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/fetch/hub.h"
#include "core/fetch/hub_cache.h"
#include "core/fetch/ollama.h"
#include "core/fetch/places.h"
#include "core/files/checksum.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"
#include "core/text/lower_case.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

fs::path require_home(const fs::path& cache) {
  if (!cache.empty()) return cache;
  throw UsageError("there is no folder for models: set HOME, or HF_HOME and XDG_CACHE_HOME");
}

// Tells names and versions apart; a chance that two are alike costs another download.
std::string short_sum(const std::string& text) {
  return fmt::format("{:016x}", files::checksum_of(text));
}

// Whether a member of a query only allows access, and differs from one link to the next.
bool is_signature(std::string_view member) {
  constexpr std::array<std::string_view, 12> names = {
      "signature", "expires",      "key-pair-id", "policy",  "awsaccesskeyid", "googleaccessid",
      "token",     "access_token", "api_key",     "api-key", "apikey",         "sig"};
  const std::string name = text::lower_case(member.substr(0, member.find('=')));
  return name.starts_with("x-amz-") || name.starts_with("x-goog-") ||
         std::ranges::find(names, name) != names.end();
}

// The query of a URL, with its question mark and without signatures; empty when nothing is left.
std::string unsigned_query(std::string_view url) {
  url = url.substr(0, url.find('#'));
  std::string out;
  for (std::size_t at = url.find('?'); at < url.size();) {
    const std::size_t end = std::min(url.find('&', at + 1), url.size());
    const std::string_view member = url.substr(at + 1, end - at - 1);
    if (!member.empty() && !is_signature(member)) {
      out += fmt::format("{}{}", out.empty() ? '?' : '&', member);
    }
    at = end;
  }
  return out;
}

// The folder of a URL: shards beside each other in one folder there are so here. A query may choose
// the file, so each has a folder of its own.
fs::path url_target(const std::string& url) {
  const std::string path = shown_url(url);
  const std::string folder = path.substr(0, path.rfind('/')) + unsigned_query(url);
  return own_cache() / "urls" / short_sum(folder) / file_name_of(url);
}

// The URLs of all shards.
std::vector<std::string> shard_urls(const std::string& url) {
  const std::size_t query = std::min(url.find_first_of("?#"), url.size());
  std::vector<std::string> out;
  for (const std::string& shard : shards_of(url.substr(0, query))) {
    out.push_back(shard + url.substr(query));
  }
  return out;
}

fs::path ollama_folder(const Reference& reference) {
  const fs::path folder = own_cache() / "ollama";
  return reference.is_default_host ? folder / reference.repository
                                   : folder / short_sum(reference.url) / reference.repository;
}

std::string ollama_file(const Reference& reference, const std::string& sha256) {
  return fmt::format("{}-{}.gguf", reference.revision, sha256.substr(0, 12));
}

// A blob of ollama's own cache.
std::optional<fs::path> blob_of_ollama(const std::string& sha256) {
  for (const fs::path& cache : ollama_caches()) {
    const fs::path blob = cache / "blobs" / ("sha256-" + sha256);
    if (is_file(blob)) return blob;
  }
  return std::nullopt;
}

std::optional<fs::path> find_ollama_here(const Reference& reference) {
  const std::string host =
      reference.is_default_host ? "registry.ollama.ai" : host_of(reference.url);
  for (const fs::path& cache : ollama_caches()) {
    const fs::path manifest =
        cache / "manifests" / host / reference.repository / reference.revision;
    if (!is_file(manifest)) continue;
    const std::string text = read_text(manifest);
    if (auto blob = blob_of_ollama(weights_of_manifest(text, reference.text).sha256)) return blob;
  }
  std::error_code absent;
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(ollama_folder(reference), absent)) {
    const std::string name = entry.path().filename().string();
    const bool is_tag = name.starts_with(reference.revision + "-") && name.ends_with(".gguf") &&
                        name.size() == reference.revision.size() + 1 + 12 + 5;
    if (!is_tag) continue;
    if (!newest || entry.last_write_time(absent) > fs::last_write_time(*newest, absent)) {
      newest = entry.path();
    }
  }
  return newest;
}

std::optional<fs::path> find_in_llama_cpp(const Reference& reference) {
  std::string name = reference.repository + "_" + reference.file;
  std::ranges::replace(name, '/', '_');
  for (const fs::path& cache : llama_cpp_caches()) {
    if (is_file(cache / name)) return cache / name;
  }
  return std::nullopt;
}

DownloadPlace place_beside(const fs::path& target, const std::string& version) {
  make_folder(target.parent_path());
  const std::string stem = target.string() + ".";
  return {target, stem + version + ".incomplete", stem + "lock"};
}

fs::path pull_from_hub(Web& web, const Reference& reference, const OnProgress& on_progress) {
  Hub hub(web);
  const HubCache cache(require_home(hub_cache()), reference.repository);
  std::string file = reference.file;
  if (reference.kind == ReferenceKind::hub_quant) {
    std::vector<std::string> files;
    for (const ListedFile& listed : hub.list(reference)) files.push_back(listed.path);
    file = choose_quant(files, reference);
  }
  const std::vector<std::string> shards = shards_of(file);
  std::string commit;  // of all shards
  std::vector<Download> downloads;
  for (const std::string& shard : shards) {
    const HubFile found = hub.find(reference, shard);
    if (downloads.empty()) commit = found.commit;
    if (commit != found.commit) {
      throw Error(ExitCode::io, fmt::format("{}: it was changed while its shards were looked up: "
                                            "pull it again",
                                            reference.text));
    }
    downloads.push_back({found.remote, cache.place(found.remote.version)});
  }
  require_room(downloads);
  fs::path first;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto& [remote, place] = downloads[i];
    if (!is_here(remote, place)) {
      download(web, remote, place, on_progress);
      cache.mark_as_pulled(remote.version);
    }
    const fs::path path = cache.link(commit, shards[i], remote.version);
    if (first.empty()) first = path;
    // An older version that is whole is found until this one is.
    if (i + 1 == shards.size() || !cache.has_ref(reference.revision)) {
      cache.write_ref(reference.revision, commit);
    }
  }
  return first;
}

// Another one after each start of the system; empty where it does not tell.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");  // whose length counts as 0
  std::string id;
  std::getline(file, id);
  return id;
}

std::optional<fs::path> find_url_here(const Reference& reference) {
  if (own_cache().empty()) return std::nullopt;
  const std::vector<std::string> urls = shard_urls(reference.url);
  const bool has_all = std::ranges::all_of(urls, [](const std::string& url) {
    return is_file(url_target(url)) && is_file(tag_file_of(url_target(url)));
  });
  return has_all ? std::optional(url_target(urls.front())) : std::nullopt;
}

// A version of a URL's file is known by its tag, which is kept beside it.
fs::path pull_url(Web& web, const Reference& reference, const OnProgress& on_progress) {
  require_home(own_cache());
  std::vector<Download> downloads;
  for (const RemoteFile& remote : describe(web, reference)) {
    const fs::path target = url_target(remote.url);
    const std::string version = short_sum(
        fmt::format("{} {}", remote.version, remote.bytes ? std::to_string(*remote.bytes) : "?"));
    // No sum tells whether all that has come was on the disk before the system ended.
    DownloadPlace place = place_beside(target, short_sum(version + boot_id()));
    if (!remote.version.empty()) place.version = version;
    place.version_file = tag_file_of(target);
    downloads.push_back({remote, place});
  }
  require_room(downloads);
  for (std::size_t i = 0; i < downloads.size(); ++i) {
    const auto& [remote, place] = downloads[i];
    // A new shard does not go with old ones: without their tags these count as absent.
    const auto forget_old_shards = [&] {
      for (std::size_t later = i + 1; later < downloads.size(); ++later) {
        const auto& [other_remote, other] = downloads[later];
        if (!is_here(other_remote, other)) files::remove_file(other.version_file);
      }
    };
    download(web, remote, place, on_progress, forget_old_shards);
  }
  return downloads.front().place.target;
}

fs::path pull_from_ollama(Web& web, const Reference& reference, const OnProgress& on_progress) {
  require_home(own_cache());
  const RemoteFile remote = find_in_ollama(web, reference);
  if (const auto blob = blob_of_ollama(remote.sha256)) {
    if (is_here(remote, {.target = *blob, .partial = {}, .lock = {}})) return *blob;
  }
  fs::path target = ollama_folder(reference) / ollama_file(reference, remote.sha256);
  if (!reference.is_default_host) {
    write_ollama_host(own_cache() / "ollama" / short_sum(reference.url), host_of(reference.url));
  }
  download(web, remote, place_beside(target, "part"), on_progress);
  return target;
}

[[noreturn]] void refuse_repository(const Reference& reference) {
  throw UsageError(fmt::format(
      "{0} is a repository with several files: name one, as {0}:Q4_K_M or {0}/FILE.gguf",
      reference.text));
}

// Some servers know no HEAD, or answer it with a length of nothing, and a signed URL may allow GET
// alone: then the first byte's answer tells the same.
RemoteFile describe_url(Web& web, const std::string& url) {
  Request request;
  request.url = url;
  request.is_head = true;
  request.headers = {"Accept-Encoding: identity"};
  Answer answer = web.ask(request);
  if (answer.status >= 400 || answer.content_length() == std::uint64_t{0}) {
    request.is_head = false;
    request.is_headers_only = true;
    request.range = ByteRange{0, 1};
    Answer first_byte = web.ask(request);
    const bool is_empty = answer.status < 400 && first_byte.status == 416;
    if (!is_empty) answer = std::move(first_byte);
  }
  RemoteFile remote;
  remote.name = shown_url(url);
  remote.url = url;
  if (answer.status != 200 && answer.status != 206) throw_answer(remote.name, answer);
  if (answer.status == 200) remote.bytes = answer.content_length();
  if (const auto range = answer.content_range()) remote.bytes = range->total;
  remote.version = answer.version();
  return remote;
}

}  // namespace

std::optional<fs::path> find_here(const Reference& reference) {
  std::optional<fs::path> found;
  if (reference.kind == ReferenceKind::file) return fs::path(reference.file);
  if (reference.kind == ReferenceKind::ollama) return find_ollama_here(reference);
  if (reference.kind == ReferenceKind::url) return find_url_here(reference);
  if (reference.kind == ReferenceKind::hub_repository || hub_cache().empty()) return std::nullopt;
  const HubCache cache(hub_cache(), reference.repository);
  std::string file = reference.file;
  if (reference.kind == ReferenceKind::hub_quant) {
    const std::vector<std::string> files = cache.files(reference.revision);
    try {
      file = choose_quant(files, reference);
    } catch (const UsageError&) {
      return std::nullopt;  // the hub may have it
    }
  }
  const std::vector<std::string> shards = shards_of(file);
  const bool has_all = std::ranges::all_of(shards, [&](const std::string& shard) {
    return is_file(cache.snapshot_file(reference.revision, shard));
  });
  if (has_all) return cache.snapshot_file(reference.revision, shards.front());
  // llama.cpp keeps no revisions: what it has is of the branch that it took.
  const bool is_main = reference.kind == ReferenceKind::hub_file && reference.revision == "main";
  return is_main ? find_in_llama_cpp(reference) : std::nullopt;
}

fs::path pull(Web& web, const Reference& reference, const OnProgress& on_progress) {
  switch (reference.kind) {
    case ReferenceKind::hub_file:
    case ReferenceKind::hub_quant:
      return pull_from_hub(web, reference, on_progress);
    case ReferenceKind::url:
      return pull_url(web, reference, on_progress);
    case ReferenceKind::ollama:
      return pull_from_ollama(web, reference, on_progress);
    case ReferenceKind::file:
      break;
    case ReferenceKind::hub_repository:
      refuse_repository(reference);
  }
  if (!is_file(reference.file)) {
    throw Error(ExitCode::io,
                fmt::format("{} is no file that is here", text::quoted(reference.file)));
  }
  // A file that is cut short is no model that is here.
  static_cast<void>(gguf::Model::open(reference.file));
  return fs::absolute(reference.file);
}

std::vector<RemoteFile> describe(Web& web, const Reference& reference) {
  std::vector<RemoteFile> out;
  if (reference.kind == ReferenceKind::hub_repository) refuse_repository(reference);
  if (reference.kind == ReferenceKind::ollama) out.push_back(find_in_ollama(web, reference));
  if (reference.kind == ReferenceKind::url) {
    for (const std::string& url : shard_urls(reference.url)) out.push_back(describe_url(web, url));
  }
  if (!reference.repository.empty() && reference.kind != ReferenceKind::ollama) {
    Hub hub(web);
    std::string file = reference.file;
    if (reference.kind == ReferenceKind::hub_quant) {
      std::vector<std::string> files;
      for (const ListedFile& listed : hub.list(reference)) files.push_back(listed.path);
      file = choose_quant(files, reference);
    }
    for (const std::string& shard : shards_of(file)) {
      out.push_back(hub.find(reference, shard).remote);
    }
  }
  return out;
}

}  // namespace sluice::fetch
