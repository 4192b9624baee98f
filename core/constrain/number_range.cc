#include "core/constrain/number_range.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

namespace sluice::constrain {
namespace {

// A double tells numbers of so many digits apart.
constexpr std::uint32_t digits_max = 15;
constexpr std::uint64_t whole_max = 999'999'999'999'999;  // in front of a point

Expression digit(GrammarBuilder& b, char first, char last) {
  ByteSet set;
  for (char c = first; c <= last; ++c) set.set(static_cast<unsigned char>(c));
  return b.bytes(set);
}

Expression any_digits(GrammarBuilder& b, std::size_t min, std::size_t max) {
  return b.repeat(digit(b, '0', '9'), static_cast<std::uint32_t>(min),
                  static_cast<std::uint32_t>(max));
}

Expression join(GrammarBuilder& b, Expression front, Expression back) {
  return b.sequence({front, back});
}

// Texts of as many digits as `bound` whose value is at least that of `bound`, or at most.
Expression at_least(GrammarBuilder& b, std::string_view bound) {
  if (bound.empty()) return b.empty();
  const std::string_view rest = bound.substr(1);
  const auto above = static_cast<char>(bound[0] + 1);
  return b.choice({join(b, b.literal(bound.substr(0, 1)), at_least(b, rest)),
                   join(b, digit(b, above, '9'), any_digits(b, rest.size(), rest.size()))});
}

Expression at_most(GrammarBuilder& b, std::string_view bound) {
  if (bound.empty()) return b.empty();
  const std::string_view rest = bound.substr(1);
  const auto below = static_cast<char>(bound[0] - 1);
  return b.choice({join(b, b.literal(bound.substr(0, 1)), at_most(b, rest)),
                   join(b, digit(b, '0', below), any_digits(b, rest.size(), rest.size()))});
}

// Between two bounds of the same number of digits.
Expression same_length(GrammarBuilder& b, std::string_view min, std::string_view max) {
  if (min.empty()) return b.empty();
  const std::string_view min_rest = min.substr(1), max_rest = max.substr(1);
  if (min[0] == max[0]) {
    return join(b, b.literal(min.substr(0, 1)), same_length(b, min_rest, max_rest));
  }
  const auto above = static_cast<char>(min[0] + 1), below = static_cast<char>(max[0] - 1);
  return b.choice({join(b, b.literal(min.substr(0, 1)), at_least(b, min_rest)),
                   join(b, digit(b, above, below), any_digits(b, min_rest.size(), min_rest.size())),
                   join(b, b.literal(max.substr(0, 1)), at_most(b, max_rest))});
}

// Natural numbers, zero among them, without leading zeros.
Expression naturals(GrammarBuilder& b, std::uint64_t min, std::uint64_t max) {
  std::vector<Expression> ways;
  while (min <= max) {
    const std::string first = fmt::format("{}", min);
    const std::string nines(first.size(), '9');
    const std::string last = std::min(fmt::format("{}", max), nines, [](auto& x, auto& y) {
      return x.size() != y.size() ? x.size() < y.size() : x < y;
    });
    ways.push_back(same_length(b, first, last));
    std::uint64_t end = 0;
    std::from_chars(last.data(), last.data() + last.size(), end);
    min = end + 1;
  }
  return b.choice(std::move(ways));
}

// A number of zero or more as its digits in front of the point and behind it.
struct Decimal {
  std::uint64_t whole = 0;
  std::string fraction;  // without zeros at its end
};

Decimal decimal_of(double value) {
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), std::abs(value),  // -0.0 has a sign
                    std::chars_format::fixed)
          .ptr;
  const std::string_view digits(text.data(), static_cast<std::size_t>(end - text.data()));
  const std::size_t point = std::min(digits.find('.'), digits.size());
  Decimal decimal;
  const auto read = std::from_chars(digits.data(), digits.data() + point, decimal.whole);
  if (point < digits.size()) decimal.fraction = digits.substr(point + 1);
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  if (read.ec != std::errc() || decimal.whole > whole_max ||
      decimal.fraction.size() + point > digits_max) {
    throw GrammarError(fmt::format("the bound {} has more than {} digits", value, digits_max));
  }
  return decimal;
}

// A bound of the digits behind a point; nothing when they are free.
struct DigitBound {
  std::string_view digits;
  bool is_excluded;
};
using MaybeBound = std::optional<DigitBound>;

// Up to `count` digits whose value as a fraction lies between the bounds; none at all only if
// `may_be_empty`.
Expression fraction_digits(GrammarBuilder& b, const MaybeBound& min, const MaybeBound& max,
                           std::uint32_t count, bool may_be_empty) {
  if (!min && !max) return any_digits(b, may_be_empty ? 0 : 1, count);
  std::vector<Expression> ways;
  const bool zero_is_high_enough = !min || (min->digits.empty() && !min->is_excluded);
  const bool zero_is_low_enough = !max || !max->digits.empty() || !max->is_excluded;
  if (may_be_empty && zero_is_high_enough && zero_is_low_enough) ways.push_back(b.empty());
  for (char c = '0'; c <= '9' && count > 0; ++c) {
    const char lowest = min && !min->digits.empty() ? min->digits[0] : '0';
    const char highest = !max ? '9' : max->digits.empty() ? '0' : max->digits[0];
    if (c < lowest || c > highest) continue;
    MaybeBound next_min, next_max;
    if (min && c == lowest) {
      next_min = DigitBound{min->digits.substr(min->digits.empty() ? 0 : 1), min->is_excluded};
      if (next_min->digits.empty() && !next_min->is_excluded) next_min.reset();
    }
    if (max && c == highest) {
      next_max = DigitBound{max->digits.substr(max->digits.empty() ? 0 : 1), max->is_excluded};
    }
    ways.push_back(join(b, b.literal(std::string_view(&c, 1)),
                        fraction_digits(b, next_min, next_max, count - 1, true)));
  }
  return b.choice(std::move(ways));
}

// What may follow the digits in front of the point: nothing, or the point and more digits.
Expression fraction(GrammarBuilder& b, const MaybeBound& min, const MaybeBound& max,
                    std::uint32_t count) {
  std::vector<Expression> ways = {
      join(b, b.literal("."), fraction_digits(b, min, max, count, false))};
  const bool zero_is_high_enough = !min || (min->digits.empty() && !min->is_excluded);
  const bool zero_is_low_enough = !max || !max->digits.empty() || !max->is_excluded;
  if (zero_is_high_enough && zero_is_low_enough) ways.push_back(b.empty());
  return b.choice(std::move(ways));
}

// The digits behind the point, for so many in front of it.
std::uint32_t fraction_digits_for(std::size_t whole_digits) {
  return std::max(1U, digits_max - static_cast<std::uint32_t>(whole_digits));
}

// Decimals whose whole part is `min` or more, each with as many digits as a double tells apart.
Expression decimals_from(GrammarBuilder& b, std::uint64_t min) {
  std::vector<Expression> ways;
  for (std::uint64_t first = min; first <= whole_max;) {
    const std::size_t digits = fmt::formatted_size("{}", first);
    std::uint64_t end = 10;
    for (std::size_t i = 1; i < digits; ++i) end *= 10;
    ways.push_back(join(b, naturals(b, first, end - 1),
                        fraction(b, std::nullopt, std::nullopt, fraction_digits_for(digits))));
    first = end;
  }
  return b.choice(std::move(ways));
}

// Decimals of zero or more.
Expression positive_decimals(GrammarBuilder& b, const Bound& min, const std::optional<Bound>& max) {
  const Decimal low = decimal_of(min.value);
  const MaybeBound low_digits = DigitBound{low.fraction, min.is_excluded};
  const auto digits_for = [](const Decimal& bound) {
    return fraction_digits_for(fmt::formatted_size("{}", bound.whole));
  };
  if (!max) {
    return b.choice({join(b, b.literal(fmt::format("{}", low.whole)),
                          fraction(b, low_digits, std::nullopt, digits_for(low))),
                     decimals_from(b, low.whole + 1)});
  }
  const Decimal high = decimal_of(max->value);
  const MaybeBound high_digits = DigitBound{high.fraction, max->is_excluded};
  const std::uint32_t count = std::min(digits_for(low), digits_for(high));
  if (low.whole > high.whole) return b.nothing();
  const Expression first = b.literal(fmt::format("{}", low.whole));
  if (low.whole == high.whole) return join(b, first, fraction(b, low_digits, high_digits, count));
  std::vector<Expression> ways = {join(b, first, fraction(b, low_digits, std::nullopt, count)),
                                  join(b, b.literal(fmt::format("{}", high.whole)),
                                       fraction(b, std::nullopt, high_digits, count))};
  if (low.whole + 1 < high.whole) {
    ways.push_back(join(b, naturals(b, low.whole + 1, high.whole - 1),
                        fraction(b, std::nullopt, std::nullopt, count)));
  }
  return b.choice(std::move(ways));
}

bool is_negative(const Bound& bound) {
  return bound.value < 0;
}

}  // namespace

Expression integers_between(GrammarBuilder& builder, std::int64_t min, std::int64_t max) {
  std::vector<Expression> ways;
  if (min < 0 && min <= max) {
    const std::int64_t last = std::min<std::int64_t>(max, -1);
    ways.push_back(join(
        builder, builder.literal("-"),
        naturals(builder, static_cast<std::uint64_t>(-last), static_cast<std::uint64_t>(-min))));
  }
  if (max >= 0 && min <= max) {
    ways.push_back(naturals(builder, static_cast<std::uint64_t>(std::max<std::int64_t>(min, 0)),
                            static_cast<std::uint64_t>(max)));
  }
  return builder.choice(std::move(ways));
}

Expression decimals_between(GrammarBuilder& builder, std::optional<Bound> min,
                            std::optional<Bound> max) {
  // A bound that no number reaches is as good as none.
  constexpr double beyond = whole_max + 1;
  if (min && min->value <= -beyond) min.reset();
  if (max && max->value >= beyond) max.reset();
  if (min && max && min->value > max->value) return builder.nothing();
  std::vector<Expression> ways;
  if (!max || !is_negative(*max)) {
    const Bound from = min && !is_negative(*min) ? *min : Bound{0};
    ways.push_back(positive_decimals(builder, from, max));
  }
  if (!min || is_negative(*min)) {
    const Bound from =
        max && is_negative(*max) ? Bound{-max->value, max->is_excluded} : Bound{0, true};
    std::optional<Bound> to;
    if (min) to = Bound{-min->value, min->is_excluded};
    ways.push_back(join(builder, builder.literal("-"), positive_decimals(builder, from, to)));
  }
  return builder.choice(std::move(ways));
}

}  // namespace sluice::constrain
