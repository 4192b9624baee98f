#include "core/http/api/text_request.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "core/http/api/api_error.h"
#include "core/http/api/response_request.h"
#include "core/rows/row_json.h"
#include "core/text/quoted.h"

namespace sluice::http {
namespace {

using rows::RowJson;

// Takes the members out that only a request can have, so that the others are those of a row.
void take_stream_settings(TextRoute route, RowJson& body, TextRequest& request) {
  if (const RowJson* stream = rows::find_member(body, "stream")) {
    request.streams = rows::truth_of(*stream, "stream");
  }
  if (const RowJson* options = rows::find_member(body, "stream_options")) {
    if (!options->is_object()) rows::throw_wrong_type("stream_options", "an object", *options);
    for (const auto& item : options->items()) {
      if (item.key() == "include_usage") {
        request.includes_usage = rows::truth_of(item.value(), "stream_options.include_usage");
      } else if (item.key() != "include_obfuscation") {
        throw rows::BadRow("\"stream_options\" has an unknown member \"" +
                           text::escaped(item.key(), 100) + "\"");
      }
    }
    if (!request.streams) throw rows::BadRow("\"stream_options\" needs \"stream\": true");
  }
  body.erase("stream");
  body.erase("stream_options");
  if (route == TextRoute::responses) return;
  if (const RowJson* progress = rows::find_member(body, "return_progress")) {
    request.returns_progress = rows::truth_of(*progress, "return_progress");
    if (request.returns_progress && !request.streams) {
      throw rows::BadRow("\"return_progress\" needs \"stream\": true");
    }
  }
  body.erase("return_progress");
}

// The prompts of a list with several, which are taken out; nothing where there is no such list.
std::vector<RowJson> take_prompts(TextRoute route, RowJson& body) {
  const auto at = body.find("prompt");
  if (route != TextRoute::completions || at == body.end() || !at->is_array()) return {};
  auto& list = at->get_ref<RowJson::array_t&>();
  if (list.size() < 2 || !(list[0].is_string() || list[0].is_array())) return {};
  return std::move(list);
}

[[noreturn]] void refuse(TextRoute route, std::string reason, std::string_view code = {}) {
  const bool is_of_client = code != rows::cannot_run;
  if (is_of_client && route == TextRoute::responses) reason = with_own_names(std::move(reason));
  throw refused(code, reason);
}

// Makes a task of a body that has one prompt, and adds it.
void add_task(const rows::TaskMaker& maker, TextRoute route, RowJson body, std::uint64_t row,
              std::size_t prompts, TextRequest& request) {
  const rows::Form form =
      route == TextRoute::completions ? rows::Form::completions : rows::Form::chat;
  rows::ParsedRow parsed = rows::read_body(std::move(body), form, row, maker.options().defaults);
  if (!parsed.request) refuse(route, parsed.reason);
  auto made = maker.make(std::move(parsed), row);
  if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
    const bool is_of_prompt = prompts > 1 && refused->code != rows::model_not_found;
    refuse(route,
           is_of_prompt ? fmt::format("prompt {}: {}", request.tasks.size(), refused->reason)
                        : refused->reason,
           refused->code);
  }
  request.tasks.push_back(std::move(std::get<rows::Task>(made)));
  request.tasks.back().priority = rows::Priority::interactive;
}

void check_count(std::size_t prompts, std::uint32_t choices, std::size_t texts_max) {
  if (prompts * choices <= texts_max) return;
  const std::string asked = prompts == 1
                                ? fmt::format("\"n\" is {}", choices)
                                : fmt::format("\"prompt\" asks for {} texts", prompts * choices);
  throw ApiError(
      400, fmt::format("{}, but this server takes {} texts at most (--queue)", asked, texts_max));
}

}  // namespace

std::uint64_t TextRequest::bytes() const {
  std::uint64_t bytes = echo.size();
  for (const rows::Task& task : tasks) {
    bytes += task.choices * rows::waiting_bytes(task);
    // The results of a prompt wait for those of the others, as choices do for each other.
    if (tasks.size() > 1 && task.choices == 1) bytes += rows::result_bytes(task);
  }
  return bytes;
}

// A prompt that names no seed is drawn apart from the others: each has a number of its own.
TextRequest read_text_request(const rows::TaskMaker& maker, TextRoute route, std::string_view body,
                              std::uint64_t number, const TextLimits& limits) {
  constexpr unsigned number_bits = 40;
  TextRequest request;
  RowJson json;
  std::vector<RowJson> prompts;
  try {
    json = rows::parse_row_object(body);
    take_stream_settings(route, json, request);
    if (route == TextRoute::responses) {
      request.echo = echo_of(json).dump();
      const auto& dialogue = maker.options().dialogue;
      json =
          chat_body_of(std::move(json), dialogue && dialogue->knows_variable("reasoning_effort"));
    }
    prompts = take_prompts(route, json);
    if (!prompts.empty() && request.returns_progress) {
      throw rows::BadRow("\"return_progress\" is for one prompt");
    }
  } catch (const rows::BadRow& bad) {
    refuse(route, bad.what());
  }
  const std::size_t count = std::max<std::size_t>(prompts.size(), 1);
  const auto add = [&](RowJson one, std::size_t index) {
    add_task(maker, route, std::move(one), number + (std::uint64_t{index} << number_bits), count,
             request);
    check_count(count, request.tasks.back().choices, limits.texts_max);
    limits.grow(request.bytes());
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    RowJson one = json;
    one["prompt"] = std::move(prompts[i]);
    add(std::move(one), i);
  }
  if (prompts.empty()) add(std::move(json), 0);
  return request;
}

}  // namespace sluice::http
