#include "core/http/api/text_request.h"

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

[[noreturn]] void refuse(TextRoute route, std::string reason, std::string_view code = {}) {
  const bool is_of_client = code != rows::cannot_run;
  if (is_of_client && route == TextRoute::responses) reason = with_own_names(std::move(reason));
  throw refused(code, reason);
}

}  // namespace

std::uint64_t TextRequest::bytes() const {
  return task.choices * rows::waiting_bytes(task) + echo.size();
}

TextRequest read_text_request(const rows::TaskMaker& maker, TextRoute route, std::string_view body,
                              std::uint64_t number) {
  TextRequest request;
  rows::ParsedRow parsed;
  try {
    RowJson json = rows::parse_row_object(body);
    take_stream_settings(route, json, request);
    if (route == TextRoute::responses) {
      request.echo = echo_of(json).dump();
      const auto& dialogue = maker.options().dialogue;
      json =
          chat_body_of(std::move(json), dialogue && dialogue->knows_variable("reasoning_effort"));
    }
    const rows::Form form =
        route == TextRoute::completions ? rows::Form::completions : rows::Form::chat;
    parsed = rows::read_body(std::move(json), form, number, maker.options().defaults);
  } catch (const rows::BadRow& bad) {
    refuse(route, bad.what());
  }
  if (!parsed.request) refuse(route, parsed.reason);
  auto made = maker.make(std::move(parsed), number);
  if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
    refuse(route, refused->reason, refused->code);
  }
  request.task = std::move(std::get<rows::Task>(made));
  request.task.priority = rows::Priority::interactive;
  return request;
}

}  // namespace sluice::http
