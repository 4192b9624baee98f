// Reads small pieces of a file at given offsets: norms at the start, rows of the embedding table.
// If the file has been truncated, this gives an error; a mapping would raise SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/descriptor.h"
#include "core/gguf/gguf.h"

namespace sluice::model {

class FileBytes {
 public:
  // Throws std::system_error, naming the file.
  explicit FileBytes(std::filesystem::path path);
  // The same for a file of a model, which must still be the one whose header was read.
  explicit FileBytes(const gguf::ModelFile& file);

  // Fills `out` from `offset` on. Throws std::system_error, naming file and offset.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // Asks the system to read so many bytes into its cache, without waiting for them. It may decline.
  void expect(std::uint64_t offset, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  base::Descriptor file_;
};

}  // namespace sluice::model
