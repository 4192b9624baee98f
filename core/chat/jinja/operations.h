// The operations of expressions on evaluated operands: Python's operators and slices, and the
// tables of filters, tests, methods and global functions.
#pragma once

#include <optional>
#include <string_view>

#include "core/chat/jinja/evaluator.h"
#include "core/chat/jinja/syntax.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

std::string_view symbol_of(BinaryOperator op);
Value calculate(Heap& heap, BinaryOperator op, const Value& left, const Value& right);
Value negated(const Value& value);
bool compare(ComparisonOperator op, const Value& left, const Value& right);
// object[begin:end:step]; a bound that is none counts as left out. Undefined when the object has no
// slices, as none has.
Value slice(Heap& heap, const Value& object, const Value& begin, const Value& end,
            const Value& step);

// The text, escaped for HTML.
Text escape_html(const Text& text);

using FilterFunction = Value (*)(Evaluator&, const Value& subject, const Arguments&);
using TestFunction = bool (*)(Evaluator&, const Value& subject, const Arguments&);
using MethodFunction = Value (*)(Evaluator&, const Value& self, const Arguments&);
using GlobalFunction = Value (*)(Evaluator&, const Arguments&);

// Each returns null when there is nothing of this name.
FilterFunction find_filter(std::string_view name);
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_sequence_filter(std::string_view name);
TestFunction find_test(std::string_view name);
MethodFunction find_string_method(std::string_view name);
MethodFunction find_list_method(std::string_view name);
MethodFunction find_tuple_method(std::string_view name);
MethodFunction find_dict_method(std::string_view name);
MethodFunction find_loop_method(std::string_view name);
GlobalFunction find_global(std::string_view name);

}  // namespace sluice::chat::jinja
