#include "core/http/stream_json.h"

#include <fmt/format.h>

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json envelope(const AnswerFacts& facts) {
  const bool is_chat = facts.form == serve::Form::chat;
  return {{"id", facts.id},
          {"object", is_chat ? "chat.completion.chunk" : "text_completion"},
          {"created", facts.created},
          {"model", facts.model}};
}

// The calls, each with its place in the list.
ordered_json numbered(const ordered_json& calls) {
  ordered_json list = ordered_json::array();
  for (const ordered_json& call : calls) {
    ordered_json item = {{"index", list.size()}};
    item.update(call);
    list.push_back(std::move(item));
  }
  return list;
}

ordered_json delta_of(const Piece& piece) {
  ordered_json delta = ordered_json::object();
  if (piece.is_first) delta["role"] = "assistant";
  if (!piece.thought.empty()) delta["reasoning_content"] = piece.thought;
  if (!piece.text.empty() || piece.is_first) delta["content"] = piece.text;
  if (!piece.tool_calls.is_null()) delta["tool_calls"] = numbered(piece.tool_calls);
  return delta;
}

}  // namespace

std::string event_of(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

std::string piece_json(const AnswerFacts& facts, const Piece& piece) {
  ordered_json choice = {{"index", piece.choice}};
  if (facts.form == serve::Form::chat) {
    choice["delta"] = delta_of(piece);
  } else {
    choice["text"] = piece.text;
  }
  choice["logprobs"] =
      piece.logprobs.empty() ? ordered_json() : ordered_json::parse(piece.logprobs);
  choice["finish_reason"] = piece.finish.empty() ? ordered_json() : ordered_json(piece.finish);
  ordered_json json = envelope(facts);
  json["choices"] = ordered_json::array({std::move(choice)});
  if (facts.includes_usage) json["usage"] = nullptr;
  return text_of(json);
}

std::string usage_piece_json(const AnswerFacts& facts, const ordered_json& usage) {
  ordered_json json = envelope(facts);
  json["choices"] = ordered_json::array();
  json["usage"] = usage;
  return text_of(json);
}

}  // namespace sluice::http
