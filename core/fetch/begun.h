// Downloads that were begun and have not ended. A note of each is kept in this program's cache, so
// that what has come of them can be listed, removed, and cleared away when a newer version comes:
// the partial files lie in caches of several programs, under names that say little.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::fetch {

struct BegunDownload {
  std::string name;               // as of RemoteFile
  std::filesystem::path partial;  // what has come
  std::filesystem::path lock;     // held by the program that downloads it
};

// Where there is no cache of this program, there are no notes. Throws std::system_error.
void note_begun(const BegunDownload& download);
void forget_begun(const BegunDownload& download);

// Those whose partial files are there.
std::vector<BegunDownload> begun_downloads();

// Removes the partial file and the note; false when a program downloads it now. `held` is a lock
// that the caller has. Throws std::system_error.
bool remove_begun(const BegunDownload& download, const std::filesystem::path& held = {});

}  // namespace sluice::fetch
