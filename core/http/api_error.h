// Errors in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/http/message.h"
#include "core/http/request_reader.h"

namespace sluice::http {

// Ends the handling of a request with an error for its client.
struct ApiError : BadRequest {
  ApiError(unsigned status_, const std::string& message, std::string code_ = "",
           std::optional<unsigned> retry_after_s_ = std::nullopt)
      : BadRequest(status_, message), code(std::move(code_)), retry_after_s(retry_after_s_) {}
  std::string code;  // a word for programs; empty: that of the status
  std::optional<unsigned> retry_after_s;
};

// The JSON of an error. A message that begins with the name of a member in quotation marks is about
// that member ("param").
std::string error_json(const ApiError& error);

Response error_response(const ApiError& error);

}  // namespace sluice::http
