#include "core/chat/jinja/formatting.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <string>

#include "base/number.h"
#include "core/chat/jinja/characters.h"
#include "core/chat/jinja/evaluator.h"
#include "core/chat/jinja/printing.h"

namespace sluice::chat::jinja {
namespace {

constexpr std::size_t width_max = 100'000;

// How a field writes its value; almost the same for both ways of formatting.
struct Spec {
  Text fill = Text(" ", Origin::markup);
  char align = '\0';  // '<', '>', '^', '=' (zeros behind the sign); 0: the type's default
  char sign = '-';
  bool is_alternate = false;
  bool has_groups = false;  // "," between thousands
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};

// Reads digits from `at` on, and moves `at` behind them.
std::optional<std::size_t> read_count(std::string_view text, std::size_t& at) {
  std::size_t value = 0;
  const auto end = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (end.ec != std::errc()) return std::nullopt;
  if (value > width_max) throw Failure("the width of a field is too large");
  at = static_cast<std::size_t>(end.ptr - text.data());
  return value;
}

Text zero() {
  return {"0", Origin::markup};
}

Text padded(const Text& text, const Spec& spec, char default_align) {
  const std::size_t size = count_characters(text.bytes());
  if (size >= spec.width) return text;
  const std::size_t missing = spec.width - size;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&spec](Text& into, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) into.append(spec.fill);
  };
  Text result;
  const bool has_sign =
      align == '=' && !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  if (has_sign) result.append(text, 0, 1);
  fill(result, left);
  result.append(text, has_sign ? 1 : 0, text.size());
  fill(result, missing - left);
  return result;
}

void group_thousands(std::string& digits) {
  const std::size_t point = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t i = point; i > 3; i -= 3) digits.insert(i - 3, ",");
}

std::string digits_of(std::uint64_t magnitude, const Spec& spec) {
  switch (spec.type) {
    case 'x':
      return (spec.is_alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.is_alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case 'o':
      return (spec.is_alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'b':
      return (spec.is_alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::size_t precision_of(const Spec& spec) {
  return std::min<std::size_t>(spec.precision.value_or(6), 300);
}

std::string magnitude_of(double number, const Spec& spec) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : "inf";
  const std::size_t precision = precision_of(spec);
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", number, precision);
    case '%':
      return fmt::format("{:.{}f}%", number * 100, precision);
    case 'e':
      return fmt::format("{:.{}e}", number, precision);
    case 'E':
      return fmt::format("{:.{}E}", number, precision);
    case 'g':
      return fmt::format("{:.{}g}", number, precision);
    case 'G':
      return fmt::format("{:.{}G}", number, precision);
    default:
      return spec.precision ? fmt::format("{:.{}g}", number, precision) : print_float(number);
  }
}

Text signed_number(bool is_negative, std::string digits, const Spec& spec) {
  if (spec.has_groups) group_thousands(digits);
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return padded(Text(sign + digits, Origin::markup), spec, '>');
}

Text format_integer(std::int64_t value, const Spec& spec) {
  const auto bits = static_cast<std::uint64_t>(value);
  return signed_number(value < 0, digits_of(value < 0 ? 0 - bits : bits, spec), spec);
}

// Nothing for what is no integer.
std::optional<Text> format_if_integer(const Value& value, const Spec& spec) {
  if (const auto* large = std::get_if<LargeInteger>(&value)) {
    return signed_number(false, digits_of(large->value, spec), spec);
  }
  const auto integer = as_integer(value);
  return integer ? std::optional(format_integer(*integer, spec)) : std::nullopt;
}

Text format_float(Heap& heap, double value, const Spec& spec) {
  std::string digits = magnitude_of(std::fabs(value), spec);
  heap.work((digits.size() + precision_of(spec)) * steps_of_a_digit);
  return signed_number(std::signbit(value) && !std::isnan(value), std::move(digits), spec);
}

Text format_text(Text text, const Spec& spec, char default_align) {
  if (spec.precision) {
    text = text.slice(0, offset_of_character(text.bytes(), *spec.precision));
  }
  return padded(text, spec, default_align);
}

bool is_float_type(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// Writes one "%..." of a format, from behind its percent sign.
class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Text& format, const Value& values)
      : heap_(heap), format_(format), values_(values) {}

  Text run() {
    const std::string_view bytes = format_.bytes();
    std::size_t kept = 0;
    for (std::size_t at = bytes.find('%'); at != std::string_view::npos;
         at = bytes.find('%', kept)) {
      result_.append(format_, kept, at);
      kept = at + 1;
      read_field(bytes, kept);
    }
    result_.append(format_, kept, bytes.size());
    const auto* tuple = tuple_of_values();
    // What could be looked up by a name, lists too in Python, need not be used.
    const bool is_used = tuple != nullptr
                             ? next_ >= (*tuple)->items().size()
                             : next_ > 0 || is<DictRef>(values_) || is<SequenceRef>(values_);
    if (!is_used) throw Failure("not all values have a place in the format");
    return std::move(result_);
  }

 private:
  const SequenceRef* tuple_of_values() const {
    const auto* sequence = std::get_if<SequenceRef>(&values_);
    const bool is_tuple = sequence != nullptr && (*sequence)->kind() == Sequence::Kind::tuple;
    return is_tuple ? sequence : nullptr;
  }

  Value next_value() {
    const std::size_t i = next_++;
    if (const auto* tuple = tuple_of_values()) {
      if (i < (*tuple)->items().size()) return (*tuple)->items()[i];
    } else if (i == 0) {
      return values_;
    }
    throw Failure("the format has more places than there are values");
  }

  void read_field(std::string_view bytes, std::size_t& at) {
    Spec spec;
    std::optional<Value> named;
    if (at < bytes.size() && bytes[at] == '(') {
      const std::size_t end = bytes.find(')', at);
      const auto* dict = std::get_if<DictRef>(&values_);
      if (dict == nullptr || end == std::string_view::npos)
        throw Failure("the format has a wrong name");
      const Value* value = (*dict)->find(bytes.substr(at + 1, end - at - 1));
      if (value == nullptr) throw Failure("the format has a name without a value");
      named = *value;
      at = end + 1;
    }
    read_flags(bytes, at, spec);
    if (at >= bytes.size()) throw Failure("the format ends within a field");
    spec.type = bytes[at++];
    if (spec.type == '%') return result_.append("%", Origin::markup);
    write(named ? *named : next_value(), spec);
  }

  void read_flags(std::string_view bytes, std::size_t& at, Spec& spec) {
    for (; at < bytes.size(); ++at) {
      const char c = bytes[at];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || c == ' ') {
        spec.sign = c;
      } else if (c == '#') {
        spec.is_alternate = true;
      } else if (c == '0') {
        if (spec.align == '\0') spec.align = '=';
      } else {
        break;
      }
    }
    spec.width = read_count(bytes, at).value_or(0);
    if (at < bytes.size() && bytes[at] == '.') spec.precision = read_count(bytes, ++at).value_or(0);
    if (spec.align == '=') spec.fill = zero();
  }

  void write(const Value& value, const Spec& spec) {
    heap_.work(1 + weight(value));  // a field may write little of a long text
    if (spec.type == 's' || spec.type == 'r') {
      Spec text_spec = spec;
      if (spec.align == '=') text_spec.align = '>', text_spec.fill = Spec().fill;
      return result_.append(
          format_text(spec.type == 's' ? to_text(value) : repr(value), text_spec, '>'));
    }
    const auto number = as_number(value);
    if (!number)
      throw Failure(fmt::format("%{} needs a number, not '{}'", spec.type, type_name(value)));
    if (is_float_type(spec.type) && spec.type != '%')
      return result_.append(format_float(heap_, *number, spec));
    if (std::string_view("diuxXo").find(spec.type) == std::string_view::npos) {
      throw Failure(fmt::format("'%{}' is no field of a format", spec.type));
    }
    if (const auto integer = format_if_integer(value, spec)) return result_.append(*integer);
    if (!(std::fabs(*number) < 9.2e18)) throw Failure("a number is larger than 64 bits");
    result_.append(format_integer(static_cast<std::int64_t>(*number), spec));
  }

  Heap& heap_;
  const Text& format_;
  const Value& values_;
  Text result_;
  std::size_t next_ = 0;
};

Spec spec_of(const Text& written) {
  const std::string_view text = written.bytes();
  Spec spec;
  std::size_t at = 0;
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  if (!text.empty() && is_align(character_bytes(text, 0))) {
    at = character_bytes(text, 0);
    spec.fill = written.slice(0, at);
    spec.align = text[at++];
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto skip = [&](std::string_view characters) {
    const bool found = at < text.size() && characters.find(text[at]) != std::string_view::npos;
    return found ? text[at++] : '\0';
  };
  if (const char sign = skip("+- ")) spec.sign = sign;
  spec.is_alternate = skip("#") != '\0';
  if (skip("0") != '\0' && spec.align == '\0') {
    spec.align = '=';
    spec.fill = zero();
  }
  spec.width = read_count(text, at).value_or(0);
  spec.has_groups = skip(",") != '\0';
  if (skip(".") != '\0') spec.precision = read_count(text, at);
  spec.type = skip("sdboxXneEfFgG%");
  if (at != text.size()) throw Failure(fmt::format("'{}' is no format of a field", text));
  return spec;
}

Text format_value(Heap& heap, const Value& value, const Spec& spec) {
  if (const Text* text = text_of(value)) return format_text(*text, spec, '<');
  const auto number = as_number(value);
  if (number && !(is<bool>(value) && spec.type == '\0')) {
    const auto integer = is_float_type(spec.type) ? std::nullopt : format_if_integer(value, spec);
    return integer ? *integer : format_float(heap, *number, spec);
  }
  return format_text(to_text(value), spec, '<');
}

// Writes one "{...}": the value that the field names.
class BraceFormatter {
 public:
  BraceFormatter(Evaluator& evaluator, const Text& format, const Arguments& arguments)
      : evaluator_(evaluator), format_(format), arguments_(arguments) {}

  Text run() {
    const std::string_view bytes = format_.bytes();
    Text result;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      result.append(format_, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        result.append(format_, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      const std::size_t end = bytes.find('}', brace);
      if (bytes[brace] == '}' || end == std::string_view::npos)
        throw Failure("the format has a single brace");
      result.append(field(format_.slice(brace + 1, end)));
      at = end + 1;
    }
    return result;
  }

 private:
  Text field(const Text& field) {
    const std::size_t colon = std::min(field.bytes().find(':'), field.size());
    std::string_view name = std::string_view(field.bytes()).substr(0, colon);
    const Spec spec = spec_of(field.slice(std::min(colon + 1, field.size()), field.size()));
    char conversion = '\0';
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    const Value value = value_named(name);
    evaluator_.heap().work(1 + weight(value));  // a field may write little of a long text
    if (conversion == 'r') return format_text(repr(value), spec, '<');
    if (conversion == 's') return format_text(to_text(value), spec, '<');
    return format_value(evaluator_.heap(), value, spec);
  }

  Value value_named(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first_value(name.substr(0, end));
    for (std::size_t at = end; at < name.size();) {
      const bool is_item = name[at] == '[';
      const std::size_t stop =
          std::min(is_item ? name.find(']', at) : name.find_first_of(".[", at + 1), name.size());
      const std::string_view part = name.substr(at + 1, stop - at - 1);
      const auto index = base::whole_number<std::int64_t>(part);
      value = !is_item ? evaluator_.attribute(value, part)
              : index  ? evaluator_.item(value, *index)
                       : evaluator_.item(value, evaluator_.heap().string(part));
      at = stop + (is_item ? 1 : 0);
    }
    return value;
  }

  Value first_value(std::string_view name) {
    std::size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else {
      const auto end = std::from_chars(name.data(), name.data() + name.size(), index);
      if (end.ec != std::errc()) return named_value(name);
    }
    if (index < arguments_.positional.size()) return arguments_.positional[index];
    throw Failure("the format has more places than there are values");
  }

  Value named_value(std::string_view name) const {
    evaluator_.heap().work(arguments_.named.size() / 8);
    for (const auto& [known, value] : arguments_.named) {
      if (known.bytes() == name) return value;
    }
    throw Failure(fmt::format("the format has no value for '{}'", name));
  }

  Evaluator& evaluator_;
  const Text& format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

Text format_percent(Heap& heap, const Text& format, const Value& values) {
  return PercentFormatter(heap, format, values).run();
}

Text format_braces(Evaluator& evaluator, const Text& format, const Arguments& arguments) {
  return BraceFormatter(evaluator, format, arguments).run();
}

}  // namespace sluice::chat::jinja
