// The hub: huggingface.co, or what HF_ENDPOINT names. Its API as huggingface_hub uses it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/fetch/reference.h"
#include "core/fetch/remote_file.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

struct HubFile {
  RemoteFile remote;   // its version names the blob
  std::string commit;  // 40 hexadecimal digits
};

struct ListedFile {
  std::string path;
  std::uint64_t bytes = 0;
};

class Hub {
 public:
  explicit Hub(Web& web);

  // All throw Error with what the server says.
  HubFile find(const Reference& reference, const std::string& file);
  // The files that end in .gguf, by name.
  std::vector<ListedFile> list(const Reference& reference);
  // A file of such a list, for reading ranges of it: without its sum, and no request is made.
  RemoteFile listed(const Reference& reference, const ListedFile& file) const;

 private:
  std::string resolve_url(const Reference& reference, const std::string& file) const;

  Web& web_;
  std::string endpoint_, token_;
};

// Whether a file is a model, or the first shard of one: no later shard, and no projector of images.
bool is_whole_model(const std::string& file);

// The file of `files` with this quantisation in its name; of a split one the first shard. Throws
// UsageError, which lists what there is, when it is none or more than one.
std::string choose_quant(const std::vector<std::string>& files, const Reference& reference);

// All shards of a split model from the name of its first; otherwise the file alone.
std::vector<std::string> shards_of(const std::string& file);

// The quantisation in a file's name, such as "Q4_K_M"; empty when there is none.
std::string quant_in_name(std::string_view file);

}  // namespace sluice::fetch
