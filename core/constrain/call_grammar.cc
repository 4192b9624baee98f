#include "core/constrain/call_grammar.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/constrain/json_schema.h"
#include "core/constrain/json_text.h"
#include "core/constrain/plain_schema.h"
#include "core/constrain/schema_merge.h"
#include "core/constrain/token_trie.h"
#include "core/text/limited_json.h"

namespace sluice::constrain {
namespace {

// Of the schema of a tool: what says nothing of its arguments by itself.
constexpr std::string_view silent_members[] = {"type", "required", "$schema", "title",
                                               "description"};

class CallCompiler {
 public:
  CallCompiler(const CallSyntax& syntax, CompileBudget& budget)
      : syntax_(syntax), builder_(budget), json_(builder_) {}

  Grammar compile(const Schema& tools) {
    std::vector<Expression> ways;
    for (const Schema& tool : tools) ways.push_back(call_of(tool));
    const GrammarBuilder::Rule one = builder_.add_rule("a call");
    builder_.define(one, builder_.choice(std::move(ways)));
    const Expression call = builder_.call(one);
    Expression calls = call;
    if (syntax_.may_repeat) {
      const Expression more = builder_.sequence({text(syntax_.separator), call});
      calls = builder_.sequence({call, builder_.repeat(more, 0, GrammarBuilder::unlimited)});
    }
    const GrammarBuilder::Rule root = builder_.add_rule("calls of tools");
    builder_.define(root, builder_.sequence({thought(), text(syntax_.list_open), calls,
                                             text(syntax_.list_close)}));
    Grammar grammar = builder_.compile(root);
    grammar.warning = json_.warning();
    return grammar;
  }

 private:
  Expression text(const MarkedText& parts) {
    std::vector<Expression> list;
    for (const auto& part : parts) {
      const auto* mark = std::get_if<tokenizer::Token>(&part);
      list.push_back(
          builder_.literal(mark != nullptr ? mark_bytes(*mark) : std::get<std::string>(part)));
    }
    return builder_.sequence(std::move(list));
  }

  Expression any_text() {
    const CharacterRange all = {0, last_character};
    return builder_.repeat(builder_.characters({&all, 1}), 0, GrammarBuilder::unlimited);
  }

  Expression thought() {
    if (syntax_.thought_open.empty()) return builder_.empty();
    return builder_.optional(
        builder_.sequence({text(syntax_.thought_open), any_text(), text(syntax_.thought_close)}));
  }

  Expression call_of(const Schema& tool) {
    const bool is_json = syntax_.arguments == CallSyntax::Arguments::json;
    const std::string& given_name = tool["name"].get_ref<const std::string&>();
    const std::string name = is_json ? json_.plain_text(given_name) : given_name;
    static const Schema none = {{"type", "object"}, {"additionalProperties", false}};
    const auto given = tool.find("parameters");
    const Schema& parameters = given != tool.end() && has_parameters(*given) ? *given : none;
    const Expression arguments =
        is_json ? values(parameters, parameters) : arguments_one_by_one(parameters);
    return builder_.sequence({text(syntax_.open), builder_.literal(name), text(syntax_.behind_name),
                              arguments, text(syntax_.close)});
  }

  // As clients write it, the schema of an object that says nothing of members means that there are
  // none.
  static bool has_parameters(const Schema& schema) {
    if (!schema.is_object()) return false;
    for (const auto& item : schema.items()) {
      const bool says_nothing =
          std::ranges::find(silent_members, item.key()) != std::end(silent_members) ||
          (item.key() == "properties" && item.value().empty());
      if (!says_nothing) return true;
    }
    return false;
  }

  // What a part of a schema allows, or any value of its type where it is not supported.
  Expression values(const Schema& part, const Schema& root) {
    try {
      return schema_values(json_, part, root);
    } catch (const GrammarError&) {
      builder_.budget().spend(0);  // throws again where the budget is the reason
      return &part == &root ? json_.object() : json_.value();
    }
  }

  Expression arguments_one_by_one(const Schema& parameters) {
    std::vector<GrammarBuilder::Member> members;
    const Schema& meant = meaning(parameters, parameters);
    const auto properties = meant.find("properties");
    if (properties == meant.end() || !properties->is_object()) return builder_.empty();
    const auto required = meant.find("required");
    for (const auto& item : properties->items()) {
      builder_.budget().spend(64 + (required == meant.end() ? 0 : required->size()));
      const bool is_needed =
          required != meant.end() && required->is_array() && has_element(*required, item.key());
      members.push_back(
          {argument(item.key(), item.value(), parameters),
           is_needed ? GrammarBuilder::Times::once : GrammarBuilder::Times::optional});
    }
    const bool is_python = syntax_.arguments == CallSyntax::Arguments::python;
    return builder_.members(members, builder_.literal(is_python ? ", " : ""));
  }

  Expression argument(const std::string& name, const Schema& schema, const Schema& root) {
    const Expression front = builder_.sequence(
        {text(syntax_.key_open), builder_.literal(name), text(syntax_.key_close)});
    const auto closed = [&](Expression value) {
      return builder_.sequence(
          {front, value, text(syntax_.before_close), text(syntax_.value_close)});
    };
    if (syntax_.arguments == CallSyntax::Arguments::python) return closed(values(schema, root));
    const Schema& meant = meaning(schema, root);
    if (!may_be_text(meant, root)) return closed(values(schema, root));
    const auto written = [&](const Schema& value) {
      return builder_.literal(value.is_string() ? value.get<std::string>() : value.dump());
    };
    if (meant.is_object() && meant.contains("const")) return closed(written(meant["const"]));
    if (!meant.is_object() || !meant.contains("enum") || !meant["enum"].is_array()) {
      return builder_.sequence({front, free_text()});
    }
    std::vector<Expression> ways;
    for (const Schema& value : meant["enum"]) ways.push_back(written(value));
    return closed(builder_.choice(std::move(ways)));
  }

  // The schema that a reference, or an allOf of one, stands for; references that are not supported
  // stand for themselves.
  const Schema& meaning(const Schema& schema, const Schema& root) {
    const Schema* meant = &schema;
    try {
      for (unsigned i = 0; i < SchemaMerger::levels_max && meant->is_object(); ++i) {
        if (meant->contains("$ref")) {
          meant = &SchemaMerger(root, builder_.budget()).target((*meant)["$ref"], "");
        } else if (meant->contains("allOf") && (*meant)["allOf"].is_array() &&
                   (*meant)["allOf"].size() == 1) {
          meant = &(*meant)["allOf"][0];
        } else {
          break;
        }
      }
    } catch (const GrammarError&) {
      builder_.budget().spend(0);  // throws again where the budget is the reason
    }
    return *meant;
  }

  // A text is written without quotation marks, so what may be a text is not limited further.
  bool may_be_text(const Schema& schema, const Schema& root) {
    for (const char* ways : {"anyOf", "oneOf"}) {
      if (schema.is_object() && schema.contains(ways)) {
        return std::ranges::any_of(
            schema[ways], [&](const Schema& way) { return has_text_type(meaning(way, root)); });
      }
    }
    return has_text_type(schema);
  }

  static bool has_text_type(const Schema& schema) {
    if (!schema.is_object() || !schema.contains("type")) return true;
    try {
      return (types_of({{"type", schema["type"]}}, "") & type_string) != 0;
    } catch (const GrammarError&) {
      return true;
    }
  }

  // A text, and what closes it. A token closes it wherever it comes; a tag does where it first
  // occurs.
  Expression free_text() {
    if (free_text_) return builder_.call(*free_text_);
    free_text_ = builder_.add_rule("a text");
    const auto* tag = std::get_if<std::string>(&syntax_.value_close.front());
    builder_.define(*free_text_, tag != nullptr
                                     ? text_up_to(*tag)
                                     : builder_.sequence({any_text(), text(syntax_.value_close)}));
    return builder_.call(*free_text_);
  }

  // In each place of the tag either it goes on, or it begins anew, or it was none. The first
  // character of the tag does not occur in it again.
  Expression text_up_to(std::string_view tag) {
    std::vector<GrammarBuilder::Rule> places;
    for (std::size_t i = 0; i < tag.size(); ++i) places.push_back(builder_.add_rule("a text"));
    for (std::size_t i = 0; i < tag.size(); ++i) {
      const Expression next = i + 1 == tag.size() ? builder_.empty() : builder_.call(places[i + 1]);
      std::vector<Expression> ways = {
          builder_.sequence({builder_.literal(tag.substr(i, 1)), next})};
      Ranges others = {character(tag[i]), character(tag[0])};
      if (i != 0) {
        ways.push_back(
            builder_.sequence({builder_.literal(tag.substr(0, 1)), builder_.call(places[1])}));
      }
      ways.push_back(builder_.sequence(
          {builder_.characters(complement(std::move(others))), builder_.call(places[0])}));
      builder_.define(places[i], builder_.choice(std::move(ways)));
    }
    return builder_.call(places[0]);
  }

  static CharacterRange character(char c) {
    return {static_cast<char32_t>(c), static_cast<char32_t>(c)};
  }

  const CallSyntax& syntax_;
  GrammarBuilder builder_;
  JsonText json_;
  std::optional<GrammarBuilder::Rule> free_text_;
};

}  // namespace

Grammar compile_calls(const CallSyntax& syntax, const std::string& tools, CompileBudget& budget) {
  const Schema list = parse_schema(tools);
  budget.hold(json_bytes(list));
  return CallCompiler(syntax, budget).compile(list);
}

}  // namespace sluice::constrain
