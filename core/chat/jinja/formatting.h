// Python's two ways to put values into a text: "%s" % value, and "{}".format(value).
#pragma once

#include "core/chat/jinja/text.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

// `values` is a tuple of values, a dictionary for "%(name)s", or one value.
Text format_percent(Heap& heap, const Text& format, const Value& values);

// Fields are "{}", "{0}", "{name}", with attributes and items behind them, "!r", and a format.
Text format_braces(Evaluator& evaluator, const Text& format, const Arguments& arguments);

}  // namespace sluice::chat::jinja
