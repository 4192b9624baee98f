// Answers with calls as models really write them, and as nobody would: marks inside of arguments,
// values whose type only the schema tells, JSON that is no call, random tools and random fragments.
#include <cctype>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/chat/harmony.h"
#include "core/chat/thinking.h"
#include "core/chat/tool_calls.h"
#include "tests/catch.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"

namespace {

using namespace sluice::chat;
using Json = nlohmann::ordered_json;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[below(random, all.size())];
}

// The calls as "name{arguments}", one behind the other, behind the content.
std::string summary(const AnswerWithCalls& answer) {
  std::string text = answer.content;
  for (const ToolCall& call : answer.calls) text += "|" + call.name + call.arguments.dump();
  return text;
}

// An answer that arrives in random pieces.
AnswerWithCalls in_pieces(Random& random, const std::string& text, const Json& tools,
                          std::size_t most = 9) {
  ToolCallStream stream(tools);
  std::string content;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = 1 + below(random, most);
    content += stream.feed(std::string_view(text).substr(at, bytes));
    at += bytes;
  }
  AnswerWithCalls rest = stream.finish();
  rest.content.insert(0, content);
  return rest;
}

Json tool(const std::string& name, const Json& parameters) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", parameters}}}};
}

// The arguments that come of <function=save> with each of these values.
Json arguments_of(const Json& parameters,
                  const std::vector<std::pair<std::string, std::string>>& values) {
  std::string xml = "<tool_call>\n<function=save>\n", glm = "<tool_call>save\n";
  for (const auto& [name, value] : values) {
    xml += "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
    glm += "<arg_key>" + name + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
  }
  const Json tools = Json::array({tool("save", parameters)});
  const AnswerWithCalls one = parse_tool_calls(xml + "</function>\n</tool_call>", tools);
  const AnswerWithCalls other = parse_tool_calls(glm + "</tool_call>", tools);
  REQUIRE(one.calls.size() == 1);
  REQUIRE(other.calls.size() == 1);
  CHECK(one.calls[0].arguments.dump() == other.calls[0].arguments.dump());
  return one.calls[0].arguments;
}

const Json& weather_and_files() {
  static const Json tools = Json::array(
      {tool("get_weather", Json::parse(R"({"properties": {"city": {"type": "string"}}})")),
       tool("write_file", Json::parse(R"({"properties": {"path": {"type": "string"},
                                          "content": {"type": "string"}}})"))});
  return tools;
}

std::string summary_of(const std::string& answer) {
  return summary(parse_tool_calls(answer, weather_and_files()));
}

}  // namespace

TEST_CASE("an answer in JSON is a call only if it names a tool and has arguments") {
  for (const std::string answer :
       {R"({"name": "Alice", "age": 30})", R"([{"name": "Alice"}, {"name": "Robert"}])",
        R"({"name": "Alice", "arguments": {}})", R"({"name": "get_weather"})",
        R"([{"name": "get_weather", "parameters": {}}, {"name": "Bob", "parameters": {}}])",
        R"([Alice(age=30)])", R"({"name": "get_weather", "arguments": [1]})"}) {
    CHECK(summary_of(answer) == answer);
  }
  CHECK(summary_of(R"({"name": "get_weather", "parameters": {"city": "Ulm"}})") ==
        R"(|get_weather{"city":"Ulm"})");
  CHECK(summary_of(R"([{"name": "get_weather", "arguments": {"city": "Ulm"}}])") ==
        R"(|get_weather{"city":"Ulm"})");
  CHECK(summary_of(R"([get_weather(city="Ulm")])") == R"(|get_weather{"city":"Ulm"})");
  // A mark says that it is a call.
  CHECK(summary_of(R"(<tool_call>{"name": "other"}</tool_call>)") == "|other{}");
}

TEST_CASE("names of functions and arguments in Python's syntax may have hyphens") {
  CHECK(summary_of("<|tool_call_start|>[get-weather(user-id=7, c=-1), a.b-c()]<|tool_call_end|>") ==
        R"(|get-weather{"user-id":7,"c":-1}|a.b-c{})");
  CHECK(summary_of(R"x(<|python_tag|>f(a="x-y(b=1)", b='it\'s (c=2)'))x") ==
        R"x(|f{"a":"x-y(b=1)","b":"it's (c=2)"})x");
  CHECK(summary_of(R"x(<|python_tag|>f(a={"k": (1, 2), "l":(3)}, b=-(5)))x") ==
        R"x(|f{"a":{"k":[1,2],"l":3},"b":-5})x");
  for (const std::string no_call :
       {"[f(a=1, a=2)]", "[f(a=b-c)]", "[f(g(x=1))]", "[f(a=1)(b=2)]", "[f(a={[1]: 2})]"}) {
    const std::string answer = "<|tool_call_start|>" + no_call + "<|tool_call_end|>";
    CHECK(summary_of(answer) == answer);
  }
}

TEST_CASE("bytes that are no UTF-8 in a call in Python's syntax are no error") {
  CHECK(parse_tool_calls("<|python_tag|>f(a={'\xFF': '\xFF'})", nullptr).calls.size() == 1);
  CHECK(parse_tool_calls("<|python_tag|>f(a={['\xFF']: 1})", nullptr).calls.empty());
}

TEST_CASE("the end of an answer that was cut off closes no call") {
  const std::string tagged =
      "<tool_call>\n<function=write_file>\n<parameter=content>\nx </function> y\n</parameter>\n"
      "<parameter=path>\na\n</parameter>\n</function>\n</tool_call>";
  const std::string glm =
      "<tool_call>write_file<arg_key>content</arg_key><arg_value>x</arg_value>"
      "<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>";
  const std::string mistral = R"([TOOL_CALLS]write_file[ARGS]{"content": "x", "path": "a"})";
  for (const std::string& answer : {tagged, glm, mistral}) {
    const std::string whole = summary_of(answer);
    CHECK(whole.starts_with("|write_file{\"content\":\"x"));
    for (std::size_t bytes = 0; bytes <= answer.size(); ++bytes) {
      const auto cut =
          parse_tool_calls(answer.substr(0, bytes), weather_and_files(), AnswerEnd::cut);
      CHECK(cut.calls.size() == (bytes == answer.size() ? 1 : 0));
      if (!cut.calls.empty()) CHECK(summary(cut) == whole);
    }
  }
}

TEST_CASE("a closing mark inside of an argument does not end the call") {
  CHECK(summary_of("<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a\", "
                   "\"content\": \"ends with </tool_call> \\\" here\"}}\n</tool_call>\nDone.") ==
        "Done.|write_file{\"path\":\"a\",\"content\":\"ends with </tool_call> \\\" here\"}");
  const std::string value =
      "use </parameter> and </tool_call> here,\n</parameter></function> and </function>\n";
  CHECK(summary_of("<tool_call>\n<function=write_file>\n<parameter=content>\n" + value +
                   "\n</parameter>\n<parameter=path>\na\n</parameter>\n</function>\n"
                   "</tool_call>") ==
        "|write_file" + Json({{"content", value}, {"path", "a"}}).dump());
  CHECK(summary_of("<tool_call>write_file<arg_key>content</arg_key><arg_value>a </arg_value> b"
                   "</tool_call> c</arg_value></tool_call>") ==
        R"(|write_file{"content":"a </arg_value> b</tool_call> c"})");
  CHECK(summary_of("<|tool_call_start|>[write_file(content='<|tool_call_end|>]', path=\"a'\")]"
                   "<|tool_call_end|>") ==
        R"(|write_file{"content":"<|tool_call_end|>]","path":"a'"})");
  CHECK(summary_of("<|tool_call>call:write_file{content:<|\"|>}<tool_call|> {<|\"|>}"
                   "<tool_call|>") == R"(|write_file{"content":"}<tool_call|> {"})");
  CHECK(summary_of("[TOOL_CALLS]write_file[ARGS]{\"content\": \"[TOOL_CALLS]f[ARGS]{}\"} Done.") ==
        R"(Done.|write_file{"content":"[TOOL_CALLS]f[ARGS]{}"})");
}

TEST_CASE("marks that models leave out, and several calls in one pair of tags") {
  const std::string ulm = "<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n";
  const std::string call = R"(|get_weather{"city":"Ulm"})";
  CHECK(summary_of(ulm + "</function>\n</tool_call>") == call);
  CHECK(summary_of("<tool_call>\n" + ulm + "</function>") == call);
  CHECK(summary_of("<tool_call>\n" + ulm + "</tool_call>") == call);
  CHECK(summary_of("<tool_call>" + ulm + "</function>" + ulm + "</function></tool_call>") ==
        call + call);
  CHECK(summary_of("<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</function>\n"
                   "</tool_call>") == call);
  CHECK(summary_of("Hm.\n<tool_call>\n" + ulm + "</function>\nThere.\n") == "Hm.\n\nThere." + call);
  const std::string json = R"({"name": "get_weather", "arguments": {"city": "Ulm"}})";
  CHECK(summary_of("<tool_call>" + json + "\n<tool_call>" + json) == call + call);
  CHECK(summary_of("<tool_call>" + json + "\n" + json + "</tool_call>") == call + call);
  CHECK(summary_of("<tool_call>" + json + " is how it is done") ==
        "<tool_call>" + json + " is how it is done");
}

TEST_CASE("the type of a value comes from the whole schema") {
  const Json parameters = Json::parse(R"({
      "type": "object",
      "$defs": {"Code": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"},
                "List": {"type": "array", "items": {"type": "string"}}},
      "properties": {
        "zip": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "listed": {"type": ["string", "null"]},
        "flag": {"type": "boolean"},
        "off": {"type": ["boolean", "null"]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "many": {"anyOf": [{"$ref": "#/$defs/List"}, {"type": "null"}]},
        "none": {"anyOf": [{"$ref": "#/$defs/List"}, {"type": "null"}]},
        "code": {"allOf": [{"$ref": "#/$defs/Code"}, {"maxLength": 9}]},
        "one": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
        "level": {"enum": ["low", "1", 2]},
        "grade": {"enum": ["low", "1", 2]},
        "exact": {"const": "7"},
        "free": {"description": "anything"},
        "loop": {"$ref": "#/$defs/Loop"},
        "lost": {"$ref": "#/$defs/Missing"}}})");
  const Json arguments = arguments_of(parameters, {{"zip", "02134"},
                                                   {"maybe", "67890"},
                                                   {"listed", "24680"},
                                                   {"flag", "True"},
                                                   {"off", "None"},
                                                   {"count", "5"},
                                                   {"share", "0.5"},
                                                   {"many", R"(["x", "y"])"},
                                                   {"none", "null"},
                                                   {"code", "12"},
                                                   {"one", "7"},
                                                   {"level", "2"},
                                                   {"grade", "1"},
                                                   {"exact", "7"},
                                                   {"free", "[1]"},
                                                   {"loop", "3"},
                                                   {"lost", "4"},
                                                   {"unknown", "6"}});
  CHECK(arguments.dump() ==
        R"({"zip":"02134","maybe":"67890","listed":"24680","flag":true,"off":null,"count":5,)"
        R"("share":0.5,"many":["x","y"],"none":null,"code":"12","one":7,"level":2,"grade":"1",)"
        R"("exact":"7","free":[1],"loop":3,"lost":4,"unknown":6})");
  // Words of Python are values only where the schema has a place for them.
  const Json words = Json::parse(R"({"properties": {"text": {"type": "string"}}})");
  CHECK(arguments_of(words, {{"text", "True"}, {"other", "True"}}).dump() ==
        R"({"text":"True","other":"True"})");
  // A property may stand in a part of the schema, and other names may have a schema too.
  const Json combined = Json::parse(R"({"allOf": [{"$ref": "#/$defs/A"}],
      "$defs": {"A": {"properties": {"a": {"type": "string"}}}},
      "additionalProperties": {"type": "string"}})");
  CHECK(arguments_of(combined, {{"a", "1"}, {"b", "2"}}).dump() == R"({"a":"1","b":"2"})");
}

TEST_CASE("whatever stands where a schema should be, a value is read") {
  for (const std::string parameters :
       {"[]", "null", "7", "\"x\"", "{}", "[[]]", R"({"properties": []})",
        R"({"properties": {"x": []}})", R"({"properties": {"x": {"type": 7, "enum": 1}}})",
        R"({"properties": {"x": {"$ref": "#/properties/x"}}})", R"({"$ref": "#"})",
        R"({"properties": {"x": {"anyOf": [], "allOf": {}, "$ref": 5}}})",
        R"({"properties": {"x": {"$ref": "#/~/~2/0"}}, "anyOf": [{"$ref": "#"}, 7]})"}) {
    INFO(parameters);
    CHECK(arguments_of(Json::parse(parameters), {{"x", "1"}}).dump() == R"({"x":1})");
  }
  for (const std::string tools :
       {"{}", "7", "[7, null, [], {}]", R"([{"function": 7}, {"function": {"name": 5}}])"}) {
    const Json list = Json::parse(tools);
    CHECK(summary(parse_tool_calls("<function=f><parameter=x>1</parameter></function>", list)) ==
          R"(|f{"x":1})");
  }
}

namespace {

const std::vector<std::string>& fragments() {
  static const std::vector<std::string> all = {
      "<tool_call>",
      "</tool_call>",
      "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
      "{\"name\": \"g\", \"parameters\": {\"a\": \"</tool_call>\"}}",
      "<function=f>",
      "<function=g>",
      "<parameter=a>",
      "<parameter=b>",
      "</parameter>",
      "</function>",
      "<tool_call>f<arg_key>a</arg_key>",
      "<arg_key>b</arg_key>",
      "<arg_value>",
      "</arg_value>",
      "[TOOL_CALLS]",
      "[TOOL_CALLS]f[ARGS]{}",
      "[ARGS]",
      "<|tool_call>call:f{a:",
      "<|\"|>",
      "<tool_call|>",
      "<|tool_call_start|>",
      "<|tool_call_end|>",
      "<|python_tag|>",
      "[f(a=1)]",
      "f(a=1)",
      "[",
      "]",
      "{",
      "}",
      ":",
      ",",
      ";",
      "<",
      "</",
      " ",
      "\n",
      "5",
      "True",
      "'"};
  return all;
}

Json random_json(Random& random, int depth) {
  switch (below(random, depth > 0 ? 8 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return below(random, 2) == 0;
    case 2:
      return 5;
    case 3:
      return one_of(random, std::vector<std::string>{"string", "integer", "null", "#", "#/a", "f",
                                                     "#/properties/a", "boolean", "True"});
    case 4:
      return 0.5;
    case 5: {
      Json list = Json::array();
      for (std::size_t n = below(random, 4); n > 0; --n)
        list.push_back(random_json(random, depth - 1));
      return list;
    }
    default: {
      static const std::vector<std::string> names = {"type",
                                                     "properties",
                                                     "a",
                                                     "b",
                                                     "anyOf",
                                                     "oneOf",
                                                     "allOf",
                                                     "$ref",
                                                     "enum",
                                                     "const",
                                                     "$defs",
                                                     "items",
                                                     "parameters",
                                                     "nullable",
                                                     "name",
                                                     "function",
                                                     "additionalProperties"};
      Json object = Json::object();
      for (std::size_t n = below(random, 5); n > 0; --n) {
        object[one_of(random, names)] = random_json(random, depth - 1);
      }
      return object;
    }
  }
}

// Mostly tools, with anything in them.
Json random_tools(Random& random) {
  if (below(random, 6) == 0) return random_json(random, 4);
  Json tools = Json::array();
  for (const char* name : {"f", "g"}) tools.push_back(tool(name, random_json(random, 5)));
  if (below(random, 4) == 0) tools.push_back(random_json(random, 3));
  return tools;
}

}  // namespace

TEST_CASE("whatever tools and answer hold, nothing is thrown or lost, and pieces do not matter") {
  const std::uint64_t seed = sluice::test::random_seed();
  std::size_t with_calls = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    Random random(seed + i);
    const Json tools = random_tools(random);
    std::string answer;
    std::vector<std::string> words;
    for (std::size_t n = below(random, 25); n > 0; --n) {
      if (below(random, 4) == 0) {
        words.push_back("w" + std::to_string(words.size()) + ".");
        answer += words.back();
      } else {
        answer += one_of(random, fragments());
      }
    }
    INFO("SLUICE_TEST_SEED=" << seed << " answer " << i << ": " << answer << "\n" << tools.dump());
    const AnswerWithCalls whole = parse_tool_calls(answer, tools);
    const std::string all = summary(whole);
    REQUIRE(summary(in_pieces(random, answer, tools)) == all);
    if (whole.calls.empty()) REQUIRE(whole.content == answer);
    for (const std::string& word : words) REQUIRE(all.find(word) != std::string::npos);
    for (const ToolCall& call : whole.calls) REQUIRE(call.arguments.is_object());
    if (!whole.calls.empty()) ++with_calls;
  }
  CHECK(with_calls > 100);
}

// In quadratic time these would not end.
TEST_CASE("long answers full of marks are read in linear time") {
  Random random(1);
  constexpr std::size_t bytes = sluice::test::is_sanitized ? 100'000 : 400'000;
  const std::vector<std::string> repeated = {
      "<function=f><parameter=a>",
      "<tool_call>{\"",
      "<tool_call>[",
      "<tool_call>f<arg_key>",
      "<tool_call>f<arg_key>a</arg_key><arg_value>",
      "[TOOL_CALLS]{",
      "[TOOL_CALLS]f[ARGS]{\"a\":[",
      "<|tool_call>call:f{a:[",
      "<|tool_call>call:f{a:<|\"|>",
      "<|tool_call_start|>[f(a='",
      "<|tool_call_start|>[f(a=[",
      "<|python_tag|>{",
      " ",
      "<",
      "<|",
      "[",
      "{\"a\":[",
      "<tool_call>\n<function=f>\n</parameter>\n</function>\n",
      "</parameter></function></tool",
      "<tool_call>{\"name\": \"f\", \"arguments\": {}} ",
      "{\"name\": \"f\"};"};
  for (const std::string& one : repeated) {
    for (const std::string& front :
         {std::string(), std::string("<function=f><parameter=a>x"), std::string("<tool_call>")}) {
      std::string answer = front;
      while (answer.size() < bytes) answer += one;
      INFO(one.substr(0, 40));
      const AnswerWithCalls read = in_pieces(random, answer, weather_and_files());
      if (read.calls.empty()) CHECK(read.content == answer);
    }
  }
  std::string nested;
  for (std::size_t i = 0; i < bytes / 50; ++i) nested += "<function=f><parameter=a>";
  for (std::size_t i = 0; i < bytes / 50; ++i) nested += "</parameter><parameter=b>";
  CHECK(in_pieces(random, nested, nullptr).content == nested);
}

TEST_CASE("arguments that are too deep or too many for those who come after are no call") {
  const auto content_of = [](const std::string& arguments) {
    return parse_tool_calls(
        "<tool_call>{\"name\": \"f\", \"arguments\": " + arguments + "}</tool_call>", nullptr);
  };
  const auto nested = [](std::size_t depth) {
    return "{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK(content_of(nested(50)).calls.size() == 1);
  CHECK(content_of(nested(100'000)).calls.empty());
  CHECK(content_of("\"" + std::string("{\\\"b\\\": ") + std::string(90'000, '[') +
                   std::string(90'000, ']') + "}\"")
            .calls.empty());
  std::string many = "{";
  for (int i = 0; i < 30'000; ++i) many += "\"" + std::to_string(i) + "\":0,";
  CHECK(content_of(many + "\"x\":0}").calls.empty());
  CHECK(parse_tool_calls("[f(a=" + std::string(90'000, '[') + std::string(90'000, ']') + ")]",
                         weather_and_files())
            .calls.empty());
}

namespace {

struct HarmonyAnswer {
  std::string thought, content, calls;
};

HarmonyAnswer read_harmony(const std::string& text, bool with_calls = true, std::size_t step = 0,
                           AnswerEnd end = AnswerEnd::whole) {
  HarmonyReader reader(false, with_calls);
  HarmonyAnswer result;
  const auto add = [&](const SplitText& split) {
    result.thought += split.thought;
    result.content += split.answer;
  };
  if (step == 0) step = text.size() + 1;
  for (std::size_t at = 0; at < text.size(); at += step) add(reader.feed(text.substr(at, step)));
  add(reader.finish(end));
  for (const ToolCall& call : reader.calls()) result.calls += call.name + call.arguments.dump();
  return result;
}

}  // namespace

TEST_CASE("messages of gpt-oss are read whatever the order in their headers") {
  struct Case {
    std::string text, thought, content, calls;
  };
  const std::string think = "<|channel|>analysis<|message|>I will look.<|end|>";
  const std::string body = "<|message|>{\"city\":\"Ulm\"}<|call|>";
  const std::string call = R"(get_weather{"city":"Ulm"})";
  const std::vector<Case> cases = {
      {think + "<|start|>assistant<|channel|>final<|message|>It is sunny.<|return|>",
       "I will look.", "It is sunny.", ""},
      {think + "<|start|>assistant<|channel|>final <|constrain|>json<|message|>{}", "I will look.",
       "{}", ""},
      {think +
           "<|start|>assistant<|channel|>commentary to=functions.get_weather "
           "<|constrain|>json" +
           body,
       "I will look.", "", call},
      {think + "<|start|>assistant<|channel|>analysis to=functions.get_weather code" + body,
       "I will look.", "", call},
      {think +
           "<|start|>assistant to=functions.get_weather<|channel|>commentary "
           "<|constrain|>json" +
           body,
       "I will look.", "", call},
      {" to=functions.get_weather<|channel|>commentary json" + body, "", "", call},
      // Any word may be a role or a constraint.
      {think + "<|start|>assistant to=functions.get_weather xml<|channel|>commentary" + body,
       "I will look.", "", call},
      {" to=functions.get_weather xml<|channel|>commentary" + body, "", "", call},
      {"<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sunny<|end|>",
       "", "sunny", ""},
      {"<|start|>functions.get_weather to=assistant<|channel|>commentary<|end|>", "", "", ""},
      {"<|start|>python<|channel|><|channel|>analysis<|message|>a", "a", "", ""},
      {think +
           "<|start|>assistant<|channel|>commentary<|message|>First I look at the files.<|end|>"
           "<|start|>assistant<|channel|>commentary to=functions.get_weather" +
           body,
       "I will look.", "First I look at the files.", call},
      {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b", ""},
      {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b",
       "a\n\nb", "", ""},
      {"No header at all < here.", "", "No header at all < here.", ""},
      {"to be or not", "", "to be or not", ""},
      {"<|channel|>commentary to=functions.get_weather<|message|><|call|>", "", "",
       "get_weather{}"},
      {"<|channel|>commentary to=functions.f <|message|>no JSON<|call|>", "",
       "<|channel|>commentary to=functions.f <|message|>no JSON<|call|>", ""},
      {"<|channel|>final<|message|>a <|message|> b<|return|>", "", "a <|message|> b", ""},
      {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|chan", "a", "", ""},
      // Without <|message|>.
      {"<|channel|>final Hello, world.<|return|>", "", "Hello, world.", ""},
      {"<|channel|>final\n\nHello<|im", "", "Hello<|im", ""},
      {"<|start|>assistant Hello<|end|><|start|>assistant<|channel|>final<|message|>b", "",
       "Hello\n\nb", ""},
      {"<|channel|>Hello world<|end|>", "", "Hello world", ""},
      {"<|channel|>analysis a<|end|><|channel|>final b <|constrain|> c<|return|>", "a",
       "b <|constrain|> c", ""},
      {"<|channel|>final a<|channel|>final<|message|>b", "", "a\n\nb", ""},
      {"<|start|>assistant a<|channel|>final<|message|>b", "", "a\n\nb", ""},
      {"<|channel|>commentary to=functions.get_weather <|constrain|>json "
       "{\"city\":\"Ulm\"}<|call|>",
       "", "", call},
      {"<|channel|>commentary to=functions.f json no JSON<|call|>", "",
       "<|channel|>commentary to=functions.f json no JSON<|call|>", ""},
      {"<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|call|>", "", "",
       ""},
      {"to<|return|>", "", "to", ""},
      {"to=1 or not<|start|>assistant<|channel|>final<|message|>b", "", "to=1 or not\n\nb", ""},
      {"", "", "", ""}};
  for (const Case& test : cases) {
    for (std::size_t step = 0; step < 12; ++step) {
      INFO(test.text << " in steps of " << step);
      const HarmonyAnswer answer = read_harmony(test.text, true, step);
      CHECK(answer.thought == test.thought);
      CHECK(answer.content == test.content);
      CHECK(answer.calls == test.calls);
    }
  }
  // Without tools there are no calls, and no markup either.
  const HarmonyAnswer plain =
      read_harmony("<|channel|>commentary to=functions.f<|message|>{}<|call|>", false);
  CHECK(plain.content == "{}");
  CHECK(plain.calls.empty());
}

TEST_CASE("an answer of gpt-oss that has a form begins in the final channel, behind its mark") {
  struct Case {
    std::string in_front, thought;
  };
  for (const auto& [in_front, thought] : std::vector<Case>{
           {"", ""},
           {"<|channel|>analysis<|message|>a<|end|><|start|>assistant", "a"},
           {"<|channel|>final Here it is<|end|><|start|>assistant", "Here it is"},
           {"<|channel|>commentary<|message|>Here it is<|end|>", "Here it is"},
           {"Here it is<|end|><|channel|>final a<|start|>assistant", "Here it is\n\na"}}) {
    const std::string text = in_front + "<|channel|>final<|message|>";
    const std::string answer = "{\"a\":1}";
    const auto form = thinking_form("<|channel|>analysis");
    for (std::size_t cut = 0; cut < text.size(); ++cut) {
      INFO(text << " cut at " << cut);
      AnswerStart start(*form);
      CHECK_FALSE(start.feed(text.substr(0, cut)));
      CHECK(start.feed(text.substr(cut) + answer) == answer);
      HarmonyReader reader(false, false, true);
      SplitText whole = reader.feed(text.substr(0, cut));
      for (const SplitText& part : {reader.feed(text.substr(cut) + answer), reader.finish()}) {
        whole.thought += part.thought;
        whole.answer += part.answer;
      }
      CHECK(whole.thought == thought);
      CHECK(whole.answer == answer);
    }
  }
}

TEST_CASE("long headers of gpt-oss are read in linear time") {
  constexpr std::size_t bytes = sluice::test::is_sanitized ? 100'000 : 400'000;
  for (const std::string repeated :
       {"<|channel|>", "<|channel|><|constrain|>json", "<|channel|> to=f "}) {
    std::string text = "<|start|>assistant to=f xml";
    while (text.size() < bytes) text += repeated;
    const HarmonyAnswer answer = read_harmony(text + "<|channel|>final<|message|>b", false, 4096);
    CHECK(answer.content == "b");
  }
}

TEST_CASE("an answer of gpt-oss that was cut off calls nothing by a header alone") {
  const std::string header = "<|channel|>commentary to=functions.f<|message|>";
  const std::string arguments = "{\"a\":1}";
  for (std::size_t bytes = 0; bytes <= arguments.size(); ++bytes) {
    const std::string text = header + arguments.substr(0, bytes);
    const HarmonyAnswer cut = read_harmony(text, true, 0, AnswerEnd::cut);
    CHECK(cut.calls == (bytes == arguments.size() ? "f" + arguments : ""));
    CHECK(cut.content == (bytes == 0 || bytes == arguments.size() ? "" : text));
  }
  CHECK(read_harmony(header, true, 0, AnswerEnd::whole).calls == "f{}");
}

TEST_CASE("an answer of gpt-oss that was cut off within a header says nothing by it") {
  const std::string header =
      "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>";
  for (std::size_t bytes = header.find("assistant"); bytes <= header.size(); ++bytes) {
    INFO(header.substr(0, bytes));
    CHECK(read_harmony("a<|end|>" + header.substr(0, bytes), true, 0, AnswerEnd::cut).content ==
          "a");
  }
}

TEST_CASE("random messages of gpt-oss lose no text, and pieces do not matter") {
  static const std::vector<std::string> parts = {
      "<|start|>",
      "<|end|>",
      "<|message|>",
      "<|channel|>",
      "<|constrain|>",
      "<|return|>",
      "<|call|>",
      "assistant",
      "analysis",
      "final",
      "commentary",
      " to=functions.f",
      " ",
      "\n",
      "{}",
      "{\"a\": 1}",
      "<|",
      "to=",
      "<|channel|>final<|message|>",
      "<|start|>assistant<|channel|>analysis<|message|>"};
  const std::uint64_t seed = sluice::test::random_seed();
  for (std::uint64_t i = 0; i < 3000; ++i) {
    Random random(seed + i);
    std::string text;
    for (std::size_t n = below(random, 20); n > 0; --n) text += one_of(random, parts);
    text += "<|start|>assistant<|channel|>final<|message|>kept";
    INFO("SLUICE_TEST_SEED=" << seed << " text " << i << ": " << text);
    const HarmonyAnswer whole = read_harmony(text);
    const HarmonyAnswer cut = read_harmony(text, true, 1 + below(random, 7));
    REQUIRE(cut.thought == whole.thought);
    REQUIRE(cut.content == whole.content);
    REQUIRE(cut.calls == whole.calls);
    REQUIRE(whole.content.ends_with("kept"));
  }
}
