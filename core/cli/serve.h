// sluice serve: the OpenAI API for one model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/chat_setup.h"
#include "core/cli/options.h"
#include "core/cli/row_setup.h"

namespace sluice::cli {

struct ServeOptions : ResultOptions {
  ServeOptions() { tokens_max = 2048; }
  engine::PromptCacheOptions prompt_cache;
  std::string host = "127.0.0.1";
  std::optional<std::uint16_t> port;  // nothing: 8080, or none where there is --unix
  std::filesystem::path unix_path;
  std::filesystem::path api_key_file;
  bool is_insecure = false;
  std::vector<std::string> origins;
  std::uint32_t parallel = 0;  // 0: auto
  std::uint32_t queue = 64;
  double rate = 0;
  std::uint32_t grace_s = 10;
  bool logs_requests = false;
  std::string data;  // a folder; empty: the usual one
  std::uint64_t data_bytes_max = std::uint64_t{4} << 30;
};

CLI::App* add_serve(CLI::App& program, ServeOptions& options);

// Returns the exit status.
int run_serve(const ServeOptions& options);

}  // namespace sluice::cli
