// The model of --draft: what it takes in the plan of the model that it helps, and its way from a
// file to a drafter.
//
// The plan of the other model counts it, so its header is read before that one's, and its weights
// are loaded after it. Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/engine/engine.h"
#include "core/serve/drafter.h"

namespace sluice::cli {

class DraftModel {
 public:
  explicit DraftModel(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }

  // Reads the header and the tokenizer, if that is not done.
  void read();

  // Plans the model for a run with these options, in which at most `rows` texts have drafts at a
  // time, and adds its lines to them.
  void plan_for(engine::EngineOptions& options, std::uint32_t rows);

  // Throws UsageError naming the first token that differs from that of the model that it helps.
  // Padding may differ, as it does within families: no text has it.
  void check_vocabulary(const engine::RunPlanner& helped);

  // Loads the model, beside the one that it helps. Throws what Engine::open throws.
  void open(const engine::Engine& helped,
            std::function<void(std::uint64_t, std::uint64_t)> on_load);

  // Frees what it holds. It may be planned again.
  void close();

  // Null unless it is open.
  std::shared_ptr<serve::Drafter> drafter() const { return drafter_; }

 private:
  std::filesystem::path path_;
  std::optional<engine::RunPlanner> planner_;
  engine::EngineOptions options_;
  std::shared_ptr<serve::Drafter> drafter_;
};

}  // namespace sluice::cli
