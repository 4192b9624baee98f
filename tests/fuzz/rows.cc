// Rows of a batch and bodies of requests, the lines of its results, and journals: ONE OR MORE
// LINES, CHOICES.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/journal_scan.h"
#include "core/batch/result.h"
#include "core/http/api/response_request.h"
#include "core/rows/request.h"
#include "core/rows/row_json.h"
#include "core/text/limited_json.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

using Json = nlohmann::ordered_json;

bool is_one_line(std::string_view text) {
  return text.find_first_of("\r\n") == std::string_view::npos;
}

// A row gives a task, or a line with an error that can be read again.
void read_row(const rows::ParsedRow& row) {
  if (row.request) {
    require(row.request->choices >= 1, "a row wants a result");
    return;
  }
  require(!row.reason.empty() && is_one_line(row.reason), "a reason is one line");
  const batch::RowProblem problem{"invalid_request", 3, row.reason};
  std::string line = batch::error_line(2, row.header, problem);
  require(line.ends_with('\n'), "a result is a line");
  line.pop_back();
  require(is_one_line(line), "a result is one line");
  const auto facts = batch::read_result(line);
  require(facts && facts->row == 2 && facts->is_error, "what was written can be read");
  static_cast<void>(batch::error_message(line));
}

void read_json(std::string_view text) {
  const JsonLimits limits{.what = "row", .values_max = 300, .members_max = 50, .depth_max = 20};
  try {
    const LimitedJson found = parse_limited_json(text, limits);
    require(Json::accept(text), "what is taken is JSON");
    require(found.values <= limits.values_max, "values are bounded");
    require(json_bytes(found.value) != 0, "a value has a size");
    if (found.value.is_object()) {
      static_cast<void>(http::echo_of(found.value));
      try {
        static_cast<void>(http::chat_body_of(found.value, true));
      } catch (const rows::BadRow&) {
      }
    }
  } catch (const JsonError& error) {
    require(is_one_line(error.what()), "a problem is one line");
  }
}

bool same(const batch::JournalScan& a, const batch::JournalScan& b) {
  const auto is_same = [](const batch::ResultFacts& x, const batch::ResultFacts& y) {
    return x.row == y.row && x.line_bytes == y.line_bytes && x.is_error == y.is_error &&
           x.is_cut == y.is_cut && x.code == y.code;
  };
  // What is read of a foreign file ends with the piece that shows it.
  if (a.verdict == batch::JournalVerdict::foreign) return b.verdict == a.verdict;
  return a.verdict == b.verdict && a.whole_bytes == b.whole_bytes && a.bytes == b.bytes &&
         std::ranges::equal(a.found, b.found, is_same);
}

void read_journal(std::string_view text, Choices choices) {
  const batch::JournalScan whole = batch::scan_journal(text);
  require(whole.whole_bytes <= text.size(), "results lie within the file");
  batch::JournalScanner scanner;
  for (std::string_view rest = text; !rest.empty();) {
    if (!scanner.add(choices.piece_of(rest))) break;
  }
  require(same(whole, scanner.finish()), "pieces of a journal give what the whole gives");
  if (whole.verdict != batch::JournalVerdict::results) return;
  const batch::JournalScan kept = batch::scan_journal(text.substr(0, whole.whole_bytes));
  require(kept.verdict == whole.verdict && kept.found.size() == whole.found.size(),
          "what is kept of a journal is a journal");
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 2);
  read_journal(parts[0], Choices(parts[1]));
  static_cast<void>(batch::parse_shard(parts[1]));
  for (std::string_view rest = parts[0]; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    read_json(line);
    const auto facts = batch::read_result(line);
    if (facts && facts->is_error) static_cast<void>(batch::error_message(line));
    read_row(rows::parse_row(line, 7, {}));
    read_row(rows::parse_body(line, rows::Form::chat, 7, {}));
    read_row(rows::parse_body(line, rows::Form::completions, 7, {}));
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      R"({"id": "a", "prompt": "Hello", "max_tokens": 5, "stop": ["x"], "seed": 3})",
      R"({"id": 7, "prompt": [1, 2], "logit_bias": {"5": -100}, "temperature": 0.5, "n": 2})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "tools": )"
      R"([{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"})",
      R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": )"
      R"([{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", )"
      R"("json_schema": {"name": "n", "schema": {"type": "object"}}}}})",
      R"({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", )"
      R"("text": "a"}]}, {"type": "function_call", "call_id": "1", "name": "f", "arguments": )"
      R"("{}"}, {"type": "function_call_output", "call_id": "1", "output": "x"}], )"
      R"("instructions": "i", "tools": [], "text": {"format": {"type": "text"}}})"};
  rows::RowHeader plain, chat;
  chat.form = rows::Form::chat;
  chat.id = "a";
  rows::Completion completion;
  completion.text = "an answer";
  all.push_back(batch::result_line(1, plain, "m", completion) +
                batch::result_line(2, chat, "m", completion) +
                batch::error_line(3, chat, {"invalid_request", 3, "why"}) +
                batch::error_line(4, plain, {"prompt_too_long", 4, "why"}) + "{\"id\"" +
                std::string(3, '\0'));
  for (std::string& seed : all) seed = joined({seed, "\x03\x10\x01\x05"});
  return all;
}

}  // namespace sluice::fuzz
