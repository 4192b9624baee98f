// Numbers as texts.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
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

// The double that is nearest to the number that the whole text is, written as for whole_number. One
// beyond the range of doubles becomes 0 or infinite, with its sign.
inline std::optional<double> nearest_double(std::string_view text) {
  double value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stopped != text.data() + text.size()) return std::nullopt;
  if (error == std::errc()) return value;
  if (error != std::errc::result_out_of_range) return std::nullopt;
  // So far out, the power of ten of the first digit says which.
  const std::string_view digits = text.substr(0, text.find_first_of("eE"));
  std::string_view exponent = text.substr(std::min(digits.size() + 1, text.size()));
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  constexpr std::int64_t far = std::numeric_limits<std::int32_t>::max();
  const std::int64_t shift =
      exponent.empty()
          ? 0
          : whole_number<std::int32_t>(exponent).value_or(exponent.starts_with('-') ? -far : far);
  const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const bool is_large = point - first + shift > 0;
  return std::copysign(is_large ? std::numeric_limits<double>::infinity() : 0.0,
                       text.starts_with('-') ? -1.0 : 1.0);
}

}  // namespace sluice::base
