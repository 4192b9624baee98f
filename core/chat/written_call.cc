#include "core/chat/written_call.h"

namespace sluice::chat {
namespace {

using Arguments = WrittenCall::Arguments;

WrittenCall tagged_form(bool has_functions, bool has_keys) {
  if (has_functions) {
    return {.arguments = Arguments::tagged,
            .open = "<tool_call>\n<function=",
            .behind_name = ">",
            .close = "\n</function>\n</tool_call>",
            .separator = "\n",
            .key_open = "\n<parameter=",
            .key_close = ">\n",
            .before_close = "\n",
            .value_close = "</parameter>"};
  }
  if (has_keys) {
    return {.arguments = Arguments::tagged,
            .open = "<tool_call>",
            .behind_name = "",
            .close = "\n</tool_call>",
            .separator = "\n",
            .key_open = "\n<arg_key>",
            .key_close = "</arg_key>\n<arg_value>",
            .value_close = "</arg_value>"};
  }
  return {.open = "<tool_call>\n{\"name\": \"",
          .behind_name = "\", \"arguments\": ",
          .close = "}\n</tool_call>",
          .separator = "\n"};
}

}  // namespace

std::optional<WrittenCall> written_call(std::string_view template_source) {
  const auto mentions = [template_source](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  if (mentions("<tool_call>")) return tagged_form(mentions("<function="), mentions("<arg_key>"));
  if (mentions("<|tool_call>")) return std::nullopt;  // values in a notation of their own
  if (mentions("<|tool_call_start|>")) {
    return WrittenCall{.arguments = Arguments::python,
                       .list_open = "<|tool_call_start|>[",
                       .list_close = "]<|tool_call_end|>",
                       .open = "",
                       .behind_name = "(",
                       .close = ")",
                       .separator = ", ",
                       .key_close = "="};
  }
  if (mentions("[TOOL_CALLS]") && mentions("[ARGS]")) {
    return WrittenCall{.open = "[TOOL_CALLS]", .behind_name = "[ARGS]", .close = ""};
  }
  if (mentions("[TOOL_CALLS]")) {
    return WrittenCall{.list_open = "[TOOL_CALLS][",
                       .list_close = "]",
                       .open = "{\"name\": \"",
                       .behind_name = "\", \"arguments\": ",
                       .close = "}",
                       .separator = ", "};
  }
  if (mentions("<|channel|>")) {
    return WrittenCall{.open = "<|channel|>commentary to=functions.",
                       .behind_name = " <|constrain|>json<|message|>",
                       .close = "",
                       .may_repeat = false,
                       .thought_open = "<|channel|>analysis<|message|>",
                       .thought_close = "<|end|><|start|>assistant"};
  }
  const std::string arguments = mentions("\"parameters\"") ? "parameters" : "arguments";
  return WrittenCall{.open = "{\"name\": \"",
                     .behind_name = "\", \"" + arguments + "\": ",
                     .close = "}",
                     .may_repeat = false};
}

}  // namespace sluice::chat
