// Tool calls in the syntax of Python: [f(a="x", b=[1, 2]), g()].
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/chat/tool_calls.h"

namespace sluice::chat {

// What the name of a function may consist of.
inline constexpr std::string_view name_characters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/";

// Parses a call or a list of calls whose arguments are named literals. Nothing for any other text.
std::optional<std::vector<ToolCall>> parse_python_calls(std::string_view text);

}  // namespace sluice::chat
