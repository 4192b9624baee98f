// A conversation as JSON: [{"role": "user", "content": "..."}, ...], as chat programs exchange it.
// An answer may have its thoughts under "reasoning_content".
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

// Reads what to_json writes, and an object that has it under "messages". The roles must be those of
// a conversation: a system message at most in front, then user and assistant in turn. Throws
// UsageError, which names `source` and the message that is wrong.
Conversation conversation_from_json(std::string_view text, const std::string& source);

}  // namespace sluice::chat
