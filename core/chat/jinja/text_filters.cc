// The filters of texts. A value that is not a text is printed first.
#include <algorithm>
#include <unordered_map>

#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/formatting.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/text_operations.h"
#include "core/text/utf8.h"

namespace sluice::chat::jinja {
namespace {

Value result(Evaluator& evaluator, const Value& subject, Text text) {
  return evaluator.heap().string(std::move(text), is_safe(subject));
}

template <Text (*change)(const Text&)>
Value filter_change(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return result(evaluator, subject, change(to_text(subject)));
}

// Words begin with a capital letter; a word begins after white space, "-" or an opening bracket.
Value filter_title(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  bool begins = true;
  return evaluator.heap().string(map_characters(to_text(subject), [&](char32_t c, std::size_t) {
    const bool separates =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                        std::string_view::npos);
    const bool is_first = std::exchange(begins, separates);
    return separates ? utf8::encode(c) : is_first ? to_upper(c) : to_lower(c);
  }));
}

Value filter_trim(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"chars"});
  const Text text = to_text(subject);
  const Text* characters = parameters.optional_text(0);
  evaluator.heap().work(strip_steps(text, characters));
  return result(evaluator, subject, strip(text, Side::both, characters));
}

Value filter_replace(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"old", "new", "count"});
  const bool has_count = parameters.has(2) && !is<None>(parameters.at(2));
  return evaluator.heap().string(replace(to_text(subject), to_text(parameters.at(0)),
                                         to_text(parameters.at(1)),
                                         has_count ? parameters.integer_or(2, -1) : -1));
}

Value filter_indent(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"width", "first", "blank"});
  const Text* text = text_of(subject);
  if (text == nullptr) throw Failure("it takes a text");
  const Value width = parameters.value_or(0, std::int64_t{4});
  const std::int64_t spaces = std::clamp<std::int64_t>(as_integer(width).value_or(0), 0, 10'000);
  const Text indentation =
      text_of(width) != nullptr
          ? *text_of(width)
          : Text(std::string(static_cast<std::size_t>(spaces), ' '), Origin::markup);
  const bool indents_blank = parameters.truth_or(2, false);
  Text ended = *text;
  ended.append("\n", Origin::markup);  // so that a last empty line counts
  Text indented;
  bool is_first = true;
  split_lines(ended, false, [&](const Text& line) {
    if (!is_first) indented.append("\n", Origin::markup);
    const bool indents = is_first ? parameters.truth_or(1, false) : indents_blank || !line.empty();
    if (indents) indented.append(indentation);
    is_first = false;
    indented.append(line);
  });
  return result(evaluator, subject, std::move(indented));
}

Value filter_center(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"width"});
  const Value text = evaluator.heap().string(to_text(subject), is_safe(subject));
  return find_string_method("center")(evaluator, text,
                                      {{parameters.value_or(0, std::int64_t{80})}, {}});
}

Value filter_format(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw Failure("it takes values with names or without, not both");
  }
  Value values = evaluator.heap().tuple(arguments.positional);
  if (!arguments.named.empty()) {
    const DictRef dict = evaluator.heap().make<Dict>();
    for (const auto& [name, value] : arguments.named)
      dict->set(evaluator.heap().string(name), value);
    values = dict;
  }
  return result(evaluator, subject, format_percent(evaluator.heap(), to_text(subject), values));
}

// Words are runs of letters, digits and underscores.
Value filter_wordcount(Evaluator&, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  const Text text = to_text(subject);
  std::int64_t count = 0;
  bool was_word = false;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text.bytes(), at)) {
    const char32_t c = code_point(text.bytes(), at);
    const bool is_word = is_alphabetic(c) || is_digit(c) || c == '_';
    if (is_word && !was_word) ++count;
    was_word = is_word;
  }
  return count;
}

Value filter_truncate(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<4> parameters(arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t most = parameters.integer_or(0, 255);
  const Text end = parameters.has(2) ? parameters.text(2) : Text("...", Origin::markup);
  const bool has_leeway = parameters.has(3) && !is<None>(parameters.at(3));
  const std::int64_t leeway = has_leeway ? parameters.integer_or(3, 5) : 5;
  const auto end_size = static_cast<std::int64_t>(count_characters(end.bytes()));
  if (most < end_size || leeway < 0) throw Failure("the length is less than that of the end");
  const Text text = to_text(subject);
  if (static_cast<std::int64_t>(count_characters(text.bytes())) - leeway <= most) return subject;
  Text kept =
      text.slice(0, offset_of_character(text.bytes(), static_cast<std::size_t>(most - end_size)));
  if (!parameters.truth_or(1, false)) {
    const std::size_t space = find_last_text(kept.bytes(), " ");
    if (space != std::string_view::npos) kept = kept.slice(0, space);
  }
  kept.append(end);
  return result(evaluator, subject, std::move(kept));
}

Value filter_urlencode(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  if (is<DictRef>(subject) || is<SequenceRef>(subject)) throw Failure("it takes a text");
  const Text text = to_text(subject);
  Text encoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    encoded.append(
        stays ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c)),
        text.origin_at(at));
  }
  return evaluator.heap().string(std::move(encoded));
}

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> filters = {
      {"upper", filter_change<upper>},
      {"lower", filter_change<lower>},
      {"capitalize", filter_change<capitalize>},
      {"title", filter_title},
      {"trim", filter_trim},
      {"replace", filter_replace},
      {"indent", filter_indent},
      {"center", filter_center},
      {"format", filter_format},
      {"wordcount", filter_wordcount},
      {"truncate", filter_truncate},
      {"urlencode", filter_urlencode}};
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : nullptr;
}

}  // namespace sluice::chat::jinja
