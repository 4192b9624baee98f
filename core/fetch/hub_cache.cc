#include "core/fetch/hub_cache.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/fetch/places.h"
#include "core/files/durable_file.h"
#include "core/files/small_file.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

std::string folder_name(const std::string& repository) {
  std::string name = "models--" + repository;
  name.replace(name.find('/'), 1, "--");
  return name;
}

fs::path mark_of(const std::string& etag) {
  return own_cache() / "pulled" / etag;
}

// The file that a link leads to.
fs::path blob_of(const fs::path& link) {
  std::error_code absent;
  return fs::canonical(link, absent);
}

bool is_linked(const fs::path& snapshots, const fs::path& blob) {
  std::error_code absent;
  for (const auto& entry : fs::recursive_directory_iterator(snapshots, absent)) {
    if (entry.is_symlink(absent) && blob_of(entry.path()) == blob) return true;
  }
  return false;
}

}  // namespace

HubCache::HubCache(fs::path cache, const std::string& repository)
    : cache_(std::move(cache)), name_(folder_name(repository)) {
  folder_ = cache_ / name_;
}

DownloadPlace HubCache::place(const std::string& etag) const {
  make_folder(folder_ / "blobs");
  make_folder(cache_ / ".locks" / name_);
  const fs::path blob = folder_ / "blobs" / etag;
  return {blob, blob.string() + ".incomplete", cache_ / ".locks" / name_ / (etag + ".lock")};
}

fs::path HubCache::link(const std::string& commit, const std::string& file,
                        const std::string& etag) const {
  fs::path path = folder_ / "snapshots" / commit / file;
  const fs::path target = fs::relative(folder_ / "blobs" / etag, path.parent_path());
  std::error_code absent;
  if (fs::read_symlink(path, absent) == target) return path;
  make_folder(path.parent_path());
  // A link cannot be made over what is there; a rename can.
  const std::string temporary = fmt::format("{}.{}", path.string(), ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw std::system_error(error, std::generic_category(), "cannot link " + path.string());
  }
  return path;
}

bool HubCache::has_ref(const std::string& revision) const {
  return !read_text(folder_ / "refs" / revision).empty();
}

void HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  const fs::path path = folder_ / "refs" / revision;
  if (revision == commit || read_text(path) == commit) return;
  make_folder(path.parent_path());
  files::DurableFile file(path);
  file.write(commit);
  file.commit();
}

void HubCache::mark_as_pulled(const std::string& etag) const {
  if (own_cache().empty()) return;
  make_folder(mark_of(etag).parent_path());
  files::DurableFile file(mark_of(etag));
  file.write((folder_ / "blobs" / etag).string());
  file.commit();
}

fs::path HubCache::snapshot(const std::string& revision) const {
  const std::string commit = read_text(folder_ / "refs" / revision);
  return folder_ / "snapshots" / (commit.empty() ? revision : commit);
}

fs::path HubCache::snapshot_file(const std::string& revision, const std::string& file) const {
  return snapshot(revision) / file;
}

std::vector<std::string> HubCache::files(const std::string& revision) const {
  std::vector<std::string> out;
  std::error_code absent;
  const fs::path root = snapshot(revision);
  for (const auto& entry : fs::recursive_directory_iterator(root, absent)) {
    if (entry.path().extension() != ".gguf" || !entry.is_regular_file(absent)) continue;
    out.push_back(entry.path().lexically_relative(root).generic_string());
  }
  std::ranges::sort(out);
  return out;
}

bool was_pulled(const fs::path& link) {
  const fs::path blob = blob_of(link);
  std::error_code absent;
  return !blob.empty() && !own_cache().empty() &&
         fs::equivalent(read_text(mark_of(blob.filename().string())), blob, absent);
}

void remove_pulled(const fs::path& link) {
  const fs::path blob = blob_of(link);
  const fs::path repository = blob.parent_path().parent_path();
  files::remove_file(link);
  // Folders up to the snapshots, as long as they are empty.
  for (fs::path folder = link.parent_path(); folder.filename() != "snapshots";
       folder = folder.parent_path()) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
  if (!is_linked(repository / "snapshots", blob)) {
    files::remove_file(blob);
    files::remove_file(mark_of(blob.filename().string()));
  }
  std::error_code ignored;
  if (!fs::is_empty(repository / "snapshots", ignored) || ignored) return;
  // Nothing is left but the names of revisions.
  if (fs::is_empty(repository / "blobs", ignored)) fs::remove_all(repository, ignored);
}

std::string read_text(const fs::path& path) {
  std::string text = files::read_small_file(path, std::size_t{1} << 20);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace sluice::fetch
