#include "core/constrain/formats.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/constrain/grammar_builder.h"
#include "core/constrain/pattern.h"

namespace sluice::constrain {
namespace {

constexpr std::string_view day =
    R"(([1-9]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30))"
    R"(|02-(0[1-9]|1\d|2[0-8]))|[1-9]\d(0[48]|[2468][048]|[13579][26])-02-29))";
constexpr std::string_view time_of_day =
    R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
// As RFC 3339 has them: each unit may be followed by the next smaller one.
constexpr std::string_view period =
    R"((\d{1,4}Y(\d{1,2}M(\d{1,3}D)?)?|\d{1,3}M(\d{1,3}D)?|\d{1,4}D))";
constexpr std::string_view hours =
    R"((\d{1,4}H(\d{1,4}M(\d{1,4}S)?)?|\d{1,4}M(\d{1,4}S)?|\d{1,5}S))";

// How long names and addresses may become: a part has about so many characters, and up to so many
// more parts stand beside those that there have to be.
struct FormatSize {
  unsigned part, more;
  bool is_free = false;  // what may be long has any length
};

std::optional<std::string> sized_pattern(std::string_view format, FormatSize size) {
  constexpr std::string_view byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  const std::string host =
      fmt::format(R"({0}(\.{0}){{1,{1}}})",
                  fmt::format("[a-z0-9]([a-z0-9-]{{0,{}}}[a-z0-9])?", size.part), 1 + size.more);
  // Values of up to `count` parts, or of any number.
  const auto parts = [&](unsigned count) {
    return size.is_free ? "*" : fmt::format("{{0,{}}}", count);
  };
  if (format == "date") return fmt::format("^{}$", day);
  if (format == "time") return fmt::format("^{}$", time_of_day);
  if (format == "date-time") return fmt::format("^{}T{}$", day, time_of_day);
  if (format == "duration") return fmt::format("^P({0}(T{1})?|T{1}|\\d{{1,4}}W)$", period, hours);
  if (format == "uuid") {
    return "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
  }
  if (format == "ipv4") return fmt::format(R"(^{0}\.{0}\.{0}\.{0}$)", byte);
  if (format == "ipv6") return "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$";
  if (format == "hostname" || format == "idn-hostname") return fmt::format("^{}$", host);
  if (format == "email" || format == "idn-email") {
    return fmt::format(R"(^[A-Za-z0-9]{{1,{0}}}([._+-][A-Za-z0-9]{{1,{0}}}){{0,{1}}}@{2}$)",
                       size.part, std::max(size.more, 1U), host);
  }
  const unsigned name = size.part * (1 + size.more);
  if (format == "uri" || format == "uri-reference" || format == "uri-template" || format == "iri" ||
      format == "iri-reference") {
    return fmt::format(R"(^https?://{}(:[1-9]\d{{0,3}})?(/[A-Za-z0-9_.~/-]{})?)"
                       R"((\?[A-Za-z0-9_.~=&-]{})?(#[A-Za-z0-9_.~-]{})?$)",
                       host, parts(8 * name), parts(4 * name), parts(name));
  }
  const std::string pointer =
      fmt::format("(/([^/~]|~[01]){}){}", parts(size.part), parts(1 + size.more));
  if (format == "json-pointer") return fmt::format("^{}$", pointer);
  if (format == "relative-json-pointer") {
    return fmt::format(R"(^(0|[1-9]\d{{0,2}})(#|{})$)", pointer);
  }
  if (format == "byte") {  // base64
    return fmt::format("^([A-Za-z0-9+/]{{4}}){}([A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=)?$",
                       parts(2 * name));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format, std::uint32_t max) {
  constexpr FormatSize sizes[] = {{20, 2, true}, {60, 2}, {20, 2}, {12, 2},
                                  {12, 1},       {12, 0}, {8, 0}};
  std::optional<std::string> pattern;
  for (const FormatSize& size : sizes) {
    pattern = sized_pattern(format, size);
    if (!pattern || max == GrammarBuilder::unlimited || longest_text(*pattern) <= max) break;
  }
  return pattern;
}

bool is_hint(std::string_view format) {
  constexpr std::string_view hints[] = {"int32", "int64", "float", "double", "password", "binary"};
  return std::ranges::find(hints, format) != std::end(hints);
}

}  // namespace sluice::constrain
