#include "core/chat/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/number.h"
#include "core/text/quoted.h"

namespace sluice::chat::jinja {
namespace {

constexpr std::size_t chain_length_max = 60;

std::optional<ComparisonOperator> skip_comparison(TokenStream& tokens) {
  static constexpr std::array<std::pair<std::string_view, ComparisonOperator>, 6> symbols = {
      {{"==", ComparisonOperator::equal},
       {"!=", ComparisonOperator::not_equal},
       {"<", ComparisonOperator::less},
       {"<=", ComparisonOperator::less_equal},
       {">", ComparisonOperator::greater},
       {">=", ComparisonOperator::greater_equal}}};
  for (const auto& [symbol, op] : symbols) {
    if (tokens.skip_symbol(symbol)) return op;
  }
  if (tokens.skip_name("in")) return ComparisonOperator::in;
  if (!tokens.at_name("not") || !tokens.after().is_name("in")) return std::nullopt;
  tokens.next();
  tokens.next();
  return ComparisonOperator::not_in;
}

[[noreturn]] void refuse(const Token& number, std::string_view problem) {
  throw SyntaxError(number.line,
                    fmt::format("the number {} {}", text::printable(number.text, 80), problem));
}

// The value of digits with a prefix such as 0x.
std::int64_t integer_of(const Token& token) {
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = digits[1];
    base = prefix == 'x' || prefix == 'X'   ? 16
           : prefix == 'o' || prefix == 'O' ? 8
           : prefix == 'b' || prefix == 'B' ? 2
                                            : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  if (base == 10 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
    refuse(token, "begins with 0");  // as in Python, where it once was octal
  }
  const auto value = base::whole_number<std::int64_t>(digits, base);
  if (!value) refuse(token, "is too large");
  return *value;
}

}  // namespace

template <std::size_t n>
std::optional<BinaryOperator> ExpressionParser::operator_at(
    const TokenStream& tokens, const std::array<BinarySymbol, n>& symbols) {
  for (const auto& [symbol, op] : symbols) {
    if (tokens.at_symbol(symbol)) return op;
  }
  return std::nullopt;
}

template <class Node>
ExpressionPtr ExpressionParser::make(std::size_t line, Node node) {
  return std::make_unique<const Expression>(Expression{line, std::move(node)});
}

void ExpressionParser::check_chain(std::size_t& length) const {
  if (++length > chain_length_max) tokens_.fail("an expression has too many filters or attributes");
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  const TokenStream::Level level(tokens_);
  return with_conditional ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, bool in_parentheses) {
  const std::size_t line = tokens_.current().line;
  Expressions items;
  bool is_tuple = false;
  while (!ends_tuple()) {
    items.push_back(parse_expression(with_conditional));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (!is_tuple && !in_parentheses) tokens_.fail_expected("an expression");
  return make(line, ListDisplay{std::move(items), true});
}

bool ExpressionParser::ends_tuple() const {
  return tokens_.at(Token::Kind::variable_end) || tokens_.at(Token::Kind::block_end) ||
         tokens_.at_symbol(")") || tokens_.at_name("recursive");
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const std::size_t line = tokens_.current().line;
  ExpressionPtr value = parse_or();
  std::size_t length = 0;
  while (tokens_.skip_name("if")) {
    check_chain(length);
    ExpressionPtr test = parse_or();
    ExpressionPtr other = tokens_.skip_name("else") ? parse_expression() : nullptr;
    value = make(line, Conditional{std::move(test), std::move(value), std::move(other)});
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  const std::size_t line = tokens_.current().line;
  Logical logical{false, {}};
  logical.operands.push_back(parse_and());
  while (tokens_.skip_name("or")) logical.operands.push_back(parse_and());
  if (logical.operands.size() == 1) return std::move(logical.operands[0]);
  return make(line, std::move(logical));
}

ExpressionPtr ExpressionParser::parse_and() {
  const std::size_t line = tokens_.current().line;
  Logical logical{true, {}};
  logical.operands.push_back(parse_not());
  while (tokens_.skip_name("and")) logical.operands.push_back(parse_not());
  if (logical.operands.size() == 1) return std::move(logical.operands[0]);
  return make(line, std::move(logical));
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_comparison();
  const TokenStream::Level level(tokens_);
  const std::size_t line = tokens_.next().line;
  return make(line, Unary{UnaryOperator::logical_not, parse_not()});
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const std::size_t line = tokens_.current().line;
  Comparison comparison{parse_sum(), {}};
  while (const auto op = skip_comparison(tokens_)) comparison.rest.emplace_back(*op, parse_sum());
  if (comparison.rest.empty()) return std::move(comparison.first);
  return make(line, std::move(comparison));
}

template <std::size_t n>
ExpressionPtr ExpressionParser::parse_chain(const std::array<BinarySymbol, n>& symbols,
                                            ExpressionPtr (ExpressionParser::*parse_part)()) {
  const std::size_t line = tokens_.current().line;
  Arithmetic chain{(this->*parse_part)(), {}};
  while (const auto op = operator_at(tokens_, symbols)) {
    tokens_.next();
    chain.rest.emplace_back(*op, (this->*parse_part)());
  }
  if (chain.rest.empty()) return std::move(chain.first);
  return make(line, std::move(chain));
}

ExpressionPtr ExpressionParser::parse_sum() {
  static constexpr std::array<BinarySymbol, 2> symbols = {
      {{"+", BinaryOperator::add}, {"-", BinaryOperator::subtract}}};
  return parse_chain(symbols, &ExpressionParser::parse_concatenation);
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const std::size_t line = tokens_.current().line;
  Concatenation concatenation;
  concatenation.parts.push_back(parse_product());
  while (tokens_.skip_symbol("~")) concatenation.parts.push_back(parse_product());
  if (concatenation.parts.size() == 1) return std::move(concatenation.parts[0]);
  return make(line, std::move(concatenation));
}

ExpressionPtr ExpressionParser::parse_product() {
  static constexpr std::array<BinarySymbol, 4> symbols = {{{"*", BinaryOperator::multiply},
                                                           {"/", BinaryOperator::divide},
                                                           {"//", BinaryOperator::floor_divide},
                                                           {"%", BinaryOperator::modulo}}};
  return parse_chain(symbols, &ExpressionParser::parse_power);
}

// Left-associative, unlike in Python.
ExpressionPtr ExpressionParser::parse_power() {
  static constexpr std::array<BinarySymbol, 1> symbols = {{{"**", BinaryOperator::power}}};
  return parse_chain(symbols, &ExpressionParser::parse_operand);
}

ExpressionPtr ExpressionParser::parse_operand() {
  return parse_unary(true);
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const TokenStream::Level level(tokens_);
  const std::size_t line = tokens_.current().line;
  ExpressionPtr expression;
  if (tokens_.skip_symbol("-")) {
    expression = make(line, Unary{UnaryOperator::negative, parse_unary(false)});
  } else if (tokens_.skip_symbol("+")) {
    expression = make(line, Unary{UnaryOperator::positive, parse_unary(false)});
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters(std::move(expression)) : std::move(expression);
}

ExpressionPtr ExpressionParser::parse_primary() {
  if (tokens_.at_symbol("[")) return parse_list();
  if (tokens_.at_symbol("{")) return parse_dict();
  const Token token = tokens_.current();
  if (tokens_.skip_symbol("(")) {
    ExpressionPtr expression = parse_tuple(true, true);
    tokens_.expect_symbol(")");
    return expression;
  }
  switch (token.kind) {
    case Token::Kind::integer:
      tokens_.next();
      return make(token.line, Constant{integer_of(token)});
    case Token::Kind::floating:
      tokens_.next();
      return make(token.line, Constant{base::nearest_double(token.text).value()});
    case Token::Kind::string: {
      std::string text;
      while (tokens_.at(Token::Kind::string)) text += tokens_.next().text;
      return make(token.line, Constant{std::move(text)});
    }
    case Token::Kind::name:
      break;
    default:
      tokens_.fail_expected("an expression");
  }
  tokens_.next();
  if (token.text == "true" || token.text == "True") return make(token.line, Constant{true});
  if (token.text == "false" || token.text == "False") return make(token.line, Constant{false});
  if (token.text == "none" || token.text == "None") return make(token.line, Constant{});
  names_.push_back(token.text);
  return make(token.line, Name{token.text});
}

ExpressionPtr ExpressionParser::parse_list() {
  const std::size_t line = tokens_.next().line;
  ListDisplay list;
  while (!tokens_.at_symbol("]")) {
    if (!list.items.empty()) tokens_.expect_symbol(",");
    if (tokens_.at_symbol("]")) break;
    list.items.push_back(parse_expression());
  }
  tokens_.expect_symbol("]");
  return make(line, std::move(list));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const std::size_t line = tokens_.next().line;
  DictDisplay dict;
  while (!tokens_.at_symbol("}")) {
    if (!dict.entries.empty()) tokens_.expect_symbol(",");
    if (tokens_.at_symbol("}")) break;
    ExpressionPtr key = parse_expression();
    tokens_.expect_symbol(":");
    dict.entries.emplace_back(std::move(key), parse_expression());
  }
  tokens_.expect_symbol("}");
  return make(line, std::move(dict));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr expression) {
  std::size_t length = 0;
  while (true) {
    check_chain(length);
    const std::size_t line = tokens_.current().line;
    if (tokens_.at_symbol(".")) {
      expression = parse_attribute(std::move(expression));
    } else if (tokens_.at_symbol("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (tokens_.at_symbol("(")) {
      expression = make(line, Call{std::move(expression), parse_arguments()});
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr expression) {
  std::size_t length = 0;
  while (true) {
    check_chain(length);
    const std::size_t line = tokens_.current().line;
    if (tokens_.skip_symbol("|")) {
      expression = parse_filter(std::move(expression));
    } else if (tokens_.skip_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (tokens_.at_symbol("(")) {
      expression = make(line, Call{std::move(expression), parse_arguments()});
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_of_block() {
  ExpressionPtr expression = parse_filter(nullptr);
  std::size_t length = 0;
  while (tokens_.skip_symbol("|")) {
    check_chain(length);
    expression = parse_filter(std::move(expression));
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const std::size_t line = tokens_.next().line;
  if (tokens_.at(Token::Kind::integer)) {
    ExpressionPtr index = make(line, Constant{integer_of(tokens_.next())});
    return make(line, Subscript{std::move(object), std::move(index)});
  }
  const Token name = tokens_.expect(Token::Kind::name, "the name of an attribute");
  return make(line, Attribute{std::move(object), name.text});
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const std::size_t line = tokens_.next().line;
  const auto ends = [this] { return tokens_.at_symbol("]") || tokens_.at_symbol(":"); };
  ExpressionPtr begin = tokens_.at_symbol(":") ? nullptr : parse_tuple();
  if (tokens_.skip_symbol("]")) return make(line, Subscript{std::move(object), std::move(begin)});
  tokens_.expect_symbol(":");
  ExpressionPtr end = ends() ? nullptr : parse_expression();
  ExpressionPtr step;
  if (tokens_.skip_symbol(":") && !ends()) step = parse_expression();
  tokens_.expect_symbol("]");
  return make(line, Slice{std::move(object), std::move(begin), std::move(end), std::move(step)});
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = tokens_.expect(Token::Kind::name, "a name").text;
  while (tokens_.skip_symbol(".")) {
    name += '.' + tokens_.expect(Token::Kind::name, "a name").text;
  }
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr subject) {
  const std::size_t line = tokens_.current().line;
  std::string name = parse_dotted_name();
  CallArguments arguments;
  if (tokens_.at_symbol("(")) arguments = parse_arguments();
  return make(line, Filter{std::move(subject), std::move(name), std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr subject) {
  const std::size_t line = tokens_.current().line;
  const bool is_negated = tokens_.skip_name("not");
  std::string name = parse_dotted_name();
  CallArguments arguments;
  const Token& next = tokens_.current();
  const bool is_operand = next.kind == Token::Kind::string || next.kind == Token::Kind::integer ||
                          next.kind == Token::Kind::floating || next.is_symbol("[") ||
                          next.is_symbol("{") ||
                          (next.kind == Token::Kind::name && next.text != "else" &&
                           next.text != "or" && next.text != "and");
  if (tokens_.at_symbol("(")) {
    arguments = parse_arguments();
  } else if (is_operand) {
    if (tokens_.at_name("is")) tokens_.fail("tests cannot be chained with 'is'");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test = make(line, Test{std::move(subject), std::move(name), std::move(arguments)});
  return is_negated ? make(line, Unary{UnaryOperator::logical_not, std::move(test)})
                    : std::move(test);
}

CallArguments ExpressionParser::parse_arguments() {
  const TokenStream::Level level(tokens_);
  tokens_.expect_symbol("(");
  CallArguments arguments;
  bool is_first = true;
  while (!tokens_.at_symbol(")")) {
    if (!is_first) {
      tokens_.expect_symbol(",");
      if (tokens_.at_symbol(")")) break;
    }
    is_first = false;
    parse_argument(arguments);
  }
  tokens_.expect_symbol(")");
  return arguments;
}

void ExpressionParser::parse_argument(CallArguments& arguments) {
  if (arguments.dict != nullptr) tokens_.fail("no argument may follow **");
  if (arguments.positional.size() + arguments.named.size() == CallArguments::count_max) {
    tokens_.fail("there are too many arguments");
  }
  if (tokens_.skip_symbol("*")) {
    if (arguments.list != nullptr) tokens_.fail("there may be one * in a call");
    arguments.list = parse_expression();
  } else if (tokens_.skip_symbol("**")) {
    arguments.dict = parse_expression();
  } else if (tokens_.at(Token::Kind::name) && tokens_.after().is_symbol("=")) {
    std::string name = tokens_.next().text;
    tokens_.next();
    arguments.named.emplace_back(std::move(name), parse_expression());
  } else {
    if (arguments.list != nullptr || !arguments.named.empty()) {
      tokens_.fail("an argument without a name follows one with a name");
    }
    arguments.positional.push_back(parse_expression());
  }
}

}  // namespace sluice::chat::jinja
