// JSON that comes from anybody: parsed in time linear in the text, within limits.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice {

struct JsonLimits {
  std::string_view what;    // that the JSON is, for messages: "row"
  std::size_t values_max;   // values and names together
  std::size_t members_max;  // of one object
  std::size_t depth_max;    // of nested containers
  // Whether a name may come twice in one object: readers differ in which of the two they take.
  bool may_repeat_names = true;
  // Whether an integer beyond 64 bits becomes the next number with a fraction; otherwise it is
  // refused, since it would come out as another number.
  bool rounds_integers = false;
};

// Whether a number, as it is written in JSON, is an integer.
bool is_integer_literal(std::string_view number);

// Says in one line what is wrong with a text, or which limit it is beyond.
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct LimitedJson {
  nlohmann::ordered_json value;
  std::size_t values;  // values and names in the text together
};

// Objects keep the order of their members. Of members with the same name, where that may be, the
// last value counts, at the place of the first. Throws JsonError.
LimitedJson parse_limited_json(std::string_view text, const JsonLimits& limits);

// The name that a step of a JSON pointer (RFC 6901) stands for: ~1 and ~0 are / and ~.
std::string name_of_step(std::string_view step);

// Makes room for so many members. An object is a vector that copies its members where it grows, as
// their names cannot be moved; here the values are moved, since a copy of all that is nested in
// them, once for each object around it, would take quadratic time.
void reserve_members(nlohmann::ordered_json::object_t& object, std::size_t count);

// What is wrong with a text at the byte where the parser has stopped (counted from 1; one behind
// the end when more was expected), as the end of a sentence: "not JSON: byte 5: ' ' cannot stand
// here".
std::string json_problem(std::string_view text, std::size_t byte,
                         const nlohmann::detail::exception& error);

// The memory of a value, including the value itself. Recurses as deep as the value is.
std::uint64_t json_bytes(const nlohmann::ordered_json& value);

}  // namespace sluice
