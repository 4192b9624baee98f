#include "streaming/mapped_file.h"

#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include "streaming/data_file.h"

namespace sluice::streaming {
namespace {

std::span<const std::byte> map_whole(const std::filesystem::path& path, int descriptor) {
  const auto failure = [&path](int error) {
    return std::system_error(error, std::generic_category(),
                             path.string() + ": cannot be mapped for reading");
  };
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) throw failure(errno);
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  if (bytes == 0) return {};  // mmap(2) refuses it
  void* const address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) throw failure(errno);
  return {static_cast<const std::byte*>(address), bytes};
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path)
    : MappedFile(path, DataFile(path, DataFile::Access::buffered).descriptor()) {}

MappedFile::MappedFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), bytes_(map_whole(path_, descriptor)) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace sluice::streaming
