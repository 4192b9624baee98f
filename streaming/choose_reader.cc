#include "streaming/choose_reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "streaming/arena.h"
#include "streaming/data_file.h"
#include "streaming/threaded_reader.h"
#include "streaming/uring_reader.h"

namespace sluice::streaming {
namespace {

std::vector<DataFile> open_all(std::span<const std::filesystem::path> paths,
                               DataFile::Access access) {
  std::vector<DataFile> files;
  files.reserve(paths.size());
  for (const auto& path : paths) files.emplace_back(path, access);
  return files;
}

// Reads the first block of every file, and returns the reader. Throws std::system_error at the
// first file that it cannot read in its own way.
std::unique_ptr<Reader> tried(std::unique_ptr<Reader> given) {
  const std::uint64_t alignment = given->alignment();
  Arena block(alignment);
  block.commit(alignment);
  std::unique_ptr<Reader> reader = std::move(given);  // goes before the block that it reads into
  for (std::uint32_t file = 0; file < reader->files().size(); ++file) {
    if (reader->files()[file].bytes == 0) continue;
    reader->submit({0, file, 0, alignment, block.data()});
    const Completion completion = reader->wait();
    const std::string name = reader->files()[file].path.string();
    if (completion.error) {
      throw std::system_error(completion.error, name + ": cannot read its first block");
    }
    if (const std::string trouble = reader->trouble(); !trouble.empty()) {
      throw std::system_error(std::make_error_code(std::errc::not_supported), trouble);
    }
  }
  return reader;
}

bool try_mmap(std::span<const std::filesystem::path> paths, ReaderChoice& choice) {
  auto files = open_all(paths, DataFile::Access::buffered);
  try {
    choice.reader = std::make_unique<MmapReader>(std::move(files));
    return true;
  } catch (const std::system_error& error) {
    choice.notes.push_back(std::string("mmap does not work here: ") + error.what());
    return false;
  }
}

bool try_uring(std::span<const std::filesystem::path> paths, const ReadResults& results,
               ReaderChoice& choice) {
  auto files = open_all(paths, DataFile::Access::direct);
  const auto indirect = std::find_if(files.begin(), files.end(),
                                     [](const DataFile& file) { return !file.is_direct(); });
  if (indirect != files.end()) {
    choice.notes.push_back("uring is not used: " + indirect->refusal());
    return false;
  }
  try {
    choice.reader = tried(std::make_unique<UringReader>(std::move(files), results));
    return true;
  } catch (const std::system_error& error) {
    choice.notes.push_back(std::string("uring does not work here: ") + error.what() +
                           " (a container's seccomp filter or kernel.io_uring_disabled "
                           "may forbid it, RLIMIT_MEMLOCK may be too small)");
    return false;
  }
}

// A file that cannot be read directly is read through the page cache, with a note. A file that
// cannot be read at all is no error here: the first real read of it reports that.
void use_pread(std::span<const std::filesystem::path> paths, const ReadResults& results,
               ReaderChoice& choice) {
  auto files = open_all(paths, DataFile::Access::direct);
  for (const DataFile& file : files) {
    if (!file.is_direct()) {
      choice.notes.push_back("reads go through the page cache: " + file.refusal());
    }
  }
  try {
    choice.reader = tried(std::make_unique<PreadReader>(std::move(files), results));
  } catch (const std::system_error& error) {
    choice.notes.push_back(std::string("reads go through the page cache: ") + error.what());
    choice.reader =
        std::make_unique<PreadReader>(open_all(paths, DataFile::Access::buffered), results);
  }
}

}  // namespace

std::optional<Io> parse_io(std::string_view word) {
  if (word == "auto") return Io::automatic;
  if (word == "uring") return Io::uring;
  if (word == "pread") return Io::pread;
  if (word == "mmap") return Io::mmap;
  return std::nullopt;
}

ReaderChoice choose_reader(Io io, std::span<const std::filesystem::path> files,
                           const ReadResults& results) {
  ReaderChoice choice;
  if (io == Io::mmap && try_mmap(files, choice)) {
    choice.reason = "mmap, as asked for";
    return choice;
  }
  if (io != Io::pread && try_uring(files, results, choice)) {
    choice.reason =
        io == Io::uring ? "uring, as asked for" : "uring: direct reads that cost no thread";
    return choice;
  }
  use_pread(files, results, choice);
  choice.reason = io == Io::pread ? "pread, as asked for" : "pread: what the machine grants";
  return choice;
}

}  // namespace sluice::streaming
