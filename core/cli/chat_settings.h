// What /set of a chat shows and changes.
#pragma once

#include <string>

#include "core/cli/chat_session.h"

namespace sluice::cli {

// A line for each setting: its name and its value.
std::string settings_table(const ChatSettings& settings);

// The settings with one of them changed. Throws UsageError for a name or a value that is none.
ChatSettings with_setting(ChatSettings settings, const std::string& name, const std::string& value);

}  // namespace sluice::cli
