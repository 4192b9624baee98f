// Writer of GGUF version 3 files: metadata, then tensors in the order they were added, with
// contiguous offsets, each padded to the alignment, as llama.cpp demands.
//
// The data of a tensor comes piece by piece from a callback, so a file of any size takes little
// memory. Keys and names are not checked for sense: tests write malformed files with this.
//
// Used by one thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/gguf/metadata.h"

namespace sluice::gguf {

// The types of metadata values other than strings.
template <typename T>
concept ScalarValue = std::same_as<T, bool> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> ||
    std::same_as<T, std::uint16_t> || std::same_as<T, std::int16_t> ||
    std::same_as<T, std::uint32_t> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, std::int64_t>;

template <ScalarValue T>
constexpr ValueType value_type_of() {
  if constexpr (std::same_as<T, bool>) return ValueType::boolean;
  if constexpr (std::same_as<T, float>) return ValueType::f32;
  if constexpr (std::same_as<T, double>) return ValueType::f64;
  if constexpr (std::same_as<T, std::uint8_t>) return ValueType::u8;
  if constexpr (std::same_as<T, std::int8_t>) return ValueType::i8;
  if constexpr (std::same_as<T, std::uint16_t>) return ValueType::u16;
  if constexpr (std::same_as<T, std::int16_t>) return ValueType::i16;
  if constexpr (std::same_as<T, std::uint32_t>) return ValueType::u32;
  if constexpr (std::same_as<T, std::int32_t>) return ValueType::i32;
  if constexpr (std::same_as<T, std::uint64_t>) return ValueType::u64;
  if constexpr (std::same_as<T, std::int64_t>) return ValueType::i64;
}

class Writer {
 public:
  // Takes a piece of the data of the current tensor.
  using Sink = std::function<void(std::span<const std::byte>)>;

  // Passes the data of tensor `index` (in the order of addition) to the sink, from front to back.
  using Source = std::function<void(std::size_t index, const Sink& sink)>;

  // An alignment other than the default must also be added as general.alignment.
  explicit Writer(std::uint32_t alignment = default_alignment) : alignment_(alignment) {}

  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }

  template <ScalarValue T>
  void add(std::string_view key, T value) {
    begin_value(key, value_type_of<T>());
    put(value);
  }

  template <ScalarValue T>
  void add_array(std::string_view key, std::span<const T> values) {
    begin_array(key, value_type_of<T>(), values.size());
    for (const T value : values) put(value);
  }

  void add_array(std::string_view key, std::span<const std::string> values);

  // Adds a value copied from another file.
  void add(std::string_view key, const Value& value);

  // `dims`: 1 to 4, the contiguous one first. Throws std::invalid_argument when the type id has no
  // known size, or dims[0] is not a multiple of its block.
  void add_tensor(std::string_view name, std::span<const std::uint64_t> dims, std::uint32_t type);

  std::size_t tensor_count() const { return tensor_bytes_.size(); }
  std::uint64_t tensor_bytes(std::size_t index) const { return tensor_bytes_[index]; }
  std::uint64_t data_bytes() const { return data_bytes_; }  // with padding
  std::uint64_t file_bytes() const;

  // The file up to the start of the data.
  std::vector<std::byte> header() const;

  // Writes a files::DurableFile whose name the user chose. Throws std::system_error when writing
  // fails, and passes on what `source` throws; then there is no file. Throws std::logic_error when
  // `source` gives more or fewer bytes than a tensor has.
  void write(const std::filesystem::path& path, const Source& source) const;

 private:
  template <typename T>
  static void append(std::vector<std::byte>& out, T value) {
    const std::size_t at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }

  template <typename T>
  void put(T value) {
    append(entries_, value);
  }

  void begin_value(std::string_view key, ValueType type);
  void begin_array(std::string_view key, ValueType element_type, std::size_t count);

  std::uint32_t alignment_;
  std::uint64_t entry_count_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::vector<std::byte> entries_;  // the metadata, encoded
  std::vector<std::byte> infos_;    // the tensor infos, encoded
  std::vector<std::uint64_t> tensor_bytes_;
};

}  // namespace sluice::gguf
