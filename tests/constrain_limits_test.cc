// What hostile forms cost: schemas and grammars that grow in every direction either compile or are
// refused within the budget, on a small stack, so that nothing recurses on them; and the mask of a
// token stays within its own budget.
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/constrain/constraint.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/guide.h"
#include "core/constrain/json_schema.h"
#include "core/constrain/library.h"
#include "tests/catch.h"
#include "tests/constrain_support.h"
#include "tests/random_seed.h"
#include "tests/small_stack.h"

namespace sluice::constrain {
namespace {

using Json = nlohmann::ordered_json;
using Kind = TextForm::Kind;
using test::ends_of;
using test::ListTokenizer;
using test::run_on_small_stack;

struct Cost {
  std::string problem;  // empty: it compiled
  std::uint64_t steps = 0;
  std::size_t bytes = 0;
};

Cost cost_of(const TextForm& form) {
  Cost cost;
  run_on_small_stack([&] {
    CompileBudget budget;
    try {
      const Grammar grammar = compile(form, budget);
      static_cast<void>(matches_beginning(grammar, "{"));
    } catch (const GrammarError& error) {
      cost.problem = error.what();
    }
    cost.steps = budget.used();
    cost.bytes = budget.bytes_peak();
  });
  return cost;
}

// Compiles or refuses the form within the budget. One step beyond it is the one that was refused.
Cost check_cost(const TextForm& form) {
  INFO(form.text.substr(0, 200) << " ... of " << form.text.size() << " bytes");
  const Cost cost = cost_of(form);
  INFO(cost.problem);
  CHECK(cost.steps < 2 * CompileBudget::compile_steps_max);
  CHECK(cost.bytes <= CompileBudget::compile_bytes_max);
  CHECK(cost.problem.find('\n') == std::string::npos);
  CHECK(cost.problem.size() < 2000);
  return cost;
}

Cost check_schema(const Json& schema) {
  return check_cost({Kind::json_schema, schema.dump()});
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

// A schema of about `size` parts that grows in one direction.
class HostileSchema {
 public:
  HostileSchema(std::mt19937_64& random, std::size_t size) : random_(random), size_(size) {}

  Json make() {
    using Make = Json (HostileSchema::*)();
    constexpr Make makes[] = {
        &HostileSchema::long_name,  &HostileSchema::many_names, &HostileSchema::items,
        &HostileSchema::all_of,     &HostileSchema::any_of,     &HostileSchema::one_of,
        &HostileSchema::references, &HostileSchema::values,     &HostileSchema::pattern,
        &HostileSchema::required,   &HostileSchema::nested};
    return (this->*makes[random_() % std::size(makes)])();
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }

  std::string name(std::size_t letters) {
    constexpr std::string_view few[] = {"a", "b", "\"", "\n", "\xC3\xA9", "\xE4\xBD\xA0"};
    std::string text;
    for (std::size_t i = 0; i < letters; ++i) text += few[below(std::size(few))];
    return text;
  }
  std::string numbered(std::size_t i) { return "p" + std::to_string(i); }

  Json leaf() {
    const Json leaves[] = {true,
                           {{"type", "string"}},
                           {{"type", "integer"}, {"minimum", below(9)}},
                           {{"const", numbered(below(5))}},
                           {{"not", Json::object()}}};
    return leaves[below(std::size(leaves))];
  }

  Json long_name() {
    return {{"type", "object"},
            {"properties", {{name(size_), leaf()}}},
            {"additionalProperties", leaf()}};
  }
  Json many_names() {
    Json schema = {{"type", "object"}, {"additionalProperties", below(2) == 0}};
    for (std::size_t i = 0; i < size_; ++i) schema["properties"][numbered(i)] = true;
    return schema;
  }
  Json items() {
    Json schema = {{"prefixItems", Json::array()}};
    for (std::size_t i = 0; i < size_; ++i) schema["prefixItems"].push_back(leaf());
    if (below(2) == 0) schema["minItems"] = below(size_ + 1);
    return schema;
  }
  Json all_of() {
    Json schema = {{"allOf", Json::array()}};
    const bool same = below(2) == 0;
    for (std::size_t i = 0; i < size_; ++i) {
      schema["allOf"].push_back(
          {{"type", "object"}, {"properties", {{same ? "a" : numbered(i), leaf()}}}});
    }
    return schema;
  }
  Json any_of() {
    Json schema = leaf();
    for (std::size_t i = 0; i < size_ && i < 60; ++i) {
      schema = {{"anyOf", {schema, leaf()}}, {"title", numbered(i)}, {"maxLength", 100}};
    }
    return schema;
  }
  Json one_of() {
    Json schema = {{"oneOf", Json::array()}};
    for (std::size_t i = 0; i < size_; ++i) {
      schema["oneOf"].push_back(
          {{"type", "object"},
           {"properties", {{"next", {{"$ref", "#"}}}, {"kind", {{"const", numbered(i)}}}}},
           {"required", {"next", "kind"}}});
    }
    return schema;
  }
  Json references() {
    Json schema = {{"$ref", "#/$defs/0"}};
    for (std::size_t i = 0; i < size_; ++i) {
      Json& one = schema["$defs"][std::to_string(i)];
      one["$ref"] = "#/$defs/" + std::to_string(i + 1 == size_ ? below(size_) : i + 1);
      if (below(2) == 0) one["maxLength"] = i;
    }
    return schema;
  }
  Json values() {
    Json list = Json::array(), other = Json::array();
    for (std::size_t i = 0; i < size_; ++i) {
      list.push_back(name(3) + numbered(i));
      other.push_back(numbered(i));
    }
    return {{"allOf", {{{"enum", list}}, {{"enum", other}}}}};
  }
  Json pattern() {
    const std::string parts[] = {"(", "a{1,3}", "|", "[^x]", ")*", "\\w", "^"};
    std::string text;
    for (std::size_t i = 0; i < size_ && text.size() < 9000; ++i) text += parts[below(7)];
    return {{"type", "string"}, {"pattern", text}, {"maxLength", size_}};
  }
  Json required() {
    Json schema = {{"type", "object"}, {"required", Json::array()}};
    for (std::size_t i = 0; i < size_; ++i) schema["required"].push_back(numbered(i / 2));
    return schema;
  }

  Json nested() {
    Json schema = leaf();
    for (std::size_t width = 1; width < size_ && width < 4096; width *= 2) {
      schema = {{"anyOf", {schema, schema}}};
    }
    for (std::size_t depth = below(50); depth > 0; --depth) {
      schema = {{"properties", {{"a", std::move(schema)}}}, {"required", {"a"}}};
    }
    return schema;
  }

  std::mt19937_64& random_;
  std::size_t size_;
};

std::string hostile_gbnf(std::mt19937_64& random, std::size_t size) {
  switch (random() % 5) {
    case 0:
      return "root ::= " + repeated("(", size) + "\"a\"" + repeated(")", size);
    case 1:
      return "root ::= \"a\"" + repeated("{2}", size);
    case 2:
      return "root ::= \"a\"" + repeated("?", size) + " [ab]{" + std::to_string(size) + "}";
    case 3: {
      std::string rules = "root ::= r0\n";
      for (std::size_t i = 0; i < size; ++i) {
        const std::string next = "r" + std::to_string(i + 1);
        rules += "r" + std::to_string(i) + " ::= " + next + " " + next + " | \"a\"?\n";
      }
      return rules + "r" + std::to_string(size) + " ::= \"b\"\n";
    }
    default:
      return "root ::= [ab]* \"a\" [ab]{" + std::to_string(size) + "} " +
             repeated("\"x\" | [^a-z] ", size);
  }
}

}  // namespace

TEST_CASE("forms that ended the process are compiled or refused") {
  check_schema({{"type", "object"},
                {"properties", {{std::string(30000, 'a'), Json::object()}}},
                {"additionalProperties", {{"type", "string"}}}});
  check_cost({Kind::json_schema, "{\"prefixItems\":[" + repeated("true,", 49999) + "true]}"});
  Json all = {{"allOf", Json::array()}};
  for (int i = 0; i < 3000; ++i) {
    all["allOf"].push_back({{"properties", {{"p" + std::to_string(i), {{"type", "null"}}}}}});
  }
  check_schema(all);  // optional members: the states between them are too many
  all["allOf"].push_back({{"required", Json::array()}});
  for (int i = 0; i < 3000; ++i) {
    all["allOf"].back()["required"].push_back("p" + std::to_string(i));
  }
  CHECK(check_schema(all).problem.empty());
  // 150,000 members, given as a text.
  std::string wide = "{\"enum\":[1]";
  for (int i = 0; i < 60000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  CHECK(check_cost({Kind::json_schema, wide + "}"}).problem.empty());
  CHECK_FALSE(check_cost({Kind::json_schema, repeated("[", 500000)}).problem.empty());
  CHECK_FALSE(check_cost({Kind::gbnf, "root ::= \"a\"" + repeated("{2}", 300000)}).problem.empty());
  // Branches that refer to themselves are still told apart by a later member.
  CHECK(check_schema(Json::parse(R"({"oneOf":[
      {"type":"object","required":["next","kind"],
       "properties":{"next":{"$ref":"#"},"kind":{"const":"a"}}},
      {"type":"object","required":["next","kind"],
       "properties":{"next":{"$ref":"#"},"kind":{"const":"b"}}},
      {"type":"null"}]})"))
            .problem.empty());
}

TEST_CASE("a schema that is copied for each of many levels costs more than there is") {
  Json schema = {{"type", "string"}};
  for (int i = 0; i < 12; ++i) schema = {{"anyOf", {schema, schema}}};
  const Json wide = schema;
  for (int i = 0; i < 40; ++i) {
    Json around = {{"type", "object"}, {"required", {"a"}}};
    around["properties"]["a"] = std::move(schema);
    schema = std::move(around);
  }
  CHECK(check_schema(wide).problem.empty());
  CHECK(check_schema(schema).problem.find("too long") != std::string::npos);
}

TEST_CASE("hostile schemas of every shape and size stay within the budget") {
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 60; ++i) {
    const std::size_t size = std::size_t{1} << (random() % 15);
    check_schema(HostileSchema(random, size + random() % size).make());
  }
}

TEST_CASE("hostile grammars of every shape and size stay within the budget") {
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 40; ++i) {
    const std::size_t size = std::size_t{1} << (random() % 14);
    check_cost({Kind::gbnf, hostile_gbnf(random, size)});
  }
}

TEST_CASE("long names and lists that fit are obeyed") {
  const std::string name(20000, 'n');
  CompileBudget budget;
  const Grammar grammar = compile_json_schema({{"type", "object"},
                                               {"properties", {{name, {{"type", "null"}}}}},
                                               {"additionalProperties", {{"type", "integer"}}}},
                                              budget);
  CHECK(matches(grammar, "{\"" + name + "\":null,\"x\":1}"));
  CHECK(matches(grammar, "{\"" + name.substr(1) + "\":1}"));
  CHECK(matches(grammar, "{\"" + name + "n\":1}"));
  CHECK_FALSE(matches(grammar, "{\"" + name + "\":1}"));
  Json list = {{"prefixItems", Json::array()}};
  for (int i = 0; i < 5000; ++i)
    list["prefixItems"].push_back(i % 2 == 0 ? Json(true) : Json(false));
  list["prefixItems"][1] = {{"type", "null"}};
  CHECK(matches(compile_json_schema(list), "[1,null,{}]"));
  CHECK_FALSE(matches(compile_json_schema(list), "[1,null,{},1]"));
}

TEST_CASE("all the readings of a token share one budget") {
  std::mt19937_64 random(test::random_seed());
  const ListTokenizer vocabulary = test::random_vocabulary(random, 2000);
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  // Many rules that all read the same, each with a stack of its own.
  std::string gbnf = "root ::= s0";
  for (int i = 1; i < 60; ++i) gbnf += " | s" + std::to_string(i);
  for (int i = 0; i < 60; ++i) {
    const std::string n = std::to_string(i);
    gbnf += "\ns" + n + " ::= t" + n + " \"!\" s" + n + " | \"?\"\nt" + n + " ::= [^!]{" + n + ",}";
  }
  const auto constraint = std::make_shared<const Constraint>(compile({Kind::gbnf, gbnf}), trie);
  Matcher matcher(constraint, ends_of(vocabulary));
  REQUIRE(matcher.accept_text("aaa"));
  TokenBudget whole;
  const std::span<const std::uint64_t> mask = matcher.allowed(whole);
  const std::vector<std::uint64_t> words(mask.begin(), mask.end());
  CHECK(whole.used() > 10000);
  CHECK(whole.used() <= TokenBudget::saved_steps_max);
  // With less than it takes there is an error, and then the matcher is as it was.
  const auto fresh = std::make_shared<const Constraint>(compile({Kind::gbnf, gbnf}), trie);
  Matcher other(fresh, ends_of(vocabulary));
  REQUIRE(other.accept_text("aaa"));
  TokenBudget little(whole.used() / 2);
  CHECK_THROWS_AS(other.allowed(little), GrammarError);
  CHECK(little.used() < whole.used());
  const std::span<const std::uint64_t> again = other.allowed();
  CHECK(std::equal(words.begin(), words.end(), again.begin(), again.end()));
}

// A vocabulary of 27,930 texts, and a grammar that reads a text in `ways` ways whose states are new
// at each token: nothing that was found for one helps with the next.
std::shared_ptr<const Constraint> new_ways(const ListTokenizer& vocabulary, int ways, int tokens) {
  std::string gbnf = "root ::= s0";
  for (int i = 1; i < ways; ++i) gbnf += " | s" + std::to_string(i);
  for (int i = 0; i < ways; ++i) {
    const std::string n = std::to_string(i);
    gbnf += "\ns" + n + " ::= " + repeated("[a-~] ", static_cast<std::size_t>(tokens)) + "\"" + n +
            "\"";
  }
  return std::make_shared<const Constraint>(compile({Kind::gbnf, gbnf}),
                                            std::make_shared<const TokenTrie>(vocabulary));
}

ListTokenizer many_texts() {
  std::vector<std::string> pieces;
  for (char a = 'a'; a <= '~'; ++a) {
    pieces.push_back({a});
    for (char b = 'a'; b <= '~'; ++b) {
      pieces.push_back({a, b});
      for (char c = 'a'; c <= '~'; ++c) pieces.push_back({a, b, c});
    }
  }
  for (char digit = '0'; digit <= '9'; ++digit) pieces.push_back({digit});
  return ListTokenizer(pieces);
}

// How many tokens of a text find their mask, of 40.
int tokens_found(Matcher matcher) {
  int found = 0;
  try {
    for (; found < 40; ++found) {
      matcher.allowed();
      REQUIRE(matcher.accept_text("a"));
    }
  } catch (const GrammarError& error) {
    CHECK(std::string(error.what()).find("too ambiguous") != std::string::npos);
  }
  return found;
}

TEST_CASE("a text may take many steps for a few tokens, but not for each") {
  const ListTokenizer vocabulary = many_texts();
  const auto ends = ends_of(vocabulary);
  CHECK(tokens_found(Matcher(new_ways(vocabulary, 40, 50), ends)) == 40);
  const auto hostile = new_ways(vocabulary, 120, 50);
  const int found = tokens_found(Matcher(hostile, ends));
  CHECK(found > 2);
  CHECK(found < 40);
}

TEST_CASE("who looks ahead of a text takes nothing from it, and little in all") {
  const ListTokenizer vocabulary = many_texts();
  const auto constraint = new_ways(vocabulary, 120, 50);
  Guide guide(constraint, ends_of(vocabulary));
  guide.allowed();
  guide.take(0, "a");
  int found = 0;
  for (int i = 0; i < 3; ++i) {
    std::optional<Matcher> ahead = guide.place();
    REQUIRE(ahead.has_value());
    found += tokens_found(*ahead);
  }
  CHECK(found == 0);
  CHECK_FALSE(guide.allowed().empty());
}

TEST_CASE("frames that are compared are counted") {
  // Two readings whose stacks differ at the bottom only, so that all frames are compared.
  const Grammar grammar = compile({Kind::gbnf,
                                   "root ::= a | b\na ::= \"[\" r \"1\"\nb ::= \"[\" r \"2\"\n"
                                   "r ::= \"(\" r \")\" | \"x\""});
  Machine machine(grammar);
  TokenBudget budget;
  ReadingSet now, next;
  machine.start(grammar.start, now, budget);
  const auto cost_of_step = [&](char byte) {
    const std::uint64_t before = budget.used();
    REQUIRE(machine.step(now, static_cast<std::uint8_t>(byte), next, budget));
    std::swap(now, next);
    return budget.used() - before;
  };
  cost_of_step('[');
  const std::uint64_t shallow = cost_of_step('(');
  std::uint64_t deep = 0;
  for (int depth = 0; depth < 200; ++depth) deep = cost_of_step('(');
  CHECK(deep > shallow + 150);
}

TEST_CASE("frames are limited, and those that are not needed are dropped") {
  // Each "<" puts a frame on every stack, and no two of them ever become the same.
  const auto gbnf = [](int ways) {
    std::string text = "root ::= x0", rules;
    for (int i = 0; i < ways; ++i) {
      const std::string x = "x" + std::to_string(i);
      if (i != 0) text += " | " + x;
      rules += "\n" + x + " ::= \"<\" " + x + " \")\" | \"@\"";
    }
    return text + rules;
  };
  const ListTokenizer vocabulary({"<", ")", "@"});
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  const auto deepest = [&](int ways) {
    Matcher matcher(std::make_shared<const Constraint>(compile({Kind::gbnf, gbnf(ways)}), trie),
                    ends_of(vocabulary));
    int depth = 0;
    try {
      for (; depth < 1000; ++depth) {
        const std::span<const std::uint64_t> mask = matcher.allowed();
        CHECK(test::has_bit(mask, 0));
        CHECK_FALSE(test::has_bit(mask, 1));
        const bool is_taken = matcher.accept(0);
        REQUIRE(is_taken);
      }
    } catch (const GrammarError& error) {
      CHECK(std::string(error.what()).find("too ambiguous") != std::string::npos);
      return depth;
    }
    // What was dropped is not missed: each way closes as deep as it opened.
    REQUIRE(matcher.accept(2));
    for (int i = 0; i < depth; ++i) REQUIRE(matcher.accept(1));
    CHECK(matcher.is_complete());
    return depth;
  };
  CHECK(deepest(1) == 1000);
  CHECK(deepest(6) == 1000);
  const int many = deepest(100);
  CHECK(many > 30);
  CHECK(many <= static_cast<int>(Machine::frames_max) / 100);
}

}  // namespace sluice::constrain
