// The page at "/": a chat with the model, in one file without anything from elsewhere.
#pragma once

#include "core/http/transport/message.h"

namespace sluice::http {

// Its policy allows its own script and style alone, by a number that is drawn for each answer.
Response page_response();

}  // namespace sluice::http
