#include "core/chat/jinja/evaluator.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/chat/jinja/levels.h"
#include "core/chat/jinja/operations.h"
#include "core/chat/jinja/printing.h"

namespace sluice::chat::jinja {

// Frees the scopes around it that nobody else holds, one after the other: a chain of them may be
// long, as each call of a recursive loop begins one.
Scope::~Scope() {
  clear_variables();
  std::shared_ptr<Scope> around = std::move(parent_);
  while (around != nullptr && around.use_count() == 1) around = std::move(around->parent_);
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    heap().work(1 + scope->variables_.size() / 8);
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  heap().work(variables_.size() / 8);
  for (auto& [known, old] : variables_) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  grow(sizeof(variables_[0]));
  variables_.emplace_back(name, std::move(value));
}

Text BlockText::take() {
  shrink(std::exchange(counted_, 0));
  return std::move(text_);
}

void BlockText::count() {
  if (!counts_) return;
  grow(text_.memory_bytes() - counted_);
  counted_ = text_.memory_bytes();
}

void Scope::clear() {
  clear_variables();
  parent_.reset();
}

void Scope::clear_variables() {
  std::vector<Value> values;
  values.reserve(variables_.size());
  for (auto& [name, value] : variables_) values.push_back(std::move(value));
  variables_.clear();
  bury(std::move(values));
}

Evaluator::Evaluator(Heap& heap, const std::tm& now)
    : heap_(heap), now_(now), scope_(heap.make<Scope>(nullptr)) {}

void Evaluator::set_variable(std::string_view name, Value value) {
  scope_->set(name, std::move(value));
}

Text Evaluator::run(const Statements& statements) {
  const auto text = heap_.make<BlockText>(false);
  const OutputGuard output(*this, *text);
  execute(statements);
  return text->take();
}

std::string Evaluator::place() const {
  if (construct_.empty()) return fmt::format("line {}", line_);
  if (construct_name_.empty()) return fmt::format("line {}, {}", line_, construct_);
  return fmt::format("line {}, {} '{}'", line_, construct_, construct_name_);
}

void Evaluator::at(std::size_t line, std::string_view construct, std::string_view name) {
  line_ = line;
  construct_ = construct;
  construct_name_ = name;
}

Evaluator::Flow Evaluator::execute(const Statements& statements) {
  for (const Statement& statement : statements) {
    const Flow flow = execute(statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  at(statement.line, {});
  const Level level(*this);
  return std::visit([this](const auto& node) { return this->run_node(node); }, statement.node);
}

Evaluator::Flow Evaluator::run_node(const Output& output) {
  if (output.expression == nullptr) {
    heap_.work(1 + output.text.size() / 64);
    out_->append(output.text, Origin::markup);
  } else {
    out_->append(to_text(evaluate(*output.expression)));
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const If& statement) {
  for (const auto& [test, body] : statement.branches) {
    if (truth(evaluate(*test))) return execute(body);
  }
  return execute(statement.otherwise);
}

Evaluator::Flow Evaluator::run_node(const For& loop) {
  return run_loop(loop, evaluate(*loop.iterable), 0);
}

// The items that pass the loop's own filter.
std::vector<Value> Evaluator::loop_items(const For& loop, const Value& iterable) {
  std::vector<Value> items = walk(heap_, iterable);
  heap_.work(items.size());
  if (loop.filter == nullptr) return items;
  const auto all = heap_.make<Sequence>(Sequence::Kind::list, std::move(items));
  std::vector<Value> kept;
  for (const Value& item : all->items()) {
    const ScopeGuard scope(*this, scope_);
    assign(loop.target, item);
    if (truth(evaluate(*loop.filter))) kept.push_back(item);
  }
  return kept;
}

// A `break` or `continue` in the `else` of a loop belongs to the loop around it, as in Python.
Evaluator::Flow Evaluator::run_loop(const For& loop, const Value& iterable, std::int64_t depth0) {
  std::vector<Value> items = loop_items(loop, iterable);
  if (items.empty()) {
    const ScopeGuard scope(*this, scope_);
    return execute(loop.otherwise);
  }
  CallableRef recurse;
  if (loop.is_recursive) {
    recurse = heap_.make<Callable>(
        "loop", [&loop, depth0, around = scope_](Evaluator& self, const Arguments& arguments) {
          if (arguments.positional.size() != 1) throw Failure("it takes one argument");
          const Level level(self);
          const ScopeGuard scope(self, around);
          const auto text = self.heap_.make<BlockText>(true);
          const OutputGuard output(self, *text);
          self.run_loop(loop, arguments.positional[0], depth0 + 1);
          return self.heap_.string(text->take());
        });
  }
  const LoopRef state = heap_.make<Loop>(std::move(items), depth0, std::move(recurse));
  for (; state->index0 < state->items.size(); ++state->index0) {
    const ScopeGuard scope(*this, scope_);
    scope_->set("loop", state);
    assign(loop.target, state->items[state->index0]);
    if (execute(loop.body) == Flow::break_loop) break;
  }
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const Set& statement) {
  assign(statement.target, evaluate(*statement.value));
  return Flow::next;
}

Evaluator::Flow Evaluator::run_body(const Statements& body, Value& value) {
  const auto text = heap_.make<BlockText>(true);
  const ScopeGuard scope(*this, scope_);
  const OutputGuard output(*this, *text);
  const Flow flow = execute(body);
  value = heap_.string(text->take());
  return flow;
}

Evaluator::Flow Evaluator::run_node(const SetBlock& statement) {
  Value value;
  if (const Flow flow = run_body(statement.body, value); flow != Flow::next) return flow;
  if (statement.filter != nullptr) {
    std::swap(block_text_, value);
    Value filtered = evaluate(*statement.filter);
    block_text_ = std::exchange(value, std::move(filtered));
  }
  assign(statement.target, value);
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const FilterBlock& block) {
  Value text;
  if (const Flow flow = run_body(block.body, text); flow != Flow::next) return flow;
  std::swap(block_text_, text);
  out_->append(to_text(evaluate(*block.filter)));
  std::swap(block_text_, text);
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const Macro& macro) {
  scope_->set(macro.signature.name, make_macro(macro));
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const CallBlock& block) {
  const Call& call = std::get<Call>(block.call->node);
  out_->append(to_text(evaluate_call(call, block.call->line, make_macro(block.caller))));
  return Flow::next;
}

Evaluator::Flow Evaluator::run_node(const With& with) {
  const SequenceRef values = evaluate_all(with.values, Sequence::Kind::list);
  const ScopeGuard scope(*this, scope_);
  for (std::size_t i = 0; i < with.targets.size(); ++i) {
    assign(with.targets[i], values->items()[i]);
  }
  return execute(with.body);
}

Evaluator::Flow Evaluator::run_node(const Scoped& block) {
  const ScopeGuard scope(*this, scope_);
  return execute(block.body);
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> items = walk(heap_, value);
    if (items.size() != target.parts.size()) {
      throw Failure(fmt::format("{} values cannot be assigned to {} variables", items.size(),
                                target.parts.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->set(target.name, value);
  const Value* object = scope_->find(target.name);
  const auto* space = object != nullptr ? std::get_if<NamespaceRef>(object) : nullptr;
  if (space == nullptr) {
    throw Failure(fmt::format("'{}' is no namespace, so '{}.{}' cannot be assigned to", target.name,
                              target.name, target.attribute));
  }
  const Value name = heap_.string(target.attribute);
  (*space)->attributes->set(name, value);
}

CallableRef Evaluator::make_macro(const Macro& macro) {
  return heap_.make<Callable>(macro.signature.name,
                              [&macro, around = scope_](Evaluator& self, Arguments arguments) {
                                return self.call_macro(macro, around, std::move(arguments));
                              });
}

Value Evaluator::call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                            Arguments arguments) {
  const Level level(*this);
  const ScopeGuard scope(*this, defined_in);
  bind_parameters(macro.signature, std::move(arguments));
  const auto text = heap_.make<BlockText>(true);
  const OutputGuard output(*this, *text);
  execute(macro.body);
  return heap_.string(text->take());
}

void Evaluator::bind_parameters(const MacroSignature& signature, Arguments arguments) {
  const std::vector<std::string>& parameters = signature.parameters;
  const std::size_t required = parameters.size() - signature.defaults.size();
  const std::size_t positional = std::min(arguments.positional.size(), parameters.size());
  heap_.work(parameters.size() * arguments.named.size() / 8);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto named = std::ranges::find(arguments.named, parameters[i], &Arguments::Named::bytes);
    if (i < positional) {
      scope_->set(parameters[i], arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      scope_->set(parameters[i], std::move(named->value));
      arguments.named.erase(named);
    } else if (i >= required) {
      scope_->set(parameters[i], evaluate(*signature.defaults[i - required]));
    } else {
      scope_->set(parameters[i], heap_.undefined(fmt::format("the parameter '{}'", parameters[i])));
    }
  }
  bind_rest(signature, std::move(arguments), positional);
}

// Binds what no parameter takes: `caller`, `varargs` and `kwargs`.
void Evaluator::bind_rest(const MacroSignature& signature, Arguments arguments,
                          std::size_t positional_used) {
  const auto caller = std::ranges::find(arguments.named, "caller", &Arguments::Named::bytes);
  if (signature.uses_caller &&
      std::ranges::find(signature.parameters, "caller") == signature.parameters.end()) {
    const bool is_called = caller != arguments.named.end();
    scope_->set("caller", is_called ? caller->value : heap_.undefined("'caller'"));
    if (is_called) arguments.named.erase(caller);
  }
  if (signature.uses_varargs) {
    arguments.positional.erase(
        arguments.positional.begin(),
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(positional_used));
    scope_->set("varargs", heap_.tuple(std::move(arguments.positional)));
  } else if (arguments.positional.size() > positional_used) {
    throw Failure(fmt::format("the macro '{}' takes up to {} arguments", signature.name,
                              signature.parameters.size()));
  }
  if (signature.uses_kwargs) {
    const DictRef rest = heap_.make<Dict>();
    for (auto& [name, value] : arguments.named) rest->set(heap_.string(name), std::move(value));
    scope_->set("kwargs", rest);
  } else if (!arguments.named.empty()) {
    throw Failure(fmt::format("the macro '{}' takes no argument '{}'", signature.name,
                              arguments.named[0].bytes()));
  }
}

}  // namespace sluice::chat::jinja
