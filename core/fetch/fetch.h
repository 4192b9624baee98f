// Brings models here, and finds those that are here already.
//
// Files of the hub lie as its own programs lay them: a blob named by what the hub calls the
// version, and links to it in a snapshot of the repository. Others lie in a cache of this program.
#pragma once

#include <filesystem>
#include <optional>

#include "core/fetch/download.h"
#include "core/fetch/reference.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

// The model that a reference names, or nothing when it is not here. Asks no server.
std::optional<std::filesystem::path> find_here(const Reference& reference);

// Downloads what is not here, all shards of a split model too, and returns the path of the (first)
// file. Throws UsageError and Error; of a file that is here already, what gguf::Model::open throws.
std::filesystem::path pull(Web& web, const Reference& reference, const OnProgress& on_progress);

// The files of a reference as their servers describe them, first shard first: nothing is kept.
std::vector<RemoteFile> describe(Web& web, const Reference& reference);

}  // namespace sluice::fetch
