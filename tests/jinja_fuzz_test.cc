// Mutated templates and mutated data: whatever they are, rendering ends with a text or an error,
// within its limits. $SLUICE_FUZZ_COUNT sets how many there are, $SLUICE_FUZZ_SEED the first of
// them, and $SLUICE_TEMPLATES names a folder of templates (*.jinja) to be mutated too.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "core/chat/jinja/template.h"
#include "core/chat/thinking.h"
#include "core/chat/tool_calls.h"
#include "tests/catch.h"
#include "tests/sanitized.h"

namespace {

using namespace sluice::chat;
using jinja::Json;
using Random = std::mt19937_64;

std::size_t setting(const char* name, std::size_t other) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : other;
}

std::size_t below(Random& random, std::size_t count) {
  return static_cast<std::size_t>(random() % count);
}

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[below(random, all.size())];
}

std::vector<std::string> sources() {
  std::vector<std::string> all;
  std::ifstream file(std::string(sluice::test::source_folder) + "/tests/jinja_cases.jsonl");
  for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line)["template"]);
  if (const char* folder = std::getenv("SLUICE_TEMPLATES")) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream in(entry.path());
      all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  return all;
}

// What templates are made of, to be put anywhere.
const std::vector<std::string>& fragments() {
  static const std::vector<std::string> all = {"{{ ",
                                               " }}",
                                               "{% ",
                                               " %}",
                                               "{%- ",
                                               " -%}",
                                               "{# ",
                                               " #}",
                                               "{% if x %}",
                                               "{% else %}",
                                               "{% endif %}",
                                               "{% for i in messages %}",
                                               "{% for i in x recursive %}",
                                               "{% endfor %}",
                                               "{% set ns.x = ns %}",
                                               "{% set ns = namespace() %}",
                                               "{% macro m(a, b=1) %}",
                                               "{% endmacro %}",
                                               "{{ m(1) }}",
                                               "{{ m(m) }}",
                                               "{% call m() %}",
                                               "{% endcall %}",
                                               "{{ caller() }}",
                                               "{% break %}",
                                               "{{ loop(messages) }}",
                                               "loop.index",
                                               "messages",
                                               "tools",
                                               " | tojson",
                                               " | list",
                                               " | join(',')",
                                               " | map('upper')",
                                               " | sort",
                                               " | batch(2)",
                                               " | indent(9)",
                                               " | replace('', 'xx')",
                                               " * 99999",
                                               " ** 9",
                                               " // 0",
                                               " % 0",
                                               "[::-1]",
                                               "[1:2]",
                                               "[-9]",
                                               "'",
                                               "\"",
                                               "\\",
                                               "(",
                                               ")",
                                               "[",
                                               "]",
                                               "{",
                                               "}",
                                               ", ",
                                               ".x",
                                               "range(99999)",
                                               "9223372036854775807",
                                               "-1",
                                               "1e308",
                                               "none",
                                               "'%s%d'",
                                               " % ",
                                               ".format(x)",
                                               ".split()",
                                               ".append(x)",
                                               ".update(x)",
                                               " is ",
                                               " not ",
                                               " in ",
                                               " ~ ",
                                               " and ",
                                               "\xff",
                                               "\xe2\x80",
                                               "\xf0\x9f\x98\x80",
                                               std::string(1, '\0'),
                                               "\r\n",
                                               "{% raw %}",
                                               "{% endraw %}",
                                               "{% filter upper %}",
                                               "{% set x %}",
                                               "{% endset %}",
                                               "{% generation %}"};
  return all;
}

std::string mutated(Random& random, std::string text, const std::vector<std::string>& all) {
  for (std::size_t i = 1 + below(random, 4); i > 0; --i) {
    const std::size_t at = below(random, text.size() + 1);
    const std::size_t size = std::min(text.size() - at, below(random, 40));
    switch (below(random, 5)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(at, text.substr(at, size));
        break;
      case 2:
        text.insert(at, one_of(random, fragments()));
        break;
      case 3:
        text.replace(at, size, one_of(random, fragments()));
        break;
      default: {
        const std::string& other = one_of(random, all);
        const std::size_t from = below(random, other.size() + 1);
        text.insert(at, other.substr(from, below(random, 200)));
      }
    }
  }
  return text;
}

// A value of any type, up to a depth.
Json value(Random& random, int depth) {
  static const std::vector<Json> leaves = {nullptr,      true,
                                           false,        0,
                                           -1,           9223372036854775807,
                                           1.5,          1e300,
                                           "",           "user",
                                           "assistant",  "tool",
                                           "<|im_end|>", "<think>a</think>b",
                                           " \n\t",      "\xc3\xa9\xe4\xbd\xa0",
                                           "{{ x }}",    "{\"a\": [1]}"};
  if (depth == 0 || below(random, 3) == 0) return one_of(random, leaves);
  Json result = below(random, 2) == 0 ? Json::array() : Json::object();
  static const std::vector<std::string> keys = {"role",       "content",   "tool_calls", "function",
                                                "name",       "arguments", "type",       "text",
                                                "properties", "items"};
  for (std::size_t i = below(random, 6); i > 0; --i) {
    if (result.is_array()) {
      result.push_back(value(random, depth - 1));
    } else {
      result[one_of(random, keys)] = value(random, depth - 1);
    }
  }
  return result;
}

std::vector<jinja::Variable> variables(Random& random) {
  Json messages = Json::array();
  for (std::size_t i = below(random, 4); i > 0; --i) {
    Json message = {{"role", "user"}, {"content", "Hello."}};
    if (below(random, 2) == 0) message["role"] = "assistant";
    if (below(random, 3) == 0) message["content"] = value(random, 3);
    if (below(random, 3) == 0) message["tool_calls"] = value(random, 4);
    messages.push_back(std::move(message));
  }
  return {{"messages", below(random, 9) == 0 ? value(random, 5) : messages},
          {"tools", value(random, 5)},
          {"x", value(random, 4)},
          {"add_generation_prompt", true},
          {"bos_token", "<s>", jinja::Origin::markup}};
}

// A rendering ends; what it gives is consistent.
void render(Random& random, const std::string& source) {
  jinja::RenderOptions options;
  options.steps_max = 50'000;
  try {
    const jinja::Template program(source);
    const jinja::Text text = program.render(variables(random), options);
    std::size_t end = 0;
    for (const jinja::Text::Run& run : text.runs()) {
      if (run.end <= end) FAIL("runs are not in order");
      end = run.end;
    }
    if (end != text.size()) FAIL("runs do not cover the text");
  } catch (const jinja::SyntaxError&) {
  } catch (const jinja::RenderError&) {
  }
}

}  // namespace

TEST_CASE("mutated templates and data end within the limits") {
  const std::size_t seed = setting("SLUICE_FUZZ_SEED", std::random_device()());
  const std::size_t count = setting("SLUICE_FUZZ_COUNT", 3000);
  INFO("SLUICE_FUZZ_SEED=" << seed);
  const std::vector<std::string> all = sources();
  REQUIRE_FALSE(all.empty());
  for (std::size_t i = 0; i < count; ++i) {
    Random random(seed + i);
    const std::string source = mutated(random, one_of(random, all), all);
    INFO("SLUICE_FUZZ_SEED=" << seed + i << "\n" << source);
    render(random, source);
  }
  rusage usage = {};
  REQUIRE(::getrusage(RUSAGE_SELF, &usage) == 0);
  WARN(count << " from seed " << seed << ", " << usage.ru_maxrss / 1024 << " MiB at most");
  if (!sluice::test::is_sanitized) CHECK(usage.ru_maxrss <= 64 * 1024);
}

TEST_CASE("mutated answers are parsed without loss of control") {
  static const std::vector<std::string> parts = {"<tool_call>",
                                                 "</tool_call>",
                                                 "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
                                                 "<function=f>",
                                                 "<parameter=a>",
                                                 "</parameter>",
                                                 "</function>",
                                                 "<arg_key>",
                                                 "</arg_key>",
                                                 "<arg_value>",
                                                 "</arg_value>",
                                                 "[TOOL_CALLS]",
                                                 "[ARGS]",
                                                 "<|tool_call>call:f{a:",
                                                 "<|\"|>",
                                                 "<tool_call|>",
                                                 "[",
                                                 "]",
                                                 "{",
                                                 "}",
                                                 ":",
                                                 ",",
                                                 "f(a=1)",
                                                 "'",
                                                 "<|channel|>commentary to=f",
                                                 "<|message|>",
                                                 "<|call|>",
                                                 "<think>",
                                                 "</think>",
                                                 " ",
                                                 "\n",
                                                 "text",
                                                 "<|python_tag|>",
                                                 ";",
                                                 "-",
                                                 "\\"};
  const std::size_t seed = setting("SLUICE_FUZZ_SEED", std::random_device()());
  for (std::size_t i = 0; i < setting("SLUICE_FUZZ_COUNT", 3000); ++i) {
    Random random(seed + i);
    std::string text;
    for (std::size_t n = below(random, 30); n > 0; --n) text += one_of(random, parts);
    INFO("SLUICE_FUZZ_SEED=" << seed + i << "\n" << text);
    const std::size_t cut = below(random, text.size() + 1);
    ToolCallStream stream(nullptr);
    const std::string first = stream.feed(text.substr(0, cut));
    const std::string second = stream.feed(text.substr(cut));
    const AnswerWithCalls streamed = stream.finish();
    const AnswerWithCalls whole = parse_tool_calls(text, nullptr);
    if (streamed.calls.empty() && whole.calls.empty()) {
      CHECK(first + second + streamed.content == text);
    }
  }
}
