#include "core/fetch/remote_model.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <list>
#include <span>
#include <sys/mman.h>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fetch/byte_ranges.h"
#include "core/fetch/fetch.h"
#include "core/fetch/hub.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;

// Addresses for the front of a file; memory is taken as it is filled.
class Front {
 public:
  explicit Front(std::size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  }
  ~Front() { ::munmap(memory_, bytes_); }
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  std::size_t bytes_;
  void* memory_;
};

constexpr std::uint64_t piece_min = std::uint64_t{64} << 10;

// Writes the header of a file to `path`, and returns its length. `begun` is what has been read of
// the file. Vocabularies lie before the list of tensors, so nobody can say beforehand how long a
// header is: it is read in pieces that grow with it, and never by more than a quarter too much.
std::uint64_t read_header(RangeSource& source, std::span<const std::byte> begun,
                          const fs::path& path) {
  constexpr std::uint64_t header_max = std::uint64_t{1} << 30;
  const Front front(static_cast<std::size_t>(std::min(source.bytes(), header_max)));
  std::uint64_t read = 0;
  const auto take = [&](std::span<const std::byte> part) {
    std::ranges::copy(part, front.bytes().begin() + static_cast<std::ptrdiff_t>(read));
    read += part.size();
  };
  take(begun);
  const auto read_to = [&](std::uint64_t end) {
    while (read < std::min<std::uint64_t>(end, front.bytes().size())) {
      const std::uint64_t wanted = std::max({end - read, piece_min, read / 4});
      take(
          read_range(source, {read, std::min<std::uint64_t>(wanted, front.bytes().size() - read)}));
    }
  };
  const gguf::Header header =
      gguf::parse_header(front.bytes(), source.name(), {.header_only = true}, read_to);
  const std::uint64_t bytes = std::min<std::uint64_t>(read, header.data_offset);
  files::DurableFile file(path);
  file.write(front.bytes().first(static_cast<std::size_t>(bytes)));
  file.commit();
  return bytes;
}

// The headers of a repository's files. One header is read first: those of the other
// quantisations are about as long, so their fronts are read in one request each, some at a time.
class HeadersReader {
 public:
  explicit HeadersReader(Web& web) : web_(web) {}

  void add(RepositoryModel& model, const RemoteFile& remote, const fs::path& path, bool is_first) {
    files_.push_back({&model, RangeSource(web_, remote), path, is_first});
  }

  std::uint64_t read() {
    constexpr std::size_t together = 4;
    std::uint64_t usual_bytes = piece_min;
    if (!files_.empty()) usual_bytes = std::max(usual_bytes, parse(files_.front(), {}));
    std::list<std::pair<File*, RangeRead>> active;
    for (auto next = std::next(files_.begin(), files_.empty() ? 0 : 1);
         next != files_.end() || !active.empty();) {
      for (; next != files_.end() && active.size() < together; ++next) {
        // Later shards have no vocabulary.
        const std::uint64_t wanted = next->is_first ? usual_bytes : piece_min;
        active.emplace_back(
            std::piecewise_construct, std::forward_as_tuple(&*next),
            std::forward_as_tuple(next->source,
                                  ByteRange{0, std::min(wanted, next->source.bytes())}));
      }
      web_.poll();
      for (auto at = active.begin(); at != active.end();) {
        at->second.advance();
        const bool is_refused = at->first->source.refuses_ranges();
        if (!is_refused && !at->second.is_done()) {
          ++at;
          continue;
        }
        if (is_refused) {
          at->first->model->problem = no_ranges(at->first->source).what();
        } else {
          parse(*at->first, at->second.bytes());
        }
        at = active.erase(at);
      }
    }
    std::uint64_t bytes_read = 0;
    for (const File& file : files_) bytes_read += file.source.read_bytes();
    return bytes_read;
  }

 private:
  struct File {
    RepositoryModel* model;
    RangeSource source;
    fs::path path;
    bool is_first;
  };

  // The length of the header; 0 if it is refused.
  static std::uint64_t parse(File& file, std::span<const std::byte> begun) {
    try {
      return read_header(file.source, begun, file.path);
    } catch (const ModelError& error) {
      file.model->problem = error.what();
      return 0;
    }
  }

  Web& web_;
  std::list<File> files_;
};

}  // namespace

RemoteHeader read_remote_header(Web& web, const Reference& reference, const fs::path& folder) {
  RemoteHeader out;
  for (const RemoteFile& remote : describe(web, reference)) {
    // Shards have to lie beside each other under their own names.
    const std::string file =
        reference.kind == ReferenceKind::ollama ? "model.gguf" : file_name_of(remote.name);
    if (!remote.bytes || *remote.bytes == 0) {
      throw Error(ExitCode::io, fmt::format("{}: its server does not say how long it is, so it has "
                                            "to be pulled before it can be looked at",
                                            remote.name));
    }
    RangeSource source(web, remote);
    read_header(source, {}, folder / file);
    out.bytes_read += source.read_bytes();
    if (out.path.empty()) out.path = folder / file;
  }
  return out;
}

RepositoryHeaders read_repository_headers(Web& web, const Reference& reference,
                                          const fs::path& folder) {
  Hub hub(web);
  const std::vector<ListedFile> listed = hub.list(reference);
  RepositoryHeaders out;
  for (const ListedFile& file : listed) {
    if (is_whole_model(file.path)) out.models.push_back({file.path, 0, folder / file.path, ""});
  }
  HeadersReader reader(web);
  for (RepositoryModel& model : out.models) {
    std::vector<const ListedFile*> shards;
    for (const std::string& shard : shards_of(model.name)) {
      const auto found = std::ranges::find(listed, shard, &ListedFile::path);
      if (found == listed.end() || found->bytes == 0) {
        model.problem = fmt::format("{} is missing or empty", text::printable(shard, 500));
        break;
      }
      model.bytes += found->bytes;
      shards.push_back(&*found);
    }
    if (!model.problem.empty()) continue;
    fs::create_directories(model.path.parent_path());
    for (const ListedFile* shard : shards) {
      reader.add(model, hub.listed(reference, *shard), folder / shard->path,
                 shard == shards.front());
    }
  }
  out.bytes_read = reader.read();
  for (RepositoryModel& model : out.models) {
    if (!model.problem.empty()) model.path.clear();
  }
  return out;
}

}  // namespace sluice::fetch
