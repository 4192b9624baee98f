// A conversation as JSON, as chat programs exchange it: [{"role": "user", "content": "..."}, ...].
// Thoughts of an answer are under "reasoning_content".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/chat_format.h"

namespace sluice::chat {

using Conversation = std::vector<Message>;

nlohmann::ordered_json to_messages(const Conversation& conversation);

// The same as a text. Bytes that are not UTF-8 become U+FFFD. Ends with a newline.
std::string to_json(const Conversation& conversation);

// Reads what to_json writes, or an object that has it under "messages". A system message may only
// come first; user and assistant must take turns. Throws UsageError, with `source` and the number
// of the wrong message.
Conversation conversation_from_json(std::string_view text, const std::string& source);

}  // namespace sluice::chat
