#include "core/chat/jinja/printing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "core/chat/jinja/characters.h"

namespace sluice::chat::jinja {
namespace {

constexpr int depth_max = 100;

void add(Text& text, std::string_view bytes) {
  text.append(bytes, Origin::markup);
}

// Each visit counts: a value may stand in very many places of the one that is printed.
void count_visit(const Value& value, int depth) {
  if (depth > depth_max) throw Failure("values are nested too deeply to be printed");
  if (const auto* string = std::get_if<StringRef>(&value)) {
    (*string)->heap().work(1 + weight(value));
  } else if (const auto* sequence = std::get_if<SequenceRef>(&value)) {
    (*sequence)->heap().work(1 + (*sequence)->items().size());
  } else if (const auto* dict = std::get_if<DictRef>(&value)) {
    (*dict)->heap().work(1 + (*dict)->entries().size());
  }
}

// A character as repr writes it; the next function does it for JSON.
std::string escape_in_repr(char32_t c, std::string_view bytes, char quote) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (c == '\\') return "\\\\";
  if (c == static_cast<char32_t>(quote)) return {'\\', quote};
  if (is_printable(c)) return std::string(bytes);
  if (c <= 0xFF) return fmt::format("\\x{:02x}", static_cast<unsigned>(c));
  if (c <= 0xFFFF) return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  if (c > 0x10FFFF) return std::string(bytes);
  return fmt::format("\\U{:08x}", static_cast<unsigned>(c));
}

std::string escape_in_json(char32_t c, std::string_view bytes, bool escape_non_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (c < ' ') return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  if (c < 0x7F || !escape_non_ascii || c > 0x10FFFF) return std::string(bytes);
  if (c <= 0xFFFF) return fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  const auto rest = static_cast<unsigned>(c) - 0x10000U;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800U + (rest >> 10U), 0xDC00U + (rest & 0x3FFU));
}

// Appends `source` with each character replaced by what `escape` makes of it.
template <class Escape>
void append_escaped(Text& text, const Text& source, Escape escape) {
  const std::string_view bytes = source.bytes();
  std::size_t kept = 0;  // everything before is already appended
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = character_bytes(bytes, at);
    const std::string_view character = bytes.substr(at, size);
    const std::string written = escape(code_point(bytes, at), character);
    if (written != character) {
      text.append(source, kept, at);
      text.append(written, source.origin_at(at));
      kept = at + size;
    }
    at += size;
  }
  text.append(source, kept, bytes.size());
}

void append_repr(Text& text, const Value& value, int depth);

void append_string_repr(Text& text, const Text& source) {
  const bool has_single = source.bytes().find('\'') != std::string::npos;
  const bool has_double = source.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  add(text, {&quote, 1});
  append_escaped(text, source, [quote](char32_t c, std::string_view bytes) {
    return escape_in_repr(c, bytes, quote);
  });
  add(text, {&quote, 1});
}

void append_items(Text& text, const std::vector<Value>& items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) add(text, ", ");
    append_repr(text, items[i], depth + 1);
  }
}

void append_sequence(Text& text, const Sequence& sequence, int depth) {
  const std::vector<Value>& items = sequence.items();
  switch (sequence.kind()) {
    case Sequence::Kind::tuple:
      add(text, "(");
      append_items(text, items, depth);
      add(text, items.size() == 1 ? ",)" : ")");
      return;
    case Sequence::Kind::list:
      add(text, "[");
      append_items(text, items, depth);
      add(text, "]");
      return;
    case Sequence::Kind::iterator:
      add(text, "<generator object>");
      return;
    case Sequence::Kind::range: {
      const std::int64_t first = items.empty() ? 0 : std::get<std::int64_t>(items.front());
      const std::int64_t last = items.empty() ? -1 : std::get<std::int64_t>(items.back());
      add(text, fmt::format("range({}, {})", first, last + 1));
      return;
    }
    default:
      add(text, fmt::format("{}([", sequence.kind_name()));
      append_items(text, items, depth);
      add(text, "])");
  }
}

void append_dict(Text& text, const Dict& dict, int depth) {
  add(text, "{");
  bool is_first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!is_first) add(text, ", ");
    is_first = false;
    append_repr(text, key, depth + 1);
    add(text, ": ");
    append_repr(text, value, depth + 1);
  }
  add(text, "}");
}

void append_repr(Text& text, const Value& value, int depth) {
  count_visit(value, depth);
  if (const Text* string = text_of(value)) {
    if (is_safe(value)) add(text, "Markup(");
    append_string_repr(text, *string);
    if (is_safe(value)) add(text, ")");
  } else if (const auto* sequence = std::get_if<SequenceRef>(&value)) {
    append_sequence(text, **sequence, depth);
  } else if (const auto* dict = std::get_if<DictRef>(&value)) {
    append_dict(text, **dict, depth);
  } else if (is<None>(value)) {
    add(text, "None");
  } else if (const auto* boolean = std::get_if<bool>(&value)) {
    add(text, *boolean ? "True" : "False");
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    add(text, fmt::format("{}", *integer));
  } else if (const auto* large = std::get_if<LargeInteger>(&value)) {
    add(text, fmt::format("{}", large->value));
  } else if (const auto* number = std::get_if<double>(&value)) {
    add(text, print_float(*number));
  } else if (is<Undefined>(value)) {
    add(text, "Undefined");
  } else {
    add(text, fmt::format("<{}>", type_name(value)));
  }
}

class JsonPrinter {
 public:
  explicit JsonPrinter(const JsonStyle& style) : style_(style) {}

  void print(const Value& value, int depth) {
    count_visit(value, depth);
    if (const Text* string = text_of(value)) {
      print_string(*string);
    } else if (const auto* sequence = std::get_if<SequenceRef>(&value)) {
      print_list(value, **sequence, depth);
    } else if (const auto* dict = std::get_if<DictRef>(&value)) {
      print_dict(**dict, depth);
    } else {
      add(text_, scalar(value));
    }
  }

  Text take() { return std::move(text_); }

 private:
  static std::string scalar(const Value& value) {
    if (is<None>(value)) return "null";
    if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
    if (const auto* large = std::get_if<LargeInteger>(&value)) {
      return fmt::format("{}", large->value);
    }
    if (const auto* number = std::get_if<double>(&value)) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
      return print_float(*number);
    }
    if (is<Undefined>(value)) fail_undefined(value);
    throw Failure(fmt::format("a value of type '{}' is not JSON", type_name(value)));
  }

  void print_string(const Text& string) {
    add(text_, "\"");
    append_escaped(text_, string, [this](char32_t c, std::string_view bytes) {
      return escape_in_json(c, bytes, style_.escape_non_ascii);
    });
    add(text_, "\"");
  }

  void print_key(const Value& key) {
    if (const Text* string = text_of(key)) return print_string(*string);
    if (is<SequenceRef>(key)) throw Failure("a tuple is no key in JSON");
    add(text_, "\"" + scalar(key) + "\"");
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    add(text_, "\n");
    for (int i = 0; i < depth; ++i) text_.append(*style_.indent);
  }

  void print_list(const Value& value, const Sequence& list, int depth) {
    if (list.kind() > Sequence::Kind::tuple) {
      throw Failure(fmt::format("a value of type '{}' is not JSON", type_name(value)));
    }
    if (list.items().empty()) return add(text_, "[]");
    add(text_, "[");
    for (std::size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) text_.append(style_.item_separator);
      new_line(depth + 1);
      print(list.items()[i], depth + 1);
    }
    new_line(depth);
    add(text_, "]");
  }

  void print_dict(const Dict& dict, int depth) {
    if (dict.entries().empty()) return add(text_, "{}");
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      std::ranges::stable_sort(
          entries, [](const Value& a, const Value& b) { return less(a, b); }, &Dict::Entry::first);
    }
    add(text_, "{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) text_.append(style_.item_separator);
      new_line(depth + 1);
      print_key(entries[i].first);
      text_.append(style_.key_separator);
      print(entries[i].second, depth + 1);
    }
    new_line(depth);
    add(text_, "}");
  }

  const JsonStyle& style_;
  Text text_;
};

}  // namespace

std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  std::array<char, 40> buffer{};
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  std::string text(buffer.data(), scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  text.assign(buffer.data(), fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

Text to_text(const Value& value) {
  if (const Text* text = text_of(value)) return *text;
  Text text;
  if (is<Undefined>(value)) return text;
  append_repr(text, value, 0);
  return text;
}

Text repr(const Value& value) {
  Text text;
  append_repr(text, value, 0);
  return text;
}

Text to_json(const Value& value, const JsonStyle& style) {
  JsonPrinter printer(style);
  printer.print(value, 0);
  return printer.take();
}

}  // namespace sluice::chat::jinja
