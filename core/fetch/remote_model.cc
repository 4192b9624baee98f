#include "core/fetch/remote_model.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <sys/mman.h>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/fetch/byte_ranges.h"
#include "core/fetch/fetch.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"

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

// Vocabularies lie before the list of tensors, so nobody can say beforehand how long a header is:
// it is read in pieces that grow with it, and never by more than a quarter too much.
std::uint64_t read_header(Web& web, const RemoteFile& remote, const fs::path& path) {
  constexpr std::uint64_t piece_min = std::uint64_t{64} << 10, header_max = std::uint64_t{1} << 30;
  if (!remote.bytes || *remote.bytes == 0) {
    throw Error(ExitCode::io, fmt::format("{}: its server does not say how long it is, so it has "
                                          "to be pulled before it can be looked at",
                                          remote.name));
  }
  RangeSource source(web, remote);
  const Front front(static_cast<std::size_t>(std::min(*remote.bytes, header_max)));
  std::uint64_t read = 0;
  const auto read_to = [&](std::uint64_t end) {
    while (read < std::min<std::uint64_t>(end, front.bytes().size())) {
      const std::uint64_t wanted = std::max({end - read, piece_min, read / 4});
      const std::uint64_t bytes = std::min<std::uint64_t>(wanted, front.bytes().size() - read);
      const std::vector<std::byte> part = read_range(source, {read, bytes});
      std::ranges::copy(part, front.bytes().begin() + static_cast<std::ptrdiff_t>(read));
      read += bytes;
    }
  };
  const gguf::Header header =
      gguf::parse_header(front.bytes(), remote.name, {.header_only = true}, read_to);
  files::DurableFile file(path);
  file.write(front.bytes().first(
      static_cast<std::size_t>(std::min<std::uint64_t>(read, header.data_offset))));
  file.commit();
  return source.read_bytes();
}

}  // namespace

RemoteHeader read_remote_header(Web& web, const Reference& reference, const fs::path& folder) {
  RemoteHeader out;
  for (const RemoteFile& remote : describe(web, reference)) {
    // Shards have to lie beside each other under their own names.
    const std::string file =
        reference.kind == ReferenceKind::ollama ? "model.gguf" : file_name_of(remote.name);
    out.bytes_read += read_header(web, remote, folder / file);
    if (out.path.empty()) out.path = folder / file;
  }
  return out;
}

}  // namespace sluice::fetch
