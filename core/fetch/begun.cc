#include "core/fetch/begun.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sys/file.h>
#include <system_error>

#include "base/descriptor.h"
#include "core/fetch/places.h"
#include "core/files/checksum.h"
#include "core/files/durable_file.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

fs::path notes() {
  return own_cache() / "begun";
}

fs::path note_of(const BegunDownload& download) {
  return notes() / fmt::format("{:016x}", files::checksum_of(download.partial.string()));
}

}  // namespace

void note_begun(const BegunDownload& download) {
  if (own_cache().empty()) return;
  make_folder(notes());
  files::DurableFile note(note_of(download));
  note.write(fmt::format("{}\n{}\n{}\n", download.name, download.partial.string(),
                         download.lock.string()));
  note.commit();
}

void forget_begun(const BegunDownload& download) {
  if (!own_cache().empty()) files::remove_file(note_of(download));
}

std::vector<BegunDownload> begun_downloads() {
  std::vector<BegunDownload> out;
  if (own_cache().empty()) return out;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(notes(), absent)) {
    std::ifstream note(entry.path());
    std::string name, partial, lock;
    std::getline(note, name);
    std::getline(note, partial);
    std::getline(note, lock);
    const BegunDownload download{name, partial, lock};
    const bool is_whole = !lock.empty() && note_of(download) == entry.path();
    if (is_whole && fs::is_regular_file(download.partial, absent)) out.push_back(download);
  }
  return out;
}

bool remove_begun(const BegunDownload& download, const fs::path& held) {
  base::Descriptor lock;
  if (download.lock != held) {
    lock = base::Descriptor(::open(download.lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock.is_open() && ::flock(lock.number(), LOCK_EX | LOCK_NB) != 0) return false;
  }
  files::remove_file(download.partial);
  forget_begun(download);
  std::error_code ignored;
  if (download.lock != held) fs::remove(download.lock, ignored);
  return true;
}

}  // namespace sluice::fetch
