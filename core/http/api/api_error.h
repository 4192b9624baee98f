// Errors in the form of OpenAI's API: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>
#include <string_view>

#include "core/http/transport/error.h"
#include "core/http/transport/message.h"

namespace sluice::http {

// The JSON of an error. A message that begins with the name of a member in quotation marks is about
// that member ("param").
std::string error_json(const ApiError& error);

// What a client hears of a request that cannot run, by the code of a rows::RefusedRow.
ApiError refused(std::string_view code, const std::string& reason);

Response error_response(const ApiError& error);

}  // namespace sluice::http
