// The expressions of a template; statements are in evaluator.cc.
#include <algorithm>
#include <fmt/format.h>

#include "core/chat/jinja/evaluator.h"
#include "core/chat/jinja/levels.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/printing.h"

namespace sluice::chat::jinja {
namespace {

void check_count(std::size_t arguments) {
  if (arguments > CallArguments::count_max) throw Failure("there are too many arguments");
}

template <class Function>
Value method_value(Heap& heap, const Value& self, std::string_view name, Function method) {
  return heap.make<Callable>(std::string(name),
                             [self, method](Evaluator& evaluator, const Arguments& arguments) {
                               evaluator.heap().work(weight(self));
                               return method(evaluator, self, arguments);
                             });
}

std::optional<Value> loop_attribute(Heap& heap, const Loop& loop, std::string_view name) {
  const auto index0 = static_cast<std::int64_t>(loop.index0);
  const auto size = static_cast<std::int64_t>(loop.items.size());
  if (name == "index") return index0 + 1;
  if (name == "index0") return index0;
  if (name == "revindex") return size - index0;
  if (name == "revindex0") return size - index0 - 1;
  if (name == "first") return index0 == 0;
  if (name == "last") return index0 == size - 1;
  if (name == "length") return size;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  if (name == "previtem") {
    return index0 > 0 ? loop.items[loop.index0 - 1] : heap.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < size ? loop.items[loop.index0 + 1]
                             : heap.undefined("there is no next item");
  }
  return std::nullopt;
}

MethodFunction find_method(const Value& object, std::string_view name) {
  if (is<StringRef>(object)) return find_string_method(name);
  if (is<DictRef>(object)) return find_dict_method(name);
  if (is<LoopRef>(object)) return find_loop_method(name);
  const auto* sequence = std::get_if<SequenceRef>(&object);
  if (sequence == nullptr || !(*sequence)->is_indexed()) return nullptr;
  return (*sequence)->kind() == Sequence::Kind::list ? find_list_method(name)
                                                     : find_tuple_method(name);
}

// The value of a key or an index, if there is one.
std::optional<Value> find_item(Heap& heap, const Value& object, const Value& key) {
  if (const auto* dict = std::get_if<DictRef>(&object)) {
    const bool is_key = !is<DictRef>(key) && !is<SequenceRef>(key);
    const Value* value = is_key ? (*dict)->find(key) : nullptr;
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }
  const auto index = as_integer(key);
  if (!index) return std::nullopt;
  const auto* sequence = std::get_if<SequenceRef>(&object);
  const bool is_indexed =
      is<StringRef>(object) || (sequence != nullptr && (*sequence)->is_indexed());
  if (!is_indexed) return std::nullopt;
  const std::int64_t size = length(object);
  const std::int64_t at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size) return std::nullopt;
  if (sequence != nullptr) return (*sequence)->items()[static_cast<std::size_t>(at)];
  return slice(heap, object, at, at + 1, None{});
}

}  // namespace

Value Evaluator::evaluate(const Expression& expression) {
  const Level level(*this);
  Value value =
      std::visit([this, &expression](const auto& node) { return value_of(node, expression.line); },
                 expression.node);
  heap_.work(weight(value));
  return value;
}

Value Evaluator::evaluate_optional(const ExpressionPtr& expression) {
  return expression != nullptr ? evaluate(*expression) : Value(None{});
}

// The values count on the heap from the first on: to find the next, a macro may call itself.
SequenceRef Evaluator::evaluate_all(const Expressions& expressions, Sequence::Kind kind) {
  auto values = heap_.make<Sequence>(kind, std::vector<Value>());
  for (const ExpressionPtr& expression : expressions) {
    Value value = evaluate(*expression);
    values->change(1).push_back(std::move(value));
  }
  return values;
}

Value Evaluator::value_of(const Constant& constant, std::size_t) {
  return std::visit(
      [this]<class T>(const T& value) -> Value {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return None{};
        } else if constexpr (std::is_same_v<T, std::string>) {
          return heap_.string(value);
        } else {
          return value;
        }
      },
      constant.value);
}

Value Evaluator::value_of(const Name& name, std::size_t) {
  if (const Value* value = scope_->find(name.name)) return *value;
  if (const GlobalFunction function = find_global(name.name)) {
    return heap_.make<Callable>(name.name, [function](Evaluator& self, const Arguments& arguments) {
      return function(self, arguments);
    });
  }
  return heap_.undefined(fmt::format("'{}'", name.name));
}

Value Evaluator::value_of(const ListDisplay& list, std::size_t) {
  return evaluate_all(list.items, list.is_tuple ? Sequence::Kind::tuple : Sequence::Kind::list);
}

Value Evaluator::value_of(const DictDisplay& display, std::size_t) {
  const DictRef dict = heap_.make<Dict>();
  for (const auto& [key, value] : display.entries) {
    const Value name = evaluate(*key);
    dict->set(name, evaluate(*value));
  }
  return dict;
}

Value Evaluator::value_of(const Unary& unary, std::size_t line) {
  const Value operand = evaluate(*unary.operand);
  if (unary.op == UnaryOperator::logical_not) return !truth(operand);
  at(line, "operator", unary.op == UnaryOperator::negative ? "-" : "+");
  const Value result = negated(operand);
  return unary.op == UnaryOperator::negative ? result : negated(result);
}

Value Evaluator::value_of(const Arithmetic& arithmetic, std::size_t line) {
  Value value = evaluate(*arithmetic.first);
  for (const auto& [op, operand] : arithmetic.rest) {
    const Value right = evaluate(*operand);
    at(line, "operator", symbol_of(op));
    value = calculate(heap_, op, value, right);
  }
  return value;
}

Value Evaluator::value_of(const Concatenation& concatenation, std::size_t) {
  const SequenceRef parts = evaluate_all(concatenation.parts, Sequence::Kind::list);
  Text text;
  for (const Value& part : parts->items()) text.append(to_text(part));
  return heap_.string(std::move(text));
}

Value Evaluator::value_of(const Logical& logical, std::size_t) {
  Value value;
  for (const ExpressionPtr& operand : logical.operands) {
    value = evaluate(*operand);
    if (truth(value) != logical.is_and) break;
  }
  return value;
}

Value Evaluator::value_of(const Comparison& comparison, std::size_t line) {
  Value left = evaluate(*comparison.first);
  for (const auto& [op, operand] : comparison.rest) {
    Value right = evaluate(*operand);
    at(line, "comparison");
    if (!compare(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::value_of(const Conditional& conditional, std::size_t) {
  if (truth(evaluate(*conditional.test))) return evaluate(*conditional.value);
  if (conditional.other != nullptr) return evaluate(*conditional.other);
  return heap_.undefined("the value of an 'if' without an 'else'");
}

Value Evaluator::value_of(const Attribute& node, std::size_t line) {
  const Value object = evaluate(*node.object);
  at(line, "attribute", node.name);
  return attribute(object, node.name);
}

Value Evaluator::attribute(const Value& object, std::string_view name) {
  if (is<Undefined>(object)) fail_undefined(object);
  if (const MethodFunction method = find_method(object, name)) {
    return method_value(heap_, object, name, method);
  }
  if (const auto* loop = std::get_if<LoopRef>(&object)) {
    if (const auto value = loop_attribute(heap_, **loop, name)) return *value;
  }
  if (const auto* sequence = std::get_if<SequenceRef>(&object)) {
    const auto* group = dynamic_cast<const Group*>(sequence->get());
    if (group != nullptr && name == "grouper") return group->grouper();
    if (group != nullptr && name == "list") return group->list();
  }
  const Value* value = nullptr;
  if (const auto* dict = std::get_if<DictRef>(&object)) value = (*dict)->find(name);
  if (const auto* space = std::get_if<NamespaceRef>(&object)) {
    value = (*space)->attributes->find(name);
  }
  if (const auto* callable = std::get_if<CallableRef>(&object); callable && name == "name") {
    return heap_.string((*callable)->name());
  }
  if (value != nullptr) return *value;
  return heap_.undefined(fmt::format("'{}' of a '{}'", name, type_name(object)));
}

Value Evaluator::value_of(const Subscript& subscript, std::size_t line) {
  const Value object = evaluate(*subscript.object);
  const Value key = evaluate(*subscript.index);
  at(line, "subscript");
  return item(object, key);
}

Value Evaluator::item(const Value& object, const Value& key) {
  if (is<Undefined>(object)) fail_undefined(object);
  if (auto value = find_item(heap_, object, key)) return std::move(*value);
  if (const Text* name = text_of(key)) return attribute(object, name->bytes());
  return heap_.undefined(fmt::format("item {} of a '{}'", to_text(key).bytes(), type_name(object)));
}

Value Evaluator::value_of(const Slice& node, std::size_t line) {
  const Value object = evaluate(*node.object);
  const Value begin = evaluate_optional(node.begin);
  const Value end = evaluate_optional(node.end);
  const Value step = evaluate_optional(node.step);
  at(line, "slice");
  return slice(heap_, object, begin, end, step);
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments result;
  for (const ExpressionPtr& argument : arguments.positional) {
    result.positional.push_back(evaluate(*argument));
  }
  for (const auto& [name, argument] : arguments.named) {
    result.named.push_back({Text(name, Origin::markup), evaluate(*argument)});
  }
  if (arguments.list != nullptr) {
    for (Value& value : walk(heap_, evaluate(*arguments.list))) {
      heap_.work(1 + weight(value));
      result.positional.push_back(std::move(value));
    }
  }
  check_count(result.positional.size());
  if (arguments.dict == nullptr) return result;
  const Value dict = evaluate(*arguments.dict);
  if (!is<DictRef>(dict)) throw Failure("what follows ** must be a dictionary");
  for (const auto& [key, value] : std::get<DictRef>(dict)->entries()) {
    heap_.work(1 + weight(value));
    result.named.push_back({to_text(key), value});
  }
  check_count(result.named.size());
  return result;
}

Value Evaluator::value_of(const Call& node, std::size_t line) {
  return evaluate_call(node, line, nullptr);
}

Value Evaluator::evaluate_call(const Call& node, std::size_t line, CallableRef caller) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate_arguments(node.arguments);
  if (caller != nullptr) {
    arguments.named.push_back({Text("caller", Origin::markup), std::move(caller)});
  }
  std::string_view name;
  if (const auto* function = std::get_if<Name>(&node.callee->node)) name = function->name;
  if (const auto* method = std::get_if<Attribute>(&node.callee->node)) name = method->name;
  at(line, "call of", name);
  return call(callee, std::move(arguments));
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  if (is<Undefined>(callee)) fail_undefined(callee);
  if (const auto* function = std::get_if<CallableRef>(&callee)) {
    const CallableRef held = *function;
    return held->call(*this, std::move(arguments));
  }
  const auto* loop = std::get_if<LoopRef>(&callee);
  if (loop != nullptr && (*loop)->recurse != nullptr) {
    const CallableRef recurse = (*loop)->recurse;
    return recurse->call(*this, std::move(arguments));
  }
  throw Failure(fmt::format("'{}' cannot be called", type_name(callee)));
}

Value Evaluator::value_of(const Filter& filter, std::size_t line) {
  const Value subject = filter.subject != nullptr ? evaluate(*filter.subject) : block_text_;
  const Arguments arguments = evaluate_arguments(filter.arguments);
  at(line, "filter", filter.name);
  return apply_filter(filter.name, subject, arguments);
}

Value Evaluator::apply_filter(std::string_view name, const Value& subject,
                              const Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) throw Failure(fmt::format("there is no filter '{}'", name));
  return filter(*this, subject, arguments);
}

Value Evaluator::value_of(const Test& test, std::size_t line) {
  const Value subject = evaluate(*test.subject);
  const Arguments arguments = evaluate_arguments(test.arguments);
  at(line, "test", test.name);
  return apply_test(test.name, subject, arguments);
}

bool Evaluator::apply_test(std::string_view name, const Value& subject,
                           const Arguments& arguments) {
  const TestFunction test = find_test(name);
  if (test == nullptr) throw Failure(fmt::format("there is no test '{}'", name));
  return test(*this, subject, arguments);
}

}  // namespace sluice::chat::jinja
