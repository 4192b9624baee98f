#include "core/chat/python_call.h"

#include "core/chat/jinja/expression_parser.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Expression;

// Thrown within this file for a text that is not a literal or a call.
struct NoCall {};

Json literal(const Expression& expression);

Json literal(const jinja::Constant& constant) {
  return std::visit(
      []<class T>(const T& value) -> Json {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else {
          return value;
        }
      },
      constant.value);
}

Json literal(const jinja::ListDisplay& list) {
  Json items = Json::array();
  for (const jinja::ExpressionPtr& item : list.items) items.push_back(literal(*item));
  return items;
}

Json literal(const jinja::DictDisplay& dict) {
  Json object = Json::object();
  for (const auto& [key, value] : dict.entries) {
    const Json name = literal(*key);
    object[name.is_string() ? name.get<std::string>() : name.dump()] = literal(*value);
  }
  return object;
}

Json literal(const jinja::Unary& unary) {
  const Json value = literal(*unary.operand);
  if (unary.op != jinja::UnaryOperator::negative) throw NoCall();
  if (value.is_number_integer()) return -value.get<std::int64_t>();
  if (value.is_number_float()) return -value.get<double>();
  throw NoCall();
}

// As JSON writes None; the parser knows true and false.
Json literal(const jinja::Name& name) {
  if (name.name != "null") throw NoCall();
  return nullptr;
}

template <class Node>
Json literal(const Node&) {
  throw NoCall();
}

Json literal(const Expression& expression) {
  return std::visit([](const auto& node) { return literal(node); }, expression.node);
}

std::string dotted_name(const Expression& expression) {
  if (const auto* name = std::get_if<jinja::Name>(&expression.node)) return name->name;
  const auto* attribute = std::get_if<jinja::Attribute>(&expression.node);
  if (attribute == nullptr) throw NoCall();
  return dotted_name(*attribute->object) + "." + attribute->name;
}

ToolCall tool_call(const Expression& expression) {
  const auto* call = std::get_if<jinja::Call>(&expression.node);
  const bool has_names = call != nullptr && call->arguments.positional.empty() &&
                         call->arguments.list == nullptr && call->arguments.dict == nullptr;
  if (!has_names) throw NoCall();
  ToolCall result{dotted_name(*call->callee), Json::object()};
  for (const auto& [name, value] : call->arguments.named) result.arguments[name] = literal(*value);
  return result;
}

}  // namespace

// Uses the parser of template expressions, whose calls and literals have Python's syntax.
std::optional<std::vector<ToolCall>> parse_python_calls(std::string_view text) {
  try {
    jinja::TokenStream tokens(jinja::tokenize("{{" + std::string(text) + "\n}}"));
    tokens.expect(jinja::Token::Kind::variable_begin, "'{{'");
    const jinja::ExpressionPtr expression = jinja::ExpressionParser(tokens).parse_tuple();
    tokens.expect(jinja::Token::Kind::variable_end, "'}}'");
    tokens.expect(jinja::Token::Kind::end, "the end");
    std::vector<ToolCall> calls;
    if (const auto* list = std::get_if<jinja::ListDisplay>(&expression->node)) {
      for (const jinja::ExpressionPtr& item : list->items) calls.push_back(tool_call(*item));
    } else {
      calls.push_back(tool_call(*expression));
    }
    return calls;
  } catch (const jinja::SyntaxError&) {
    return std::nullopt;
  } catch (const NoCall&) {
    return std::nullopt;
  }
}

}  // namespace sluice::chat
