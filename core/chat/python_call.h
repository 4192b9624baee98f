// Calls that are written as in Python: [f(a="x", b=[1, 2]), g()].
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/chat/tool_calls.h"

namespace sluice::chat {

// A call or a list of calls, with literals as arguments by their names. Nothing for any other text.
std::optional<std::vector<ToolCall>> parse_python_calls(std::string_view text);

}  // namespace sluice::chat
