// A template as a tree: statements, and the expressions in them.
//
// Operators have the names and the precedence of Python's. The tree has one type for each form; the
// evaluator gives them their meaning. Each node is owned by its parent and never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sluice::chat::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;  // may be null where a part is optional
using Expressions = std::vector<ExpressionPtr>;

struct CallArguments {
  // They are held while the others are evaluated, and counted nowhere.
  static constexpr std::size_t count_max = 4096;

  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr list;  // *list
  ExpressionPtr dict;  // **dict
};

struct Constant {
  std::variant<std::monostate, bool, std::int64_t, double, std::string> value;  // monostate: none
};
struct Name {
  std::string name;
};
struct ListDisplay {
  Expressions items;
  bool is_tuple = false;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { negative, positive, logical_not };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Arithmetic {  // a + b - c, from left to right; all operators have the same precedence
  ExpressionPtr first;
  std::vector<std::pair<BinaryOperator, ExpressionPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  Expressions parts;
};
struct Logical {  // and, or: the operand that decides is the value
  bool is_and;
  Expressions operands;
};
enum class ComparisonOperator {
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in
};
struct Comparison {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<ComparisonOperator, ExpressionPtr>> rest;
};
struct Conditional {  // value if test else other
  ExpressionPtr test;
  ExpressionPtr value;
  ExpressionPtr other;  // null: undefined
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {
  ExpressionPtr object;
  ExpressionPtr begin, end, step;  // each may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr subject;  // null in a filter block: its text
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr subject;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  std::size_t line;
  std::variant<Constant, Name, ListDisplay, DictDisplay, Unary, Arithmetic, Concatenation, Logical,
               Comparison, Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      node;
};

struct Statement;
using Statements = std::vector<Statement>;

// What a value is assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  std::string name;
  std::string attribute;      // empty unless `name` is a namespace
  std::vector<Target> parts;  // not empty: the value is unpacked
};

struct Output {  // text, or the value of an expression
  std::string text;
  ExpressionPtr expression;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Statements>> branches;
  Statements otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // null: all items
  bool is_recursive = false;
  Statements body;
  Statements otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {  // {% set name %} ... {% endset %}
  Target target;
  ExpressionPtr filter;  // null: the text as it is
  Statements body;
};
struct MacroSignature {
  std::string name;
  std::vector<std::string> parameters;
  Expressions defaults;  // of the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};
struct Macro {
  MacroSignature signature;
  Statements body;
};
struct CallBlock {  // {% call(parameters) callee(...) %} ... {% endcall %}
  Macro caller;
  ExpressionPtr call;
};
struct FilterBlock {
  ExpressionPtr filter;
  Statements body;
};
struct With {
  std::vector<Target> targets;
  Expressions values;  // one for each target
  Statements body;
};
struct Scoped {  // {% generation %}: a scope of its own, and nothing else here
  Statements body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::size_t line;
  std::variant<Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Scoped, Break,
               Continue>
      node;
};

}  // namespace sluice::chat::jinja
