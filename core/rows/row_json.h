// The JSON of a row, and checks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace sluice::rows {

// Objects keep the order of their members, because chat templates write it into the prompt.
using RowJson = nlohmann::ordered_json;

// Says why a row is bad, in one line. Those who read rows catch it and make it the error of the row
// or of the request.
struct BadRow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RowLimits {
  std::size_t values_max;             // values and names together
  std::size_t members_max;            // of one object
  std::size_t depth_max;              // of nested containers
  std::string_view what = "request";  // that the object is, for messages
};

// Parses an object, in time linear in the line. Throws BadRow for anything else and beyond a limit.
RowJson parse_row_object(std::string_view line, const RowLimits& limits);

// The member of an object; null when it is absent or has the value null.
const RowJson* find_member(const RowJson& object, std::string_view name);

// The text of a value, in one line; bytes that are no UTF-8 become U+FFFD.
std::string json_text(const RowJson& value);

// Throw BadRow, which names the member.
[[noreturn]] void throw_wrong_type(std::string_view name, std::string_view expected,
                                   const RowJson& found);
std::string text_of(const RowJson& value, std::string_view name);
bool truth_of(const RowJson& value, std::string_view name);
std::uint64_t count_of(const RowJson& value, std::string_view name, std::uint64_t most,
                       std::uint64_t least = 0);
double number_of(const RowJson& value, std::string_view name,
                 double least = -std::numeric_limits<double>::max(),
                 double most = std::numeric_limits<double>::max());

}  // namespace sluice::rows
