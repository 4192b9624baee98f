// The header of a model that lies on a server: as much of its files as says what is in them, to
// look at a model and to plan runs of it before it is downloaded.
#pragma once

#include <cstdint>
#include <filesystem>

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

}  // namespace sluice::fetch
