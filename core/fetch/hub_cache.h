// The folder of a repository in the hub's cache, as huggingface_hub lays it out:
//
//   models--OWNER--REPO/blobs/ETAG                       the bytes
//   models--OWNER--REPO/snapshots/COMMIT/FILE            a link to ../../blobs/ETAG
//   models--OWNER--REPO/refs/REVISION                    the commit that a branch or tag was at
//   .locks/models--OWNER--REPO/ETAG.lock                 held while a blob is downloaded
//
// What this program has put there is marked in its own cache: it removes nothing else.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/fetch/download.h"

namespace sluice::fetch {

class HubCache {
 public:
  HubCache(std::filesystem::path cache, const std::string& repository);

  // Makes the folders that a download needs.
  DownloadPlace place(const std::string& etag) const;
  // Puts the link to a blob into a snapshot, and returns its path.
  std::filesystem::path link(const std::string& commit, const std::string& file,
                             const std::string& etag) const;
  bool has_ref(const std::string& revision) const;
  void write_ref(const std::string& revision, const std::string& commit) const;
  void mark_as_pulled(const std::string& etag) const;

  // Of what is here; the file need not be. A revision that is no ref is taken for a commit.
  std::filesystem::path snapshot_file(const std::string& revision, const std::string& file) const;
  std::vector<std::string> files(const std::string& revision) const;  // that end in .gguf

 private:
  std::filesystem::path snapshot(const std::string& revision) const;

  std::filesystem::path cache_, folder_;
  std::string name_;
};

// Whether the file that a snapshot's link leads to was brought by this program.
bool was_pulled(const std::filesystem::path& link);
// Removes the link, the blob if no other link leads to it, and folders that are empty then.
void remove_pulled(const std::filesystem::path& link);

// What a small file says, without ends of lines behind it; empty when it is not there.
std::string read_text(const std::filesystem::path& path);

}  // namespace sluice::fetch
