#include "core/http/jobs/file_store.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <iterator>
#include <random>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "core/files/small_file.h"
#include "core/http/transport/error.h"
#include "core/rows/row_json.h"
#include "core/text/limited_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t id_bytes_max = 100;
constexpr std::size_t description_bytes_max = std::size_t{64} << 10;
constexpr JsonLimits description_limits{
    .what = "description", .values_max = 100, .members_max = 100, .depth_max = 4};
constexpr std::string_view description_end = ".json";

// Nothing where this is not one of ours, of the file `id`.
std::optional<StoredFile> parse_description(std::string_view id, std::string_view text) {
  try {
    const ordered_json json = parse_limited_json(text, description_limits).value;
    const auto& bytes = json.at("bytes");
    const auto& created = json.at("created_at");
    if (!bytes.is_number_unsigned() || !created.is_number_unsigned()) return std::nullopt;
    if (json.at("id") != id) return std::nullopt;
    return StoredFile{.id = json.at("id"),
                      .name = json.at("filename"),
                      .purpose = json.at("purpose"),
                      .bytes = bytes,
                      .created = created};
  } catch (const JsonError&) {
    return std::nullopt;
  } catch (const ordered_json::exception&) {
    return std::nullopt;
  }
}

// Whether a file of this name may be removed when nothing describes it: what an upload of this
// program was writing when it ended. The folder may hold other files of its user.
bool is_of_upload(std::string_view name) {
  constexpr std::string_view mark = ".partial-";
  constexpr std::size_t letters = 6;  // that DurableFile adds
  if (!name.starts_with("file-")) return false;
  if (is_plain_id(name)) return true;
  if (name.size() < mark.size() + letters) return false;
  std::string_view target = name.substr(0, name.size() - mark.size() - letters);
  if (!name.substr(target.size()).starts_with(mark)) return false;
  if (target.ends_with(description_end)) target.remove_suffix(description_end.size());
  return is_plain_id(target);
}

// What a file takes of the limit.
std::uint64_t counted_bytes(const StoredFile& file) {
  return file.bytes + rows::json_text(file.json()).size() + FileStore::file_overhead_bytes;
}

// Does what changes the disk.
template <class Work>
void keep(const Work& work) {
  try {
    work();
  } catch (const std::system_error& error) {
    throw storage_error(error);
  }
}

}  // namespace

bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= id_bytes_max && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

std::string random_id(std::string_view prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

ordered_json StoredFile::json() const {
  return {{"id", id},         {"object", "file"},   {"bytes", bytes},       {"created_at", created},
          {"filename", name}, {"purpose", purpose}, {"status", "processed"}};
}

FileStore::FileStore(std::filesystem::path folder, std::uint64_t bytes_max,
                     files::SystemCalls& system)
    : folder_(std::move(folder)), bytes_max_(bytes_max), system_(system) {
  files::make_private_folder(folder_, system_);
  std::vector<std::filesystem::path> left_over;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    const bool is_left_over = is_of_upload(name) &&
                              std::filesystem::is_regular_file(entry.symlink_status()) &&
                              !std::filesystem::exists(description_of(name));
    if (is_left_over) left_over.push_back(entry.path());
  }
  // The descriptions that are gone have to be so for good.
  if (!left_over.empty()) files::sync_folder_of(left_over.front(), system_);
  for (const std::filesystem::path& path : left_over) files::remove_file(path, system_);
  const base::MutexLock lock(mutex_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != description_end) continue;
    const auto file = read(entry.path().stem().string());
    if (!file) continue;
    bytes_ += counted_bytes(*file);
    places_.insert(place_of(*file));
  }
}

FileStore::Place FileStore::place_of(const StoredFile& file) {
  return {file.created, file.id, std::hash<std::string>()(file.purpose)};
}

std::filesystem::path FileStore::description_of(std::string_view id) const {
  return folder_ / fmt::format("{}{}", id, description_end);
}

// The disk may do one and not the other when the power is lost, unless it has been waited for.
void FileStore::take_back(std::string_view id) {
  files::remove_file(description_of(id), system_);
  files::sync_folder_of(description_of(id), system_);
  files::remove_file(folder_ / id, system_);
}

FileStore::Upload::Upload(FileStore& store, std::string id)
    : store_(store),
      id_(std::move(id)),
      file_(store.folder_ / id_, {.mode = 0600}, store.system_) {}

FileStore::Upload::~Upload() {
  store_.bytes_ -= counted_;
}

void FileStore::Upload::count(std::uint64_t bytes) {
  counted_ += bytes;
  if (store_.bytes_.fetch_add(bytes) + bytes > store_.bytes_max_) {
    throw ApiError(507, fmt::format("the server keeps {} bytes of files at most (--data-size): "
                                    "delete some",
                                    store_.bytes_max_));
  }
}

void FileStore::Upload::write(std::string_view piece) {
  count(piece.size());
  keep([&] { file_.write(piece); });
}

StoredFile FileStore::Upload::commit(const std::string& name, const std::string& purpose) {
  StoredFile stored{.id = id_,
                    .name = name,
                    .purpose = purpose,
                    .bytes = file_.position(),
                    .created = static_cast<std::uint64_t>(std::time(nullptr))};
  const std::string text = rows::json_text(stored.json());
  count(text.size());
  keep([&] {
    file_.commit();
    try {
      files::DurableFile description(store_.description_of(id_), {.mode = 0600}, store_.system_);
      description.write(text);
      description.commit();
    } catch (...) {  // the description may have got its name
      try {
        store_.take_back(id_);
      } catch (const std::system_error&) {  // what is left is a whole file, or none
      }
      throw;
    }
  });
  counted_ = 0;
  const base::MutexLock lock(store_.mutex_);
  store_.places_.insert(place_of(stored));
  return stored;
}

std::unique_ptr<FileStore::Upload> FileStore::begin(const std::string& id) {
  {
    const base::MutexLock lock(mutex_);
    if (places_.size() >= files_max) {
      throw ApiError(507, fmt::format("the server keeps {} files at most: delete some", files_max));
    }
  }
  std::unique_ptr<Upload> upload;
  keep([&] { upload.reset(new Upload(*this, id)); });
  upload->count(file_overhead_bytes);
  return upload;
}

// One that cannot be read now keeps the others from nobody.
std::optional<StoredFile> FileStore::read(std::string_view id) const {
  if (!is_plain_id(id)) return std::nullopt;
  return parse_description(id, files::read_small_file(description_of(id), description_bytes_max));
}

// The place that follows in the order that is asked for; without `last`, the first one.
std::optional<FileStore::Place> FileStore::next(const std::optional<Place>& last,
                                                const ListQuery& query) const {
  const auto find_in = [&](auto place, auto end) -> std::optional<Place> {
    const std::size_t purpose = std::hash<std::string>()(query.purpose);
    place = std::find_if(place, end, [&](const Place& one) {
      return query.purpose.empty() || one.purpose == purpose;
    });
    return place == end ? std::nullopt : std::optional(*place);
  };
  const base::MutexLock lock(mutex_);
  if (query.is_ascending) {
    return find_in(last ? places_.upper_bound(*last) : places_.begin(), places_.end());
  }
  return find_in(std::reverse_iterator(last ? places_.lower_bound(*last) : places_.end()),
                 places_.rend());
}

std::vector<StoredFile> FileStore::list(const ListQuery& query) const {
  std::optional<Place> place;
  if (!query.after.empty()) {
    const auto last = find(query.after);
    if (!last) throw ApiError(400, "\"after\" names no file that is there");
    place = place_of(*last);
  }
  std::vector<StoredFile> page;
  while (page.size() < query.limit && (place = next(place, query))) {
    auto file = read(place->id);
    const bool is_wanted = file && (query.purpose.empty() || file->purpose == query.purpose);
    if (is_wanted) page.push_back(std::move(*file));
  }
  return page;
}

std::optional<StoredFile> FileStore::find(std::string_view id) const {
  if (!is_plain_id(id)) return std::nullopt;
  return parse_description(id, files::read_kept_file(description_of(id), description_bytes_max));
}

FileBody FileStore::open(const StoredFile& file) const {
  base::Descriptor opened(::open(path_of(file).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened.is_open()) {
    throw std::system_error(errno, std::generic_category(), "cannot read " + file.id);
  }
  return {std::make_shared<const base::Descriptor>(std::move(opened)), file.bytes};
}

void FileStore::remove(const StoredFile& file) {
  keep([&] { take_back(file.id); });
  {
    const base::MutexLock lock(mutex_);
    places_.erase(place_of(file));
  }
  bytes_ -= std::min<std::uint64_t>(counted_bytes(file), bytes_);
}

}  // namespace sluice::http
