// sluice chat: a conversation, line by line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "core/cli/chat_setup.h"
#include "core/cli/options.h"

namespace sluice::cli {

struct ChatOptions {
  CommonOptions common;
  SamplingOptions sampling;
  engine::PromptCacheOptions prompt_cache;
  std::optional<std::string> prompt;  // one message to answer, instead of a conversation
  std::optional<std::string> system;
  ThinkingOptions thinking;
  std::string format = "auto";
  bool no_wrap = false;          // leaves the lines of answers to the terminal
  std::int64_t tokens_max = -1;  // of an answer; -1: as many as the context allows
};

CLI::App* add_chat(CLI::App& program, ChatOptions& options);

// Returns the exit status.
int run_chat(const ChatOptions& options);

}  // namespace sluice::cli
