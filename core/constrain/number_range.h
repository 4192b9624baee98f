// Numbers between two bounds, as expressions over their digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/constrain/grammar_builder.h"

namespace sluice::constrain {

// The greatest integer that is written: 18 digits.
inline constexpr std::int64_t integer_max = 999'999'999'999'999'999;

// The integers min..max in decimal, both included and both within -integer_max..integer_max.
// Matches nothing when min > max.
Expression integers_between(GrammarBuilder& builder, std::int64_t min, std::int64_t max);

struct Bound {
  double value;
  bool is_excluded = false;
};

// The decimals between two bounds, of up to 15 digits in front of the point and up to 15 behind it,
// without an exponent. Throws GrammarError for a bound that has more digits.
Expression decimals_between(GrammarBuilder& builder, std::optional<Bound> min,
                            std::optional<Bound> max);

}  // namespace sluice::constrain
