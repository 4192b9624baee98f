#include "core/text/limited_json.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr int number_out_of_range = 406;  // the library's id of this error

// Leaves one member of each name, where names may be repeated. Sorting finds equal names, so it
// takes no quadratic time.
void unite_members(Json::object_t& object, const JsonLimits& limits) {
  auto* const members = object.data();
  std::vector<std::size_t> order(object.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) -> const std::string& { return members[i].first; });
  std::vector<bool> is_repeated(object.size(), false);
  for (std::size_t i = 1, first = order[0]; i < order.size(); ++i) {
    if (members[order[i]].first != members[first].first) {
      first = order[i];
      continue;
    }
    if (!limits.may_repeat_names) {
      throw JsonError(fmt::format("the name {} comes twice in one object of the {}",
                                  text::quoted(members[first].first), limits.what));
    }
    members[first].second = std::move(members[order[i]].second);
    is_repeated[order[i]] = true;
  }
  Json::object_t united;
  united.reserve(object.size());
  for (std::size_t i = 0; i < object.size(); ++i) {
    if (!is_repeated[i]) united.emplace_back(members[i].first, std::move(members[i].second));
  }
  object = std::move(united);
}

// Whether a name may occur twice; certain for a few members.
bool may_have_twins(const Json::object_t& object) {
  constexpr std::size_t few = 16;
  if (object.size() > few) return true;
  for (auto member = object.begin(); member != object.end(); ++member) {
    for (auto other = object.begin(); other != member; ++other) {
      if (member->first == other->first) return true;
    }
  }
  return false;
}

// Handles the events of the parser, in the form that nlohmann::json_sax describes. (The library's
// own parser looks through an object for each of its names, and with a callback it takes quadratic
// time for an array.)
class JsonBuilder {
 public:
  JsonBuilder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(std::int64_t value) { return add(value) != nullptr; }
  bool number_unsigned(std::uint64_t value) { return add(value) != nullptr; }
  bool number_float(double value, const std::string& text) {
    if (is_integer_literal(text) && !limits_.rounds_integers) {
      throw JsonError(fmt::format("the {} has an integer beyond 64 bits: {}", limits_.what,
                                  text::printable(text, 80)));
    }
    return add(value) != nullptr;
  }
  bool string(std::string& value) { return add(std::move(value)) != nullptr; }
  static bool binary(Json::binary_t&) { return false; }  // does not occur in text
  bool start_object(std::size_t) { return open(Json::value_t::object); }
  bool start_array(std::size_t) { return open(Json::value_t::array); }
  bool end_array() { return close(); }
  bool end_object() {
    auto& object = open_.back()->get_ref<Json::object_t&>();
    if (may_have_twins(object)) unite_members(object, limits_);
    return close();
  }

  bool key(std::string& name) {
    count();
    auto& object = open_.back()->get_ref<Json::object_t&>();
    if (object.size() == limits_.members_max) {
      throw JsonError(fmt::format("an object of the {} has more than {} members in its JSON",
                                  limits_.what, limits_.members_max));
    }
    reserve_members(object, object.size() + 1);
    object.emplace_back(std::move(name), nullptr);
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error) {
    throw JsonError(fmt::format("the {} is {}", limits_.what, json_problem(text_, byte, error)));
  }

  LimitedJson take() { return {std::move(root_), values_}; }

 private:
  void count() {
    if (++values_ <= limits_.values_max) return;
    throw JsonError(fmt::format("the {} has more than {} values in its JSON", limits_.what,
                                limits_.values_max));
  }

  // A container does not grow while one inside it is open, so pointers to values stay valid.
  Json* add(Json value) {
    count();
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      Json& member = open_.back()->get_ref<Json::object_t&>().back().second;
      member = std::move(value);
      return &member;
    }
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }

  bool open(Json::value_t type) {
    if (open_.size() == limits_.depth_max) {
      throw JsonError(fmt::format("the JSON of the {} is more than {} levels deep", limits_.what,
                                  limits_.depth_max));
    }
    open_.push_back(add(type));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  JsonLimits limits_;
  std::size_t values_ = 0;
  Json root_;
  std::vector<Json*> open_;  // open containers, outermost first
};

}  // namespace

bool is_integer_literal(std::string_view number) {
  return number.find_first_of(".eE") == number.npos;
}

std::string name_of_step(std::string_view step) {
  std::string name;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const bool is_escape =
        step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1');
    name += !is_escape ? step[i] : step[++i] == '0' ? '~' : '/';
  }
  return name;
}

void reserve_members(Json::object_t& object, std::size_t count) {
  if (count <= object.capacity()) return;
  Json::object_t larger;
  larger.reserve(std::max(count, 2 * object.size()));
  for (auto& [name, value] : object) larger.emplace_back(name, std::move(value));
  object = std::move(larger);
}

LimitedJson parse_limited_json(std::string_view text, const JsonLimits& limits) {
  JsonBuilder builder(text, limits);
  Json::sax_parse(text, &builder);
  return builder.take();
}

std::string json_problem(std::string_view text, std::size_t byte,
                         const nlohmann::detail::exception& error) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "not JSON: it is empty";
  if (error.id == number_out_of_range) return "not JSON: a number is too large";
  if (byte == 0 || byte > text.size()) return "not JSON: it ends before it is complete";
  const auto front = static_cast<unsigned char>(text[byte - 1]);
  const std::string place = fmt::format("not JSON: byte {}: ", byte);
  if (utf8::valid_prefix(text) < byte) return place + "the text is not UTF-8";
  if (front < 0x20 || front == 0x7F) {
    return place + fmt::format("a control character (0x{:02X}) cannot stand here", front);
  }
  // The parser may stop at any byte of a character.
  const std::size_t begin = utf8::character_start(text, byte - 1);
  const std::string_view rest = text.substr(begin);
  const std::string_view character = rest.substr(0, utf8::character_bytes(rest));
  return place +
         fmt::format("'{}' cannot stand here", text::printable(character, character.size()));
}

std::uint64_t json_bytes(const Json& value) {
  constexpr std::uint64_t allocation = 32;  // of a container or a text
  std::uint64_t bytes = sizeof(Json);
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

}  // namespace sluice
