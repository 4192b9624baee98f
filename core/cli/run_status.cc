#include "core/cli/run_status.h"

#include <system_error>
#include <utility>

#include "core/cli/output.h"
#include "topology/process_memory.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds period{1};

}  // namespace

std::optional<batch::Status::Experts> status_of_experts(
    const std::optional<streaming::ExpertStatistics>& experts) {
  if (!experts) return std::nullopt;
  return batch::Status::Experts{experts->hit_rate(), experts->bytes_read_per_token()};
}

std::optional<batch::Status::Guesses> status_of_guesses(const serve::SchedulerCounts& counts) {
  if (counts.tokens_drafted == 0) return std::nullopt;
  return batch::Status::Guesses{counts.tokens_per_step(), counts.drafts_by_kind};
}

RunStatus::RunStatus(std::string command, const CommonOptions& common, const engine::Engine& engine)
    : engine_(engine) {
  status_.command = std::move(command);
  status_.model = common.model.filename().string();
  status_.budget_bytes = engine.plan().budget.bytes;
  status_.sequences = 1;
  try {
    publisher_ = std::make_unique<batch::StatusPublisher>();
    publish(0);
  } catch (const std::system_error& error) {
    if (!common.quiet) warn(error.what());
  }
}

void RunStatus::add_tokens(std::uint64_t tokens) {
  tokens_ += tokens;
  const Clock::time_point now = Clock::now();
  if (now - last_ < period) return;
  publish(static_cast<double>(tokens_) / std::chrono::duration<double>(now - last_).count());
  last_ = now;
  tokens_ = 0;
}

void RunStatus::rest() {
  publish(0);
  last_ = Clock::now();
  tokens_ = 0;
}

void RunStatus::publish(double tokens_per_s) {
  if (!publisher_) return;
  status_.memory_bytes =
      topology::read_process_memory().resident_bytes().value_or(batch::Status::unknown_memory);
  status_.tokens_per_s = tokens_per_s;
  status_.experts = status_of_experts(engine_.expert_statistics());
  publisher_->publish(status_);
}

}  // namespace sluice::cli
