#include "core/batch/result.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "core/rows/answer_body.h"
#include "core/rows/row_json.h"
#include "core/text/limited_json.h"

namespace sluice::batch {
namespace {

using nlohmann::ordered_json;
using rows::json_text;
using rows::ObjectText;

constexpr std::string_view id_prefix = "batch_req_";

void add_plain_choice(ObjectText& object, const rows::Completion& completion) {
  object.add("text", completion.text);
  rows::add_thought_and_calls(object, completion);
  if (!completion.logprobs_text.empty()) object.add_text("logprobs", completion.logprobs_text);
  object.add("finish_reason", rows::finish_name(completion));
}

std::string plain_line(std::uint64_t row, const rows::RowHeader& header,
                       std::span<const rows::Completion> choices) {
  ObjectText line;
  line.add("row", row).add("id", header.id);
  if (choices.size() == 1) {
    add_plain_choice(line, choices.front());
  } else {
    line.add_text("choices",
                  rows::list_text(choices, [](const rows::Completion& completion, std::size_t) {
                    ObjectText choice;
                    add_plain_choice(choice, completion);
                    return choice.end();
                  }));
  }
  return line.add("usage", rows::usage_of(choices)).add("error", nullptr).end() + "\n";
}

// What read_result() needs of a line. The rest is only checked to be JSON and not kept: a line with
// log probabilities is long, and has many values.
class Outline final : public nlohmann::json_sax<ordered_json> {
 public:
  std::vector<std::string> members;  // of the object that the line is, in their order
  std::optional<std::uint64_t> row;
  std::optional<std::string> id;
  bool has_error = true;
  std::string code;  // of the error
  bool is_cut = false;

  bool null() override {
    if (is_member("error")) has_error = false;
    return depth_ != 0;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (is_member("row")) row = value;
    return depth_ != 0;
  }
  bool string(std::string& value) override {
    if (is_member("id") && value.size() <= id_bytes_max) id = value;
    if (is_code_) code = value;
    // Results have this member for their answers alone, in each form.
    if (is_finish_ && value == "length") is_cut = true;
    return depth_ != 0;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) members.push_back(name);
    is_code_ = depth_ == 2 && members.back() == "error" && name == "code";
    is_finish_ = name == "finish_reason";
    return members.size() <= members_max;
  }
  bool start_object(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return depth_++ != 0; }
  bool end_array() override { return end_object(); }
  bool boolean(bool) override { return depth_ != 0; }
  bool number_integer(std::int64_t) override { return depth_ != 0; }
  bool number_float(double, const std::string&) override { return depth_ != 0; }
  bool binary(binary_t&) override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr std::size_t members_max = 16, id_bytes_max = 64;
  bool is_member(std::string_view name) const { return depth_ == 1 && members.back() == name; }
  std::size_t depth_ = 0;
  bool is_code_ = false, is_finish_ = false;  // the value that comes next
};

// Whether these are the members, in this order. Members with a question mark may be missing.
bool are_just(const std::vector<std::string>& members,
              std::initializer_list<std::string_view> expected) {
  auto member = members.begin();
  for (std::string_view name : expected) {
    const bool is_optional = name.starts_with('?');
    if (is_optional) name.remove_prefix(1);
    if (member != members.end() && *member == name) {
      ++member;
    } else if (!is_optional) {
      return false;
    }
  }
  return member == members.end();
}

bool are_members_of_result(const std::vector<std::string>& members) {
  return are_just(members, {"row", "id", "text", "?reasoning_content", "?tool_calls", "?logprobs",
                            "finish_reason", "usage", "error"}) ||
         are_just(members, {"row", "id", "choices", "usage", "error"}) ||
         are_just(members, {"row", "id", "text", "error"}) ||
         are_just(members, {"id", "custom_id", "response", "error"});
}

std::optional<std::uint64_t> row_of(const Outline& line) {
  if (line.members.front() == "row") return line.row;
  if (!line.id || !line.id->starts_with(id_prefix)) return std::nullopt;
  return base::whole_number<std::uint64_t>(std::string_view(*line.id).substr(id_prefix.size()));
}

}  // namespace

std::string result_line(std::uint64_t row, const rows::RowHeader& header, std::string_view model,
                        std::span<const rows::Completion> choices) {
  if (header.form == rows::Form::plain) return plain_line(row, header, choices);
  const bool is_chat = header.form == rows::Form::chat;
  const rows::OpenAiBody facts = {.id = fmt::format("{}-{}", is_chat ? "chatcmpl" : "cmpl", row),
                                  .model = header.model.empty() ? model : header.model,
                                  .usage = rows::usage_of(choices)};
  const std::string response = ObjectText()
                                   .add("status_code", 200)
                                   .add("request_id", fmt::format("req_{}", row))
                                   .add_text("body", rows::openai_body(header.form, facts, choices))
                                   .end();
  return ObjectText()
             .add("id", fmt::format("{}{}", id_prefix, row))
             .add("custom_id", header.id)
             .add_text("response", response)
             .add("error", nullptr)
             .end() +
         "\n";
}

std::string error_line(std::uint64_t row, const rows::RowHeader& header,
                       const RowProblem& problem) {
  const ordered_json error = {{"code", problem.code},
                              {"message", fmt::format("line {}: {}", problem.line, problem.reason)},
                              {"line", problem.line}};
  if (header.form == rows::Form::plain) {
    return json_text({{"row", row}, {"id", header.id}, {"text", nullptr}, {"error", error}}) + "\n";
  }
  return json_text({{"id", fmt::format("{}{}", id_prefix, row)},
                    {"custom_id", header.id},
                    {"response", nullptr},
                    {"error", error}}) +
         "\n";
}

std::optional<ResultFacts> read_result(std::string_view line) {
  if (line.size() >= result_bytes_max) return std::nullopt;
  Outline outline;
  if (!ordered_json::sax_parse(line, &outline) || !are_members_of_result(outline.members)) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> row = row_of(outline);
  if (!row || *row == 0) return std::nullopt;
  return ResultFacts{*row, static_cast<std::uint32_t>(line.size() + 1), outline.has_error,
                     outline.is_cut, index_of_code(outline.code)};
}

std::uint8_t index_of_code(std::string_view code) {
  const auto* const found = std::find(error_codes.begin(), error_codes.end() - 1, code);
  return static_cast<std::uint8_t>(found - error_codes.begin());
}

std::string error_message(std::string_view line) {
  constexpr JsonLimits limits{
      .what = "line", .values_max = 1'000, .members_max = 100, .depth_max = 16};
  try {
    return parse_limited_json(line, limits).value.at("error").at("message").get<std::string>();
  } catch (const JsonError&) {
    return "";
  } catch (const ordered_json::exception&) {  // it has no such member, or one of another type
    return "";
  }
}

}  // namespace sluice::batch
