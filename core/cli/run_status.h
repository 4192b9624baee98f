// The status of `run` and `chat` for `sluice top`, updated at most once a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/batch/status_segment.h"
#include "core/cli/options.h"
#include "core/engine/engine.h"
#include "core/serve/scheduler.h"

namespace sluice::cli {

// What a status says of the experts that a run has used; nothing for a model without experts.
std::optional<batch::Status::Experts> status_of_experts(
    const std::optional<streaming::ExpertStatistics>& experts);

// What a status says of guesses; nothing where there were none.
std::optional<batch::Status::Guesses> status_of_guesses(const serve::SchedulerCounts& counts);

class RunStatus {
 public:
  // The engine must live when a function is called. Where there is no shared memory the status is
  // not published, with a warning.
  RunStatus(std::string command, const CommonOptions& common, const engine::Engine& engine);

  void add_tokens(std::uint64_t tokens);  // tokens that were evaluated
  // For the next update.
  void set_guesses(const serve::SchedulerCounts& counts) {
    status_.guesses = status_of_guesses(counts);
  }
  void rest();  // nothing happens until the next token

 private:
  void publish(double tokens_per_s);

  const engine::Engine& engine_;
  batch::Status status_;
  std::unique_ptr<batch::StatusPublisher> publisher_;
  std::uint64_t tokens_ = 0;  // since the last update
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::cli
