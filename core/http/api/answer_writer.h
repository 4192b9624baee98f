// How an answer is written: whole, or as the events of a stream. One for each answer.
//
// Threads: the server's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/http/api/api_error.h"
#include "core/rows/completion.h"
#include "core/rows/request.h"
#include "core/rows/task.h"

namespace sluice::http {

// What an answer repeats.
struct AnswerFacts {
  rows::Form form = rows::Form::chat;
  std::string id;             // "chatcmpl-..."
  std::uint64_t created = 0;  // seconds since 1970
  std::string model;
  std::size_t prompts = 1;      // each has as many choices, one behind the other
  bool includes_usage = false;  // the pieces have "usage": null, and the last one the numbers
};

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

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // The body of an answer that is not streamed.
  virtual std::string whole(std::span<const rows::Completion> choices) = 0;

  // Server-sent events, in this order: begin(), any number of progress() and then of piece(), and
  // end() or failure(). `seconds`: since the request. No event: nothing.
  virtual std::string begin() = 0;
  virtual std::string progress(const rows::PromptProgress& prompt, double seconds) = 0;
  virtual std::string piece(const Piece& piece) = 0;
  virtual std::string end(std::span<const rows::Completion> choices) = 0;
  virtual std::string failure(const ApiError& error) = 0;
};

// In the form of completions, or of chat completions.
std::unique_ptr<AnswerWriter> completion_writer(AnswerFacts facts);

// In the form of the Responses API, for one choice. `request`: a JSON object of the members of the
// request that the answer repeats.
std::unique_ptr<AnswerWriter> response_writer(AnswerFacts facts, std::string request);

// "data: JSON" and an empty line.
std::string event_of(std::string_view json);

}  // namespace sluice::http
