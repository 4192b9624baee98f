// Python's two ways to put values into a text: "%s" % value, and "{}".format(value).
#pragma once

#include "core/chat/jinja/text.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

// What it takes to write a digit of a floating-point number exactly.
constexpr std::size_t steps_of_a_digit = 4;

// `values` is a tuple of values, a dictionary for "%(name)s", or one value.
Text format_percent(Heap& heap, const Text& format, const Value& values);

// Fields are "{}", "{0}", "{name}", with attributes and items behind them, "!r", and a format.
Text format_braces(Evaluator& evaluator, const Text& format, const Arguments& arguments);

}  // namespace sluice::chat::jinja
