// sluice embed: a vector for each text of a file. sluice rerank: how well each text answers a
// query.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/cli/options.h"
#include "core/engine/engine.h"

namespace sluice::cli {

struct EmbedOptions {
  CommonOptions common;
  std::filesystem::path file;
  std::filesystem::path output = "-";  // the standard output
  std::uint32_t parallel = 16;
  bool restart = false;
};

struct RerankOptions {
  CommonOptions common;
  std::string query;
  std::filesystem::path file;
  std::uint32_t parallel = 16;
  std::uint64_t top = 0;  // 0: all
  bool json = false;
};

// What both ask of the engine. `text_bytes`: of the texts that are read together.
engine::EngineOptions options_of_texts(const CommonOptions& common, std::uint32_t parallel,
                                       std::uint64_t text_bytes);

CLI::App* add_embed(CLI::App& program, EmbedOptions& options);
CLI::App* add_rerank(CLI::App& program, RerankOptions& options);

// Each returns the exit status.
int run_embed(const EmbedOptions& options);
int run_rerank(const RerankOptions& options);

}  // namespace sluice::cli
