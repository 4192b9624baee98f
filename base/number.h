// Numbers as texts.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace sluice::base {

// The number that the whole text is, with a - in front where Number has a sign: a whole number in
// decimal digits, or in those of the base that is given, or a floating-point one. Nothing for any
// other text: empty, with white space or a +, or of a number that Number does not hold.
template <typename Number, typename... Base>
std::optional<Number> whole_number(std::string_view text, Base... base) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace sluice::base
