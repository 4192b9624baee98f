// Filters that turn one value into one value; those of texts and of sequences have their own files.
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/number.h"
#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/formatting.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/text_operations.h"

namespace sluice::chat::jinja {
namespace {

Value filter_default(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"default_value", "boolean"});
  const bool is_missing =
      is<Undefined>(subject) || (parameters.truth_or(1, false) && !truth(subject));
  return is_missing ? parameters.value_or(0, evaluator.heap().string("")) : subject;
}

Text indentation(const Value& value) {
  if (const Text* text = text_of(value)) return *text;
  const std::int64_t spaces = as_integer(value).value_or(0);
  if (spaces > 1000) throw Failure("the indentation is too wide");
  return {std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, spaces)), ' '),
          Origin::markup};
}

Text separator(const Value& pair, std::size_t index) {
  const auto* sequence = std::get_if<SequenceRef>(&pair);
  const bool is_pair = sequence != nullptr && (*sequence)->items().size() == 2;
  const Text* text = is_pair ? text_of((*sequence)->items()[index]) : nullptr;
  if (text == nullptr) throw Failure("'separators' must be two texts");
  return *text;
}

// Takes the parameters that the transformers library defines; escapes nothing for HTML.
Value filter_tojson(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<4> parameters(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.escape_non_ascii = parameters.truth_or(0, false);
  style.sort_keys = parameters.truth_or(3, false);
  if (parameters.has(1) && !is<None>(parameters.at(1))) {
    style.indent = indentation(parameters.at(1));
    style.item_separator = Text(",", Origin::markup);
  }
  if (parameters.has(2) && !is<None>(parameters.at(2))) {
    style.item_separator = separator(parameters.at(2), 0);
    style.key_separator = separator(parameters.at(2), 1);
  }
  return evaluator.heap().string(to_json(subject, style));
}

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool joins = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (!joins) digits += text[i];
  }
  return digits;
}

std::string_view without_sign(std::string_view digits) {
  return digits.starts_with('+') ? digits.substr(1) : digits;
}

// float("..."), or nothing.
std::optional<double> parse_float(const Text& text) {
  const std::string stripped = without_underscores(strip(text, Side::both, nullptr).bytes());
  return base::nearest_double(without_sign(stripped));
}

std::optional<std::int64_t> parse_integer(const Text& text, int base) {
  const std::string digits = without_underscores(strip(text, Side::both, nullptr).bytes());
  std::string number(without_sign(digits));
  const std::size_t prefix = number.starts_with('-') ? 1 : 0;
  if ((base == 16 || base == 8 || base == 2) && number.size() > prefix + 1 &&
      number[prefix] == '0') {
    const char letter = base == 16 ? 'x' : base == 8 ? 'o' : 'b';
    if ((number[prefix + 1] | 0x20) == letter) number.erase(prefix, 2);
  }
  return base::whole_number<std::int64_t>(number, base);
}

std::optional<double> to_float(const Value& value) {
  if (is<Undefined>(value)) fail_undefined(value);
  if (const Text* text = text_of(value)) return parse_float(*text);
  return as_number(value);
}

Value filter_int(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"default", "base"});
  const std::int64_t base = parameters.integer_or(1, 10);
  if (base < 2 || base > 36) throw Failure("the base must be between 2 and 36");
  if (is<LargeInteger>(subject)) return subject;
  if (const auto integer = as_integer(subject)) return *integer;
  const Text* text = text_of(subject);
  if (text != nullptr) {
    if (const auto integer = parse_integer(*text, static_cast<int>(base))) return *integer;
  }
  const auto number = to_float(subject);
  const bool has_integer = number && !std::isnan(*number) && !(text && std::isinf(*number));
  if (!has_integer) return parameters.value_or(0, std::int64_t{0});
  if (!(std::fabs(*number) < 9.2e18)) throw Failure("a number is larger than 64 bits");
  return static_cast<std::int64_t>(*number);
}

Value filter_float(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"default"});
  const auto number = to_float(subject);
  return number ? Value(*number) : parameters.value_or(0, 0.0);
}

Value filter_abs(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  const auto number = to_float(subject);
  if (!number || is<StringRef>(subject)) throw Failure("it takes a number");
  return std::signbit(*number) ? negated(subject) : subject;
}

// Rounds half to even, by the decimal digits of the number.
double round_common(Heap& heap, double number, std::int64_t precision) {
  constexpr double whole_from = 9007199254740992.0;  // 2^53: there is no fraction from here on
  if (precision >= 0) {
    if (!(std::fabs(number) < whole_from)) return number;
    const auto places = std::min<std::int64_t>(precision, 300);
    heap.work(static_cast<std::size_t>(places) * steps_of_a_digit);
    const std::string digits = fmt::format("{:.{}f}", number, places);
    double rounded = number;
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return rounded;
  }
  if (precision < -308) return std::copysign(0.0, number);  // half of such a power is no double
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(number / scale) * scale;
}

// To a multiple of ten to the power of -precision, half to even.
std::int64_t round_integer(std::int64_t number, std::int64_t precision) {
  if (precision < -19) return 0;  // half of such a power is beyond 64 bits
  std::uint64_t scale = 1;
  for (; precision < 0; ++precision) scale *= 10;
  const bool is_negative = number < 0;
  const std::uint64_t size =
      is_negative ? -static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::uint64_t times = size / scale;
  const std::uint64_t rest = size % scale, half = scale / 2;
  if (scale > 1 && (rest > half || (rest == half && times % 2 != 0))) ++times;
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (times > most / scale) throw Failure("a number becomes larger than 64 bits");
  const auto rounded = static_cast<std::int64_t>(times * scale);
  return is_negative ? -rounded : rounded;
}

Value filter_round(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"precision", "method"});
  const std::int64_t precision = parameters.integer_or(0, 0);
  const std::string method = parameters.has(1) ? parameters.text(1).bytes() : "common";
  const auto number = as_number(subject);
  if (!number) throw Failure("it takes a number");
  if (is<LargeInteger>(subject)) throw Failure("a number is larger than 64 bits");
  if (method == "common") {
    if (const auto integer = as_integer(subject)) return round_integer(*integer, precision);
    return round_common(evaluator.heap(), *number, precision);
  }
  if (method != "ceil" && method != "floor") throw Failure("the method is common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale;
}

Value filter_string(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return is<StringRef>(subject) ? subject : evaluator.heap().string(to_text(subject));
}

Value filter_safe(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return evaluator.heap().string(to_text(subject), true);
}

Value filter_escape(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  if (is_safe(subject)) return subject;
  return evaluator.heap().string(escape_html(to_text(subject)), true);
}

Value filter_forceescape(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return evaluator.heap().string(escape_html(to_text(subject)), true);
}

Value filter_length(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return length(subject);
}

Value filter_attr(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"name"});
  if (is<DictRef>(subject)) return Undefined{};  // has attributes, but no items
  return evaluator.attribute(subject, parameters.text(0).bytes());
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> filters = {
      {"default", filter_default}, {"d", filter_default},     {"tojson", filter_tojson},
      {"int", filter_int},         {"float", filter_float},   {"abs", filter_abs},
      {"round", filter_round},     {"string", filter_string}, {"safe", filter_safe},
      {"escape", filter_escape},   {"e", filter_escape},      {"forceescape", filter_forceescape},
      {"length", filter_length},   {"count", filter_length},  {"attr", filter_attr}};
  if (const auto found = filters.find(name); found != filters.end()) return found->second;
  if (const FilterFunction filter = find_text_filter(name)) return filter;
  return find_sequence_filter(name);
}

}  // namespace sluice::chat::jinja
