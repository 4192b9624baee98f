// Picks the reader that suits the machine, and says why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "streaming/read_results.h"
#include "streaming/reader.h"

namespace sluice::streaming {

enum class Io { automatic, uring, pread, mmap };

// "auto", "uring", "pread", "mmap"; nothing for other words.
std::optional<Io> parse_io(std::string_view word);

struct ReaderChoice {
  std::unique_ptr<Reader> reader;
  std::string reason;              // one line: why this reader
  std::vector<std::string> notes;  // one line for each thing that was tried and does not work
};

// Opens the files, finds out what the machine grants (seccomp or sysctl may forbid io_uring, some
// file systems have no O_DIRECT), and reads a block of each file before it picks. When the
// requested reader does not work, the next best one is used, with a note: uring -> pread -> pread
// through the page cache; mmap -> uring. Io::automatic never picks mmap, because pinned segments
// that are copied lie in huge pages, in the form that kernels read fastest. Throws
// std::system_error when a file cannot be opened. `results` is for tests.
ReaderChoice choose_reader(Io io, std::span<const std::filesystem::path> files,
                           const ReadResults& results = {});

}  // namespace sluice::streaming
