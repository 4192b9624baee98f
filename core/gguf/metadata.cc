#include "core/gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <utility>

#include "core/gguf/bytes.h"
#include "core/text/quoted.h"

namespace sluice::gguf {
namespace {

// The integer of a given type at `bytes`. A u64 beyond int64 comes out negative; is_u64_beyond
// tells such values from negative ones where it matters.
std::int64_t load_integer(ValueType type, const std::byte* bytes) {
  switch (type) {
    case ValueType::u8:
    case ValueType::boolean:
      return load<std::uint8_t>(bytes);
    case ValueType::i8:
      return load<std::int8_t>(bytes);
    case ValueType::u16:
      return load<std::uint16_t>(bytes);
    case ValueType::i16:
      return load<std::int16_t>(bytes);
    case ValueType::u32:
      return load<std::uint32_t>(bytes);
    case ValueType::i32:
      return load<std::int32_t>(bytes);
    case ValueType::u64:
    case ValueType::i64:
      return load<std::int64_t>(bytes);
    default:
      return 0;
  }
}

bool is_u64_beyond_int64(ValueType type, const std::byte* bytes) {
  return type == ValueType::u64 && load<std::int64_t>(bytes) < 0;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(type);
  return i < std::size(names) ? names[i] : "unknown type";
}

std::size_t value_type_bytes(ValueType type) {
  constexpr std::uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto i = static_cast<std::size_t>(type);
  return i < std::size(sizes) ? sizes[i] : 0;
}

bool is_integer(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::u16:
    case ValueType::i16:
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::u64:
    case ValueType::i64:
      return true;
    default:
      return false;
  }
}

std::string Value::describe() const {
  if (!is_array()) return std::string(value_type_name(type_));
  return fmt::format("array of {} {}", count_, value_type_name(element_type_));
}

std::string_view StringArray::Iterator::operator*() const {
  const auto length = static_cast<std::size_t>(load<std::uint64_t>(position_));
  return as_text({position_ + sizeof(std::uint64_t), length});
}

StringArray::Iterator& StringArray::Iterator::operator++() {
  position_ += sizeof(std::uint64_t) + load<std::uint64_t>(position_);
  return *this;
}

std::int64_t IntegerArray::operator[](std::size_t i) const {
  const ValueType type = value_.element_type();
  return load_integer(type, value_.bytes().data() + i * value_type_bytes(type));
}

float FloatArray::operator[](std::size_t i) const {
  return load<float>(value_.bytes().data() + i * sizeof(float));
}

Metadata::Metadata(std::string source, std::vector<Entry> entries)
    : source_(std::move(source)), entries_(std::move(entries)), by_key_(entries_.size()) {
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  // Equal keys stay in file order, so that the error is about the later one.
  std::stable_sort(by_key_.begin(), by_key_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return entries_[a].key < entries_[b].key;
  });
  const auto twice = std::adjacent_find(by_key_.begin(), by_key_.end(), [&](auto a, auto b) {
    return entries_[a].key == entries_[b].key;
  });
  if (twice == by_key_.end()) return;
  const Entry& again = entries_[*(twice + 1)];
  throw error(again.key, fmt::format("occurs again, with its value at byte {}; the first is at "
                                     "byte {}; expected each key once",
                                     again.value.offset(), entries_[*twice].value.offset()));
}

const Value* Metadata::find(std::string_view key) const {
  const auto at = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [&](std::uint32_t i, std::string_view wanted) { return entries_[i].key < wanted; });
  if (at == by_key_.end() || entries_[*at].key != key) return nullptr;
  return &entries_[*at].value;
}

const Value& Metadata::require(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) throw missing(key, "a value");
  return *value;
}

std::optional<std::uint64_t> Metadata::find_uint(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type())) throw wrong_type(key, *value, "an integer");
  const std::byte* bytes = value->bytes().data();
  const std::int64_t number = load_integer(value->type(), bytes);
  if (number < 0 && !is_u64_beyond_int64(value->type(), bytes)) {
    throw error(key, fmt::format("is {} (at byte {}), expected no negative number", number,
                                 value->offset()));
  }
  return static_cast<std::uint64_t>(number);
}

std::optional<std::int64_t> Metadata::find_int(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->type())) throw wrong_type(key, *value, "an integer");
  const std::byte* bytes = value->bytes().data();
  const std::int64_t number = load_integer(value->type(), bytes);
  if (is_u64_beyond_int64(value->type(), bytes)) {
    throw error(key, fmt::format("is {} (at byte {}), expected at most {}",
                                 static_cast<std::uint64_t>(number), value->offset(),
                                 std::numeric_limits<std::int64_t>::max()));
  }
  return number;
}

std::optional<std::uint32_t> Metadata::find_u32(std::string_view key) const {
  const auto number = find_uint(key);
  if (!number) return std::nullopt;
  if (*number > std::numeric_limits<std::uint32_t>::max()) {
    throw error(key, fmt::format("is {} (at byte {}), expected at most {}", *number,
                                 require(key).offset(), std::numeric_limits<std::uint32_t>::max()));
  }
  return static_cast<std::uint32_t>(*number);
}

std::optional<float> Metadata::find_f32(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type() == ValueType::f32) return load<float>(value->bytes().data());
  if (value->type() != ValueType::f64) throw wrong_type(key, *value, "f32");
  const auto number = load<double>(value->bytes().data());
  if (std::abs(number) > std::numeric_limits<float>::max() && std::isfinite(number)) {
    throw error(key, fmt::format("is {} (at byte {}), expected a number in the range of f32",
                                 number, value->offset()));
  }
  return static_cast<float>(number);
}

std::optional<bool> Metadata::find_bool(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type() != ValueType::boolean) throw wrong_type(key, *value, "bool");
  return load<std::uint8_t>(value->bytes().data()) != 0;
}

std::optional<std::string_view> Metadata::find_string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type() != ValueType::string) throw wrong_type(key, *value, "string");
  return as_text(value->bytes());
}

std::optional<StringArray> Metadata::find_strings(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->element_type() != ValueType::string) {
    throw wrong_type(key, *value, "array of string");
  }
  return StringArray(*value);
}

std::optional<IntegerArray> Metadata::find_integers(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const ValueType type = value->element_type();
  if (!value->is_array() || !(is_integer(type) || type == ValueType::boolean)) {
    throw wrong_type(key, *value, "array of integers");
  }
  if (type == ValueType::u64) {
    for (std::size_t i = 0; i < value->count(); ++i) {
      if (!is_u64_beyond_int64(type, value->bytes().data() + i * sizeof(std::uint64_t))) continue;
      throw error(key, fmt::format("element {} (at byte {}) is above {}", i,
                                   value->offset() + i * sizeof(std::uint64_t),
                                   std::numeric_limits<std::int64_t>::max()));
    }
  }
  return IntegerArray(*value);
}

std::optional<FloatArray> Metadata::find_floats(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->element_type() != ValueType::f32) {
    throw wrong_type(key, *value, "array of f32");
  }
  return FloatArray(*value);
}

template <typename T>
T Metadata::required(std::optional<T> found, std::string_view key,
                     std::string_view expected) const {
  if (!found) throw missing(key, expected);
  return *found;
}

std::uint64_t Metadata::require_uint(std::string_view key) const {
  return required(find_uint(key), key, "an integer");
}

std::int64_t Metadata::require_int(std::string_view key) const {
  return required(find_int(key), key, "an integer");
}

std::uint32_t Metadata::require_u32(std::string_view key) const {
  return required(find_u32(key), key, "an integer");
}

float Metadata::require_f32(std::string_view key) const {
  return required(find_f32(key), key, "f32");
}

bool Metadata::require_bool(std::string_view key) const {
  return required(find_bool(key), key, "bool");
}

std::string_view Metadata::require_string(std::string_view key) const {
  return required(find_string(key), key, "string");
}

StringArray Metadata::require_strings(std::string_view key) const {
  return required(find_strings(key), key, "array of string");
}

IntegerArray Metadata::require_integers(std::string_view key) const {
  return required(find_integers(key), key, "array of integers");
}

FloatArray Metadata::require_floats(std::string_view key) const {
  return required(find_floats(key), key, "array of f32");
}

ModelError Metadata::error(std::string_view key, std::string_view what) const {
  return ModelError(fmt::format("{}: key {}: {}", source_, text::quoted(key), what));
}

ModelError Metadata::wrong_type(std::string_view key, const Value& value,
                                std::string_view expected) const {
  return error(key, fmt::format("found {} (at byte {}), expected {}", value.describe(),
                                value.offset(), expected));
}

ModelError Metadata::missing(std::string_view key, std::string_view expected) const {
  return error(key, fmt::format("is missing, expected {}", expected));
}

}  // namespace sluice::gguf
