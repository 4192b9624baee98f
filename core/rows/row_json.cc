#include "core/rows/row_json.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace sluice::rows {
namespace {

// The parser's message without its prefix and without the text that it read last, which may be
// anything.
std::string parse_problem(const nlohmann::detail::exception& error) {
  std::string_view text = error.what();
  text.remove_prefix(std::min(text.find("] "), text.size()));
  if (text.starts_with("] ")) text.remove_prefix(2);
  text = text.substr(0, text.find("; last read"));
  return std::string(text);
}

// Handles the events of the parser, in the form that nlohmann::json_sax describes. (The library's
// parser with a callback takes quadratic time for an array.)
class RowBuilder {
 public:
  explicit RowBuilder(const RowLimits& limits) : limits_(limits) {}

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(std::int64_t value) { return add(value) != nullptr; }
  bool number_unsigned(std::uint64_t value) { return add(value) != nullptr; }
  bool number_float(double value, const std::string&) { return add(value) != nullptr; }
  bool string(std::string& value) { return add(std::move(value)) != nullptr; }
  static bool binary(RowJson::binary_t&) { return false; }  // does not occur in text
  bool start_object(std::size_t) { return open(RowJson::value_t::object); }
  bool start_array(std::size_t) { return open(RowJson::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    count();
    RowJson& object = *open_.back();
    if (object.size() == limits_.members_max) {
      throw BadRow(fmt::format("an object of the row has more than {} members in its JSON",
                               limits_.members_max));
    }
    member_ = &object[name];
    return true;
  }

  static bool parse_error(std::size_t byte, const std::string&,
                          const nlohmann::detail::exception& error) {
    throw BadRow(fmt::format("not JSON: byte {}: {}", byte, parse_problem(error)));
  }

  RowJson take() { return std::move(root_); }

 private:
  void count() {
    if (++values_ <= limits_.values_max) return;
    throw BadRow(fmt::format("the row has more than {} values in its JSON", limits_.values_max));
  }

  // A container does not grow while one inside it is open, so pointers to values stay valid.
  RowJson* add(RowJson value) {
    count();
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *member_ = std::move(value);
      return member_;
    }
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }

  bool open(RowJson::value_t type) {
    if (open_.size() == limits_.depth_max) {
      throw BadRow(
          fmt::format("the JSON of the row is more than {} levels deep", limits_.depth_max));
    }
    open_.push_back(add(type));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  RowLimits limits_;
  std::size_t values_ = 0;
  RowJson root_;
  std::vector<RowJson*> open_;  // open containers, outermost first
  RowJson* member_ = nullptr;   // the member whose value comes next
};

}  // namespace

RowJson parse_row_object(std::string_view line, const RowLimits& limits) {
  RowBuilder builder(limits);
  RowJson::sax_parse(line, &builder);
  RowJson object = builder.take();
  if (!object.is_object()) {
    throw BadRow(fmt::format("a row must be an object, not {}", object.type_name()));
  }
  return object;
}

const RowJson* find_member(const RowJson& object, std::string_view name) {
  for (const auto& item : object.items()) {
    if (item.key() == name) return item.value().is_null() ? nullptr : &item.value();
  }
  return nullptr;
}

std::string json_text(const RowJson& value) {
  return value.dump(-1, ' ', false, RowJson::error_handler_t::replace);
}

std::uint64_t json_bytes(const RowJson& value) {
  constexpr std::uint64_t allocation = 32;  // of a container or a text
  std::uint64_t bytes = sizeof(RowJson);
  if (value.is_string()) {
    bytes += allocation + sizeof(std::string) + value.get_ref<const std::string&>().capacity();
  } else if (value.is_structured()) {
    bytes += allocation;
    for (const auto& item : value.items()) {
      bytes += json_bytes(item.value());
      if (value.is_object()) bytes += sizeof(std::string) + item.key().capacity();
    }
  }
  return bytes;
}

void throw_wrong_type(std::string_view name, std::string_view expected, const RowJson& found) {
  throw BadRow(fmt::format("\"{}\" must be {}, not {}", name, expected, found.type_name()));
}

std::string text_of(const RowJson& value, std::string_view name) {
  if (!value.is_string()) throw_wrong_type(name, "a string", value);
  return value.get<std::string>();
}

bool truth_of(const RowJson& value, std::string_view name) {
  if (!value.is_boolean()) throw_wrong_type(name, "true or false", value);
  return value.get<bool>();
}

std::uint64_t count_of(const RowJson& value, std::string_view name, std::uint64_t most) {
  if (!value.is_number_integer()) throw_wrong_type(name, "an integer", value);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= most) {
    return value.get<std::uint64_t>();
  }
  throw BadRow(fmt::format("\"{}\" is {}, but must be from 0 to {}", name, value.dump(), most));
}

double number_of(const RowJson& value, std::string_view name, double least, double most) {
  if (!value.is_number()) throw_wrong_type(name, "a number", value);
  const auto number = value.get<double>();
  if (number >= least && number <= most) return number;
  throw BadRow(
      fmt::format("\"{}\" is {}, but must be from {} to {}", name, value.dump(), least, most));
}

}  // namespace sluice::rows
