// The metadata of a GGUF file: typed values by key, as views into the bytes of the file's header.
//
// Nothing is copied. A Metadata, and every string and array that it returns, point into the bytes
// that were parsed; whoever keeps such a view must keep those bytes (gguf::Model owns them).
// Immutable after construction; any number of threads may read.
//
// Lookups come in pairs: find_x returns nothing when the key is absent, require_x throws. Both
// throw ModelError when the value has another type or does not fit, naming file, key, byte offset,
// what was found and what was expected. So a wrong type is never mistaken for an absent key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace sluice::gguf {

// Values are the type ids of GGUF metadata values.
enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// "u32", "string", ...
std::string_view value_type_name(ValueType type);

// Bytes of one value of the type; 0 for strings and arrays, which vary.
std::size_t value_type_bytes(ValueType type);

// u8 to u64 and i8 to i64; not bool.
bool is_integer(ValueType type);

// One value as it lies in the file, already checked: bytes() is exactly its payload, and every
// string in it ends inside it.
class Value {
 public:
  // `bytes`: of a scalar, the little-endian value; of a string, its characters; of an array, the
  // elements (for strings, each a u64 length and the characters).
  Value(ValueType type, ValueType element_type, std::uint64_t count,
        std::span<const std::byte> bytes, std::uint64_t offset)
      : bytes_(bytes), count_(count), offset_(offset), type_(type), element_type_(element_type) {}

  ValueType type() const { return type_; }
  bool is_array() const { return type_ == ValueType::array; }
  ValueType element_type() const { return element_type_; }  // of a scalar: its type
  std::uint64_t count() const { return count_; }            // elements; of a scalar: 1
  std::span<const std::byte> bytes() const { return bytes_; }
  std::uint64_t offset() const { return offset_; }  // of the payload, from the start of the file

  // "u32", "array of 7 string", for messages.
  std::string describe() const;

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t count_;
  std::uint64_t offset_;
  ValueType type_;
  ValueType element_type_;
};

// An array of strings, read from front to back: in the file each string follows its length, so the
// i-th can only be reached over those before it. To index them, copy the views into a vector:
// std::vector<std::string_view>(a.begin(), a.end()).
class StringArray {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    explicit Iterator(const std::byte* position) : position_(position) {}
    std::string_view operator*() const;
    Iterator& operator++();
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const std::byte* position_ = nullptr;
  };

  explicit StringArray(const Value& value) : value_(value) {}
  std::size_t size() const { return static_cast<std::size_t>(value_.count()); }
  bool empty() const { return size() == 0; }
  Iterator begin() const { return Iterator(value_.bytes().data()); }
  Iterator end() const { return Iterator(value_.bytes().data() + value_.bytes().size()); }

 private:
  Value value_;
};

// An array of integers of any width, or of bools (0 and 1). Every element fits an int64.
class IntegerArray {
 public:
  explicit IntegerArray(const Value& value) : value_(value) {}
  std::size_t size() const { return static_cast<std::size_t>(value_.count()); }
  bool empty() const { return size() == 0; }
  std::int64_t operator[](std::size_t i) const;  // i < size()

 private:
  Value value_;
};

// An array of f32, at any alignment.
class FloatArray {
 public:
  explicit FloatArray(const Value& value) : value_(value) {}
  std::size_t size() const { return static_cast<std::size_t>(value_.count()); }
  bool empty() const { return size() == 0; }
  float operator[](std::size_t i) const;  // i < size()

 private:
  Value value_;
};

class Metadata {
 public:
  struct Entry {
    std::string_view key;
    Value value;
  };

  Metadata() = default;

  // `entries` in file order; `source` is the file name for messages. Throws ModelError when a key
  // occurs twice.
  Metadata(std::string source, std::vector<Entry> entries);

  std::span<const Entry> entries() const { return entries_; }  // in file order
  const std::string& source() const { return source_; }

  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Value* find(std::string_view key) const;  // null when absent
  const Value& require(std::string_view key) const;

  // An integer of any width; find_uint rejects negative values.
  std::optional<std::uint64_t> find_uint(std::string_view key) const;
  std::uint64_t require_uint(std::string_view key) const;
  std::optional<std::int64_t> find_int(std::string_view key) const;
  std::int64_t require_int(std::string_view key) const;

  // An integer of any width that fits 32 bits, as most hyper-parameters do.
  std::optional<std::uint32_t> find_u32(std::string_view key) const;
  std::uint32_t require_u32(std::string_view key) const;

  // f32, or f64 within the range of f32.
  std::optional<float> find_f32(std::string_view key) const;
  float require_f32(std::string_view key) const;

  std::optional<bool> find_bool(std::string_view key) const;
  bool require_bool(std::string_view key) const;

  std::optional<std::string_view> find_string(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;

  std::optional<StringArray> find_strings(std::string_view key) const;
  StringArray require_strings(std::string_view key) const;

  // Elements of any integer type or bool.
  std::optional<IntegerArray> find_integers(std::string_view key) const;
  IntegerArray require_integers(std::string_view key) const;

  // Elements of type f32, and no other.
  std::optional<FloatArray> find_floats(std::string_view key) const;
  FloatArray require_floats(std::string_view key) const;

  // An error about a key, in the form that the lookups use: "FILE: key 'a.b': WHAT". For code that
  // finds that a value of the right type makes no sense.
  ModelError error(std::string_view key, std::string_view what) const;

 private:
  ModelError wrong_type(std::string_view key, const Value& value, std::string_view expected) const;
  ModelError missing(std::string_view key, std::string_view expected) const;

  template <typename T>
  T required(std::optional<T> found, std::string_view key, std::string_view expected) const;

  std::string source_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_key_;  // indices into entries_, in the order of the keys
};

}  // namespace sluice::gguf
