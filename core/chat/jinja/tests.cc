// The tests of templates: the words after `is`.
#include <cmath>
#include <unordered_map>

#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/operations.h"

namespace sluice::chat::jinja {
namespace {

bool is_none(Evaluator&, const Value& subject, const Arguments&) {
  return is<None>(subject);
}
bool is_defined(Evaluator&, const Value& subject, const Arguments&) {
  return !is<Undefined>(subject);
}
bool is_undefined(Evaluator&, const Value& subject, const Arguments&) {
  return is<Undefined>(subject);
}
bool is_string(Evaluator&, const Value& subject, const Arguments&) {
  return is<StringRef>(subject);
}
bool is_mapping(Evaluator&, const Value& subject, const Arguments&) {
  return is<DictRef>(subject);
}
bool is_boolean(Evaluator&, const Value& subject, const Arguments&) {
  return is<bool>(subject);
}
bool is_integer(Evaluator&, const Value& subject, const Arguments&) {
  return is<std::int64_t>(subject) || is<LargeInteger>(subject);
}
bool is_float(Evaluator&, const Value& subject, const Arguments&) {
  return is<double>(subject);
}
bool is_number(Evaluator&, const Value& subject, const Arguments&) {
  return as_number(subject).has_value();
}
template <bool wanted>
bool is_truth(Evaluator&, const Value& subject, const Arguments&) {
  const bool* boolean = std::get_if<bool>(&subject);
  return boolean != nullptr && *boolean == wanted;
}
bool is_iterable_test(Evaluator&, const Value& subject, const Arguments&) {
  return is_iterable(subject);
}
bool is_sequence(Evaluator&, const Value& subject, const Arguments&) {
  const auto* sequence = std::get_if<SequenceRef>(&subject);
  return sequence != nullptr ? (*sequence)->is_indexed() : is_iterable(subject);
}
bool is_callable(Evaluator&, const Value& subject, const Arguments&) {
  return is<CallableRef>(subject) || is<LoopRef>(subject) || is<Undefined>(subject);
}
bool is_escaped(Evaluator&, const Value& subject, const Arguments&) {
  return is_safe(subject);
}

template <BinaryOperator op>
Value remainder(Evaluator& evaluator, const Value& subject, const Value& divisor) {
  return calculate(evaluator.heap(), op, subject, divisor);
}

template <std::int64_t wanted>
bool is_parity(Evaluator& evaluator, const Value& subject, const Arguments&) {
  return equal(remainder<BinaryOperator::modulo>(evaluator, subject, std::int64_t{2}), wanted);
}

bool is_divisible(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"num"});
  return equal(remainder<BinaryOperator::modulo>(evaluator, subject, parameters.at(0)),
               std::int64_t{0});
}

template <ComparisonOperator op>
bool is_compared(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"other"});
  return compare(op, subject, parameters.at(0));
}

bool is_same(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"other"});
  return identical(subject, parameters.at(0));
}

template <bool upper>
bool is_cased(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const MethodFunction method = find_string_method(upper ? "isupper" : "islower");
  return truth(method(evaluator, evaluator.heap().string(to_text(subject)), arguments));
}

template <bool filters>
bool is_name_of(Evaluator&, const Value& subject, const Arguments&) {
  const Text* name = text_of(subject);
  if (name == nullptr) return false;
  return filters ? find_filter(name->bytes()) != nullptr : find_test(name->bytes()) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> tests = {
      {"none", is_none},
      {"defined", is_defined},
      {"undefined", is_undefined},
      {"string", is_string},
      {"mapping", is_mapping},
      {"boolean", is_boolean},
      {"integer", is_integer},
      {"float", is_float},
      {"number", is_number},
      {"true", is_truth<true>},
      {"false", is_truth<false>},
      {"iterable", is_iterable_test},
      {"sequence", is_sequence},
      {"callable", is_callable},
      {"escaped", is_escaped},
      {"odd", is_parity<1>},
      {"even", is_parity<0>},
      {"divisibleby", is_divisible},
      {"sameas", is_same},
      {"upper", is_cased<true>},
      {"lower", is_cased<false>},
      {"filter", is_name_of<true>},
      {"test", is_name_of<false>},
      {"in", is_compared<ComparisonOperator::in>},
      {"eq", is_compared<ComparisonOperator::equal>},
      {"==", is_compared<ComparisonOperator::equal>},
      {"equalto", is_compared<ComparisonOperator::equal>},
      {"ne", is_compared<ComparisonOperator::not_equal>},
      {"!=", is_compared<ComparisonOperator::not_equal>},
      {"lt", is_compared<ComparisonOperator::less>},
      {"<", is_compared<ComparisonOperator::less>},
      {"lessthan", is_compared<ComparisonOperator::less>},
      {"le", is_compared<ComparisonOperator::less_equal>},
      {"<=", is_compared<ComparisonOperator::less_equal>},
      {"gt", is_compared<ComparisonOperator::greater>},
      {">", is_compared<ComparisonOperator::greater>},
      {"greaterthan", is_compared<ComparisonOperator::greater>},
      {"ge", is_compared<ComparisonOperator::greater_equal>},
      {">=", is_compared<ComparisonOperator::greater_equal>}};
  const auto found = tests.find(name);
  return found != tests.end() ? found->second : nullptr;
}

}  // namespace sluice::chat::jinja
