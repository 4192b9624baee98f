// The filters of lists, dictionaries and other values that can be walked.
#include <algorithm>
#include <unordered_map>

#include "base/number.h"
#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/text_operations.h"

namespace sluice::chat::jinja {
namespace {

// Reads what "a.b.0" names of an item: attributes of attributes.
class Getter {
 public:
  // `path`: a text, an index, or none, for the item itself.
  Getter(Evaluator& evaluator, const Value& path, Value missing = Undefined{})
      : evaluator_(evaluator), missing_(std::move(missing)) {
    if (is<None>(path) || is<Undefined>(path)) return;
    if (as_integer(path)) {
      parts_.push_back(path);
      return;
    }
    const Text* text = text_of(path);
    if (text == nullptr) throw Failure("an attribute is a text or an integer");
    const Text dot(".", Origin::markup);
    split(*text, &dot, -1, [&](Text part) {
      const auto index = base::whole_number<std::int64_t>(part.bytes());
      const bool is_index = index && !part.bytes().starts_with('-');
      parts_.push_back(is_index ? Value(*index) : evaluator.heap().string(std::move(part)));
    });
  }

  Value operator()(const Value& item) const {
    Value value = item;
    for (const Value& part : parts_) {
      evaluator_.heap().work(1 + weight(value));
      value = evaluator_.item(value, part);
      if (is<Undefined>(value) && !is<Undefined>(missing_)) value = missing_;
    }
    return value;
  }

 private:
  Evaluator& evaluator_;
  std::vector<Value> parts_;
  Value missing_;
};

// The key by which values are sorted: texts in lower case unless case matters.
Value sort_key(Evaluator& evaluator, const Value& value, bool is_case_sensitive) {
  const Text* text = text_of(value);
  if (text == nullptr || is_case_sensitive) return value;
  return evaluator.heap().string(lower(*text));
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Value> sorted(std::vector<Keyed> keyed, bool is_reversed) {
  std::ranges::stable_sort(keyed, [is_reversed](const Keyed& a, const Keyed& b) {
    return is_reversed ? less(b.key, a.key) : less(a.key, b.key);
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

std::vector<Value> items_of(Evaluator& evaluator, const Value& subject) {
  std::vector<Value> items = walk(evaluator.heap(), subject);
  evaluator.heap().work(items.size());
  return items;
}

Value filter_sort(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"reverse", "case_sensitive", "attribute"});
  const bool is_case_sensitive = parameters.truth_or(1, false);
  std::vector<Getter> getters;
  const Value attribute = parameters.value_or(2, None{});
  const Text comma(",", Origin::markup);
  if (const Text* paths = text_of(attribute)) {
    split(*paths, &comma, -1, [&](Text path) {
      getters.emplace_back(evaluator, evaluator.heap().string(std::move(path)));
    });
  } else {
    getters.emplace_back(evaluator, attribute);
  }
  std::vector<Keyed> keyed;
  for (Value& item : items_of(evaluator, subject)) {
    std::vector<Value> keys;
    keys.reserve(getters.size());
    for (const Getter& getter : getters) {
      keys.push_back(sort_key(evaluator, getter(item), is_case_sensitive));
    }
    keyed.push_back({evaluator.heap().list(std::move(keys)), std::move(item)});
  }
  return evaluator.heap().list(sorted(std::move(keyed), parameters.truth_or(0, false)));
}

Value filter_dictsort(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = parameters.has(1) ? parameters.text(1).bytes() : "key";
  if (by != "key" && by != "value") throw Failure("it sorts by 'key' or 'value'");
  if (is<Undefined>(subject)) fail_undefined(subject);
  const auto* dict = std::get_if<DictRef>(&subject);
  if (dict == nullptr) throw Failure("it takes a dictionary");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : (*dict)->entries()) {
    keyed.push_back({sort_key(evaluator, by == "key" ? key : value, parameters.truth_or(0, false)),
                     evaluator.heap().tuple({key, value})});
  }
  return evaluator.heap().list(sorted(std::move(keyed), parameters.truth_or(2, false)));
}

Value filter_groupby(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<3> parameters(arguments, {"attribute", "default", "case_sensitive"});
  const Getter getter(evaluator, parameters.at(0), parameters.value_or(1, Undefined{}));
  const bool is_case_sensitive = parameters.truth_or(2, false);
  std::vector<Keyed> keyed;
  for (Value& item : items_of(evaluator, subject)) {
    keyed.push_back({sort_key(evaluator, getter(item), is_case_sensitive), item});
  }
  const std::vector<Value> items = sorted(std::move(keyed), false);
  Heap& heap = evaluator.heap();
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < items.size();) {
    const Value key = sort_key(evaluator, getter(items[begin]), is_case_sensitive);
    std::vector<Value> group;
    const std::size_t first = begin;
    for (; begin < items.size(); ++begin) {
      if (!equal(sort_key(evaluator, getter(items[begin]), is_case_sensitive), key)) break;
      group.push_back(items[begin]);
    }
    groups.emplace_back(heap.make<Group>(getter(items[first]), heap.list(std::move(group))));
  }
  return heap.list(std::move(groups));
}

Value filter_unique(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"case_sensitive", "attribute"});
  const Getter getter(evaluator, parameters.value_or(1, None{}));
  std::vector<Value> seen;
  std::vector<Value> items;
  for (Value& item : items_of(evaluator, subject)) {
    Value key = sort_key(evaluator, getter(item), parameters.truth_or(0, false));
    evaluator.heap().work(seen.size() / 8);
    if (std::ranges::any_of(seen, [&](const Value& old) { return equal(old, key); })) continue;
    seen.push_back(std::move(key));
    items.push_back(std::move(item));
  }
  return evaluator.heap().iterator(std::move(items));
}

template <bool is_max>
Value filter_extreme(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"case_sensitive", "attribute"});
  const Getter getter(evaluator, parameters.value_or(1, None{}));
  std::optional<Keyed> best;
  for (Value& item : items_of(evaluator, subject)) {
    Value key = sort_key(evaluator, getter(item), parameters.truth_or(0, false));
    if (!best || (is_max ? less(best->key, key) : less(key, best->key))) {
      best = Keyed{std::move(key), std::move(item)};
    }
  }
  return best ? best->item : Value(Undefined{});
}

Value filter_sum(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"attribute", "start"});
  const Getter getter(evaluator, parameters.value_or(0, None{}));
  Value sum = parameters.value_or(1, std::int64_t{0});
  for (const Value& item : items_of(evaluator, subject)) {
    sum = calculate(evaluator.heap(), BinaryOperator::add, sum, getter(item));
  }
  return sum;
}

Value filter_join(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"d", "attribute"});
  const Text delimiter = parameters.has(0) ? to_text(parameters.at(0)) : Text();
  const Getter getter(evaluator, parameters.value_or(1, None{}));
  Text text;
  bool is_first = true;
  for (const Value& item : items_of(evaluator, subject)) {
    if (!is_first) text.append(delimiter);
    is_first = false;
    text.append(to_text(getter(item)));
  }
  return evaluator.heap().string(std::move(text));
}

Value filter_list(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  return evaluator.heap().list(items_of(evaluator, subject));
}

Value filter_items(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  std::vector<Value> items;
  if (!is<Undefined>(subject)) {
    const auto* dict = std::get_if<DictRef>(&subject);
    if (dict == nullptr) throw Failure("it takes a dictionary");
    for (const auto& [key, value] : (*dict)->entries()) {
      items.push_back(evaluator.heap().tuple({key, value}));
    }
  }
  return evaluator.heap().iterator(std::move(items));
}

template <bool is_last>
Value filter_end(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  const auto* sequence = std::get_if<SequenceRef>(&subject);
  if (is_last && sequence != nullptr && (*sequence)->kind() == Sequence::Kind::iterator) {
    throw Failure("a generator cannot be reversed");
  }
  const std::vector<Value> items = items_of(evaluator, subject);
  if (items.empty()) return Undefined{};
  return is_last ? items.back() : items.front();
}

Value filter_reverse(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  if (is<StringRef>(subject)) {
    return slice(evaluator.heap(), subject, None{}, None{}, std::int64_t{-1});
  }
  std::vector<Value> items = items_of(evaluator, subject);
  std::ranges::reverse(items);
  return evaluator.heap().iterator(std::move(items));
}

Value filter_batch(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"linecount", "fill_with"});
  const std::int64_t size = parameters.integer_or(0, 0);
  if (size < 1 || size > 100'000) throw Failure("the size of a batch is wrong");
  const auto count = static_cast<std::size_t>(size);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : items_of(evaluator, subject)) {
    if (batch.size() == count) batches.push_back(evaluator.heap().list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (parameters.has(1) && !is<None>(parameters.at(1))) {
      evaluator.heap().work(count / 2);
      batch.resize(count, parameters.at(1));
    }
    batches.push_back(evaluator.heap().list(std::move(batch)));
  }
  return evaluator.heap().iterator(std::move(batches));
}

Value filter_slice(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"slices", "fill_with"});
  const std::int64_t number = parameters.integer_or(0, 0);
  if (number < 1 || number > 100'000) throw Failure("the number of slices is wrong");
  const auto slices = static_cast<std::size_t>(number);
  const std::vector<Value> items = items_of(evaluator, subject);
  const std::size_t longer = items.size() % slices;  // how many slices have one item more
  std::vector<Value> result;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t end = begin + items.size() / slices + (i < longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    const bool fills = parameters.has(1) && !is<None>(parameters.at(1)) && i >= longer;
    if (fills) part.push_back(parameters.at(1));
    result.push_back(evaluator.heap().list(std::move(part)));
    begin = end;
  }
  return evaluator.heap().iterator(std::move(result));
}

// The items for map, select and reject: none if the subject counts as false.
std::vector<Value> items_if_any(Evaluator& evaluator, const Value& subject) {
  return truth(subject) ? items_of(evaluator, subject) : std::vector<Value>();
}

// The arguments after the first `count`, for another filter or test.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

const std::string& name_in(const Arguments& arguments, std::size_t index) {
  const bool is_given = index < arguments.positional.size();
  const Text* name = is_given ? text_of(arguments.positional[index]) : nullptr;
  if (name == nullptr) throw Failure("it takes the name of a filter, a test or an attribute");
  return name->bytes();
}

// A filter or a test may look at all of its values, each time that it is applied to an item.
void count_application(Evaluator& evaluator, const Value& item, const Arguments& arguments) {
  std::size_t steps = 1 + weight(item);
  for (const Value& value : arguments.positional) steps += weight(value);
  for (const auto& [name, value] : arguments.named) steps += weight(value);
  evaluator.heap().work(steps);
}

Value filter_map(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const bool has_attribute = arguments.positional.empty() &&
                             std::ranges::find(arguments.named, "attribute",
                                               &Arguments::Named::bytes) != arguments.named.end();
  std::vector<Value> items = items_if_any(evaluator, subject);
  if (has_attribute) {
    const Parameters<2> parameters(arguments, {"attribute", "default"});
    const Getter getter(evaluator, parameters.at(0), parameters.value_or(1, Undefined{}));
    for (Value& item : items) item = getter(item);
  } else {
    const std::string& name = name_in(arguments, 0);
    const Arguments rest = rest_of(arguments, 1);
    for (Value& item : items) {
      count_application(evaluator, item, rest);
      item = evaluator.apply_filter(name, item, rest);
      evaluator.heap().work(weight(item));
    }
  }
  return evaluator.heap().iterator(std::move(items));
}

// select, reject, selectattr, rejectattr: keeps the items that pass a test (or that count as true)
// or whose attribute does, or those that do not.
template <bool keeps, bool of_attribute>
Value filter_select(Evaluator& evaluator, const Value& subject, const Arguments& arguments) {
  const std::size_t first = of_attribute ? 1 : 0;
  if (of_attribute) name_in(arguments, 0);
  const Getter getter(evaluator, of_attribute ? arguments.positional[0] : Value(None{}));
  const bool has_test = arguments.positional.size() > first;
  const std::string test = has_test ? name_in(arguments, first) : "";
  const Arguments rest = has_test ? rest_of(arguments, first + 1) : Arguments();
  std::vector<Value> kept;
  for (Value& item : items_if_any(evaluator, subject)) {
    const Value value = getter(item);
    count_application(evaluator, value, rest);
    const bool passes = has_test ? evaluator.apply_test(test, value, rest) : truth(value);
    if (passes == keeps) kept.push_back(std::move(item));
  }
  return evaluator.heap().iterator(std::move(kept));
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> filters = {
      {"sort", filter_sort},
      {"dictsort", filter_dictsort},
      {"groupby", filter_groupby},
      {"unique", filter_unique},
      {"min", filter_extreme<false>},
      {"max", filter_extreme<true>},
      {"sum", filter_sum},
      {"join", filter_join},
      {"list", filter_list},
      {"items", filter_items},
      {"first", filter_end<false>},
      {"last", filter_end<true>},
      {"reverse", filter_reverse},
      {"batch", filter_batch},
      {"slice", filter_slice},
      {"map", filter_map},
      {"select", filter_select<true, false>},
      {"reject", filter_select<false, false>},
      {"selectattr", filter_select<true, true>},
      {"rejectattr", filter_select<false, true>}};
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : nullptr;
}

}  // namespace sluice::chat::jinja
