#include "core/cli/prediction.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/batch/parallel_choice.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t usual_prompt_tokens = 1000;  // of the prompt that is told of

class Predictor {
 public:
  Predictor(const engine::RunPlanner& planner, const std::filesystem::path& model,
            const engine::EngineOptions& options, const engine::PlannedRun& run,
            const OtherMachine& other)
      : planner_(planner), model_(model), options_(options), run_(run), other_(other) {
    limits_ = engine::measure_machine_limits(run.cpus, model, run.work.scattered_bytes());
    if (other.disk_bytes_per_s) limits_.disk_bytes_per_s = *other.disk_bytes_per_s;
    if (!other.dram_bytes_per_s) return;
    dram_ratio_ = limits_.dram_bytes_per_s / *other.dram_bytes_per_s;
    limits_.dram_bytes_per_s = *other.dram_bytes_per_s;
  }

  const engine::MachineLimits& limits() const { return limits_; }

  // Of all sequences together.
  double decode(double hit_rate) const {
    const engine::DecodeWork work = run_.work.with_hit_rate(hit_rate);
    // Reads of the disk here would be in the way of another one's speed.
    const bool has_own_disk = !other_.disk_bytes_per_s && !other_.dram_bytes_per_s;
    const engine::StepTime step = engine::rehearse_run(
        model_, options_, hit_rate, has_own_disk ? engine::ReadsDisk::yes : engine::ReadsDisk::no);
    double seconds = step.seconds;
    if (!step.has_read) {
      // Decoding waits for memory, unless arithmetic takes longer.
      const double arithmetic =
          static_cast<double>(work.macs * run_.plan.cache.sequences) / limits_.int8_macs_per_s;
      seconds =
          std::max({step.seconds * dram_ratio_, arithmetic, disk_seconds(work.streamed_bytes)});
    }
    return run_.plan.cache.sequences / seconds;
  }

  // A prompt is arithmetic, and each of its steps reads all that is not in memory.
  PromptSpeed prompt() const {
    constexpr std::uint64_t tokens_max = 64;  // of a step that is measured; larger ones follow it
    std::vector<batch::StepCurve::Point> points;
    for (const engine::StepPoint& point : planner_.rehearse_steps(options_, tokens_max)) {
      points.push_back({point.tokens, point.seconds});
    }
    const batch::StepCurve curve(std::move(points));
    PromptSpeed out;
    out.tokens = std::min<std::uint64_t>(usual_prompt_tokens, run_.plan.context);
    const std::uint64_t weights = planner_.header().data_bytes();
    const std::uint64_t pinned = std::min(run_.plan.tape.pinned_bytes, weights);
    const double disk = run_.work.streamed_bytes == 0 ? 0 : disk_seconds(weights - pinned);
    for (std::uint64_t done = 0; done < out.tokens; done += run_.plan.chunk) {
      const std::uint64_t part = std::min<std::uint64_t>(run_.plan.chunk, out.tokens - done);
      out.seconds += std::max(curve.seconds(static_cast<double>(part)), disk);
    }
    out.tokens_per_s = static_cast<double>(out.tokens) / out.seconds;
    return out;
  }

 private:
  double disk_seconds(std::uint64_t bytes) const {
    return bytes == 0 ? 0 : static_cast<double>(bytes) / limits_.disk_bytes_per_s;
  }

  const engine::RunPlanner& planner_;
  const std::filesystem::path& model_;
  const engine::EngineOptions& options_;
  const engine::PlannedRun& run_;
  const OtherMachine& other_;
  engine::MachineLimits limits_;
  double dram_ratio_ = 1;  // how much longer the other machine's memory takes
};

}  // namespace

Prediction predict(const engine::RunPlanner& planner, const std::filesystem::path& model,
                   const engine::EngineOptions& options, const engine::PlannedRun& run,
                   double hit_rate, const OtherMachine& other) {
  const Predictor predictor(planner, model, options, run, other);
  Prediction out;
  out.limits = predictor.limits();
  out.bound =
      engine::decode_bound(out.limits, run.work.with_hit_rate(hit_rate), run.plan.cache.sequences);
  if (!run.plan.fits()) return out;
  out.tokens_per_s = predictor.decode(hit_rate);
  if (run.work.has_streamed_experts()) {
    // Two measurements of one machine differ by themselves; fewer hits never make a step faster.
    out.tokens_per_s_without_hits = std::min(predictor.decode(0), *out.tokens_per_s);
  }
  out.prompt = predictor.prompt();
  return out;
}

std::uint64_t budget_without_streaming(const engine::RunPlanner& planner,
                                       engine::EngineOptions options,
                                       const engine::PlannedRun& run) {
  constexpr std::uint64_t precision = std::uint64_t{1} << 20;
  // By so much the code and the heap of one process may differ from those of the next.
  constexpr std::uint64_t margin = 2 * precision;
  if (options.window == 0) options.context = run.plan.context;
  const std::uint64_t weights = planner.header().data_bytes();
  const std::uint64_t pinned = std::min(run.plan.tape.pinned_bytes, weights);
  const auto streams = [&](std::uint64_t budget_bytes) {
    options.budget_bytes = budget_bytes;
    const engine::PlannedRun tried = planner.plan(options);
    return !tried.plan.fits() || tried.work.streamed_bytes != 0;
  };
  std::uint64_t too_small = run.plan.least_budget_bytes / 2;
  std::uint64_t enough = std::max(run.plan.total_bytes(), run.plan.least_budget_bytes) + weights -
                         pinned + weights / 64;
  if (streams(enough)) return enough;  // more than this machine has, where no plan can be made
  while (enough - too_small > precision) {
    const std::uint64_t middle = too_small + (enough - too_small) / 2;
    (streams(middle) ? too_small : enough) = middle;
  }
  return enough + margin;
}

}  // namespace sluice::cli
