#include "core/chat/python_call.h"

#include <algorithm>
#include <cmath>

#include "base/number.h"
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
          if constexpr (std::is_same_v<T, double>) {
            if (!std::isfinite(value)) throw NoCall();  // JSON has no such number
          }
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
    if (name.is_structured())
      throw NoCall();  // lists and dictionaries are no keys in Python either
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

// A text of calls in which n0, n1 and so on stand for the names of functions and of arguments.
// Those of tools may have characters that Python's may not, as in "get-weather".
class NumberedNames {
 public:
  explicit NumberedNames(std::string_view text) {
    while (!text.empty()) text.remove_prefix(take(text));
  }

  const std::string& text() const { return text_; }

  const std::string& name(const std::string& numbered) const {
    const auto index = base::whole_number<std::size_t>(std::string_view(numbered).substr(1));
    if (!index || *index >= names_.size()) throw NoCall();
    return names_[*index];
  }

 private:
  // Takes a string, a word or a character, and says how many bytes it has.
  std::size_t take(std::string_view text) {
    if (text[0] == '"' || text[0] == '\'') return copy(text, string_bytes(text));
    const std::size_t bytes = word_bytes(text);
    if (bytes == 0) return copy(text, 1);
    std::string_view behind = text.substr(bytes);
    behind.remove_prefix(std::min(behind.find_first_not_of(white_space), behind.size()));
    const bool is_name = behind.starts_with('(') || behind.starts_with('=');
    if (!is_name || !begins_name(text[0])) return copy(text, bytes);
    text_ += "n" + std::to_string(names_.size());
    names_.emplace_back(text.substr(0, bytes));
    return bytes;
  }

  std::size_t copy(std::string_view text, std::size_t bytes) {
    text_ += text.substr(0, bytes);
    return bytes;
  }

  static std::size_t string_bytes(std::string_view text) {
    std::size_t end = 1;
    while (end < text.size() && text[end] != text[0]) end += text[end] == '\\' ? 2 : 1;
    return std::min(end + 1, text.size());
  }

  static std::size_t word_bytes(std::string_view text) {
    const auto end = std::ranges::find_if(text, [](char c) {
      return static_cast<unsigned char>(c) < 0x80 &&
             name_characters.find(c) == std::string_view::npos;
    });
    return static_cast<std::size_t>(end - text.begin());
  }

  // A colon or a sign in front of a parenthesis names nothing.
  static bool begins_name(char c) {
    return std::string_view("0123456789-.:/").find(c) == std::string_view::npos;
  }

  std::string text_;
  std::vector<std::string> names_;
};

ToolCall tool_call(const Expression& expression, const NumberedNames& names) {
  const auto* call = std::get_if<jinja::Call>(&expression.node);
  const bool has_names = call != nullptr && call->arguments.positional.empty() &&
                         call->arguments.list == nullptr && call->arguments.dict == nullptr;
  const auto* callee = has_names ? std::get_if<jinja::Name>(&call->callee->node) : nullptr;
  if (callee == nullptr) throw NoCall();
  ToolCall result{names.name(callee->name), Json::object()};
  for (const auto& [numbered, value] : call->arguments.named) {
    const std::string& name = names.name(numbered);
    if (result.arguments.contains(name)) throw NoCall();
    result.arguments[name] = literal(*value);
  }
  return result;
}

}  // namespace

// Uses the parser of template expressions, whose calls and literals have Python's syntax.
std::optional<std::vector<ToolCall>> parse_python_calls(std::string_view text) {
  const NumberedNames names(text);
  try {
    jinja::TokenStream tokens(jinja::tokenize("{{" + names.text() + "\n}}"));
    tokens.expect(jinja::Token::Kind::variable_begin, "'{{'");
    const jinja::ExpressionPtr expression = jinja::ExpressionParser(tokens).parse_tuple();
    tokens.expect(jinja::Token::Kind::variable_end, "'}}'");
    tokens.expect(jinja::Token::Kind::end, "the end");
    std::vector<ToolCall> calls;
    if (const auto* list = std::get_if<jinja::ListDisplay>(&expression->node)) {
      for (const jinja::ExpressionPtr& item : list->items) calls.push_back(tool_call(*item, names));
    } else {
      calls.push_back(tool_call(*expression, names));
    }
    return calls;
  } catch (const jinja::SyntaxError&) {
    return std::nullopt;
  } catch (const NoCall&) {
    return std::nullopt;
  }
}

}  // namespace sluice::chat
