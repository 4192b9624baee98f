// sluice run: text in, text out.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cli/chat_setup.h"
#include "core/cli/options.h"

namespace sluice::cli {

struct RunOptions {
  CommonOptions common;
  SamplingOptions sampling;
  engine::PromptCacheOptions prompt_cache;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file;
  std::vector<tokenizer::Token> prompt_tokens;
  bool parse_special = false;
  bool raw = false;   // the prompt is a text to continue, even for a chat model
  bool chat = false;  // the prompt is a message, wherever it comes from
  std::optional<std::string> system;
  ThinkingOptions thinking;
  std::filesystem::path json_schema, grammar;  // files; at most one
  std::int64_t tokens_max = 256;               // -1: as many as the context allows
};

CLI::App* add_run(CLI::App& program, RunOptions& options);

// Returns the exit status.
int run_run(const RunOptions& options);

}  // namespace sluice::cli
