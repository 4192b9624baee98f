// The pieces of an answer that is streamed, as OpenAI's API has them: each is the JSON of one
// event.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/serve/completion.h"
#include "core/serve/request.h"

namespace sluice::http {

// What all pieces of an answer repeat.
struct AnswerFacts {
  serve::Form form = serve::Form::chat;
  std::string id;             // "chatcmpl-..."
  std::uint64_t created = 0;  // seconds since 1970
  std::string model;
  bool includes_usage = false;  // the pieces have "usage": null, and the last one the numbers
};

// "data: JSON" and an empty line.
std::string event_of(std::string_view json);
inline constexpr std::string_view end_event = "data: [DONE]\n\n";

// What a piece adds to one choice. In the form of completions only `text` is used.
struct Piece {
  std::size_t choice = 0;
  bool is_first = false;  // of its choice; names the role
  std::string text = {};
  std::string thought = {};
  nlohmann::ordered_json tool_calls = nullptr;  // a list, or null
  std::string logprobs = {};                    // as JSON; empty: none
  std::string_view finish = {};                 // "stop", "length", "tool_calls"; empty: not yet
};
std::string piece_json(const AnswerFacts& facts, const Piece& piece);

std::string usage_piece_json(const AnswerFacts& facts, const nlohmann::ordered_json& usage);

}  // namespace sluice::http
