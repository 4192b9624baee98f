#include "core/batch/result.h"

#include <charconv>
#include <fmt/format.h>

namespace sluice::batch {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view id_prefix = "batch_req_";

std::string text_line(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string_view finish_name(Finish finish) {
  return finish == Finish::stop ? "stop" : "length";
}

ordered_json usage_of(const Completion& completion) {
  ordered_json usage = {{"prompt_tokens", completion.prompt_tokens},
                        {"completion_tokens", completion.completion_tokens},
                        {"total_tokens", completion.prompt_tokens + completion.completion_tokens}};
  if (completion.truncated_tokens != 0) usage["truncated_tokens"] = completion.truncated_tokens;
  return usage;
}

ordered_json choice_of(Form form, const Completion& completion) {
  ordered_json choice = {{"index", 0}};
  if (form == Form::chat) {
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}};
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_name(completion.finish);
  return choice;
}

ordered_json body_of(std::uint64_t row, const RowHeader& header, std::string_view model,
                     const Completion& completion) {
  const bool is_chat = header.form == Form::chat;
  return {{"id", fmt::format("{}-{}", is_chat ? "chatcmpl" : "cmpl", row)},
          {"object", is_chat ? "chat.completion" : "text_completion"},
          {"created", 0},
          {"model", header.model.empty() ? model : header.model},
          {"choices", ordered_json::array({choice_of(header.form, completion)})},
          {"usage", usage_of(completion)}};
}

std::optional<std::uint64_t> row_of(const nlohmann::json& object) {
  if (const auto row = object.find("row"); row != object.end()) {
    if (!row->is_number_unsigned()) return std::nullopt;
    return row->get<std::uint64_t>();
  }
  const auto id = object.find("id");
  if (id == object.end() || !id->is_string()) return std::nullopt;
  const auto& text = id->get_ref<const std::string&>();
  if (!text.starts_with(id_prefix)) return std::nullopt;
  std::uint64_t row = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + id_prefix.size(), end, row);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return row;
}

}  // namespace

std::string result_line(std::uint64_t row, const RowHeader& header, std::string_view model,
                        const Completion& completion) {
  if (header.form == Form::plain) {
    return text_line({{"row", row},
                      {"id", header.id},
                      {"text", completion.text},
                      {"finish_reason", finish_name(completion.finish)},
                      {"usage", usage_of(completion)},
                      {"error", nullptr}});
  }
  return text_line({{"id", fmt::format("{}{}", id_prefix, row)},
                    {"custom_id", header.id},
                    {"response",
                     {{"status_code", 200},
                      {"request_id", fmt::format("req_{}", row)},
                      {"body", body_of(row, header, model, completion)}}},
                    {"error", nullptr}});
}

std::string error_line(std::uint64_t row, const RowHeader& header, const RowProblem& problem) {
  const ordered_json error = {{"code", problem.code},
                              {"message", fmt::format("line {}: {}", problem.line, problem.reason)},
                              {"line", problem.line}};
  if (header.form == Form::plain) {
    return text_line({{"row", row}, {"id", header.id}, {"text", nullptr}, {"error", error}});
  }
  return text_line({{"id", fmt::format("{}{}", id_prefix, row)},
                    {"custom_id", header.id},
                    {"response", nullptr},
                    {"error", error}});
}

std::optional<ResultFacts> read_result(std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto error = object.find("error");
  const std::optional<std::uint64_t> row = row_of(object);
  if (error == object.end() || !row || *row == 0) return std::nullopt;
  return ResultFacts{*row, !error->is_null()};
}

}  // namespace sluice::batch
