// Requests in the form of OpenAI's Responses API, made into those for chat completions.
//
// A response is not kept, so a request that names an earlier one is refused; the client sends the
// items of the conversation itself. Members that the API does not have (seed, top_k, stop, ...)
// mean what they mean in a row (core/rows/row_settings.h).
//
// Threads: any.
#pragma once

#include <string>

#include "core/rows/row_json.h"

namespace sluice::http {

// The members that an answer repeats, and what applies where they are missing.
rows::RowJson echo_of(const rows::RowJson& body);

// Throws BadRow, which names the member, for what cannot be translated. `has_effort`: the model's
// template looks at the effort of reasoning; otherwise it is left aside.
rows::RowJson chat_body_of(rows::RowJson body, bool has_effort);

// A message about such a body, with the names that its members had in the request.
std::string with_own_names(std::string message);

}  // namespace sluice::http
