// The settings that /set shows and changes in a chat.
#pragma once

#include <string>

#include "core/cli/chat_session.h"

namespace sluice::cli {

// A line for each setting: its name and its value.
std::string settings_table(const ChatSettings& settings);

// Returns the settings with one of them changed; "stop" without a value has no stop texts. Throws
// UsageError for a bad name or value.
ChatSettings with_setting(ChatSettings settings, const std::string& name, const std::string& value);

}  // namespace sluice::cli
