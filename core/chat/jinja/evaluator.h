// Runs the tree of a template. One evaluator serves one rendering.
//
// Scopes are those of Jinja. A loop's body, a macro, and a block of `set`, `filter`, `call` or
// `with` is a scope; a branch of an `if` is not. A name is looked up outwards, and last among the
// global functions. An assignment stays in its scope; only namespaces carry values out of it.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat/jinja/syntax.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

class Scope : public Object {
 public:
  Scope(Heap& heap, std::shared_ptr<Scope> parent)
      : Object(heap, sizeof(Scope)), parent_(std::move(parent)) {}
  ~Scope() override;

  // The variable in this scope or one around it; null when there is none. `name` must live as long
  // as the scope; the names in a tree do.
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
  void clear() override;

 private:
  void clear_variables();

  std::vector<std::pair<std::string_view, Value>> variables_;
  std::shared_ptr<Scope> parent_;
};

// The text of a block, or of the whole template, while it is written.
class BlockText : public Object {
 public:
  // `counts`: its bytes are bytes of the heap, as blocks may stand in each other.
  BlockText(Heap& heap, bool counts) : Object(heap, sizeof(BlockText)), counts_(counts) {}

  void append(std::string_view bytes, Origin origin) {
    text_.append(bytes, origin);
    count();
  }
  void append(const Text& text) {
    text_.append(text);
    count();
  }
  Text take();

 private:
  void count();

  Text text_;
  bool counts_;
  std::size_t counted_ = 0;
};

class Evaluator {
 public:
  // `now`: what strftime_now prints.
  Evaluator(Heap& heap, const std::tm& now);

  void set_variable(std::string_view name, Value value);  // `name` must live as long as this
  Text run(const Statements& statements);

  // Where a failure happened, for messages: "line 3, filter 'join'".
  std::string place() const;

  // The next members are for filters, functions and methods.
  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  Value call(const Value& callee, Arguments arguments);
  Value apply_filter(std::string_view name, const Value& subject, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& subject, const Arguments& arguments);
  // object.name and object[key]; undefined when there is none.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);

 private:
  enum class Flow { next, break_loop, continue_loop };
  class Level;
  class ScopeGuard;
  class OutputGuard;

  void at(std::size_t line, std::string_view construct, std::string_view name = {});

  Flow execute(const Statements& statements);
  Flow execute(const Statement& statement);
  Flow run_node(const Output& output);
  Flow run_node(const If& statement);
  Flow run_node(const For& loop);
  Flow run_node(const Set& statement);
  Flow run_node(const SetBlock& statement);
  Flow run_node(const Macro& macro);
  Flow run_node(const CallBlock& block);
  Flow run_node(const FilterBlock& block);
  Flow run_node(const With& with);
  Flow run_node(const Scoped& block);
  static Flow run_node(const Break&) { return Flow::break_loop; }
  static Flow run_node(const Continue&) { return Flow::continue_loop; }

  Flow run_loop(const For& loop, const Value& iterable, std::int64_t depth0);
  std::vector<Value> loop_items(const For& loop, const Value& iterable);
  // Opens a scope; `value` becomes the text of the body. If a `break` or `continue` leaves the
  // body, the block around it has no effect, as in Jinja.
  Flow run_body(const Statements& body, Value& value);
  void assign(const Target& target, const Value& value);
  CallableRef make_macro(const Macro& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined_in,
                   Arguments arguments);
  void bind_parameters(const MacroSignature& signature, Arguments arguments);
  void bind_rest(const MacroSignature& signature, Arguments arguments, std::size_t positional_used);

  Value evaluate(const Expression& expression);
  Value evaluate_optional(const ExpressionPtr& expression);
  SequenceRef evaluate_all(const Expressions& expressions, Sequence::Kind kind);
  Value value_of(const Constant& constant, std::size_t line);
  Value value_of(const Name& name, std::size_t line);
  Value value_of(const ListDisplay& list, std::size_t line);
  Value value_of(const DictDisplay& dict, std::size_t line);
  Value value_of(const Unary& unary, std::size_t line);
  Value value_of(const Arithmetic& arithmetic, std::size_t line);
  Value value_of(const Concatenation& concatenation, std::size_t line);
  Value value_of(const Logical& logical, std::size_t line);
  Value value_of(const Comparison& comparison, std::size_t line);
  Value value_of(const Conditional& conditional, std::size_t line);
  Value value_of(const Attribute& attribute, std::size_t line);
  Value value_of(const Subscript& subscript, std::size_t line);
  Value value_of(const Slice& slice, std::size_t line);
  Value value_of(const Call& call, std::size_t line);
  Value value_of(const Filter& filter, std::size_t line);
  Value value_of(const Test& test, std::size_t line);
  Value evaluate_call(const Call& call, std::size_t line, CallableRef caller);
  Arguments evaluate_arguments(const CallArguments& arguments);

  Heap& heap_;
  std::tm now_;
  std::shared_ptr<Scope> scope_;
  BlockText* out_ = nullptr;
  Value block_text_;  // the text of a filter block
  int depth_ = 0;
  std::size_t line_ = 0;
  std::string_view construct_;
  std::string_view construct_name_;
};

}  // namespace sluice::chat::jinja
