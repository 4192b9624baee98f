// JSON Schema as grammars: each keyword by example, random schemas whose random texts a validator
// of its own accepts, and schemas that are hostile or not supported.
#include "core/constrain/json_schema.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/constrain/machine.h"
#include "core/constrain/plain_schema.h"
#include "tests/catch.h"
#include "tests/constrain_support.h"
#include "tests/contains.h"
#include "tests/random_seed.h"
#include "tests/schema_validator.h"

namespace sluice::constrain {
namespace {

using sluice::test::Contains;
using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;
using test::ends_of;
using test::ListTokenizer;
using test::write_at_random;

void check_schema(const std::string& schema, const Texts& matching, const Texts& others) {
  INFO(schema);
  const Grammar grammar = compile_json_schema(parse_schema(schema));
  for (const std::string& text : matching) {
    INFO(text);
    CHECK(matches(grammar, text));
  }
  for (const std::string& text : others) {
    INFO(text);
    CHECK_FALSE(matches(grammar, text));
  }
}

std::string problem_of(const std::string& schema) {
  try {
    compile_json_schema(parse_schema(schema));
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "";
}

std::string with_commas(unsigned count, const std::string& text) {
  std::string list = text;
  while (--count != 0) list += "," + text;
  return list;
}

// ---- Random schemas ----

class SchemaWriter {
 public:
  explicit SchemaWriter(std::mt19937_64& random) : random_(random) {}

  Json schema() {
    Json root = any(3);
    root["$defs"] = {{"leaf", leaf()}, {"node", node()}};
    return root;
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  Json leaf() {
    switch (below(8)) {
      case 0:
        return bounded("integer", static_cast<double>(below(2000)) - 1000);
      case 1:
        return bounded("number", std::round(static_cast<double>(below(200000)) - 100000) / 100);
      case 2: {
        const std::uint64_t least = below(4);
        return {{"type", "string"}, {"minLength", least}, {"maxLength", least + below(20)}};
      }
      case 3: {
        const std::vector<std::string> patterns = {
            "^[a-z]{2,5}-\\d+$", "^(foo|ba[rz])?$", "x+y", "^\\w*$", "^[^a-z\"]{1,3}$", "^a|b$"};
        return {{"type", "string"}, {"pattern", patterns[below(patterns.size())]}};
      }
      case 4:
        return {{"enum", {"red", "re\"d\n", 1, -2.5, nullptr, {{"a", {1, "é"}}}, true}}};
      case 5:
        return {{"const", below(2) == 0 ? Json("only") : Json({1, 2})}};
      case 6:
        return {{"type", {"string", "null", "boolean"}}};
      default:
        return {{"type", below(2) == 0 ? "integer" : "number"}};
    }
  }

  Json bounded(const char* type, double low) {
    Json schema = {{"type", type}};
    const double high = low + static_cast<double>(below(1500)) / 10;
    if (below(3) != 0)
      schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = std::round(100 * (low - 1)) / 100;
    if (below(3) != 0)
      schema[below(2) == 0 ? "maximum" : "exclusiveMaximum"] = std::round(100 * (high + 1)) / 100;
    return schema;
  }

  Json node() {
    return {{"type", "object"},
            {"properties",
             {{"value", leaf()},
              {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}},
              {"all", {{"type", "array"}, {"items", {{"$ref", "#/$defs/node"}}}}}}},
            {"required", {"next"}}};
  }

  Json object(unsigned depth) {
    Json properties = Json::object(), required = Json::array();
    const std::vector<std::string> names = {"a", "ab", "name", "nam", "é\"", "x y", ""};
    for (const std::string& name : names) {
      if (below(2) == 0) continue;
      properties[name] = any(depth - 1);
      if (below(2) == 0) required.push_back(name);
    }
    if (below(5) == 0) required.push_back("extra");
    Json schema = {{"type", "object"}, {"properties", properties}, {"required", required}};
    if (!properties.empty() && below(3) == 0) schema["minProperties"] = 1;
    const std::uint64_t rest = below(4);
    if (rest == 0 && required.size() <= properties.size()) schema["additionalProperties"] = false;
    if (rest == 1) schema["additionalProperties"] = leaf();
    if (rest == 2) schema["additionalProperties"] = true;
    if (rest == 0 && std::find(required.begin(), required.end(), "extra") != required.end()) {
      schema.erase("additionalProperties");
    }
    return schema;
  }

  Json array(unsigned depth) {
    Json schema = {{"type", "array"}};
    if (below(2) == 0) schema["items"] = any(depth - 1);
    if (below(2) == 0) schema["prefixItems"] = {any(depth - 1), leaf()};
    const std::uint64_t least = below(4);
    if (below(2) == 0) schema["minItems"] = least;
    if (below(2) == 0) schema["maxItems"] = least + below(4);
    return schema;
  }

  Json any(unsigned depth) {
    if (depth == 0) return leaf();
    switch (below(8)) {
      case 0:
        return array(depth);
      case 1:
        return {{"anyOf", {any(depth - 1), any(depth - 1)}}};
      case 2:
        return {{"allOf", {object(depth), {{"type", "object"}}}}};
      case 3:
        return {{"$ref", "#/$defs/node"}};
      case 4:
        return {{"$ref", "#/$defs/leaf"}, {"description", "a leaf"}};
      case 5:
        return {{"oneOf", {object(depth), {{"type", "string"}, {"maxLength", 3}}}}};
      default:
        return object(depth);
    }
  }

  std::mt19937_64& random_;
};

}  // namespace

TEST_CASE("schema: types, white space and numbers") {
  check_schema("true", {"1", "\"a\"", "[1, {\"a\":null}]", "{}"}, {"", " 1", "01", "{\"a\" :1}"});
  check_schema(R"({"type":"string"})", {R"("")", R"("é\u00e9\ud83d\ude00\n")"},
               {R"("a)", R"("\ud83d")", R"("\ude00")", "\"\n\"", "\"\xFF\"", R"("\x")"});
  check_schema(R"({"type":"integer"})", {"0", "-1", "100"}, {"-0", "1.0", "1e2", "007", ""});
  check_schema(R"({"type":"number"})", {"0", "-0.5", "1e9", "1.5E-10"},
               {".5", "1.", "1e999", "+1"});
  check_schema(R"({"type":["string","null"]})", {"null", "\"\""}, {"1"});
  check_schema(R"({"minimum":3})", {"3", "4.5"}, {"2.9", "\"a\""});
}

TEST_CASE("schema: bounds of numbers") {
  check_schema(R"({"type":"integer","minimum":-12,"maximum":105})",
               {"-12", "-9", "0", "9", "10", "99", "100", "105"},
               {"-13", "-20", "106", "110", "1000"});
  check_schema(R"({"type":"integer","exclusiveMinimum":0})", {"1", "999999999999999999"},
               {"0", "-1"});
  check_schema(R"({"type":"integer","minimum":0.5,"exclusiveMaximum":2.5})", {"1", "2"},
               {"0", "3"});
  check_schema(R"({"type":"integer","minimum":9007199254740993,"maximum":9007199254740993})",
               {"9007199254740993"}, {"9007199254740992", "9007199254740994"});
  check_schema(R"({"type":"number","minimum":0.25,"maximum":1})",
               {"0.25", "0.250", "0.3", "0.99", "1", "1.0"},
               {"0.2", "0", "0.249", "1.01", "2", "-1"});
  check_schema(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
               {"0.1", "0.001", "0.99"}, {"0", "0.0", "1", "1.0", "-0.1"});
  check_schema(R"({"type":"number","minimum":-1.5,"maximum":-0.5})",
               {"-1.5", "-1", "-0.5", "-0.75"}, {"-0.4", "-1.6", "0", "1"});
  check_schema(R"({"type":"number","minimum":-2.5})", {"-2.5", "-0.1", "0", "7.5", "123456"},
               {"-2.6", "-3"});
  check_schema(R"({"type":"number","maximum":99.95})", {"99.95", "99.9", "12.5", "-1000.5"},
               {"99.96", "100"});
  check_schema(R"({"type":"number","minimum":0})",
               {"0", "0.05", "19.99", "123456.789", "99999999999999.5", "999999999999999.5"},
               {"-19.99", "1000000000000000", "123456.7890123456"});
  check_schema(R"({"type":"number","exclusiveMaximum":-8.5})", {"-8.51", "-19.99", "-1000.125"},
               {"-8.5", "-8.49", "19.99"});
  check_schema(R"({"type":"number","maximum":999999999999999})",
               {"999999999999999", "999999999999998.5"}, {"999999999999999.5", "1000000000000000"});
  check_schema(R"({"type":"number","minimum":-999999999999999})", {"-999999999999999", "0.5"},
               {"-999999999999999.5"});
  check_schema(R"({"type":"number","minimum":-1e15,"maximum":1e15})",
               {"-999999999999999.5", "999999999999999.5"}, {"1000000000000000"});
  // Every integer around the borders, against plain comparison.
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 20; ++i) {
    const int low = static_cast<int>(random() % 3000) - 1500;
    const int high = low + 1 + static_cast<int>(random() % 1200);
    INFO(low << " to " << high);
    const Grammar grammar =
        compile_json_schema({{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    int wrong = 0;
    for (int n = -3100; n <= 3100; ++n) {
      if (matches(grammar, std::to_string(n)) != (low <= n && n <= high)) ++wrong;
    }
    CHECK(wrong == 0);
    const Grammar decimals = compile_json_schema(
        {{"type", "number"}, {"minimum", low / 100.0}, {"exclusiveMaximum", high / 100.0}});
    for (int n = -3100; n <= 3100; n += 7) {
      const std::string text = std::string(n < 0 ? "-" : "") + std::to_string(std::abs(n) / 100) +
                               "." + std::to_string(1000 + std::abs(n) % 100 * 10).substr(1);
      if (n > -100 && n <= 0 && text.find_first_of("123456789") == std::string::npos) continue;
      if (matches(decimals, text) != (low <= n && n < high)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("schema: zero is a bound with either sign") {
  for (const std::string zero : {"0", "0.0", "-0.0", "-0"}) {
    check_schema(R"({"type":"number","minimum":)" + zero + "}", {"0", "0.5"}, {"-0.5"});
    check_schema(R"({"type":"number","exclusiveMaximum":)" + zero + "}", {"-0.5"}, {"0", "0.5"});
    check_schema(R"({"type":"integer","minimum":)" + zero + "}", {"0", "5"}, {"-5"});
  }
}

TEST_CASE("schema: strings") {
  check_schema(R"({"type":"string","minLength":2,"maxLength":3})",
               {R"("ab")", R"("é你\n")", R"("\ud83d\ude00a")"}, {R"("a")", R"("abcd")", R"("")"});
  check_schema(R"({"type":"string","maxLength":100000})", {R"("ab")"}, {R"("a)"});
  check_schema(R"({"type":"string","pattern":"^[a-c]+\\d{2}$"})", {R"("ab12")"},
               {R"("12")", R"("ab123")"});
  check_schema(R"({"type":"string","pattern":"b\"c"})", {R"("ab\"cd")"}, {R"("bc")"});
  check_schema(R"({"type":"string","pattern":"^\\S+$","maxLength":4})", {R"("abcd")"},
               {R"("a b")", R"("")", R"("abcde")"});
  check_schema(R"({"type":"string","pattern":"^(a|b)[0-9]*$","minLength":3,"maxLength":4})",
               {R"("a12")", R"("b123")"}, {R"("a1")", R"("a1234")"});
  check_schema(R"({"type":"string","format":"date"})",
               {R"("2024-02-29")", R"("1999-12-31")", R"("2004-02-29")"},
               {R"("2023-02-29")", R"("2024-13-01")", R"("2024-04-31")"});
  check_schema(R"({"type":"string","format":"date-time"})", {R"("2024-01-01T23:59:59.5+01:00")"},
               {R"("2024-01-01")", R"("2024-01-01T24:00:00Z")"});
  check_schema(R"({"type":"string","format":"uuid"})",
               {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")"});
  check_schema(R"({"type":"string","format":"ipv4"})", {R"("127.0.0.1")", R"("255.255.255.255")"},
               {R"("256.0.0.1")", R"("1.2.3")"});
  check_schema(R"({"format":"email"})", {R"("a.b@example.org")"}, {R"("a@")", R"("@b.c")"});
  check_schema(R"({"format":"uri","minLength":1,"maxLength":2083})",
               {R"("https://example.org/a//b-c_d?e=f&g#h")", R"("http://a.b")"},
               {R"("https://example.org/a b")", R"("example.org")"});
}

TEST_CASE("schema: formats keep to the lengths beside them") {
  const struct {
    std::string format;
    std::size_t most;
    std::string front, behind;  // of a text with many letters between them
    std::string usual;
  } cases[] = {{"uri", 2083, "https://example.org/", "", "https://example.org/a//b-c_d?e=f&g#h"},
               {"uri", 255, "https://example.org/?b=", "#a", "http://example.org:8080/a_b/c?d=e"},
               {"email", 100, "someone@", ".org", "someone.else@example.org"},
               {"email", 40, "someone@", ".org", "a.b@mail.com"},
               {"hostname", 64, "example.", ".org", "www.example.org"}};
  for (const auto& [format, most, front, behind, usual] : cases) {
    const Json schema = {
        {"type", "string"}, {"format", format}, {"minLength", 1}, {"maxLength", most}};
    INFO(schema.dump());
    REQUIRE(problem_of(schema.dump()).empty());
    const Grammar grammar = compile_json_schema(schema);
    CHECK(matches(grammar, '"' + usual + '"'));
    const std::size_t around = front.size() + behind.size();
    CHECK(matches(grammar, '"' + front + "aa" + behind + '"'));
    for (std::size_t letters = most - around + 1; letters < most + 200; ++letters) {
      CHECK_FALSE(matches(grammar, '"' + front + std::string(letters, 'a') + behind + '"'));
    }
  }
}

TEST_CASE("schema: a format whose pattern cannot have the lengths beside it is a remark") {
  for (const std::string format : {"byte", "json-pointer", "email"}) {
    const std::string schema =
        R"({"type":"string","minLength":8,"maxLength":9,"format":")" + format + "\"}";
    INFO(schema);
    check_schema(schema, {R"("12345678")", R"("a@b.org/~")"}, {R"("1234567")", R"("0123456789")"});
    CHECK_THAT(compile_json_schema(parse_schema(schema)).warning,
               Contains("or not with these lengths, so no text has to have them: \"" + format));
  }
  CHECK(problem_of(R"({"format":"byte","minLength":1})").empty());
  CHECK(problem_of(R"({"format":"uri","maxLength":20})").empty());
  CHECK_THAT(problem_of(R"({"pattern":"^(a{4})*$","minLength":1})"),
             Contains("/pattern: this one together with minLength or maxLength"));
}

TEST_CASE("schema: objects") {
  const std::string some = R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"boolean"},"c":{"type":"null"}},"required":["b"])";
  check_schema(
      some + "}", {R"({"b":true})", R"({"a": 1, "b":false})", R"({"a":1,"b":true,"c":null})"},
      {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":true,"x":1})", R"({,"b":true})"});
  check_schema(some + R"(,"additionalProperties":{"type":"integer"}})",
               {R"({"b":true,"x":1})", R"({"b":true,"c":null,"aa":1,"":2})"},
               {R"({"b":true,"x":null})", R"({"b":true,"a":1})", R"({"b":true,"\u0061":1})"});
  check_schema(R"({"type":"object"})", {"{}", R"({"a":[1,{"b":2}]})"}, {"[]"});
  check_schema(R"({"type":"object","properties":{}})", {"{}"}, {"[]"});
  check_schema(R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":1,
                   "maxProperties":2})",
               {R"({"x":null})", R"({"x":null,"y":null})"},
               {"{}", R"({"x":null,"y":null,"z":null})"});
  check_schema(R"({"properties":{"a":false,"b":true},"required":["b"]})", {R"({"b":[1]})"},
               {R"({"a":1,"b":1})"});
  check_schema(R"({"type":"object","required":["z"]})", {R"({"z":1})"}, {"{}"});
}

TEST_CASE("schema: arrays, enum, anyOf, allOf and references") {
  check_schema(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
               {"[1]", "[1, 2,3]"}, {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"});
  check_schema(R"({"prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"type":"boolean"},
                   "minItems":1})",
               {"[1]", "[1,null]", "[1,null,true,false]"}, {"[]", "[1,true]", "[null]"});
  check_schema(R"({"items":[{"type":"integer"}],"additionalItems":false})", {"[]", "[1]"},
               {"[1,2]"});
  check_schema(R"({"enum":["a",1,null,[1,{"b":"\n"}]]})",
               {"\"a\"", "1", "null", R"([1,{"b":"\n"}])"}, {"\"b\"", "2"});
  check_schema(R"({"type":"string","enum":["a",1],"maxLength":1})", {"\"a\""}, {"1"});
  check_schema(R"({"const":"x","enum":["x","y"]})", {"\"x\""}, {"\"y\""});
  check_schema(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", "\"a\""},
               {"\"ab\"", "null"});
  check_schema(R"({"allOf":[{"minimum":3},{"maximum":5,"type":"integer"},{"minimum":4}]})",
               {"4", "5"}, {"3", "6"});
  check_schema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],
                   "anyOf":[{"properties":{"b":{"const":1}},"required":["b"]},
                            {"properties":{"a":{"minimum":7}}}]})",
               {R"({"a":1,"b":1})", R"({"a":7})"}, {R"({"a":1})"});
  check_schema(R"({"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},
      {"type":"object","properties":{"next":{"$ref":"#/$defs/list"}},"required":["next"]}]}}})",
               {"null", R"({"next":{"next":null}})"}, {"{}"});
  check_schema(R"({"allOf":[{"$ref":"#/definitions/a~1b%25"}],"definitions":{"a/b%":{"const":1}}})",
               {"1"}, {"2"});
  check_schema(R"({"type":"object","properties":{"c":{"$ref":"#","required":["c"]}}})", {"{}"},
               {R"({"c":{}})"});
  // What says nothing of values may stand beside a combiner that leads back to it.
  check_schema(R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/list"}],"x-order":1,"deprecated":true,
      "$defs":{"list":{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"$ref":"#/$defs/other"}],
                       "readOnly":false},
               "other":{"anyOf":[{"type":"integer"},{"type":"object","properties":{},
                        "additionalProperties":{"$ref":"#/$defs/list"}}],"nullable":true}}})",
               {"null", "[null,[1]]", R"({"a":{"b":[null]}})"}, {R"({"a":null})", "true"});
}

TEST_CASE("schema: unevaluatedProperties closes its own schema to what stands beside it") {
  const std::string a = R"({"type":"object","properties":{"a":{"type":"integer"}})";
  check_schema(a + R"(,"unevaluatedProperties":false})", {"{}", R"({"a":1})"}, {R"({"b":1})"});
  check_schema(a + R"(,"allOf":[{"properties":{"b":true}}],"unevaluatedProperties":false})",
               {R"({"a":1,"b":2})"}, {R"({"c":1})"});
  check_schema(a + R"(,"allOf":[{"unevaluatedProperties":false}]})", {"{}"}, {R"({"a":1})"});
  check_schema(a + R"(,"$ref":"#/$defs/b","$defs":{"b":{"properties":{"b":true},
                       "unevaluatedProperties":false}}})",
               {"{}", R"({"b":1})"}, {R"({"a":1})"});
  check_schema(a + R"(,"anyOf":[{"properties":{"b":true},"required":["b"],
                                 "unevaluatedProperties":false}, {"required":["a"]}]})",
               {R"({"b":1})", R"({"a":1})"}, {R"({"a":1,"b":1})"});
  check_schema(a + R"(,"additionalProperties":{"type":"null"},"unevaluatedProperties":false})",
               {R"({"a":1,"b":null})"}, {R"({"b":1})"});
  check_schema(a + R"(,"unevaluatedProperties":true})", {R"({"a":1})"}, {R"({"a":null})"});
  check_schema(R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"});
  CHECK_THAT(problem_of(a + R"(,"unevaluatedProperties":{"type":"null"}})"),
             Contains("/unevaluatedProperties: only false is supported"));
}

TEST_CASE("schema: what is not anything is nothing") {
  for (const char* never :
       {"false", R"({"not":{}})", R"({"not":true})", R"({"not":{},"type":"null"})"}) {
    const std::string nothing = never;
    check_schema(
        R"({"type":"object","properties":{"a":true},"additionalProperties":)" + nothing + "}",
        {"{}", R"({"a":1})"}, {R"({"b":1})", R"({"a":1,"b":1})"});
    check_schema(R"({"type":"object","properties":{"a":)" + nothing + R"(,"b":true}})",
                 {R"({"b":1})"}, {R"({"a":1})"});
    check_schema(R"({"type":"array","prefixItems":[{"type":"null"}],"items":)" + nothing + "}",
                 {"[]", "[null]"}, {"[null,null]"});
    check_schema(R"({"anyOf":[{"type":"null"},)" + nothing + "]}", {"null"}, {"1"});
    check_schema(R"({"type":"object","properties":{"a":true},"unevaluatedProperties":)" + nothing +
                     R"(,"allOf":[{"properties":{"b":true}}]})",
                 {R"({"a":1,"b":1})"}, {R"({"c":1})"});
    CHECK_THAT(problem_of(nothing), Contains("no text can ever match"));
  }
}

TEST_CASE("what refers to the root may find its $id there") {
  const std::string tree = R"({"$id":"https://example.com/tree","type":"object","required":["next"],
      "additionalProperties":false,
      "properties":{"next":{"oneOf":[{"$ref":"#"},{"type":"null"}]}}})";
  CHECK(problem_of(tree).empty());
  CHECK_THAT(problem_of(R"({"properties":{"a":{"$id":"https://example.com/a"}}})"),
             Contains("/properties/a/$id: a schema within the schema cannot have one"));
}

TEST_CASE("a number in a schema is the one that is written, or the schema is refused") {
  CHECK(problem_of(R"({"const":12345678901234567890123})") ==
        "the schema has an integer beyond 64 bits: 12345678901234567890123");
  for (const char* schema :
       {R"({"enum":[1,-12345678901234567890123]})", R"({"const":{"a":[18446744073709551617]}})",
        R"({"type":"integer","maximum":18446744073709551616})"}) {
    CHECK_THAT(problem_of(schema), Contains("an integer beyond 64 bits"));
  }
  CHECK_THAT(problem_of(R"({"maximum":1e400})"), Contains("a number is too large"));
  check_schema(R"({"enum":[18446744073709551615,-9223372036854775808,1.5,1e300]})",
               {"18446744073709551615", "-9223372036854775808", "1.5", "1e+300"}, {"1", "2"});
}

TEST_CASE("schema: a member that is required twice counts once") {
  CHECK_THAT(problem_of(R"({"type":"object","properties":{"a":true,"b":true},
                            "required":["a","a"],"minProperties":2})"),
             Contains("/minProperties"));
  check_schema(R"({"type":"object","properties":{"a":true,"b":true},"required":["a","a"],
                   "minProperties":1})",
               {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"b":1})"});
}

TEST_CASE("schema: an object has at least one of its members") {
  const std::string some = R"({"type":"object","minProperties":1,"properties":{
      "a":{"type":"integer"},"b":false,"c":{"type":"null"}})";
  check_schema(some + "}", {R"({"a":1})", R"({"c":null})", R"({"a":1, "c":null})"},
               {"{}", R"({,"c":null})", R"({"a":1,})", R"({"b":1})"});
  check_schema(some + R"(,"additionalProperties":{"type":"integer"}})",
               {R"({"x":1})", R"({"c":null,"x":1,"y":2})"}, {"{}", R"({"x":null})"});
  // As often as it is written, and where nothing of it is possible.
  check_schema(R"({"type":"array","minItems":30,"items":)" + some + "}}",
               {"[" + with_commas(30, R"({"c":null})") + "]"},
               {"[" + with_commas(29, R"({"c":null})") + ",{}]"});
  CHECK_THAT(problem_of(R"({"type":"object","minProperties":1,"properties":{"a":false}})"),
             Contains("no text can ever match"));
  CHECK_THAT(problem_of(R"({"type":"object","minProperties":1,"additionalProperties":false})"),
             Contains("no text can ever match"));
}

TEST_CASE("schema: oneOf where the branches are apart") {
  check_schema(R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"\""}, {"null"});
  check_schema(R"({"oneOf":[
      {"type":"object","required":["kind"],
       "properties":{"kind":{"const":"a"},"x":{"type":"integer"}}},
      {"type":"object","properties":{"kind":{"enum":["b","c"]}},"required":["kind"]}]})",
               {R"({"kind":"a","x":1})", R"({"kind":"c"})"}, {R"({"kind":"b","x":1})"});
  check_schema(R"({"oneOf":[
      {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
      {"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}]})",
               {R"({"a":1})", R"({"b":1})"}, {R"({"a":1,"b":1})"});
  // Each constant would be a way to read a text.
  for (const char* list : {"anyOf", "oneOf"}) {
    Json many = {{list, Json::array()}};
    for (int i = 0; i < 400; ++i) {
      many[list].push_back({{"const", "c" + std::to_string(i)}, {"title", "a constant"}});
    }
    check_schema(many.dump(), {R"("c0")", R"("c399")"}, {R"("c400")"});
  }
  CHECK_THAT(problem_of(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"),
             Contains("schema, /oneOf: oneOf is supported only where"));
  CHECK_THAT(problem_of(R"({"oneOf":[{"type":"object"},{"type":"object","required":["a"]}]})"),
             Contains("may match 0 and 1"));
  CHECK_THAT(problem_of(R"({"oneOf":[{"minimum":1},{"type":"string"}]})"),
             Contains("may match 1 and 0"));
}

TEST_CASE("schema: a oneOf is kept by all that is written, whatever stands beside it") {
  const std::string a =
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})";
  const std::string b =
      R"({"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]})";
  const std::string both = R"({"type":"object","properties":{"a":true,"b":true}})";
  const std::string one_of = R"({"oneOf":[)" + a + "," + b + "]}";
  for (const std::string& list : {one_of + "," + both, both + "," + one_of}) {
    CHECK_THAT(problem_of(R"({"allOf":[)" + list + "]}"),
               Contains("/oneOf: oneOf is supported only where"));
  }
  CHECK_THAT(problem_of(R"({"allOf":[)" + one_of + "," + one_of + "]}"), Contains("may match"));
  check_schema(R"({"allOf":[)" + one_of + R"(,{"properties":{"c":{"type":"null"}}}]})",
               {R"({"a":1})", R"({"b":1,"c":null})"}, {R"({"a":1,"b":1})", R"({"a":1,"c":1})"});
  // An object of which nothing is said has any members.
  CHECK_THAT(problem_of(R"({"oneOf":[
      {"type":"object","required":["k","z"],"properties":{"k":{"type":"object"},"z":true}},
      {"type":"object","required":["k"],
       "properties":{"k":{"type":"object","required":["a"],"properties":{"a":true}}}}]})"),
             Contains("may match 0 and 1"));
}

TEST_CASE("schema: values are compared as JSON Schema compares them") {
  const std::string one = R"({"a":1,"b":[2]})", other = R"({"b":[2.0],"a":1})";
  check_schema(R"({"allOf":[{"enum":[)" + one + R"(]},{"enum":[)" + other + "]}]}", {one}, {other});
  CHECK_THAT(
      problem_of(R"({"oneOf":[{"enum":[)" + one + R"(]},{"enum":[)" + other + R"(,null]}]})"),
      Contains("may match 0 and 1"));
  check_schema(R"({"type":"integer","enum":[1e16,1.5,2.0]})", {"1e+16", "2.0"}, {"1.5"});
  CHECK_THAT(problem_of(R"({"allOf":[{"enum":[-1]},{"enum":[18446744073709551615]}]})"),
             Contains("no text can ever match"));
  CHECK_THAT(problem_of(R"({"allOf":[{"const":-1},{"const":18446744073709551615}]})"),
             Contains("no text can ever match"));
  check_schema(R"({"enum":[9007199254740992,9007199254740993],"maximum":9007199254740992})",
               {"9007199254740992"}, {"9007199254740993"});
  check_schema(
      R"({"type":"integer","minimum":9007199254740997,"exclusiveMinimum":9007199254740995})",
      {"9007199254740997"}, {"9007199254740996"});
  check_schema(R"({"type":"integer","allOf":[{"maximum":9007199254740993},
                                             {"maximum":9007199254740992}]})",
               {"9007199254740992"}, {"9007199254740993"});
}

TEST_CASE("numbers are ordered exactly, however they are held") {
  const std::vector<std::string> ascending = {"-1e300",
                                              "-9223372036854775808",
                                              "-1.5",
                                              "-1",
                                              "-0.5",
                                              "0",
                                              "0.5",
                                              "9007199254740992",
                                              "9007199254740993",
                                              "9007199254740994.0",
                                              "9223372036854775807",
                                              "9223372036854775808",
                                              "18446744073709551615",
                                              "18446744073709551616.0",
                                              "1e300"};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      INFO(ascending[i] << " " << ascending[j]);
      const auto order = compare_numbers(Json::parse(ascending[i]), Json::parse(ascending[j]));
      CHECK((order == (i <=> j)));
    }
  }
  CHECK(is_same(Json(1), Json(1.0)));
  CHECK(is_same(Json(0U), Json(-0.0)));
}

TEST_CASE("schema: a pattern means what it means in JavaScript, or is refused") {
  const auto check_pattern = [](const char* pattern, const Texts& matching, const Texts& others) {
    const auto quoted = [](const Texts& texts) {
      Texts all;
      for (const std::string& text : texts) all.push_back(Json(text).dump());
      return all;
    };
    check_schema(Json({{"type", "string"}, {"pattern", pattern}}).dump(), quoted(matching),
                 quoted(others));
  };
  check_pattern(R"(^\t\n\r\f\v\0$)", {std::string("\t\n\r\f\v\0", 6)}, {"tnrfv0"});
  check_pattern(R"(^\x41\u00e9\.\\\/$)", {"A\u00e9.\\/"}, {"A\u00e9x\\/", "x41"});
  check_pattern(R"(^[\b\]\-^]+$)", {"\b]-^"}, {"b", "\\"});
  check_pattern(R"(^[^\d\W]$)", {"a", "Z", "_"}, {"1", "-", "\u00e9"});
  // What is white space for some engines only belongs to no class of a negated one.
  check_pattern(R"(^[^\s@]+$)", {"a", "\u00e9", "\u200b"},
                {" ", "\u001c", "\u0085", "\u3000", "@"});
  check_pattern(R"(^[^\S]$)", {" ", "\n"}, {"\u001c", "\u00a0", "a"});
  check_pattern(R"(^[^\D]$)", {"1"}, {"a", "\u0661"});
  check_pattern(R"(^\D\W\S$)", {"a-b"}, {"1-b", "aab", "a- ", "\u00e9-b"});
  check_pattern(R"(^[a-c-]{2,}$)", {"a-", "bcb"}, {"a", "ad"});
  check_pattern(R"(^(?<year>\d{4})(?:-\d\d)?$)", {"2024", "2024-07"}, {"2024-7", "24"});
  check_pattern(R"(^a+?b*?c??$)", {"a", "aabbc"}, {"b", "acc"});
  check_pattern(R"(^a\{,2}{a{,}$)", {"a{,2}{a{,}"}, {"aa", "a"});
  check_pattern("^a|b$", {"ax", "xb"}, {"xa", "bx"});
  check_pattern("(^a$)", {"a"}, {"aa"});
  check_pattern("^.$", {"a", "\u00e9"}, {"\n", "\r", "\u2028", ""});

  // Rounds that may be empty, in repetitions that are counted.
  check_pattern("^(a?){2,100}$", {"", "a", std::string(100, 'a')}, {"b", std::string(101, 'a')});
  check_pattern("^(a*b?|c){0,70}$", {"", "aab", "cb", "cca"}, {"d", std::string(71, 'c')});
  check_pattern("^(a?b?(c|){3}){2,3}d$", {"d", "abcd", "cccd", "cccbd"}, {"", "ccccccccccd"});
  check_pattern("^((a?){3,70}|b){2,70}$", {"", "a", "ab", "ba"}, {"c"});
  // From every place of a long text.
  const std::string text(3000, 'a');
  check_pattern(".{1,500}", {"a", text}, {""});
  check_pattern("a{2,400}|(b{300,}x|c{1,300})", {text, "bxcc"}, {"a", "bx"});
  check_pattern("^a{1,300}", {text}, {"b"});
  check_pattern("a*$", {"", "b", text}, {});

  const std::pair<const char*, const char*> refused[] = {
      {"a)", "character 2: a \")\" too many"},
      {"a\\", "the pattern ends too early"},
      {"^*", "a repeated anchor"},
      {"a**", "a quantifier behind a quantifier"},
      {"a{2}{3}", "a quantifier behind a quantifier"},
      {"a|*", "character 3: nothing stands in front of the quantifier"},
      {"({2})", "nothing stands in front of the quantifier"},
      {"a{3,2}", "the most rounds are fewer than the least"},
      {"a{65537}", "a number greater than 65536"},
      {"^a{,2}{$", "write \"{0,n}\""},
      {"{,2}", "write \"{0,n}\""},
      {"[]", "character 2: engines differ in what \"]\" means"},
      {"[^]a]", "character 3: engines differ in what \"]\" means"},
      {"(?<a", "the name of a group has no \">\""},
      {"(?i)a", "look-around and flags"},
      {"[a", "a class has no \"]\""},
      {"[b-a]", "a range of a class that ends before it begins"},
      {R"([a-\d])", "a range of a class that ends before it begins"},
      {R"(\x4)", "expected 2 hexadecimal digits"},
      {R"(\ud800)", "expected 4 hexadecimal digits of a character"},
      {R"(\01)", "\"\\0\" is not supported"},
      {R"((a)\1)", "\"\\1\" is not supported"}};
  for (const auto& [pattern, why] : refused) {
    INFO(pattern);
    CHECK_THAT(problem_of(Json({{"type", "string"}, {"pattern", pattern}}).dump()), Contains(why));
  }
}

TEST_CASE("schema: durations, pointers and base64") {
  check_schema(
      R"({"format":"duration"})",
      {R"("P1Y2M3D")", R"("PT36H")", R"("P3W")", R"("P1DT12H30M5S")", R"("PT0S")"},
      {R"("P")", R"("PT")", R"("P1")", R"("P1DT")", R"("P1YT2D")", R"("1D")", R"("P1D2W")"});
  check_schema(R"({"format":"json-pointer"})", {R"("")", R"("/")", R"("/a/b~1c/0")"},
               {R"("a")", R"("/~2")", R"("/~")"});
  check_schema(R"({"format":"relative-json-pointer"})", {R"("0")", R"("1/a")", R"("2#")"},
               {R"("")", R"("01")", R"("/a")", R"("-1")"});
  check_schema(R"({"format":"byte"})", {R"("")", R"("QQ==")", R"("QUI=")", R"("QUJD+/9A")"},
               {R"("Q")", R"("QQ=")", R"("Q===")", R"("QUJD=")"});
  check_schema(R"({"format":"idn-hostname"})", {R"("example.org")"}, {R"("a b")"});
  check_schema(R"({"format":"iri"})", {R"("https://example.org/a")"}, {R"("a b")"});
  CHECK(problem_of(R"({"format":"duration","maxLength":64})").empty());
}

TEST_CASE("schema: a format that is not known is a remark, which is told") {
  check_schema(R"({"type":"string","format":"regex"})", {R"("(a")", R"("")"}, {"1"});
  const auto warning_of = [](const char* schema) {
    return compile_json_schema(parse_schema(schema)).warning;
  };
  CHECK(warning_of(R"({"properties":{"a":{"format":"regex"},"b":{"format":"col\u00f6r"}}})") ==
        "the schema has formats that are not known, or not with these lengths, so no text has to "
        R"(have them: "col\u00f6r", "regex")");
  for (const char* silent :
       {R"({"format":"date"})", R"({"format":"password"})", R"({"format":"int64"})",
        R"({"type":"integer","format":"uint8"})", R"({"pattern":"a","format":"regex"})"}) {
    INFO(silent);
    CHECK(warning_of(silent).empty());
  }
  check_schema(R"({"allOf":[{"format":"regex"},{"format":"date"},{"format":"color"}]})",
               {R"("2026-01-02")"}, {R"("a")"});
  // All that stand at one place are named, in whatever order.
  for (const char* several :
       {R"({"allOf":[{"format":"regex"},{"format":"date"},{"format":"color"}]})",
        R"({"format":"date","allOf":[{"format":"regex"},{"format":"color"},{"format":"regex"}]})",
        R"({"allOf":[{"format":"regex"},{"format":"color"}]})",
        R"({"type":"string","format":"color","$ref":"#/$defs/a","$defs":{"a":{"format":"date",
            "allOf":[{"format":"regex","unevaluatedProperties":false},{"format":"uint8"}]}}})",
        R"({"properties":{"a":{"format":"regex"}},"allOf":[{"properties":{"a":{"format":"date"}}},
            {"properties":{"a":{"format":"color"}}}]})"}) {
    INFO(several);
    const std::string warning = warning_of(several);
    CHECK_THAT(warning, Contains("\"color\", \"regex\""));
    CHECK_THAT(warning, !Contains("date"));
  }
  CHECK(warning_of(R"({"allOf":[{"format":"date"},{"format":"password"}]})").empty());
  CHECK_THAT(problem_of(R"({"allOf":[{"format":"time"},{"format":"date"}]})"),
             Contains("two different ones"));
}

TEST_CASE("schema: a format beside a pattern is a remark") {
  for (const std::string format : {"date", "uuid", "of nobody"}) {
    check_schema(R"({"type":"string","pattern":"^[0-9]{2}$","format":")" + format + "\"}",
                 {"\"12\""}, {"\"2026-01-02\"", "\"1\""});
  }
}

TEST_CASE("schema: the place of what a reference leads to is one short line") {
  Json schema = {{"$ref", "#/$defs/a\nb~01"}};
  schema["$defs"]["a\nb~1"]["if"] = true;
  CHECK(problem_of(schema.dump()) == "schema, /$defs/a\\nb~01/if: this keyword is not supported");
  const std::string name(100'000, 'x');
  schema = {{"$ref", "#/$defs/" + name}};
  schema["$defs"][name]["if"] = true;
  CHECK(problem_of(schema.dump()).size() < 1200);
  CHECK_THAT(problem_of(Json({{"$ref", "#/" + std::string(400'000, '~') + "1"}}).dump()),
             Contains("is not in the schema"));
}

TEST_CASE("schema: what is not supported is refused by name and place") {
  for (const char* name : {"not", "if", "patternProperties", "propertyNames", "dependentRequired",
                           "contains", "unevaluatedItems", "$dynamicRef"}) {
    const Json value = {{"type", "null"}};
    const std::string schema = Json({{"properties", {{"a/b", {{name, value}}}}}}).dump();
    CHECK(problem_of(schema) ==
          "schema, /properties/a~1b/" + std::string(name) + ": this keyword is not supported");
  }
  CHECK_THAT(problem_of(R"({"type":"array","uniqueItems":true})"), Contains("/uniqueItems"));
  CHECK_THAT(problem_of(R"({"type":"integer","multipleOf":5})"), Contains("/multipleOf"));
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"(?=a)b"})"), Contains("look-around"));
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"\\bfoo"})"), Contains("\"\\b\""));
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"a^b"})"), Contains("anchor"));
  CHECK_THAT(problem_of(R"x({"type":"string","pattern":"äöü(?=a)"})x"), Contains("character 6:"));
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"a(b"})"), Contains("no \")\""));
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"(ab|c)*d","maxLength":9})"),
             Contains("together with minLength or maxLength"));
  CHECK_THAT(problem_of(R"({"$ref":"https://example.org/x"})"), Contains("/$ref"));
  CHECK_THAT(problem_of(R"({"$ref":"#/nowhere"})"), Contains("is not in the schema"));
  CHECK_THAT(problem_of(R"({"type":"text"})"), Contains("\"text\" is no type"));
  CHECK_THAT(problem_of(R"({"properties":[]})"), Contains("/properties: expected an object"));
  CHECK_THAT(problem_of(R"({"items":3})"), Contains("/items: expected an object, true or false"));
  CHECK_THAT(problem_of(R"({"minLength":-1})"), Contains("/minLength"));
  CHECK_THAT(problem_of(R"({"required":"a"})"), Contains("/required"));
  CHECK_THAT(problem_of(R"({"type":"number","minimum":1e-30})"), Contains("/minimum"));
  CHECK_THAT(problem_of(R"({"type":"number","maximum":999999999999999.5})"), Contains("15 digits"));
  CHECK_THAT(problem_of("false"), Contains("no text can ever match"));
  CHECK_THAT(problem_of(R"({"type":"integer","minimum":5,"maximum":4})"), Contains("no text"));
  CHECK_THAT(problem_of(R"({"anyOf":[]})"), Contains("/anyOf"));
}

TEST_CASE("schema: where no text can match, the innermost place is named that makes it so") {
  CHECK_THAT(problem_of("false"), Contains("match \"the schema\""));
  CHECK_THAT(problem_of(R"({"properties":{"a":false},"required":["a"]})"),
             Contains("match \"the schema\""));
  const std::string impossible = R"({"type":"integer","enum":["x"]})";
  CHECK_THAT(problem_of(R"({"properties":{"b":true,"a":)" + impossible + R"(},"required":["a"]})"),
             Contains("match \"/properties/a\""));
  CHECK_THAT(problem_of(R"({"type":"array","minItems":1,"items":{"anyOf":[)" + impossible + "]}}"),
             Contains("match \"/items/anyOf/0\""));
  CHECK_THAT(problem_of(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","required":["b"],)"
                        R"("properties":{"b":{"$ref":"#/$defs/a"}}}}})"),
             Contains("match \"/$defs/a/properties/b\"") ||
                 Contains("match \"/$defs/a\""));  // it contains itself
}

TEST_CASE("hostile schemas are bounded") {
  CHECK_THAT(problem_of(R"({"$ref":"#"})"), Contains("no text"));
  CHECK_THAT(problem_of(R"({"allOf":[{"$ref":"#"},{"type":"object"}]})"),
             Contains("nested deeper"));
  CHECK_THAT(problem_of(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
             Contains("no text"));
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += R"({"type":"array","items":)";
  deep += R"({"type":"integer"})" + std::string(5000, '}');
  CHECK_THAT(problem_of(deep), Contains("more than 128 levels deep"));
  Json wide = {{"enum", Json::array()}};
  for (int i = 0; i < 100000; ++i) wide["enum"].push_back("value " + std::to_string(i * 7919));
  CHECK_FALSE(problem_of(wide.dump()).empty());
  wide["enum"].get_ref<Json::array_t&>().resize(2000);
  CHECK(problem_of(wide.dump()).empty());
  Json many = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 500; ++i) many["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  CHECK(problem_of(many.dump()).empty());
  // 2^40 ways.
  Json product = {{"allOf", Json::array()}};
  for (int i = 0; i < 40; ++i) {
    const std::string a = "a" + std::to_string(i), b = "b" + std::to_string(i);
    product["allOf"].push_back({{"anyOf", {{{"required", {a}}}, {{"required", {b}}}}}});
  }
  CHECK_THAT(problem_of(product.dump()), Contains("ways"));
  for (const char* pattern : {"^(a+)+$", "^(a|aa)*b$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"}) {
    CHECK(problem_of(Json({{"type", "string"}, {"pattern", pattern}}).dump()).empty());
  }
  check_schema(R"({"type":"string","pattern":"^(a|b)*a(a|b){30}$"})",
               {'"' + std::string(40, 'a') + '"'}, {'"' + std::string(40, 'b') + '"'});
  CHECK_THAT(problem_of(R"({"type":"string","pattern":"^((a{1000}){1000}){1000}$","minLength":3})"),
             !Contains("too long"));
  CHECK_THAT(problem_of(Json({{"type", "string"}, {"pattern", std::string(9000, 'a')}}).dump()),
             Contains("8192"));
}

TEST_CASE("random schemas: whatever is written is valid") {
  std::mt19937_64 random(test::random_seed());
  const ListTokenizer vocabulary = test::random_vocabulary(random, 600);
  const auto trie = std::make_shared<const TokenTrie>(vocabulary);
  int ended = 0, impossible = 0;
  for (int i = 0; i < 150; ++i) {
    const Json schema = SchemaWriter(random).schema();
    INFO(schema.dump());
    std::shared_ptr<const Constraint> constraint;
    try {
      constraint = std::make_shared<const Constraint>(compile_json_schema(schema), trie);
    } catch (const GrammarError& error) {  // bounds that leave nothing
      CHECK_THAT(error.what(), Contains("no text can ever match") || Contains("oneOf"));
      ++impossible;
      continue;
    }
    for (int n = 0; n < 4; ++n) {
      Matcher matcher(constraint, ends_of(vocabulary));
      const auto text = write_at_random(vocabulary, matcher, random);
      if (!text) continue;
      ++ended;
      INFO(*text);
      CHECK(matches(constraint->grammar(), *text));
      const Json value = Json::parse(*text, nullptr, false);
      REQUIRE_FALSE(value.is_discarded());
      CHECK(test::is_valid(schema, value, schema));
    }
  }
  CHECK(ended > 300);
  CHECK(impossible < 75);
}

TEST_CASE("any JSON object") {
  CompileBudget budget;
  const Grammar grammar = compile_json_object(budget);
  CHECK(matches(grammar, R"({"a": [1, {"b":null}], "":"x"})"));
  for (const char* text : {"[]", "1", "", "{", "{\"a\":}"}) CHECK_FALSE(matches(grammar, text));
}

}  // namespace sluice::constrain
