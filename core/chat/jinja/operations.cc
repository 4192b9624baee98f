#include "core/chat/jinja/operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "core/chat/jinja/characters.h"
#include "core/chat/jinja/formatting.h"

namespace sluice::chat::jinja {
namespace {

using Integer = std::int64_t;

[[noreturn]] void fail_types(BinaryOperator op, const Value& left, const Value& right) {
  throw Failure(
      fmt::format("'{}' {} '{}' has no meaning", type_name(left), symbol_of(op), type_name(right)));
}

[[noreturn]] void fail_overflow() {
  throw Failure("a number becomes larger than 64 bits");
}

Integer floor_quotient(Integer left, Integer right) {
  if (right == -1 && left == std::numeric_limits<Integer>::min()) fail_overflow();
  const Integer quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value integer_power(Integer base, Integer exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  Integer result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value calculate_integers(BinaryOperator op, Integer left, Integer right) {
  Integer result = 0;
  bool overflows = false;
  switch (op) {
    case BinaryOperator::add:
      overflows = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::subtract:
      overflows = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::multiply:
      overflows = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::power:
      return integer_power(left, right);
    default:
      if (right == 0) throw Failure("a division by zero");
      if (op == BinaryOperator::divide) {
        return static_cast<double>(left) / static_cast<double>(right);
      }
      if (op == BinaryOperator::floor_divide) return floor_quotient(left, right);
      if (right == -1) return Integer{0};
      result = left % right;
      if (result != 0 && (result < 0) != (right < 0)) result += right;
  }
  if (overflows) fail_overflow();
  return result;
}

Value calculate_floats(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::add:
      return left + right;
    case BinaryOperator::subtract:
      return left - right;
    case BinaryOperator::multiply:
      return left * right;
    case BinaryOperator::power:
      return std::pow(left, right);
    default:
      break;
  }
  if (right == 0) throw Failure("a division by zero");
  if (op == BinaryOperator::divide) return left / right;
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == BinaryOperator::modulo) return remainder;
  return std::floor((left - remainder) / right + 0.5);
}

Value add_texts(Heap& heap, const Value& left, const Value& right) {
  const bool has_safe = is_safe(left) || is_safe(right);
  const auto part = [has_safe](const Value& value) {
    return has_safe && !is_safe(value) ? escape_html(*text_of(value)) : *text_of(value);
  };
  Text text = part(left);
  text.append(part(right));
  return heap.string(std::move(text), has_safe);
}

Value add_sequences(Heap& heap, const Value& left, const Value& right) {
  const auto& a = *std::get<SequenceRef>(left);
  const auto& b = *std::get<SequenceRef>(right);
  if (a.kind() != b.kind() || a.kind() > Sequence::Kind::tuple) {
    fail_types(BinaryOperator::add, left, right);
  }
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return heap.make<Sequence>(a.kind(), std::move(items));
}

Value repeat(Heap& heap, const Value& value, Integer times) {
  const auto size = static_cast<std::size_t>(length(value));
  const std::size_t count = times > 0 && size > 0 ? static_cast<std::size_t>(times) : 0;
  if (count > Text::memory_bytes_max / std::max<std::size_t>(1, size)) {
    throw Failure("a repetition becomes too large");
  }
  heap.work(count * size / 16);
  if (const Text* source = text_of(value)) {
    Text text;
    for (std::size_t i = 0; i < count; ++i) text.append(*source);
    return heap.string(std::move(text), is_safe(value));
  }
  const auto& sequence = *std::get<SequenceRef>(value);
  if (count * size > 200'000) throw Failure("a repetition becomes too large");
  std::vector<Value> items;
  for (std::size_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return heap.make<Sequence>(sequence.kind(), std::move(items));
}

bool is_repeatable(const Value& value) {
  const auto* sequence = std::get_if<SequenceRef>(&value);
  return is<StringRef>(value) ||
         (sequence != nullptr && (*sequence)->kind() <= Sequence::Kind::tuple);
}

// Begin, end and step of a Python slice of `size` items, kept within the bounds.
struct Bounds {
  Integer begin, end, step;
};

Integer bound(const Value& value, Integer missing) {
  if (is<None>(value)) return missing;
  const auto integer = as_integer(value);
  if (is<Undefined>(value)) fail_undefined(value);
  if (!integer) throw Failure(fmt::format("'{}' is no bound of a slice", type_name(value)));
  return *integer;
}

Bounds bounds_of(Integer size, const Value& begin, const Value& end, const Value& step) {
  const Integer stride = bound(step, 1);
  if (stride == 0) throw Failure("the step of a slice is zero");
  const Integer least = stride > 0 ? 0 : -1;
  const Integer most = stride > 0 ? size : size - 1;
  const auto within = [&](const Value& value, Integer other) {
    if (is<None>(value)) return other;
    const Integer at = bound(value, 0);
    return std::clamp(at < 0 ? at + size : at, least, most);
  };
  return {within(begin, stride > 0 ? least : most), within(end, stride > 0 ? most : least), stride};
}

Text slice_text(const Text& text, const Bounds& bounds, bool is_ascii) {
  const std::string_view bytes = text.bytes();
  if (bounds.step == 1) {
    const auto offset = [&](Integer index) {
      const auto at = static_cast<std::size_t>(index);
      return is_ascii ? at : offset_of_character(bytes, at);
    };
    const std::size_t begin = offset(bounds.begin);
    return bounds.end > bounds.begin ? text.slice(begin, offset(bounds.end)) : Text();
  }
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at))
    offsets.push_back(at);
  offsets.push_back(bytes.size());
  Text result;
  for (Integer i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;) {
    result.append(text, offsets[static_cast<std::size_t>(i)],
                  offsets[static_cast<std::size_t>(i) + 1]);
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
  return result;
}

Value result_of(Heap& heap, BinaryOperator op, const Value& left, const Value& right) {
  if (is<Undefined>(left)) fail_undefined(left);
  if (is<Undefined>(right) && !(op == BinaryOperator::modulo && is<StringRef>(left))) {
    fail_undefined(right);
  }
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
  if (left_integer && right_integer) return calculate_integers(op, *left_integer, *right_integer);
  const auto left_number = as_number(left);
  const auto right_number = as_number(right);
  if (left_number && right_number) {
    if (is<LargeInteger>(left) || is<LargeInteger>(right)) fail_overflow();
    return calculate_floats(op, *left_number, *right_number);
  }
  if (op == BinaryOperator::add) {
    if (is<StringRef>(left) && is<StringRef>(right)) return add_texts(heap, left, right);
    if (is<SequenceRef>(left) && is<SequenceRef>(right)) return add_sequences(heap, left, right);
  }
  if (op == BinaryOperator::multiply) {
    if (is_repeatable(left) && right_integer) return repeat(heap, left, *right_integer);
    if (is_repeatable(right) && left_integer) return repeat(heap, right, *left_integer);
  }
  if (op == BinaryOperator::modulo && is<StringRef>(left)) {
    return heap.string(format_percent(heap, *text_of(left), right), is_safe(left));
  }
  fail_types(op, left, right);
}

}  // namespace

std::string_view symbol_of(BinaryOperator op) {
  static constexpr std::array<std::string_view, 7> symbols = {"+", "-", "*", "/", "//", "%", "**"};
  return symbols[static_cast<std::size_t>(op)];
}

Value calculate(Heap& heap, BinaryOperator op, const Value& left, const Value& right) {
  Value result = result_of(heap, op, left, right);
  heap.work(1 + weight(result));
  return result;
}

Value negated(const Value& value) {
  if (is<Undefined>(value)) fail_undefined(value);
  if (is<LargeInteger>(value)) fail_overflow();
  if (const auto integer = as_integer(value)) {
    if (*integer == std::numeric_limits<Integer>::min()) fail_overflow();
    return -*integer;
  }
  if (const auto number = as_number(value)) return -*number;
  throw Failure(fmt::format("'{}' is no number", type_name(value)));
}

bool compare(ComparisonOperator op, const Value& left, const Value& right) {
  switch (op) {
    case ComparisonOperator::equal:
      return equal(left, right);
    case ComparisonOperator::not_equal:
      return !equal(left, right);
    case ComparisonOperator::less:
      return less(left, right);
    case ComparisonOperator::greater:
      return less(right, left);
    case ComparisonOperator::less_equal:
      return less(left, right) || equal(left, right);
    case ComparisonOperator::greater_equal:
      return less(right, left) || equal(left, right);
    case ComparisonOperator::in:
      return contains(right, left);
    case ComparisonOperator::not_in:
      return !contains(right, left);
  }
  return false;
}

Value slice(Heap& heap, const Value& object, const Value& begin, const Value& end,
            const Value& step) {
  if (is<Undefined>(object)) fail_undefined(object);
  const auto* sequence = std::get_if<SequenceRef>(&object);
  if (!is<StringRef>(object) && (sequence == nullptr || !(*sequence)->is_indexed())) {
    return heap.undefined(fmt::format("a slice of a '{}'", type_name(object)));
  }
  const Integer size = length(object);
  const Bounds bounds = bounds_of(size, begin, end, step);
  if (const Text* text = text_of(object)) {
    const bool is_ascii = static_cast<std::size_t>(size) == text->size();
    if (!is_ascii) heap.work(3 * weight(object));  // to count characters, up to three times
    return heap.string(slice_text(*text, bounds, is_ascii), is_safe(object));
  }
  std::vector<Value> items;
  for (Integer i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;) {
    items.push_back((*sequence)->items()[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
  return heap.make<Sequence>((*sequence)->kind(), std::move(items));
}

Text escape_html(const Text& text) {
  Rewriter rewriter(text);
  std::size_t kept = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : "";
    if (entity.empty()) continue;
    rewriter.keep(kept, at);
    rewriter.put(entity, at);
    kept = at + 1;
  }
  rewriter.keep(kept, text.size());
  return rewriter.take();
}

}  // namespace sluice::chat::jinja
