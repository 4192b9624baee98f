// The template language: what it prints (against jinja2), where texts come from, what it refuses,
// and that hostile templates end within their limits.
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "core/chat/jinja/template.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/german_locale.h"
#include "tests/sanitized.h"
#include "tests/small_stack.h"

namespace {

using namespace sluice::chat::jinja;

RenderOptions options() {
  RenderOptions result;
  const std::time_t noon = 1721995200;  // 26 July 2024, in UTC
  ::gmtime_r(&noon, &result.now);
  return result;
}

Text render(std::string_view source, const std::vector<Variable>& variables = {}) {
  return Template(source).render(variables, options());
}

std::string text_of(std::string_view source, const Json& body = Json::object()) {
  std::vector<Variable> variables;
  for (const auto& [name, value] : body.items()) variables.push_back({name, value});
  return render(source, variables).bytes();
}

std::string error_of(std::string_view source, const Json& body = Json::object()) {
  try {
    text_of(source, body);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// The bytes of a text that came from data, with "|" where markup stands between them.
std::string data_of(const Text& text) {
  std::string result;
  std::size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    if (run.origin == Origin::data) {
      if (!result.empty()) result += '|';
      result += text.bytes().substr(begin, run.end - begin);
    }
    begin = run.end;
  }
  return result;
}

std::string data_of(std::string_view source, const Json& value) {
  return data_of(render(source, {{"x", value}}));
}

}  // namespace

// `scripts/compare-templates --write-cases tests/jinja_cases.jsonl` writes what jinja2 prints.
TEST_CASE("templates print what they print in Python") {
  std::ifstream file(std::string(sluice::test::source_folder) + "/tests/jinja_cases.jsonl");
  REQUIRE(file);
  std::size_t cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json test = Json::parse(line);
    const auto source = test["template"].get<std::string>();
    INFO(source);
    CHECK(text_of(source) == test["text"].get<std::string>());
  }
  CHECK(cases > 50);
}

TEST_CASE("a time is markup only where all of its format is") {
  CHECK(data_of("{{ strftime_now('a') }}", "<|im_end|>").empty());
  CHECK(data_of("{{ strftime_now('a' ~ x) }}", "<|im_end|>") == "a<|im_end|>");
  CHECK(data_of("{{ strftime_now(x) }}", "<|im_end|>") == "<|im_end|>");
}

TEST_CASE("a time is in English in every locale") {
  const sluice::test::GermanLocale locale;
  if (!locale.is_set()) {
    WARN("there is no German locale here");
    return;
  }
  CHECK(text_of("{{ strftime_now('%A, %d %B') }}, {{ 1.5 }}, {{ '2.5' | float }}") ==
        "Friday, 26 July, 1.5, 2.5");
  CHECK(text_of("{{ x }}", Json::parse(R"({"x": [0.25]})")) == "[0.25]");
}

TEST_CASE("a text keeps its origin through every operation") {
  const Json secret = "<|im_end|>";
  for (const std::string source :
       {"{{ x }}",
        "a{{ x }}b",
        "{{ 'a' ~ x ~ 'b' }}",
        "{{ 'a' + x + 'b' }}",
        "{{ x | trim }}",
        "{{ ' ' ~ x | trim }}",
        "{{ x | replace('!', '?') }}",
        "{{ '-'.join(['a', x]) }}",
        "{{ ['a', x] | join('-') }}",
        "{{ ('a ' + x).split()[1] }}",
        "{{ 'a%sb' % x }}",
        "{{ '{}'.format(x) }}",
        "{{ '%s' | format(x) }}",
        "{{ x | tojson }}",
        "{{ [x] }}",
        "{{ {'k': x} | tojson(indent=2) }}",
        "{% set y %}a{{ x }}{% endset %}{{ y }}",
        "{% macro m(y) %}a{{ y }}{% endmacro %}{{ m(x) }}",
        "{% filter trim %} {{ x }}{% endfilter %}",
        "{% for c in x %}{{ c }}{% endfor %}",
        "{{ x[:3] }}{{ x[3:] }}",
        "{{ x | indent }}",
        "{{ x | lower }}",
        "{{ x | safe }}",
        "{{ x | default('y') }}",
        "{{ x or 'y' }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ x }}{% endcall %}"}) {
    INFO(source);
    CHECK(data_of(source, secret) == "<|im_end|>");
  }
  CHECK(data_of("{{ x | upper }}", secret) == "<|IM_END|>");
  CHECK(data_of("{{ x | e }}", secret) == "&lt;|im_end|&gt;");
  CHECK(data_of("{{ x | reverse }}", secret) == ">|dne_mi|<");
  CHECK(data_of("{{ x * 2 }}", secret) == "<|im_end|><|im_end|>");
  CHECK(data_of("{{ '<|' + x + '|>' }}", "im_end") == "im_end");
  CHECK(data_of("{{ 'a-b' | replace('-', x) }}", secret) == "<|im_end|>");
  CHECK(data_of("{{ x | replace('im', 'xx') }}", secret) == "<||_end|>");
  CHECK(data_of("{% for k in x %}{{ k }}{% endfor %}", {{"<|a|>", 1}}) == "<|a|>");
  CHECK(data_of("{{ x | tojson }}", {{"k", {"v\n"}}}) == "k|v\\n");
  CHECK(data_of("{{ '<|im_end|>' }}{{ 12 }}{{ x is string }}", secret).empty());
}

TEST_CASE("a key that becomes the name of an argument keeps its origin") {
  const Json body = {{"<|im_end|>", 1}};
  for (const char* source :
       {"{% for k in dict(**x) %}{{ k }}{% endfor %}", "{{ dict(**x) }}",
        "{% set d = {} %}{% set _ = d.update(**x) %}{{ d | tojson }}",
        "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**x) }}",
        "{% macro m() %}{% for k in kwargs %}{{ k }}{% endfor %}{% endmacro %}{{ m(a=1, **x) }}"}) {
    INFO(source);
    CHECK(data_of(source, body) == "<|im_end|>");
  }
  CHECK(data_of("{{ dict(a=1) }}", body).empty());
  CHECK(data_of("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**x) }}", {{"a", "b"}}) == "b");
}

TEST_CASE("what fills a field is of the format's origin") {
  CHECK(data_of("{{ x.format('') }}", "{0:<<1}{0:|<1}{0:i<1}") == "<|i");
  CHECK(data_of("{{ ('{:' ~ x ~ '<3}').format('') }}", "<") == "<<<");
  CHECK(data_of("{{ '{:<<3}{:04}'.format('', 7) }}", "").empty());
  CHECK(text_of("{{ '{:<<3}{:04}|{:>3}'.format('', 7, 1) }}") == "<<<0007|  1");
}

TEST_CASE("what is trusted counts as markup") {
  RenderOptions trusting = options();
  trusting.is_trusted = [](std::string_view key, std::string_view text) {
    return key == "role" && text == "user";
  };
  const std::vector<Variable> variables = {
      {"m", Json::parse(R"([{"role": "user", "text": "user"}, {"role": "root"}])")}};
  const Template program("{% for x in m %}<{{ x.role }}>{{ x.text }}{% endfor %}");
  CHECK(data_of(program.render(variables, trusting)) == "user|root");
}

TEST_CASE("an error names the line and the construct") {
  CHECK(error_of("\n\n{{ x.y }}") == "line 3, attribute 'y': 'x' is undefined");
  CHECK(error_of("a\n{{ raise_exception('No ' ~ 'tools') }}") ==
        "line 2, call of 'raise_exception': No tools");
  CHECK(error_of("{{ 1 + 'a' }}") == "line 1, operator '+': 'int' + 'str' has no meaning");
  CHECK(error_of("\n{{ 'a' | nothing }}") ==
        "line 2, filter 'nothing': there is no filter 'nothing'");
  CHECK(error_of("{{ 1 is nothing }}") == "line 1, test 'nothing': there is no test 'nothing'");
  CHECK(error_of("{{ undefined | tojson }}") ==
        "line 1, filter 'tojson': 'undefined' is undefined");
  CHECK(error_of("{{ [] | join(1, 2, 3) }}").starts_with("line 1, filter 'join': "));
  CHECK(error_of("{% for x in 5 %}{% endfor %}") == "line 1: 'int' is not iterable");
  CHECK(error_of("\n{% if %}") == "line 2: expected an expression, found '%}'");
  CHECK(error_of("{% if true %}\n") == "line 1: expected 'endif', found the end of the template");
  CHECK(error_of("{% include 'x' %}") == "line 1: unknown tag 'include'");
  CHECK(error_of("{{ 'a") == "line 1: a string has no end");
  CHECK(error_of("{# a") == "line 1: a comment has no end");
  CHECK(error_of("{{ (1] }}") == "line 1: unexpected ']'");
}

TEST_CASE("what has no meaning is refused by a reason") {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'a'.removeprefix() }}", "the argument 'prefix' is missing"},
      {"{{ 'a'.center('b') }}", "the argument 'width' must be an integer, not 'str'"},
      {"{{ 'a'.startswith(1) }}", "it takes a text or a tuple of texts"},
      {"{{ 'a'.partition('') }}", "the separator is empty"},
      {"{{ 'a'.split('') }}", "the separator is empty"},
      {"{{ 'a'.rsplit('') }}", "the separator is empty"},
      {"{{ 'a'.index('b') }}", "the text is not found"},
      {"{{ ','.join([1]) }}", "only texts can be joined, not 'int'"},
      {"{{ 'a' | upper(1) }}", "argument"},
      {"{{ 'a' | join(no=1) }}", "it takes no argument 'no'"},
      {"{{ [1].index(2) }}", "there is no such item"},
      {"{{ {}.update(1) }}", "it takes a dictionary"},
      {"{{ {}.update({}, {}) }}", "it takes one dictionary"},
      {"{{ {[]: 1} }}", "a list cannot be a key"},
      {"{{ range(1, 2, 0) }}", "the step is zero"},
      {"{{ dict(1, 2) }}", "it takes one dictionary or list of pairs"},
      {"{{ dict([[1]]) }}", "it takes pairs of a key and a value"},
      {"{{ range(*1) }}", "'int' is not iterable"},
      {"{{ dict(**1) }}", "what follows ** must be a dictionary"},
      {"{{ 1() }}", "'int' cannot be called"},
      {"{% set a, b = [1] %}", "1 values cannot be assigned to 2 variables"},
      {"{% set a = 1 %}{% set a.b = 2 %}", "'a' is no namespace, so 'a.b' cannot be assigned to"},
      {"{% set true = 1 %}", "'true' cannot be assigned to"},
      {"{% macro m() %}{% endmacro %}{{ m(1) }}", "the macro 'm' takes up to 0 arguments"},
      {"{% macro m() %}{% endmacro %}{{ m(a=1) }}", "the macro 'm' takes no argument 'a'"},
      {"{% call 1 %}{% endcall %}", "expected a call"},
      {"{{ 9223372036854775808 }}", "the number 9223372036854775808 is too large"},
      {"{{ 007 }}", "the number 007 begins with 0"},
      {"{{ 1e400 | int }}", "a number is larger than 64 bits"},
      {"{{ 'a'.ljust(9, '') }}", "the fill must be one character"},
      {"{{ 'a'.center(9, 'bc') }}", "the fill must be one character"},
      {"{{ 9223372036854775807 + 1 }}", "a number becomes larger than 64 bits"},
      {"{{ 3037000500 * 3037000500 }}", "a number becomes larger than 64 bits"},
      {"{{ 2 ** 63 }}", "a number becomes larger than 64 bits"},
      {"{{ 1 // 0 }}", "a division by zero"},
      {"{{ 1.5 / 0 }}", "a division by zero"},
      {"{{ 1 % 0 }}", "a division by zero"},
      {"{{ -'a' }}", "'str' is no number"},
      {"{{ 1[1:].x }}", "a slice of a 'int' is undefined"},
      {"{{ 1 < 'a' }}", "'int' and 'str' have no order"},
      {"{{ 1 | length }}", "'int' has no length"},
      {"{{ '%d' % 'a' }}", "%d needs a number, not 'str'"},
      {"{{ '%q' % 1 }}", "'%q' is no field of a format"},
      {"{{ '%' % 1 }}", "the format ends within a field"},
      {"{{ '%s%s' % 1 }}", "the format has more places than there are values"},
      {"{{ 'a' % 1 }}", "not all values have a place in the format"},
      {"{{ '%(a)s' % 1 }}", "the format has a wrong name"},
      {"{{ '%(a)s' % {} }}", "the format has a name without a value"},
      {"{{ '%d' % 1e19 }}", "a number is larger than 64 bits"},
      {"{{ '%s' | format(1, a=2) }}", "it takes values with names or without, not both"},
      {"{{ '{'.format() }}", "the format has a single brace"},
      {"{{ 'a}'.format() }}", "the format has a single brace"},
      {"{{ '{:c}'.format(97) }}", "'c' is no format of a field"},
      {"{{ 'a' | abs }}", "it takes a number"},
      {"{{ 'a' | round }}", "it takes a number"},
      {"{{ 9223372036854775807 | round(-19) }}", "a number becomes larger than 64 bits"},
      {"{{ 1.5 | round(0, 'up') }}", "the method is common, ceil or floor"},
      {"{{ '1' | int(0, 37) }}", "the base must be between 2 and 36"},
      {"{{ 1 | indent }}", "it takes a text"},
      {"{{ [] | tojson(indent=1001) }}", "the indentation is too wide"},
      {"{{ [] | tojson(separators=1) }}", "'separators' must be two texts"},
      {"{{ {(1, 2): 3} | tojson }}", "a tuple is no key in JSON"},
      {"{{ [] | dictsort }}", "it takes a dictionary"},
      {"{{ {} | dictsort(by='size') }}", "it sorts by 'key' or 'value'"},
      {"{{ [] | items }}", "it takes a dictionary"},
      {"{{ 'abc' | truncate(1) }}", "the length is less than that of the end"},
      {"{{ strftime_now('%Y' * 200) }}", "the format is too long"},
      {"{{ f(**{}, a=1) }}", "no argument may follow **"},
      {"{{ f(*[], *[]) }}", "there may be one * in a call"},
      {"{{ f(a=1, 2) }}", "an argument without a name follows one with a name"},
      {"{{ 1 is odd is even }}", "tests cannot be chained with 'is'"},
      {"{{ '\\x4' }}", "a string has a wrong escape"},
      {"{{ '\\U00110000' }}", "a string has a wrong escape"},
      {"{{ ? }}", "unexpected character '?'"},
      {"{{ 1", "a tag has no '}}'"},
      {"{% raw %}a", "'raw' has no 'endraw'"}};
  for (const auto& [source, reason] : cases) {
    INFO(source);
    CHECK_THAT(error_of(source), sluice::test::Contains(reason));
  }
}

TEST_CASE("a template ends within its limits") {
  const std::string nested(20'000, '(');
  std::string pipes = "{{ 1";
  for (int i = 0; i < 20'000; ++i) pipes += "|abs";
  std::string sums = "{{ 1";
  for (int i = 0; i < 20'000; ++i) sums += "+1";
  std::string blocks;
  for (int i = 0; i < 20'000; ++i) blocks += "{% if 1 %}";
  for (const std::string& source : std::vector<std::string>{
           "{{ " + nested + " }}",
           pipes + " }}",
           blocks,
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m(1) }}",
           "{{ 'x' * 100000000000 }}",
           "{{ [0] * 100000000000 }}",
           "{{ 9 ** 9 ** 9 }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ 'x'.ljust(1000000000) }}",
           "{{ '{:9999999}'.format(1) }}",
           "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s * 2 %}{% "
           "endfor %}",
           "{% set ns = namespace(s=['x']) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s "
           "%}{% "
           "endfor %}",
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxx{% endfor %}{% endfor %}",
           "{{ range(1000000000) }}",
           "{% set a = [] %}{% set _ = a.append(a) %}{{ a | tojson }}",
           "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
           "{% set ns = namespace(a=[], b=[]) %}{% for i in range(90) %}{% set ns.a = [ns.a, ns.a] "
           "%}"
           "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"}) {
    INFO(source.substr(0, 200));
    CHECK_FALSE(error_of(source).empty());
  }
  CHECK(text_of(sums + " }}") == "20001");
  // Objects that hold each other, and a list in a list in a list.
  CHECK(
      text_of(
          "{% set ns = namespace() %}{% set ns.me = ns %}{% set a = [ns] %}{% set ns.a = a %}ok") ==
      "ok");
  CHECK(
      text_of("{% set ns = namespace(a=[]) %}{% for i in range(90000) %}{% set ns.a = [ns.a] %}{% "
              "endfor %}ok") == "ok");
}

TEST_CASE("a template that is longer than any of a model is refused before it is parsed") {
  const std::string longest = "{#" + std::string((std::size_t{256} << 10U) - 4, ' ') + "#}";
  CHECK(Template(longest).render({}, options()).empty());
  CHECK_THROWS_WITH(Template(longest + "x"), "line 1: the template is larger than 256 KiB");
}

TEST_CASE("whatever takes long counts as many steps") {
  const auto numbered = [](int count, const std::string& before, const std::string& after) {
    std::string text;
    for (int i = 0; i < count; ++i) text += before + std::to_string(i) + after;
    return text;
  };
  RenderOptions few = options();
  few.steps_max = 200'000;
  const std::string hundred = "{% for i in range(100) %}";
  const std::string thousand = "{% for i in range(1000) %}";
  for (const std::string& source : std::vector<std::string>{
           "{% set d = {" + numbered(5000, "", ": 1, ") + "} %}",
           "{% set n = namespace(" + numbered(4000, "a", "=1, ") + ") %}",
           numbered(3000, "{% set a", " = 1 %}") + hundred + "{{ b, b, b, b, b }}{% endfor %}",
           "{% macro m(" + numbered(2000, "a", "=1, ") + "b=1) %}{% endmacro %}{{ m(" +
               numbered(2000, "a", "=2, ") + ") }}",
           "{% set f = ([0] * 90000).count %}" + hundred + "{{ f(1) }}{% endfor %}",
           "{% set t = 'x' * 1000000 %}{{ ([t] * 1000) | map('length') | sum }}",
           "{% set t = 'x' * 1000000 %}{{ ([t] * 1000) | map(attribute=0) | list | length }}",
           "{{ ([1] * 1000) | select('in', [0] * 10000) | list }}",
           "{% set t = 'x' * 1000000 %}{{ (t | upper) == (t | lower) }}",
           "{{ ('x' * 20000).strip('y' * 20000 + 'x') }}",
           "{{ ('x' * 20000) | trim('y' * 20000 + 'x') }}",
           "{% set a = [[0] * 90000] %}" + hundred + "{{ 1 is in(*a) }}{% endfor %}",
           "{% set a = {'other': [0] * 90000} %}" + hundred + "{{ 1 is in(**a) }}{% endfor %}",
           "{{ ([[]] * 1000) | sum(start=[0] * 10000) | length }}",
           "{% set n = namespace(a=[1]) %}{% for i in range(15) %}{% set n.a = [n.a, n.a] %}"
           "{% endfor %}" +
               hundred + "{{ n.a is upper }}{% endfor %}",
           "{% set t = 'x' * 1000000 %}{{ '%.0s' * 1000 % ((t,) * 1000) }}",
           "{% set t = 'x' * 1000000 %}{{ ('{0:.0}' * 1000).format(t) }}",
           "{% macro m() %}{{ ('{z}' * 9000).format(**kwargs) }}{% endmacro %}{{ m(" +
               numbered(1000, "a", "='', ") + "z='') }}",
           "{% set t = 'x' * 1000000 %}{{ t.startswith((t ~ 'y',) * 1000) }}",
           "{% set d = {} %}{% for i in range(9) %}{% set _ = d.update({'" +
               std::string(100'000, 'x') + "' ~ i: 1}) %}{% endfor %}" + hundred + "{{ d." +
               std::string(100'001, 'x') + " }}{% endfor %}",
           hundred + "{% set b = [1] | batch(100000, 0) %}{% endfor %}",
           thousand + "{{ 0.1 | round(300) }}{% endfor %}",
           thousand + "{{ '%.300f' % 1e300 }}{% endfor %}",
           thousand + "{{ '{:.300g}'.format(0.5) }}{% endfor %}"}) {
    INFO(source.substr(0, 80));
    CHECK_THROWS_WITH(Template(source).render({}, few),
                      sluice::test::Contains("it takes too many steps"));
  }
}

TEST_CASE("what waits while a macro calls itself counts as memory") {
  const std::string wide(100'000, 'x');
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "0, ";
  std::string set;
  for (int i = 0; i < 2000; ++i) set += "a = 0, ";
  const auto recursive = [](const std::string& body) {
    return "{% macro m(n) %}{% if n %}" + body + "{% endif %}{% endmacro %}{{ m(40) }}";
  };
  RenderOptions little = options();
  little.memory_bytes_max = std::size_t{1} << 20U;
  for (const std::string& source : std::vector<std::string>{
           "{% set l = [] %}{% set t = 'x' * 100000 %}{% for i in range(40) %}"
           "{% set _ = l.append(l[t]) %}{% endfor %}",
           recursive(wide + "{{ m(n - 1) | length }}"),
           recursive("{% set a %}" + wide + "{{ m(n - 1) | length }}{% endset %}{{ a | length }}"),
           recursive("{% filter length %}" + wide + "{{ m(n - 1) | length }}{% endfilter %}"),
           recursive("{{ ('" + wide + "' ~ m(n - 1)) | length }}"),
           recursive("{{ [" + many + "m(n - 1)] | length }}"),
           recursive("{% with " + set + "b = m(n - 1) %}{% endwith %}"),
           "{% set l = [0] * 5000 %}" +
               recursive("{% for i in l if loop is defined or m(n - 1) %}{% endfor %}"),
           "{% for i in [1] recursive %}" + wide + "{{ loop([1]) }}{% endfor %}"}) {
    INFO(source.substr(0, 80));
    CHECK_THROWS_WITH(Template(source).render({}, little),
                      sluice::test::Contains("it takes more than 1 MiB of memory"));
  }
  CHECK_THAT(error_of("{% macro m() %}{{ varargs }}{% endmacro %}{{ m(*range(4097)) }}"),
             sluice::test::Contains("there are too many arguments"));
  CHECK_THAT(error_of("{{ f(" + many + many + many + ") }}"),
             sluice::test::Contains("there are too many arguments"));
  CHECK(error_of("{{ raise_exception('x' * 1000000) }}").size() < 3000);
}

TEST_CASE("a text is split without holding all of its parts twice") {
  if (sluice::test::is_sanitized) SLUICE_SKIP("what it holds is not what the program holds");
  const auto peak_bytes = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::size_t>(usage.ru_maxrss) << 10U;
  };
  const std::string text = "{% set x = 'a\n' * 2000000 %}{% set _ = ";
  const std::size_t before = peak_bytes();
  for (const char* split :
       {"x.split()", "x.split('a')", "x.rsplit()", "x.rsplit('a')", "x.splitlines()"}) {
    INFO(split);
    CHECK_THAT(error_of(text + split + " %}"), sluice::test::Contains("more than 24 MiB"));
  }
  CHECK(error_of(text + "x | indent(0) %}").empty());
  CHECK(peak_bytes() < before + (std::size_t{64} << 20U));
}

TEST_CASE("long chains of what holds each other are freed on a small stack") {
  const std::string begin = "{% set ns = namespace(x=0) %}";
  const std::string repeated = "{% for a in range(100) %}{% for b in range(100) %}";
  const std::string end = "{% endfor %}{% endfor %}{% set ns.x = 0 %}ok";
  const std::string joiners = begin + repeated + "{% set ns.x = joiner(ns.x) %}" + end;
  const std::string loops = begin +
                            "{% for i in [1] recursive %}{% set ns.x = loop %}{% endfor %}" +
                            repeated + "{% set c = ns.x([1]) %}" + end;
  for (const std::string& source : {joiners, loops}) {
    INFO(source);
    RenderOptions patient = options();
    patient.steps_max = std::size_t{1} << 40;
    std::string text;
    sluice::test::run_on_small_stack([&] { text = Template(source).render({}, patient).bytes(); });
    CHECK(text == "ok");
  }
}

// sluice.h says how much stack a thread of a caller needs.
TEST_CASE("the deepest nesting needs less than 2 MiB of stack") {
  const std::size_t stack_bytes = std::size_t{2} * (sluice::test::is_sanitized ? 8 : 1) << 20U;
  for (const char* source :
       {"{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% for x in [1] if m() %}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% with a = m() %}{% endwith %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m(a=m()) }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"}) {
    INFO(source);
    std::string error;
    sluice::test::run_on_small_stack([&] { error = error_of(source); }, stack_bytes);
    CHECK_THAT(error, sluice::test::Contains("it is nested too deeply"));
  }
}

TEST_CASE("data of any form is taken as it is") {
  CHECK(
      text_of("{{ x }}", {{"x", Json::parse("[1, 1.5, -0.0, true, null, \"a\", {\"k\": []}]")}}) ==
      "[1, 1.5, -0.0, True, None, 'a', {'k': []}]");
  CHECK(text_of("{{ x | tojson }}", {{"x", 9223372036854775807}}) == "9223372036854775807");
  Json deep = Json::array();
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  CHECK_FALSE(error_of("{{ x }}", {{"x", deep}}).empty());
}

TEST_CASE("an integer from 2^63 on is printed and compared, and not calculated with") {
  const Json body = {{"x", 18446744073709551615U}, {"y", 9223372036854775808U}};
  CHECK(
      text_of("{{ x }} {{ [y] }} {{ x | tojson }} {{ {y: x} | tojson }} {{ x | string }}", body) ==
      "18446744073709551615 [9223372036854775808] 18446744073709551615 "
      R"({"9223372036854775808": 18446744073709551615} 18446744073709551615)");
  CHECK(
      text_of("{{ '%d' % x }} {{ '%s' % x }} {{ '{:x}'.format(x) }} {{ '{}'.format(y) }}", body) ==
      "18446744073709551615 18446744073709551615 ffffffffffffffff 9223372036854775808");
  CHECK(text_of("{{ '%d' % 9223372036854775807 }}") == "9223372036854775807");
  CHECK(text_of("{{ x > y, y > 9223372036854775807, 9223372036854775807 == y, x == x, 1.5 < x }}",
                body) == "(True, True, False, True, True)");
  CHECK(text_of("{{ x is integer, x is number, x is float, x | int == x, [y, 1, x] | sort }}",
                body) ==
        "(True, True, False, True, [1, 9223372036854775808, 18446744073709551615])");
  for (const char* source : {"{{ x + 1 }}", "{{ 1.5 * x }}", "{{ -x }}", "{{ x // 2 }}",
                             "{{ x is odd }}", "{{ x | round }}", "{{ [x] | sum }}"}) {
    INFO(source);
    CHECK_THAT(error_of(source, body), sluice::test::Contains("larger than 64 bits"));
  }
}

TEST_CASE("a number beyond the range of doubles is 0 or infinite") {
  CHECK(text_of("{{ 1e-400 }} {{ -1e-400 }} {{ '1e-400' | float }} {{ '-1e-400' | float }}") ==
        "0.0 -0.0 0.0 -0.0");
  CHECK(text_of("{{ 1e400 }} {{ [-1e309] }} {{ '1e400' | float }} {{ -1e400 | tojson }}") ==
        "inf [-inf] inf -Infinity");
  CHECK(text_of("{{ '1e400' | int(3) }} {{ '1e400' | int }} {{ '1e-400' | int(3) }}") == "3 0 0");
  CHECK(text_of("{{ ' 1_0e-4_00 ' | float(3) }} {{ '1e400x' | float(3) }}") == "0.0 3");
}

TEST_CASE("the pairs of groupby have names") {
  const Json people = Json::parse(
      R"([{"name": "a", "city": "Ulm"}, {"name": "b", "city": "Bonn"},
          {"name": "c", "city": "ulm"}])");
  CHECK(text_of("{% for g in x | groupby('city') %}{{ g.grouper }}:"
                "{{ g.list | map(attribute='name') | join(',') }} {% endfor %}",
                {{"x", people}}) == "Bonn:b Ulm:a,c ");
  CHECK(text_of("{% for k, all in x | groupby('city') %}{{ k }}{{ all | length }}{% endfor %}",
                {{"x", people}}) == "Bonn1Ulm2");
  CHECK(text_of("{{ x | groupby('city') | map(attribute='grouper') | list }}", {{"x", people}}) ==
        "['Bonn', 'Ulm']");
  CHECK(text_of("{{ (1, [2]).list is defined }}") == "False");
}

TEST_CASE(
    "break and continue reach the loop around the else, the set or the filter they stand in") {
  for (const std::string leave : {"break", "continue"}) {
    INFO(leave);
    const auto looped = [&](const std::string& before, const std::string& after) {
      return text_of("{% for x in [1, 2] %}{{ x }}" + before + "{% " + leave + " %}" + after +
                     "after{% endfor %}end");
    };
    const std::string expected = leave == "break" ? "1end" : "12end";
    CHECK(looped("{% for y in [] %}{% else %}", "{% endfor %}") == expected);
    CHECK(looped("{% for y in [] %}{% else %}{% for z in [] %}{% else %}",
                 "{% endfor %}{% endfor %}") == expected);
    CHECK(looped("{% set a %}b", "{% endset %}{{ a }}") == expected);
    CHECK(looped("{% filter upper %}b", "{% endfilter %}") == expected);
    CHECK(error_of("{% for x in [1] %}{% for y in [] recursive %}{% else %}{% " + leave +
                   " %}{% endfor %}{% endfor %}") ==
          "line 1: '" + leave + "' stands outside of a loop");
  }
}

TEST_CASE("lists and dictionaries can be changed") {
  CHECK(text_of("{% set a = [1] %}{% set _ = a.append(2) %}{% set _ = a.extend([3]) %}"
                "{% set _ = a.insert(0, 0) %}{{ a }}{{ a.pop() }}{{ a.pop(0) }}{{ a }}") ==
        "[0, 1, 2, 3]30[1, 2]");
  CHECK(text_of("{% set d = {} %}{% set _ = d.update({'a': 1}, b=2) %}{{ d }}{{ d.pop('a') }}"
                "{{ d.pop('z', 9) }}{{ d.setdefault('c', 3) }}{{ d }}") ==
        "{'a': 1, 'b': 2}193{'b': 2, 'c': 3}");
}
