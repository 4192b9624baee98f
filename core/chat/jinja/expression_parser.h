// The expressions of a template, by recursive descent: one function for each level of precedence.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/jinja/syntax.h"
#include "core/chat/jinja/token_stream.h"

namespace sluice::chat::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr parse_expression(bool with_conditional = true);
  // Parses an expression. Several, separated by commas, are a tuple.
  ExpressionPtr parse_tuple(bool with_conditional = true, bool in_parentheses = false);
  // Parses the filters of a filter block; their subject is null.
  ExpressionPtr parse_filters_of_block();
  ExpressionPtr parse_operand();  // with its attributes, calls and filters, but no operators

  // All names read so far; the parser of macros looks for `caller` among them.
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct BinarySymbol {
    std::string_view symbol;
    BinaryOperator op;
  };

  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr expression);
  ExpressionPtr parse_filters(ExpressionPtr expression);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_filter(ExpressionPtr subject);
  ExpressionPtr parse_test(ExpressionPtr subject);
  CallArguments parse_arguments();
  void parse_argument(CallArguments& arguments);
  std::string parse_dotted_name();
  bool ends_tuple() const;

  // Parses operands with any of the operators between them.
  template <std::size_t n>
  ExpressionPtr parse_chain(const std::array<BinarySymbol, n>& symbols,
                            ExpressionPtr (ExpressionParser::*parse_part)());
  template <std::size_t n>
  static std::optional<BinaryOperator> operator_at(const TokenStream& tokens,
                                                   const std::array<BinarySymbol, n>& symbols);
  template <class Node>
  ExpressionPtr make(std::size_t line, Node node);
  // Bounds a chain of attributes, calls and filters, since each makes the tree one level deeper.
  void check_chain(std::size_t& length) const;

  TokenStream& tokens_;
  std::vector<std::string> names_;
};

}  // namespace sluice::chat::jinja
