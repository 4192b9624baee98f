// The methods of lists, tuples, dictionaries and of the variable `loop`.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/chat/jinja/arguments.h"
#include "core/chat/jinja/operations.h"

namespace sluice::chat::jinja {
namespace {

Sequence& sequence_of(const Value& self) {
  return *std::get<SequenceRef>(self);
}
Dict& dict_of(const Value& self) {
  return *std::get<DictRef>(self);
}

Value list_append(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"object"});
  Value item = parameters.at(0);
  sequence_of(self).change(1).push_back(std::move(item));
  return None{};
}

Value list_extend(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"iterable"});
  std::vector<Value> items = walk(evaluator.heap(), parameters.at(0));
  std::vector<Value>& list = sequence_of(self).change(items.size());
  std::ranges::move(items, std::back_inserter(list));
  return None{};
}

Value list_insert(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"index", "object"});
  const std::int64_t index = parameters.integer_or(0, 0);
  Value item = parameters.at(1);
  std::vector<Value>& list = sequence_of(self).change(1);
  const auto size = static_cast<std::int64_t>(list.size());
  const std::int64_t at = std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  list.insert(list.begin() + at, std::move(item));
  return None{};
}

Value list_pop(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"index"});
  std::vector<Value>& list = sequence_of(self).change(0);
  const auto size = static_cast<std::int64_t>(list.size());
  std::int64_t at = parameters.integer_or(0, -1);
  if (at < 0) at += size;
  if (at < 0 || at >= size) throw Failure("the list has no such item");
  Value item = std::move(list[static_cast<std::size_t>(at)]);
  list.erase(list.begin() + at);
  return item;
}

std::optional<std::size_t> position(const Value& self, const Value& item) {
  const std::vector<Value>& items = sequence_of(self).items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], item)) return i;
  }
  return std::nullopt;
}

Value list_remove(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"value"});
  const auto at = position(self, parameters.at(0));
  if (!at) throw Failure("the list has no such item");
  std::vector<Value>& list = sequence_of(self).change(0);
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(*at));
  return None{};
}

Value list_clear(Evaluator&, const Value& self, const Arguments&) {
  sequence_of(self).clear();
  return None{};
}

Value list_reverse(Evaluator&, const Value& self, const Arguments&) {
  std::ranges::reverse(sequence_of(self).change(0));
  return None{};
}

Value list_copy(Evaluator& evaluator, const Value& self, const Arguments&) {
  return evaluator.heap().list(sequence_of(self).items());
}

Value sequence_index(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"value"});
  const auto at = position(self, parameters.at(0));
  if (!at) throw Failure("there is no such item");
  return static_cast<std::int64_t>(*at);
}

Value sequence_count(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<1> parameters(arguments, {"value"});
  const auto is_same = [&](const Value& item) { return equal(item, parameters.at(0)); };
  return static_cast<std::int64_t>(std::ranges::count_if(sequence_of(self).items(), is_same));
}

template <Sequence::Kind kind>
Value dict_view(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Parameters<0> none(arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : dict_of(self).entries()) {
    items.push_back(kind == Sequence::Kind::keys     ? key
                    : kind == Sequence::Kind::values ? value
                                                     : evaluator.heap().tuple({key, value}));
  }
  return evaluator.heap().make<Sequence>(kind, std::move(items));
}

Value dict_get(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"key", "default"});
  const Value* value = dict_of(self).find(parameters.at(0));
  return value != nullptr ? *value : parameters.value_or(1, None{});
}

Value dict_pop(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"key", "default"});
  if (auto value = dict_of(self).remove(parameters.at(0))) return std::move(*value);
  if (!parameters.has(1)) throw Failure("the dictionary has no such key");
  return parameters.at(1);
}

Value dict_setdefault(Evaluator&, const Value& self, const Arguments& arguments) {
  const Parameters<2> parameters(arguments, {"key", "default"});
  if (const Value* value = dict_of(self).find(parameters.at(0))) return *value;
  Value value = parameters.value_or(1, None{});
  dict_of(self).set(parameters.at(0), value);
  return value;
}

Value dict_update(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Failure("it takes one dictionary");
  for (const Value& other : arguments.positional) {
    const auto* dict = std::get_if<DictRef>(&other);
    if (dict == nullptr) throw Failure("it takes a dictionary");
    const std::vector<Dict::Entry> entries = (*dict)->entries();
    for (const auto& [key, value] : entries) dict_of(self).set(key, value);
  }
  for (const auto& [name, value] : arguments.named) {
    dict_of(self).set(evaluator.heap().string(name), value);
  }
  return None{};
}

Value dict_copy(Evaluator& evaluator, const Value& self, const Arguments&) {
  const DictRef copy = evaluator.heap().make<Dict>();
  for (const auto& [key, value] : dict_of(self).entries()) copy->add(key, value);
  return copy;
}

Value dict_clear(Evaluator&, const Value& self, const Arguments&) {
  dict_of(self).clear();
  return None{};
}

Value loop_cycle(Evaluator&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Failure("it takes at least one value");
  const std::size_t index = std::get<LoopRef>(self)->index0;
  return arguments.positional[index % arguments.positional.size()];
}

Value loop_changed(Evaluator&, const Value& self, const Arguments& arguments) {
  auto& last = std::get<LoopRef>(self)->last_changed;
  const auto same = [](const Value& a, const Value& b) { return equal(a, b); };
  if (last && std::ranges::equal(*last, arguments.positional, same)) return false;
  last = arguments.positional;
  return true;
}

MethodFunction find_in(const std::unordered_map<std::string_view, MethodFunction>& methods,
                       std::string_view name) {
  const auto found = methods.find(name);
  return found != methods.end() ? found->second : nullptr;
}

}  // namespace

// Templates run on copies of their data, so they may change lists.
MethodFunction find_list_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> methods = {
      {"append", list_append},  {"extend", list_extend},   {"insert", list_insert},
      {"pop", list_pop},        {"remove", list_remove},   {"clear", list_clear},
      {"copy", list_copy},      {"reverse", list_reverse}, {"index", sequence_index},
      {"count", sequence_count}};
  return find_in(methods, name);
}

MethodFunction find_tuple_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> methods = {
      {"index", sequence_index}, {"count", sequence_count}};
  return find_in(methods, name);
}

MethodFunction find_dict_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> methods = {
      {"keys", dict_view<Sequence::Kind::keys>},
      {"values", dict_view<Sequence::Kind::values>},
      {"items", dict_view<Sequence::Kind::items>},
      {"get", dict_get},
      {"pop", dict_pop},
      {"setdefault", dict_setdefault},
      {"update", dict_update},
      {"copy", dict_copy},
      {"clear", dict_clear}};
  return find_in(methods, name);
}

MethodFunction find_loop_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> methods = {
      {"cycle", loop_cycle}, {"changed", loop_changed}};
  return find_in(methods, name);
}

}  // namespace sluice::chat::jinja
