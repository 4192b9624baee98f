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

// The decimals between two bounds, without an exponent: of up to 15 digits, and of one more where
// all of them stand in front of the point. Throws GrammarError for a bound that has more.
Expression decimals_between(GrammarBuilder& builder, std::optional<Bound> min,
                            std::optional<Bound> max);

}  // namespace sluice::constrain
