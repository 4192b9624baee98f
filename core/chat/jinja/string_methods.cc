// The methods of str that templates use.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/formatting.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/text_operations.h"

namespace sluice::chat::jinja {
namespace {

const Text& self_text(const Value& self) {
  return *text_of(self);
}

Value same_kind(Evaluator& evaluator, const Value& self, Text text) {
  return evaluator.heap().string(std::move(text), is_safe(self));
}

// Puts the parts of a text into `items`.
PartSink adder(Evaluator& evaluator, const Value& self, std::vector<Value>& items) {
  return [&](Text part) { items.push_back(same_kind(evaluator, self, std::move(part))); };
}

template <Side side>
Value method_strip(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"chars"});
  const Text* characters = parameters.optional_text(0);
  evaluator.heap().work(strip_steps(self_text(self), characters));
  return same_kind(evaluator, self, strip(self_text(self), side, characters));
}

template <Text (*change)(const Text&)>
Value method_change(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return same_kind(evaluator, self, change(self_text(self)));
}

// Words begin with a capital letter; a word is a run of letters.
Text title(const Text& text) {
  bool is_inside = false;
  return map_characters(text, [&is_inside](char32_t c, std::size_t) {
    const bool was_inside = std::exchange(is_inside, is_upper(c) || is_lower(c));
    return was_inside ? to_lower(c) : to_upper(c);
  });
}

Text swap_case(const Text& text) {
  return map_characters(
      text, [](char32_t c, std::size_t) { return is_upper(c) ? to_lower(c) : to_upper(c); });
}

template <bool from_end>
Value method_split(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"sep", "maxsplit"});
  const auto function = from_end ? split_back : split;
  std::vector<Value> items;
  function(self_text(self), parameters.optional_text(0), parameters.integer_or(1, -1),
           adder(evaluator, self, items));
  if (from_end) std::ranges::reverse(items);
  return evaluator.heap().list(std::move(items));
}

Value method_splitlines(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"keepends"});
  std::vector<Value> items;
  split_lines(self_text(self), parameters.truth_or(0, false), adder(evaluator, self, items));
  return evaluator.heap().list(std::move(items));
}

template <bool is_last>
Value method_partition(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"sep"});
  const Text& text = self_text(self);
  const Text& separator = parameters.text(0);
  if (separator.empty()) throw Failure("the separator is empty");
  const std::string_view bytes = text.bytes();
  const std::size_t found =
      is_last ? find_last_text(bytes, separator.bytes()) : find_text(bytes, separator.bytes());
  std::array<Text, 3> parts;
  if (found == std::string_view::npos) {
    parts[is_last ? 2 : 0] = text;
  } else {
    parts = {text.slice(0, found), text.slice(found, found + separator.size()),
             text.slice(found + separator.size(), text.size())};
  }
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(same_kind(evaluator, self, std::move(part)));
  return evaluator.heap().tuple(std::move(items));
}

Value method_replace(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"old", "new", "count"});
  return same_kind(evaluator, self,
                   replace(self_text(self), parameters.text(0), parameters.text(1),
                           parameters.integer_or(2, -1)));
}

// The bytes of a text from character `begin` to character `end`, which find() takes as arguments.
// A beginning behind the text is behind its end too: not even an empty text is found there.
struct Part {
  std::size_t begin;
  std::size_t end;
};

template <std::size_t n>
Part part_of(const Text& text, const Parameters<n>& parameters, std::size_t first) {
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  const auto character = [&](std::size_t i, std::int64_t other) {
    const bool is_given = parameters.has(i) && !is<None>(parameters.at(i));
    const std::int64_t at = is_given ? parameters.integer_or(i, other) : other;
    return std::max<std::int64_t>(at < 0 ? at + size : at, 0);
  };
  const auto offset = [&](std::int64_t at) {
    return offset_of_character(text.bytes(), static_cast<std::size_t>(std::min(at, size)));
  };
  const std::int64_t begin = character(first, 0);
  const std::size_t end = offset(character(first + 1, size));
  return {begin > size ? text.size() + 1 : offset(begin), end};
}

std::int64_t position(const Value& self, const Arguments& arguments, bool is_last) {
  const Parameters<3> parameters(arguments, {"sub", "start", "end"});
  const Text& text = self_text(self);
  const Part part = part_of(text, parameters, 1);
  if (part.end < part.begin) return -1;
  const std::string_view bytes = std::string_view(text.bytes()).substr(0, part.end);
  const std::string_view wanted = parameters.text(0).bytes();
  std::size_t found =
      is_last ? find_last_text(bytes, wanted) : find_text(bytes, wanted, part.begin);
  if (found == std::string_view::npos || found < part.begin) return -1;
  return static_cast<std::int64_t>(count_characters(bytes.substr(0, found)));
}

template <bool is_last, bool must_exist>
Value method_find(Evaluator&, const Value& self, const Arguments& arguments) {
  const std::int64_t at = position(self, arguments, is_last);
  if (must_exist && at < 0) throw Failure("the text is not found");
  return at;
}

Value method_count(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"sub", "start", "end"});
  const Text& text = self_text(self);
  const Part part = part_of(text, parameters, 1);
  if (part.end < part.begin) return std::int64_t{0};
  const std::string_view bytes = std::string_view(text.bytes()).substr(0, part.end);
  const std::string_view wanted = parameters.text(0).bytes();
  if (wanted.empty()) {
    return static_cast<std::int64_t>(count_characters(bytes.substr(part.begin)) + 1);
  }
  std::int64_t count = 0;
  for (std::size_t at = find_text(bytes, wanted, part.begin); at != std::string_view::npos;
       at = find_text(bytes, wanted, at + wanted.size())) {
    ++count;
  }
  return count;
}

template <bool at_end>
Value method_affix(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"prefix", "start", "end"});
  const Text& text = self_text(self);
  const Part part = part_of(text, parameters, 1);
  if (part.end < part.begin) return false;
  const auto bytes = std::string_view(text.bytes()).substr(part.begin, part.end - part.begin);
  const auto fits = [bytes, &evaluator](const Value& value) {
    const Text* affix = text_of(value);
    if (affix == nullptr) throw Failure("it takes a text or a tuple of texts");
    evaluator.heap().work(1 + affix->size() / 64);
    return at_end ? bytes.ends_with(affix->bytes()) : bytes.starts_with(affix->bytes());
  };
  const auto* tuple = std::get_if<SequenceRef>(&parameters.at(0));
  const bool is_tuple = tuple != nullptr && (*tuple)->kind() == Sequence::Kind::tuple;
  return is_tuple ? std::ranges::any_of((*tuple)->items(), fits) : fits(parameters.at(0));
}

template <bool at_end>
Value method_remove_affix(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"prefix"});
  const Text& text = self_text(self);
  const std::string& affix = parameters.text(0).bytes();
  const bool fits = at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix);
  const std::size_t size = fits ? affix.size() : 0;
  return same_kind(evaluator, self,
                   at_end ? text.slice(0, text.size() - size) : text.slice(size, text.size()));
}

Value method_join(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"iterable"});
  Text text;
  bool is_first = true;
  for (const Value& item : walk(evaluator.heap(), parameters.at(0))) {
    const Text* part = text_of(item);
    if (part == nullptr) {
      throw Failure(fmt::format("only texts can be joined, not '{}'", type_name(item)));
    }
    if (!is_first) text.append(self_text(self));
    is_first = false;
    text.append(*part);
  }
  return same_kind(evaluator, self, std::move(text));
}

Value method_format(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  return same_kind(evaluator, self, format_braces(evaluator, self_text(self), arguments));
}

// True if there are characters and all of them pass the test.
template <bool (*test)(char32_t)>
Value method_is(Evaluator&, const Value& self, const Arguments&) {
  const std::string_view bytes = self_text(self).bytes();
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at)) {
    if (!test(code_point(bytes, at))) return false;
  }
  return !bytes.empty();
}

// True if some characters have the case, and none has the other one.
template <bool (*has)(char32_t), bool (*has_other)(char32_t)>
Value method_is_cased(Evaluator&, const Value& self, const Arguments&) {
  const std::string_view bytes = self_text(self).bytes();
  bool found = false;
  for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes, at)) {
    if (has_other(code_point(bytes, at))) return false;
    found = found || has(code_point(bytes, at));
  }
  return found;
}

bool is_alphanumeric(char32_t c) {
  return is_alphabetic(c) || is_digit(c);
}

// How many characters a text lacks of a width.
std::int64_t missing_of(const Text& text, std::int64_t width) {
  if (width > 1'000'000) throw Failure("the width is too large");
  const auto size = static_cast<std::int64_t>(count_characters(text.bytes()));
  return std::max(width, size) - size;
}

// Pads a text to a number of characters; the text stands at the side `align`.
template <char align>
Value method_justify(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"width", "fillchar"});
  const Text& text = self_text(self);
  const Text fill = parameters.has(1) ? parameters.text(1) : Text(" ", Origin::markup);
  if (count_characters(fill.bytes()) != 1) throw Failure("the fill must be one character");
  const std::int64_t width = parameters.integer_or(0, 0);
  const std::int64_t missing = missing_of(text, width);
  const std::int64_t left = align == '<'   ? 0
                            : align == '>' ? missing
                                           : missing / 2 + (missing & width & 1);
  Text result;
  for (std::int64_t i = 0; i < left; ++i) result.append(fill);
  result.append(text);
  for (std::int64_t i = left; i < missing; ++i) result.append(fill);
  return same_kind(evaluator, self, std::move(result));
}

Value method_zfill(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"width"});
  const Text& text = self_text(self);
  const std::int64_t missing = missing_of(text, parameters.integer_or(0, 0));
  const bool has_sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  Text result = text.slice(0, has_sign ? 1 : 0);
  result.append(std::string(static_cast<std::size_t>(missing), '0'), Origin::markup);
  result.append(text, has_sign ? 1 : 0, text.size());
  return same_kind(evaluator, self, std::move(result));
}

}  // namespace

MethodFunction find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> methods = {
      {"strip", method_strip<Side::both>},
      {"lstrip", method_strip<Side::left>},
      {"rstrip", method_strip<Side::right>},
      {"upper", method_change<upper>},
      {"lower", method_change<lower>},
      {"casefold", method_change<lower>},
      {"capitalize", method_change<capitalize>},
      {"title", method_change<title>},
      {"swapcase", method_change<swap_case>},
      {"split", method_split<false>},
      {"rsplit", method_split<true>},
      {"splitlines", method_splitlines},
      {"partition", method_partition<false>},
      {"rpartition", method_partition<true>},
      {"replace", method_replace},
      {"find", method_find<false, false>},
      {"rfind", method_find<true, false>},
      {"index", method_find<false, true>},
      {"rindex", method_find<true, true>},
      {"count", method_count},
      {"startswith", method_affix<false>},
      {"endswith", method_affix<true>},
      {"removeprefix", method_remove_affix<false>},
      {"removesuffix", method_remove_affix<true>},
      {"join", method_join},
      {"format", method_format},
      {"isalpha", method_is<is_alphabetic>},
      {"isdigit", method_is<is_digit>},
      {"isdecimal", method_is<is_digit>},
      {"isnumeric", method_is<is_digit>},
      {"isalnum", method_is<is_alphanumeric>},
      {"isspace", method_is<is_space>},
      {"isupper", method_is_cased<is_upper, is_lower>},
      {"islower", method_is_cased<is_lower, is_upper>},
      {"ljust", method_justify<'<'>},
      {"rjust", method_justify<'>'>},
      {"center", method_justify<'^'>},
      {"zfill", method_zfill},
  };
  const auto found = methods.find(name);
  return found != methods.end() ? found->second : nullptr;
}

}  // namespace sluice::chat::jinja
