// The header of a model that lies on a server: as much of its files as says what is in them, to
// look at a model and to plan runs of it before it is downloaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/fetch/reference.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

struct RemoteHeader {
  // Of the first shard: a file that ends behind its header, for what takes
  // gguf::ParseOptions::header_only.
  std::filesystem::path path;
  std::uint64_t bytes_read = 0;  // from the server
};

// Reads the headers of all shards by ranges into a folder. Throws ModelError for what is no model,
// and what pull() throws.
RemoteHeader read_remote_header(Web& web, const Reference& reference,
                                const std::filesystem::path& folder);

// A model of a repository, whose shards count as one.
struct RepositoryModel {
  std::string name;            // of its (first) file in the repository
  std::uint64_t bytes = 0;     // of all shards
  std::filesystem::path path;  // as of RemoteHeader; empty if it is refused
  std::string problem;         // why it is refused
};

struct RepositoryHeaders {
  std::vector<RepositoryModel> models;  // by name
  std::uint64_t bytes_read = 0;         // from the server, without the list of files
};

// The same for all models of a repository of the hub, except projectors of images. Reads some
// headers at a time. A file that is no model, or lacks a shard, is refused in its entry. Throws
// what pull() throws.
RepositoryHeaders read_repository_headers(Web& web, const Reference& reference,
                                          const std::filesystem::path& folder);

}  // namespace sluice::fetch
