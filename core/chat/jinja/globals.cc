// The global functions of templates.
#include <array>
#include <ctime>
#include <locale.h>
#include <unordered_map>

#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/operations.h"

namespace sluice::chat::jinja {
namespace {

constexpr std::int64_t range_items_max = 100'000;  // as in Jinja's sandbox

Value global_range(Evaluator& evaluator, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"start", "stop", "step"});
  const bool has_one = !parameters.has(1);
  const std::int64_t first = has_one ? 0 : parameters.integer_or(0, 0);
  const std::int64_t stop = parameters.integer_or(has_one ? 0 : 1, 0);
  parameters.at(0);
  const std::int64_t step = parameters.integer_or(2, 1);
  if (step == 0) throw Failure("the step is zero");
  std::vector<Value> items;
  for (std::int64_t i = first; step > 0 ? i < stop : i > stop;) {
    items.emplace_back(i);
    if (static_cast<std::int64_t>(items.size()) > range_items_max) {
      throw Failure("it has more than 100,000 numbers");
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  evaluator.heap().work(items.size() / 8);
  return evaluator.heap().make<Sequence>(Sequence::Kind::range, std::move(items));
}

Value global_dict(Evaluator& evaluator, const Arguments& arguments) {
  const DictRef dict = evaluator.heap().make<Dict>();
  if (arguments.positional.size() > 1) throw Failure("it takes one dictionary or list of pairs");
  for (const Value& source : arguments.positional) {
    if (const auto* other = std::get_if<DictRef>(&source)) {
      for (const auto& [key, value] : (*other)->entries()) dict->set(key, value);
      continue;
    }
    for (const Value& pair : walk(evaluator.heap(), source)) {
      const std::vector<Value> parts = walk(evaluator.heap(), pair);
      if (parts.size() != 2) throw Failure("it takes pairs of a key and a value");
      dict->set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict->set(evaluator.heap().string(name), value);
  }
  return dict;
}

Value global_namespace(Evaluator& evaluator, const Arguments& arguments) {
  const Value attributes = global_dict(evaluator, arguments);
  return evaluator.heap().make<Namespace>(std::get<DictRef>(attributes));
}

// Prints its separator each time except the first. Keeps it as text: joiners that hold each other
// in a long chain would be freed by a recursion as deep as that.
Value global_joiner(Evaluator& evaluator, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"sep"});
  Heap& heap = evaluator.heap();
  const Text text = parameters.has(0) ? to_text(parameters.at(0)) : Text(", ", Origin::markup);
  return heap.make<Callable>(
      "joiner", [separator = heap.string(text), used = std::make_shared<bool>(false)](
                    Evaluator& self, const Arguments&) {
        return std::exchange(*used, true) ? separator : self.heap().string("");
      });
}

Value global_raise_exception(Evaluator&, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"message"});
  throw Failure(to_text(parameters.at(0)).bytes());
}

// Names of months and days do not depend on the locale of the process, as in Python.
locale_t english() {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
  return locale;
}

Value global_strftime_now(Evaluator& evaluator, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"format"});
  const Text& format = parameters.text(0);
  if (format.size() > 200) throw Failure("the format is too long");
  if (format.empty()) return evaluator.heap().string("");
  std::array<char, 4096> buffer{};
  // With one more character: an empty result and one that does not fit would look the same.
  const std::string ended = format.bytes() + " ";
  const std::size_t size =
      ::strftime_l(buffer.data(), buffer.size(), ended.c_str(), &evaluator.now(), english());
  if (size == 0) throw Failure("the time does not fit");
  // Which part of the format a byte comes from is not known.
  const bool is_markup = format.runs().size() == 1 && format.origin_at(0) == Origin::markup;
  return evaluator.heap().string(
      Text(std::string_view(buffer.data(), size - 1), is_markup ? Origin::markup : Origin::data));
}

}  // namespace

GlobalFunction find_global(std::string_view name) {
  static const std::unordered_map<std::string_view, GlobalFunction> functions = {
      {"range", global_range},
      {"dict", global_dict},
      {"namespace", global_namespace},
      {"joiner", global_joiner},
      {"raise_exception", global_raise_exception},
      {"strftime_now", global_strftime_now}};
  const auto found = functions.find(name);
  return found != functions.end() ? found->second : nullptr;
}

}  // namespace sluice::chat::jinja
