// The JSON of a row, and checks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

inline constexpr std::size_t row_values_max = std::size_t{1} << 17;  // values and names together
inline constexpr std::size_t row_members_max = 4096;                 // of one object
inline constexpr std::size_t row_depth_max = 128;                    // of nested containers

// Parses an object, in time linear in the line. Throws BadRow for anything else and beyond one of
// these limits. `what` is what the object is, for messages.
RowJson parse_row_object(std::string_view line, std::string_view what = "request");

// The member of an object; null when it is absent or has the value null.
const RowJson* find_member(const RowJson& object, std::string_view name);

// Throws BadRow for a member of the object that is none of these.
void check_members(const RowJson& object, std::initializer_list<std::string_view> known);

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
