// Reader of GGUF model files, versions 2 and 3. It trusts nothing: every length, count, type and
// offset is checked against the bytes that exist before it is used, and no memory is allocated for
// a count that is merely claimed. Every problem is a ModelError that names the file, the byte
// offset, the key or tensor, what was found and what was expected.
//
// Format: ggml's docs/gguf.md, little-endian. Where it leaves room, this reader decides:
// - A bool is the byte 0 or 1; any other value is rejected. Readers would differ on what it means.
// - Tensors may have gaps between them. Each tensor is reached by its own offset, so a gap is
//   harmless, and tools that edit files in place leave some. Tensors that overlap are rejected.
// - An array of arrays is rejected: no writer produces one.
// - Keys and tensor names are not empty and occur once; a tensor name has at most 63 bytes, a key
//   at most 65535. Dimensions are at least 1.
// - The alignment is a u32 and a power of two from 8: kernels read F32 tensors in place.
// - A file without tensors need not be padded to the start of its data.
// - The header of a file on disk has at most 256 MiB, ten times that of any model: it is held in
//   memory, and a text in it may claim the whole file.
// - A file has at most 2^20 tensors and 2^16 keys, many times those of any model: each takes
//   several times its bytes in the file.
// - The tensors of a model have at most 16 TiB together, several times those of any model. So sums
//   and products of sizes cannot wrap, even where only the header is there and no file bounds them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_identity.h"
#include "core/error.h"
#include "core/gguf/header_bytes.h"
#include "core/gguf/metadata.h"

namespace sluice::gguf {

// The place, type and shape of a tensor. The name points into the header it was read from.
struct TensorInfo {
  std::string_view name;
  std::array<std::uint64_t, 4> dims = {1, 1, 1, 1};  // dims[0] is contiguous; beyond rank: 1
  std::uint32_t rank = 1;                            // 1 to 4
  std::uint32_t type = 0;    // GGUF type id; known, but perhaps not one that sluice computes with
  std::uint32_t file = 0;    // index into Model::files()
  std::uint64_t offset = 0;  // from the start of that file
  std::uint64_t bytes = 0;   // without padding

  std::uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::string shape() const;  // "4096 x 11008"
};

struct ParseOptions {
  // Accept a file that has only its header, for planning before a download is complete: tensors may
  // lie beyond the end of the file.
  bool header_only = false;
};

// The header of one file: everything before the data.
struct Header {
  std::uint32_t version = 0;
  std::uint32_t alignment = 32;
  std::uint64_t data_offset = 0;  // from the start of the file; a multiple of alignment
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order, all with file index 0
};

// Parses the start of a file. `bytes` is the whole file (with header_only: as much as there is) and
// must outlive the result; `source` names the file in messages. If not all bytes are there from the
// beginning, `read_to(end)` is called before bytes up to `end` are read. Throws ModelError, and
// what read_to throws.
Header parse_header(std::span<const std::byte> bytes, const std::string& source,
                    const ParseOptions& options = {},
                    const std::function<void(std::uint64_t end)>& read_to = {});

inline constexpr std::uint64_t tensors_max = std::uint64_t{1} << 20;  // of a file
inline constexpr std::uint64_t metadata_entries_max = std::uint64_t{1} << 16;

// The most bytes of the tensors of a model, with padding.
inline constexpr std::uint64_t data_bytes_max = std::uint64_t{1} << 44;

// The alignment of data when the file does not say.
inline constexpr std::uint32_t default_alignment = 32;
inline constexpr std::uint32_t alignment_min = 8;

// `value` rounded up to a multiple of `alignment`, a power of two; must not overflow.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

struct ModelFile {
  std::filesystem::path path;
  std::uint64_t file_bytes = 0;
  std::uint64_t data_offset = 0;
  base::FileIdentity identity = {};  // when the header was read

  // For who opens the file again, to read what the header describes: throws std::system_error when
  // `opened` is another file, or this one has been written to since.
  void require_same(const base::FileIdentity& opened) const;
};

// A model: one GGUF file, or all shards of a split one (<prefix>-00001-of-0000N.gguf and so on).
// Owns copies of the headers of its files and keeps none of them open. Immutable; movable.
class Model {
 public:
  // `path` is the file or the first shard. Throws std::system_error when a file cannot be read,
  // ModelError when one is malformed, when a shard is missing or does not belong to the others, or
  // when `path` is a later shard (the message names the first).
  static Model open(const std::filesystem::path& path, const ParseOptions& options = {});

  // The metadata of the first file. The other shards only say which shard they are.
  const Metadata& metadata() const { return metadata_; }

  std::span<const TensorInfo> tensors() const { return tensors_; }  // file by file, in file order
  const TensorInfo* find_tensor(std::string_view name) const;       // null when absent
  const TensorInfo& require_tensor(std::string_view name) const;    // throws ModelError

  std::span<const ModelFile> files() const { return files_; }
  std::uint64_t file_bytes() const;                         // of all files
  std::uint64_t data_bytes() const { return data_bytes_; }  // of all tensors, with padding
  std::uint64_t elements() const;  // of all tensors: the number of parameters
  std::uint32_t version() const { return version_; }

 private:
  Model() = default;
  void add_file(const std::filesystem::path& path, const Header& header, const HeaderBytes& bytes);
  void index_tensors();

  std::vector<std::unique_ptr<HeaderBytes>> headers_;  // the views point into these
  std::vector<ModelFile> files_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, in the order of the names
  std::uint64_t data_bytes_ = 0;
  std::uint32_t version_ = 0;
};

}  // namespace sluice::gguf
