#include "core/batch/input_form.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/byte_order_mark.h"

namespace sluice::batch {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t rows_looked_at = 10;
constexpr std::size_t field_bytes_max = 40;  // of the name of a column

// What an input seems to be, and a command that makes rows of it; empty where there is none.
struct Form {
  std::string name;
  std::string command;
};

constexpr std::array<std::pair<std::string_view, std::pair<std::string_view, std::string_view>>, 6>
    packed_forms{{{"\x1F\x8B"sv, {"compressed with gzip", "gzip -dc"}},
                  {"\x28\xB5\x2F\xFD"sv, {"compressed with zstd", "zstd -dc"}},
                  {"\xFD"
                   "7zXZ"sv,
                   {"compressed with xz", "xz -dc"}},
                  {"BZh"sv, {"compressed with bzip2", "bzip2 -dc"}},
                  {"\xFF\xFE"sv, {"text in UTF-16", "iconv -f UTF-16 -t UTF-8"}},
                  {"\xFE\xFF"sv, {"text in UTF-16", "iconv -f UTF-16 -t UTF-8"}}}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> binary_forms{
    {{"PK\x03\x04"sv, "a zip file, as spreadsheets are: export it as CSV"},
     {"PAR1"sv, "a Parquet file: export it as JSON Lines"},
     {"GGUF"sv, "a model file: MODEL comes first, then IN.jsonl"}}};

constexpr std::size_t sample_bytes_max = std::size_t{1} << 16;  // of a row that is looked at

bool begins_with(std::string_view row, char character) {
  row = text::without_byte_order_mark(row);
  const std::size_t begin = row.find_first_not_of(" \t\r");
  return begin != std::string_view::npos && row[begin] == character;
}

// Looks at a row of any length without building what it says.
bool is_object(std::string_view row) {
  return begins_with(row, '{') && nlohmann::json::accept(row);
}

// The first fields of a table's row, with the quotes around them.
std::vector<std::string> fields_of(std::string_view row, char separator) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (const char c : row) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == '\r') continue;
    if (c == separator && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= field_bytes_max && std::ranges::all_of(name, [](char c) {
    return std::string_view("_- ").find(c) != std::string_view::npos || (c >= '0' && c <= '9') ||
           (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// A row of a text, which jq and Python write in the same way.
std::string row_of(std::string_view text, bool takes_messages) {
  return takes_messages
             ? fmt::format(R"({{"messages": [{{"role": "user", "content": {}}}]}})", text)
             : fmt::format(R"({{"prompt": {}}})", text);
}

// The column that most likely is the prompt.
std::string prompt_column(const std::vector<std::string>& names) {
  for (const std::string_view usual : {"prompt", "question", "text", "input", "content"}) {
    for (const std::string& name : names) {
      if (name == usual) return name;
    }
  }
  return names.front();
}

// A table, if the rows have the same number of fields, two or more, under names of columns.
std::optional<Form> table_form(const std::vector<std::string>& rows, bool takes_messages) {
  for (const char separator : {'\t', ';', ','}) {
    std::vector<std::string> names = fields_of(rows.front(), separator);
    for (std::string& name : names) {
      if (name.size() > 1 && name.front() == '"' && name.back() == '"') {
        name = name.substr(1, name.size() - 2);
      }
    }
    const bool is_table = rows.size() > 1 && names.size() > 1 &&
                          std::ranges::all_of(names, is_plain_name) &&
                          std::ranges::all_of(rows, [&](const std::string& row) {
                            return fields_of(row, separator).size() == names.size();
                          });
    if (!is_table) continue;
    const std::string_view written = separator == '\t' ? "\\t" : separator == ';' ? ";" : ",";
    return Form{
        separator == '\t' ? "a table with tabs" : "CSV",
        fmt::format("python3 -c 'import csv, json, sys; [print(json.dumps({})) for row in "
                    "csv.DictReader(sys.stdin, delimiter=\"{}\")]' <",
                    row_of(fmt::format("row[\"{}\"]", prompt_column(names)), takes_messages),
                    written)};
  }
  return std::nullopt;
}

std::optional<Form> packed_form(std::string_view row) {
  for (const auto& [magic, form] : packed_forms) {
    if (row.starts_with(magic)) return Form{std::string(form.first), std::string(form.second)};
  }
  for (const auto& [magic, name] : binary_forms) {
    if (row.starts_with(magic)) return Form{std::string(name), ""};
  }
  if (row.find('\0') != std::string_view::npos) return Form{"no text", ""};
  return std::nullopt;
}

// JSON, but not one object on each line.
std::optional<Form> json_form(const std::vector<std::string>& rows, bool is_whole,
                              bool takes_messages) {
  const std::string_view first = rows.front();
  const auto value = nlohmann::json::parse(first, nullptr, false);  // discarded if it is none
  if (begins_with(first, '[')) {
    const bool is_one = value.is_discarded() || (is_whole && rows.size() == 1);
    const bool has_messages =
        value.is_array() && !value.empty() && value[0].is_object() && value[0].contains("role");
    if (has_messages) return Form{"JSON arrays of messages", "jq -c '{messages: .}'"};
    if (is_one) {
      return Form{"a JSON array",
                  fmt::format("jq -c '.[] | if type == \"object\" then . else {} end'",
                              row_of(".", takes_messages))};
    }
  }
  if (begins_with(first, '{')) {
    const std::size_t name = first.find_first_not_of(" \t\r", first.find('{') + 1);
    if (name == std::string_view::npos || first[name] == '"') {
      return Form{"JSON that spans several lines, or is broken", "jq -c ."};
    }
    if (first[name] == '\'') {
      return Form{"Python's notation, with ' instead of \"",
                  "python3 -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) "
                  "for line in sys.stdin]' <"};
    }
  }
  if (value.is_string()) {
    return Form{"JSON texts without objects",
                fmt::format("jq -c '{}'", row_of(".", takes_messages))};
  }
  return std::nullopt;
}

Form form_of(const std::vector<std::string>& rows, bool is_whole, bool takes_messages) {
  if (const auto form = packed_form(rows.front())) return *form;
  if (const auto form = json_form(rows, is_whole, takes_messages)) return *form;
  if (const auto form = table_form(rows, takes_messages)) return *form;
  return {"plain text", fmt::format("jq -Rc '{}'", row_of(".", takes_messages))};
}

// The path as a word of a shell.
std::string shell_word(const std::string& path) {
  if (path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-./+,:@%") == std::string::npos) {
    return path;
  }
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace

std::optional<std::string> explain_no_rows(const Input& input, const std::string& path,
                                           const std::function<bool()>& takes_messages) {
  const std::uint64_t count = std::min(input.rows(), rows_looked_at);
  if (count == 0) return std::nullopt;
  std::vector<std::string> rows;
  for (std::uint64_t row = 1; row <= count; ++row) {
    rows.push_back(input.read(row));
    if (is_object(rows.back())) return std::nullopt;
    if (rows.back().size() > sample_bytes_max) rows.back().resize(sample_bytes_max);
    rows.back().shrink_to_fit();
  }
  const Form form = form_of(rows, count == input.rows(), takes_messages());
  const bool is_pipe = path == "-";
  std::string line = fmt::format(
      "{} is no file of rows: {} a JSON object; it seems to be {}",
      is_pipe ? "standard input" : path,
      count == 1 ? "its only line is not" : fmt::format("none of its first {} lines is", count),
      form.name);
  if (form.command.empty()) return line;
  std::string command = form.command;
  if (is_pipe && command.ends_with(" <")) command.resize(command.size() - 2);
  if (!is_pipe) command += " " + shell_word(path);
  return line + fmt::format("; make rows of it with `{} > rows.jsonl`", command);
}

}  // namespace sluice::batch
