// parse_header: from untrusted bytes to a checked Header. The only place that reads a GGUF header.

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/gguf/bytes.h"
#include "core/gguf/gguf.h"
#include "core/gguf/tensor_type.h"
#include "core/text/keyed_hash.h"
#include "core/text/quoted.h"
#include "kernels/block_formats.h"

namespace sluice::gguf {
namespace {

constexpr std::uint64_t key_bytes_max = 65535;
constexpr std::uint64_t tensor_name_bytes_max = 63;

// The least bytes of an entry. They bound a count before its entries are read.
constexpr std::uint64_t key_value_bytes_min = 8 + 1 + 4 + 1;            // key, type, value
constexpr std::uint64_t tensor_info_bytes_min = 8 + 1 + 4 + 8 + 4 + 8;  // name, rank, dim, type, at

// Walks over the bytes and refuses to step past their end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& source,
         const std::function<void(std::uint64_t)>& read_to)
      : bytes_(bytes), source_(source), read_to_(read_to) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t remaining() const { return bytes_.size() - offset_; }

  // What is being read, for messages: " key 'a.b':", or empty.
  void set_context(std::string context) { context_ = std::move(context); }

  [[noreturn]] void fail(std::uint64_t at, std::string_view what) const {
    throw ModelError(fmt::format("{}: byte {}:{} {}", source_, at, context_, what));
  }

  std::span<const std::byte> take(std::uint64_t length, std::string_view what) {
    if (length > remaining()) {
      fail(offset_, fmt::format("{} of {} bytes runs past the end of the file ({} bytes are left); "
                                "the file is cut short or damaged",
                                what, length, remaining()));
    }
    if (read_to_) read_to_(offset_ + length);
    const auto taken =
        bytes_.subspan(static_cast<std::size_t>(offset_), static_cast<std::size_t>(length));
    offset_ += length;
    return taken;
  }

  template <typename T>
  T read(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }

  std::span<const std::byte> take_string(std::string_view what) {
    return take(read<std::uint64_t>(what), what);
  }

  // A key or tensor name.
  std::string_view read_name(std::string_view what, std::uint64_t length_max) {
    const std::uint64_t at = offset_;
    const auto length = read<std::uint64_t>(what);
    if (length == 0 || length > length_max) {
      fail(at, fmt::format("{} has {} bytes, expected 1 to {}", what, length, length_max));
    }
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& source_;
  const std::function<void(std::uint64_t)>& read_to_;
  std::string context_;
  std::uint64_t offset_ = 0;
};

std::uint32_t read_version(Cursor& cursor) {
  const auto magic = cursor.take(4, "the magic 'GGUF'");
  const std::string_view found(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (found != "GGUF") {
    cursor.fail(
        0, fmt::format("found {}, expected 'GGUF': this is not a GGUF file", text::quoted(found)));
  }
  const auto version = cursor.read<std::uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  if ((version & 0xFFFF) == 0 && version != 0) {
    cursor.fail(4, "the file is big-endian; convert it to a little-endian GGUF file");
  }
  cursor.fail(4, fmt::format("found GGUF version {}, expected 2 or 3", version));
}

std::uint64_t read_count(Cursor& cursor, std::string_view what, std::uint64_t most) {
  const std::uint64_t at = cursor.offset();
  const auto count = cursor.read<std::uint64_t>(what);
  if (count > most) {
    cursor.fail(at, fmt::format("{} is {}, expected at most {}", what, count, most));
  }
  return count;
}

void check_count(const Cursor& cursor, std::uint64_t count, std::uint64_t entry_bytes_min,
                 std::string_view what) {
  if (count > cursor.remaining() / entry_bytes_min) {
    cursor.fail(cursor.offset(),
                fmt::format("{} {} cannot fit into the {} bytes that are left; the file is cut "
                            "short or damaged",
                            count, what, cursor.remaining()));
  }
}

ValueType read_value_type(Cursor& cursor, std::string_view what) {
  const std::uint64_t at = cursor.offset();
  const auto id = cursor.read<std::uint32_t>(what);
  if (id > static_cast<std::uint32_t>(ValueType::f64)) {
    cursor.fail(at, fmt::format("{} is {}, expected 0 to 12", what, id));
  }
  return static_cast<ValueType>(id);
}

void check_bools(const Cursor& cursor, std::span<const std::byte> bytes, std::uint64_t offset) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](std::byte b) { return std::to_integer<unsigned>(b) > 1; });
  if (bad == bytes.end()) return;
  cursor.fail(offset + static_cast<std::uint64_t>(bad - bytes.begin()),
              fmt::format("found the bool {}, expected 0 or 1", std::to_integer<unsigned>(*bad)));
}

Value read_array(Cursor& cursor, std::span<const std::byte> all_bytes) {
  const std::uint64_t type_at = cursor.offset();
  const ValueType type = read_value_type(cursor, "the element type");
  if (type == ValueType::array) cursor.fail(type_at, "found an array of arrays, which is not used");
  const auto count = cursor.read<std::uint64_t>("the element count");
  const std::uint64_t offset = cursor.offset();
  if (type == ValueType::string) {
    check_count(cursor, count, sizeof(std::uint64_t), "strings");
    for (std::uint64_t i = 0; i < count; ++i) cursor.take_string("a string of the array");
  } else {
    check_count(cursor, count, value_type_bytes(type), value_type_name(type));
    cursor.take(count * value_type_bytes(type), "the array");
  }
  const auto bytes = all_bytes.subspan(static_cast<std::size_t>(offset),
                                       static_cast<std::size_t>(cursor.offset() - offset));
  if (type == ValueType::boolean) check_bools(cursor, bytes, offset);
  return {ValueType::array, type, count, bytes, offset};
}

Value read_value(Cursor& cursor, std::span<const std::byte> all_bytes) {
  const ValueType type = read_value_type(cursor, "the value type");
  if (type == ValueType::array) return read_array(cursor, all_bytes);
  if (type == ValueType::string) {
    const auto bytes = cursor.take_string("the string");
    return {type, type, 1, bytes, cursor.offset() - bytes.size()};
  }
  const std::uint64_t offset = cursor.offset();
  const auto bytes = cursor.take(value_type_bytes(type), "the value");
  if (type == ValueType::boolean) check_bools(cursor, bytes, offset);
  return {type, type, 1, bytes, offset};
}

Metadata read_metadata(Cursor& cursor, std::span<const std::byte> bytes, std::uint64_t count,
                       const std::string& source) {
  check_count(cursor, count, key_value_bytes_min, "metadata entries");
  std::vector<Metadata::Entry> entries;
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.set_context(fmt::format(" metadata entry {}:", i));
    const std::string_view key = cursor.read_name("the key", key_bytes_max);
    cursor.set_context(fmt::format(" key {}:", text::quoted(key)));
    entries.push_back({key, read_value(cursor, bytes)});
  }
  cursor.set_context({});
  return Metadata(source, std::move(entries));
}

std::uint32_t read_alignment(const Metadata& metadata) {
  constexpr std::string_view key = "general.alignment";
  const Value* value = metadata.find(key);
  if (value == nullptr) return default_alignment;
  if (value->type() != ValueType::u32) {
    throw metadata.error(key, fmt::format("found {} (at byte {}), expected u32", value->describe(),
                                          value->offset()));
  }
  const auto alignment = load<std::uint32_t>(value->bytes().data());
  if (!std::has_single_bit(alignment) || alignment < alignment_min) {
    throw metadata.error(key, fmt::format("is {} (at byte {}), expected a power of two of at "
                                          "least {}",
                                          alignment, value->offset(), alignment_min));
  }
  return alignment;
}

void read_dims(Cursor& cursor, TensorInfo& tensor) {
  const std::uint64_t rank_at = cursor.offset();
  tensor.rank = cursor.read<std::uint32_t>("the number of dimensions");
  if (tensor.rank < 1 || tensor.rank > tensor.dims.size()) {
    cursor.fail(rank_at, fmt::format("found {} dimensions, expected 1 to 4", tensor.rank));
  }
  std::optional<std::uint64_t> elements = 1;
  for (std::uint32_t d = 0; d < tensor.rank; ++d) {
    const std::uint64_t at = cursor.offset();
    tensor.dims[d] = cursor.read<std::uint64_t>("a dimension");
    if (tensor.dims[d] == 0) cursor.fail(at, fmt::format("dimension {} is 0", d));
    elements = checked_multiply(*elements, tensor.dims[d]);
    if (!elements || *elements > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      cursor.fail(at,
                  fmt::format("dimension {} is {}: more than 2^63 elements", d, tensor.dims[d]));
    }
  }
}

// Reads type and offset, and derives the bytes. The offset is still relative to the data.
void read_placement(Cursor& cursor, TensorInfo& tensor, std::uint32_t alignment) {
  const std::uint64_t type_at = cursor.offset();
  tensor.type = cursor.read<std::uint32_t>("the type");
  const std::string name = kernels::gguf_type_name(tensor.type);
  if (is_removed_type(tensor.type)) {
    cursor.fail(type_at, fmt::format("found type {}, which was removed from GGUF; convert the "
                                     "model again",
                                     tensor.type));
  }
  const auto layout = find_type_layout(tensor.type);
  if (!layout) {
    cursor.fail(type_at, fmt::format("found type {} ({}), which is not known to this version",
                                     tensor.type, name));
  }
  if (tensor.dims[0] % layout->elements_per_block != 0) {
    cursor.fail(type_at, fmt::format("a row has {} elements, expected a multiple of {} for {}",
                                     tensor.dims[0], layout->elements_per_block, name));
  }
  const auto bytes =
      tensor_bytes(*layout, tensor.dims[0], tensor.dims[1] * tensor.dims[2] * tensor.dims[3]);
  const std::uint64_t offset_at = cursor.offset();
  tensor.offset = cursor.read<std::uint64_t>("the offset");
  if (!bytes || *bytes > data_bytes_max) {
    cursor.fail(type_at, fmt::format("{} as {} is larger than any model", tensor.shape(), name));
  }
  tensor.bytes = *bytes;
  if (tensor.offset % alignment != 0 || tensor.offset > data_bytes_max) {
    cursor.fail(offset_at, fmt::format("the data is at offset {}, expected a multiple of the "
                                       "alignment {} inside the file",
                                       tensor.offset, alignment));
  }
}

std::vector<TensorInfo> read_tensors(Cursor& cursor, std::uint64_t count, std::uint32_t alignment) {
  check_count(cursor, count, tensor_info_bytes_min, "tensors");
  std::vector<TensorInfo> tensors;
  std::unordered_set<std::string_view, text::KeyedHash> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    cursor.set_context(fmt::format(" tensor {}:", i));
    TensorInfo tensor;
    const std::uint64_t name_at = cursor.offset();
    tensor.name = cursor.read_name("the name", tensor_name_bytes_max);
    cursor.set_context(fmt::format(" tensor {}:", text::quoted(tensor.name)));
    if (!names.insert(tensor.name).second) {
      cursor.fail(name_at, "the name occurs again, expected each name once");
    }
    read_dims(cursor, tensor);
    read_placement(cursor, tensor, alignment);
    tensors.push_back(tensor);
  }
  cursor.set_context({});
  return tensors;
}

void check_inside_file(const Header& header, std::uint64_t file_bytes, const std::string& source) {
  for (const TensorInfo& tensor : header.tensors) {
    const std::uint64_t end = tensor.offset + tensor.bytes;
    if (end <= file_bytes) continue;
    throw ModelError(
        fmt::format("{}: tensor {}: its data ends at byte {}, but the file has {} "
                    "bytes; the file is cut short or damaged, get it again",
                    source, text::quoted(tensor.name), end, file_bytes));
  }
}

void check_no_overlap(const std::vector<TensorInfo>& tensors, const std::string& source) {
  std::vector<std::uint32_t> by_offset(tensors.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors[a].offset < tensors[b].offset;
  });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = tensors[by_offset[i - 1]];
    const TensorInfo& tensor = tensors[by_offset[i]];
    if (before.offset + before.bytes <= tensor.offset) continue;
    throw ModelError(
        fmt::format("{}: tensor {} starts at byte {}, inside tensor {} (bytes {} to "
                    "{}); expected tensors that do not overlap",
                    source, text::quoted(tensor.name), tensor.offset, text::quoted(before.name),
                    before.offset, before.offset + before.bytes));
  }
}

}  // namespace

Header parse_header(std::span<const std::byte> bytes, const std::string& source,
                    const ParseOptions& options,
                    const std::function<void(std::uint64_t end)>& read_to) {
  Cursor cursor(bytes, source, read_to);
  Header header;
  header.version = read_version(cursor);
  const std::uint64_t tensor_count = read_count(cursor, "the number of tensors", tensors_max);
  const std::uint64_t entry_count =
      read_count(cursor, "the number of metadata entries", metadata_entries_max);
  header.metadata = read_metadata(cursor, bytes, entry_count, source);
  header.alignment = read_alignment(header.metadata);
  header.tensors = read_tensors(cursor, tensor_count, header.alignment);
  header.data_offset = align_up(cursor.offset(), header.alignment);
  for (TensorInfo& tensor : header.tensors) tensor.offset += header.data_offset;
  if (!options.header_only) check_inside_file(header, bytes.size(), source);
  check_no_overlap(header.tensors, source);
  return header;
}

}  // namespace sluice::gguf
