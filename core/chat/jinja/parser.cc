#include "core/chat/jinja/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "core/chat/jinja/expression_parser.h"

namespace sluice::chat::jinja {
namespace {

using Kind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Statements run() {
    Statements statements = parse_body({});
    if (!tokens_.at(Kind::end)) tokens_.fail_expected("the end of the template");
    return statements;
  }

 private:
  // Parses statements up to a tag with one of the names `ends`; the name of that tag is read next.
  // Without names it parses all statements.
  Statements parse_body(std::initializer_list<std::string_view> ends) {
    const TokenStream::Level level(tokens_);
    Statements body;
    while (!tokens_.at(Kind::end)) {
      const std::size_t line = tokens_.current().line;
      if (tokens_.at(Kind::data)) {
        body.push_back({line, Output{tokens_.next().text, nullptr}});
      } else if (tokens_.at(Kind::variable_begin)) {
        tokens_.next();
        body.push_back({line, Output{"", expressions_.parse_tuple()}});
        tokens_.expect(Kind::variable_end, "'}}'");
      } else {
        tokens_.expect(Kind::block_begin, "'{%'");
        const bool is_end = std::ranges::any_of(
            ends, [this](std::string_view end) { return tokens_.at_name(end); });
        if (is_end) return body;
        body.push_back(parse_statement());
      }
    }
    if (ends.size() > 0) tokens_.fail_expected(fmt::format("'{}'", *(ends.end() - 1)));
    return body;
  }

  // Parses statements up to the tag `end`, and the tag itself.
  Statements parse_to(std::string_view end) {
    end_tag();
    Statements body = parse_body({end});
    tokens_.next();
    end_tag();
    return body;
  }

  void end_tag() { tokens_.expect(Kind::block_end, "'%}'"); }

  Statement parse_statement() {
    const Token token = tokens_.expect(Kind::name, "the name of a tag");
    const std::string& name = token.text;
    const std::size_t line = token.line;
    if (name == "if") return {line, parse_if()};
    if (name == "for") return {line, parse_for()};
    if (name == "set") return parse_set(line);
    if (name == "macro") return {line, parse_macro()};
    if (name == "call") return {line, parse_call_block()};
    if (name == "filter") return {line, parse_filter_block()};
    if (name == "with") return {line, parse_with()};
    if (name == "generation") return {line, Scoped{parse_to("endgeneration")}};
    if (name == "print") {
      Output output{"", expressions_.parse_tuple()};
      end_tag();
      return {line, std::move(output)};
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) throw SyntaxError(line, fmt::format("'{}' stands outside of a loop", name));
      end_tag();
      return name == "break" ? Statement{line, Break{}} : Statement{line, Continue{}};
    }
    throw SyntaxError(line, fmt::format("unknown tag '{}'", name));
  }

  If parse_if() {
    If statement;
    while (true) {
      ExpressionPtr test = expressions_.parse_tuple(false);
      end_tag();
      Statements body = parse_body({"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(test), std::move(body));
      if (tokens_.skip_name("elif")) continue;
      if (tokens_.skip_name("else")) {
        statement.otherwise = parse_to("endif");
      } else {
        tokens_.next();
        end_tag();
      }
      return statement;
    }
  }

  For parse_for() {
    For loop;
    loop.target = parse_target(false);
    if (!tokens_.skip_name("in")) tokens_.fail_expected("'in'");
    loop.iterable = expressions_.parse_tuple(false);
    if (tokens_.skip_name("if")) loop.filter = expressions_.parse_expression();
    loop.is_recursive = tokens_.skip_name("recursive");
    end_tag();
    ++loops_;
    loop.body = parse_body({"else", "endfor"});
    --loops_;
    if (tokens_.skip_name("else")) {
      // A recursive loop is a function, from which no `break` reaches the loop around it.
      const int loops = std::exchange(loops_, loop.is_recursive ? 0 : loops_);
      loop.otherwise = parse_to("endfor");
      loops_ = loops;
    } else {
      tokens_.next();
      end_tag();
    }
    return loop;
  }

  Target parse_target(bool with_attribute) {
    const TokenStream::Level level(tokens_);
    Target first = parse_one_target(with_attribute);
    if (!tokens_.at_symbol(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (tokens_.skip_symbol(",")) {
      if (!tokens_.at(Kind::name) && !tokens_.at_symbol("(")) break;
      if (tokens_.at_name("in")) break;
      all.parts.push_back(parse_one_target(with_attribute));
    }
    return all;
  }

  Target parse_one_target(bool with_attribute) {
    if (tokens_.skip_symbol("(")) {
      Target target = parse_target(with_attribute);
      tokens_.expect_symbol(")");
      return target;
    }
    const Token name = tokens_.expect(Kind::name, "the name of a variable");
    static constexpr std::array<std::string_view, 6> constants = {"true", "false", "none",
                                                                  "True", "False", "None"};
    if (std::ranges::find(constants, name.text) != constants.end()) {
      throw SyntaxError(name.line, fmt::format("'{}' cannot be assigned to", name.text));
    }
    Target target{name.text, "", {}};
    if (with_attribute && tokens_.skip_symbol(".")) {
      target.attribute = tokens_.expect(Kind::name, "the name of an attribute").text;
    }
    return target;
  }

  Statement parse_set(std::size_t line) {
    Target target = parse_target(true);
    if (tokens_.skip_symbol("=")) {
      ExpressionPtr value = expressions_.parse_tuple();
      end_tag();
      return {line, Set{std::move(target), std::move(value)}};
    }
    ExpressionPtr filter;
    if (tokens_.skip_symbol("|")) filter = expressions_.parse_filters_of_block();
    Statements body = parse_to("endset");
    return {line, SetBlock{std::move(target), std::move(filter), std::move(body)}};
  }

  void parse_signature(MacroSignature& signature) {
    tokens_.expect_symbol("(");
    while (!tokens_.at_symbol(")")) {
      if (!signature.parameters.empty()) tokens_.expect_symbol(",");
      signature.parameters.push_back(tokens_.expect(Kind::name, "the name of a parameter").text);
      if (tokens_.skip_symbol("=")) {
        signature.defaults.push_back(expressions_.parse_expression());
      } else if (!signature.defaults.empty()) {
        tokens_.fail("a parameter without a default follows one that has one");
      }
    }
    tokens_.expect_symbol(")");
  }

  // Parses the body of a macro, which may refer to its caller and its further arguments by name.
  void parse_macro_body(Macro& macro, std::string_view end) {
    const std::size_t first_name = expressions_.names().size();
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_to(end);
    loops_ = loops;
    const std::vector<std::string>& names = expressions_.names();
    const auto is_used = [&](std::string_view name) {
      return std::find(names.begin() + static_cast<std::ptrdiff_t>(first_name), names.end(),
                       name) != names.end();
    };
    macro.signature.uses_caller = is_used("caller");
    macro.signature.uses_varargs = is_used("varargs");
    macro.signature.uses_kwargs = is_used("kwargs");
  }

  Macro parse_macro() {
    Macro macro;
    macro.signature.name = tokens_.expect(Kind::name, "the name of a macro").text;
    parse_signature(macro.signature);
    parse_macro_body(macro, "endmacro");
    return macro;
  }

  CallBlock parse_call_block() {
    CallBlock block;
    block.caller.signature.name = "caller";
    if (tokens_.at_symbol("(")) parse_signature(block.caller.signature);
    const std::size_t line = tokens_.current().line;
    block.call = expressions_.parse_operand();
    if (!std::holds_alternative<Call>(block.call->node)) throw SyntaxError(line, "expected a call");
    parse_macro_body(block.caller, "endcall");
    return block;
  }

  FilterBlock parse_filter_block() {
    ExpressionPtr filter = expressions_.parse_filters_of_block();
    return {std::move(filter), parse_to("endfilter")};
  }

  With parse_with() {
    With with;
    while (!tokens_.at(Kind::block_end)) {
      if (!with.targets.empty()) tokens_.expect_symbol(",");
      with.targets.push_back(parse_one_target(false));
      tokens_.expect_symbol("=");
      with.values.push_back(expressions_.parse_expression());
    }
    with.body = parse_to("endwith");
    return with;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // how many loops are around the current statement
};

}  // namespace

Statements parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace sluice::chat::jinja
