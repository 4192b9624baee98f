// The files of clients, in a folder: what they have uploaded, and what batches have given. Each is
// two files, FOLDER/ID with the contents and FOLDER/ID.json with what is known of it; the second
// appears last and goes first, so that a file is there as a whole or not at all.
//
// The order of the files is kept in memory, so that a page of their list takes as many reads as it
// has files. What somebody else puts into the folder meanwhile is listed from the next start on.
//
// What the disk does not take is an ApiError with status 507, which names no path.
//
// Threads: any, one at a time for each file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "core/files/durable_file.h"
#include "core/http/jobs/list_query.h"
#include "core/http/transport/message.h"

namespace sluice::http {

// Whether this may be part of a path: letters, digits, "-" and "_", and not too long.
bool is_plain_id(std::string_view id);

// "file-" and 24 random digits.
std::string random_id(std::string_view prefix);

struct StoredFile {
  std::string id;
  std::string name;  // as the client calls it; never part of a path
  std::string purpose;
  std::uint64_t bytes = 0;
  std::uint64_t created = 0;  // seconds since 1970

  nlohmann::ordered_json json() const;  // in OpenAI's form
};

class FileStore {
 public:
  // What a file takes of the limit besides its contents and its description: names, and the rest of
  // its last blocks on the disk.
  static constexpr std::uint64_t file_overhead_bytes = 4096;
  // With so many files a new one is refused. A folder may come with more.
  static constexpr std::size_t files_max = 20'000;
  // The memory that their order takes: a node and an id of each.
  static constexpr std::uint64_t memory_bytes_max = files_max * 160;

  // Makes the folder. `bytes_max` bounds what all files take together. Removes what uploads have
  // left that did not end, and no file of another kind. Throws std::system_error.
  FileStore(std::filesystem::path folder, std::uint64_t bytes_max,
            files::SystemCalls& system = files::kernel());

  // A file that is being written. Its bytes count from the moment in which they come, so uploads at
  // the same time keep to the limit together.
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    // Throws ApiError (507), also beyond the limit of the store.
    void write(std::string_view piece);
    // Writes the file durably; from then on it is in the list.
    StoredFile commit(const std::string& name, const std::string& purpose);

   private:
    friend class FileStore;
    Upload(FileStore& store, std::string id);
    void count(std::uint64_t bytes);
    FileStore& store_;
    std::string id_;
    files::DurableFile file_;
    std::uint64_t counted_ =
        0;  // bytes of the store's that are given back when it is not committed
  };

  // Throws ApiError (507) where there is no room for it.
  std::unique_ptr<Upload> begin(const std::string& id);

  // Newest first, unless it is asked for otherwise. Reads the descriptions of those that are asked
  // for. Throws ApiError (400) when there is no file after which to begin.
  std::vector<StoredFile> list(const ListQuery& query = {}) const;
  std::optional<StoredFile> find(std::string_view id) const;
  std::filesystem::path path_of(const StoredFile& file) const { return folder_ / file.id; }
  FileBody open(const StoredFile& file) const;  // throws std::system_error
  void remove(const StoredFile& file);          // durably

 private:
  // A file's place in the list.
  struct Place {
    std::uint64_t created = 0;
    std::string id;
    std::size_t purpose = 0;  // its hash

    bool operator<(const Place& other) const {
      return std::tie(created, id) < std::tie(other.created, other.id);
    }
  };
  static Place place_of(const StoredFile& file);

  std::filesystem::path description_of(std::string_view id) const;
  void take_back(std::string_view id);
  std::optional<StoredFile> read(std::string_view id) const;
  std::optional<Place> next(const std::optional<Place>& last, const ListQuery& query) const;

  std::filesystem::path folder_;
  std::uint64_t bytes_max_;
  files::SystemCalls& system_;
  std::atomic<std::uint64_t> bytes_{0};  // of all files, and of those that are being written
  mutable base::Mutex mutex_;
  std::set<Place> places_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::http
