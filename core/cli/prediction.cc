#include "core/cli/prediction.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/batch/parallel_choice.h"
#include "core/cli/quick_plan.h"
#include "topology/cpu_use.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t usual_prompt_tokens = 1000;  // of the prompt that is told of

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// All but the tables of which rows are read.
std::uint64_t bytes_of_loaded(const engine::RunPlanner& planner, const plan::MemoryPlan& plan) {
  std::uint64_t bytes = planner.header().data_bytes();
  for (const plan::TableOnDisk& table : plan.tables_on_disk) bytes -= table.bytes;
  return bytes;
}

class Predictor {
 public:
  Predictor(const engine::RunPlanner& planner, const std::filesystem::path& model,
            const engine::EngineOptions& options, const engine::PlannedRun& run, double hit_rate,
            const OtherMachine& other, bool quiet)
      : planner_(planner), options_(options), run_(run), other_(other) {
    MachineRates rates(topology::read_machine(), {model, planner.header().data_bytes(),
                                                  static_cast<unsigned>(run.cpus.size()),
                                                  run.plan.cache.sequences, run.work, true});
    const topology::OthersWatch others;
    limits_ = rates.measure(run.cpus);
    measured_ = limits_.now;
    if (run.plan.fits()) {
      step_ = rehearse(hit_rate);
      rates.add_dram_beside_steps(mean_dram(step_));
    }
    cpu_share_of_others_ = others.share().value_or(0);
    rates.take_dram_beside_steps(limits_);
    rates.save(quiet);
    if (other.is_this_one(run.cpus)) earlier_steps_ = rates.steps();
    other.replace(limits_, run.cpus);
  }

  const KnownLimits& limits() const { return limits_; }
  const std::optional<engine::RateRange>& earlier_steps() const { return earlier_steps_; }
  double cpu_share_of_others() const { return cpu_share_of_others_; }

  // What nothing can exceed. Caches are read faster than memory, nobody knows how fast.
  engine::DecodeBound bound(double hit_rate) const {
    const engine::MachineLimits &now = limits_.now, &high = limits_.high;
    const bool is_in_caches = run_.work.hot_bytes < bytes_beyond_caches;
    const engine::MachineLimits most{
        .dram_bytes_per_s = is_in_caches ? std::numeric_limits<double>::infinity()
                                         : std::max(now.dram_bytes_per_s, high.dram_bytes_per_s),
        .int8_macs_per_s = std::max(now.int8_macs_per_s, high.int8_macs_per_s),
        .disk_bytes_per_s = std::max(now.disk_bytes_per_s, high.disk_bytes_per_s),
        .disk_notes = {}};
    return engine::decode_bound(most, run_.work.with_hit_rate(hit_rate), run_.plan.cache.sequences);
  }

  engine::StepTime rehearse(double hit_rate) const {
    // Reads of the disk here would be in the way of another one's speed.
    return planner_.rehearse_step(
        options_, hit_rate,
        other_.is_this_one(run_.cpus) ? engine::ReadsDisk::yes : engine::ReadsDisk::no);
  }

  // Of all sequences together, from a rehearsal at a hit rate.
  SpeedRange decode(const engine::StepTime& step, double hit_rate) const {
    const engine::DecodeWork work = run_.work.with_hit_rate(hit_rate);
    // How many times as long as its bound a step takes. The machine was in one of its moods
    // meanwhile, which the bound of that moment has too. Memory cannot be read faster than it is.
    std::vector<double> slowness;
    for (const engine::RehearsedStep& one : step.steps) {
      const engine::MachineLimits then = limits_of(one);
      const double times =
          one.seconds / (step.has_read ? bound_seconds(then, work) : memory_seconds(then, work));
      slowness.push_back(work.hot_bytes < bytes_beyond_caches ? times : std::max(times, 1.0));
    }
    std::ranges::sort(slowness);
    const auto speed = [&](double times, const engine::MachineLimits& limits) {
      return sequences() / (step.has_read ? times * bound_seconds(limits, work)
                                          : std::max(times * memory_seconds(limits, work),
                                                     bound_seconds(limits, work)));
    };
    // A run has slow steps too, so their mean is usual. But a scheduler's pause is longer than a
    // short step, and tells nothing of those that follow.
    constexpr double pause_s = 0.005;
    const bool is_short = step.seconds < pause_s;
    const double usual = is_short ? slowness[slowness.size() / 2] : mean(slowness);
    const double most = is_short ? usual : slowness.back();
    SpeedRange out{speed(most, limits_.low), speed(usual, limits_.usual),
                   speed(slowness.front(), limits_.high)};
    // By so much a run differs from its rehearsal on a machine that does not change. What others
    // take of the CPUs now they may leave to the run, or take once more.
    constexpr double margin = 0.1, left_least = 0.25;
    const double left = std::max(1 - cpu_share_of_others_, left_least);
    out.low = std::min(out.low, out.usual) * (1 - margin) * left;
    out.high = std::max(out.high, out.usual) * (1 + margin) / left;
    return out;
  }

  // The same, with what earlier runs like this one have reached, which is worth more.
  SpeedRange decode_with_earlier_runs(double hit_rate) const {
    SpeedRange out = decode(step_, hit_rate);
    if (!earlier_steps_) return out;
    out.low = std::min(out.low, earlier_steps_->low * sequences());
    out.usual = earlier_steps_->usual * sequences();
    out.high = std::max(out.high, earlier_steps_->high * sequences());
    return out;
  }

  // A prompt is arithmetic, and each of its steps reads all that is not in memory.
  PromptSpeed prompt() const {
    constexpr std::uint64_t tokens_max = 64;  // of a step that is measured; larger ones follow it
    const double slower_now = limits_.usual.int8_macs_per_s / measured_.int8_macs_per_s;
    std::vector<batch::StepCurve::Point> points;
    for (const engine::StepPoint& point :
         planner_.rehearse_steps(options_, tokens_max, engine::LogitsOf::last_token)) {
      points.push_back({point.tokens, point.seconds / slower_now});
    }
    const batch::StepCurve curve(std::move(points));
    PromptSpeed out;
    out.tokens = std::min<std::uint64_t>(usual_prompt_tokens, run_.plan.context);
    const std::uint64_t weights = bytes_of_loaded(planner_, run_.plan);
    const std::uint64_t pinned = std::min(run_.plan.tape.pinned_bytes, weights);
    const double disk = run_.work.streamed_bytes == 0 ? 0
                                                      : static_cast<double>(weights - pinned) /
                                                            limits_.usual.disk_bytes_per_s;
    for (std::uint64_t done = 0; done < out.tokens; done += run_.plan.chunk) {
      const std::uint64_t part = std::min<std::uint64_t>(run_.plan.chunk, out.tokens - done);
      out.seconds += std::max(curve.seconds(static_cast<double>(part)), disk);
    }
    out.tokens_per_s = static_cast<double>(out.tokens) / out.seconds;
    return out;
  }

 private:
  double sequences() const { return run_.plan.cache.sequences; }

  double bound_seconds(const engine::MachineLimits& limits, const engine::DecodeWork& work) const {
    const std::uint32_t sequences = run_.plan.cache.sequences;
    return sequences / engine::decode_bound(limits, work, sequences).tokens_per_s;
  }

  // Of a step that waits for nothing but memory.
  static double memory_seconds(const engine::MachineLimits& limits,
                               const engine::DecodeWork& work) {
    return static_cast<double>(work.hot_bytes) / limits.dram_bytes_per_s;
  }

  // What this machine could do beside a step.
  engine::MachineLimits limits_of(const engine::RehearsedStep& step) const {
    engine::MachineLimits then = measured_;
    if (step.dram_bytes_per_s > 0) then.dram_bytes_per_s = step.dram_bytes_per_s;
    return then;
  }

  // Beside all steps together; 0 where it was not measured.
  static double mean_dram(const engine::StepTime& step) {
    std::vector<double> seconds_a_byte;
    for (const engine::RehearsedStep& one : step.steps) {
      seconds_a_byte.push_back(1 / one.dram_bytes_per_s);
    }
    return 1 / mean(seconds_a_byte);
  }

  const engine::RunPlanner& planner_;
  const engine::EngineOptions& options_;
  const engine::PlannedRun& run_;
  const OtherMachine& other_;
  KnownLimits limits_;
  engine::MachineLimits measured_;  // of this machine, now
  engine::StepTime step_;           // at the hit rate that is expected, if the plan fits
  double cpu_share_of_others_ = 0;
  std::optional<engine::RateRange> earlier_steps_;
};

}  // namespace

Prediction predict(const engine::RunPlanner& planner, const std::filesystem::path& model,
                   const engine::EngineOptions& options, const engine::PlannedRun& run,
                   double hit_rate, const OtherMachine& other, bool quiet) {
  const Predictor predictor(planner, model, options, run, hit_rate, other, quiet);
  Prediction out;
  out.limits = predictor.limits();
  out.bound = predictor.bound(hit_rate);
  out.cpu_share_of_others = predictor.cpu_share_of_others();
  if (!run.plan.fits()) return out;
  out.tokens_per_s = predictor.decode_with_earlier_runs(hit_rate);
  for (double* speed :
       {&out.tokens_per_s->low, &out.tokens_per_s->usual, &out.tokens_per_s->high}) {
    *speed = std::min(*speed, out.bound.tokens_per_s);
  }
  if (predictor.earlier_steps()) out.earlier_runs = predictor.earlier_steps()->samples;
  if (run.work.has_streamed_experts()) {
    // Two measurements of one machine differ by themselves; fewer hits never make a step faster.
    out.tokens_per_s_without_hits =
        std::min(predictor.decode(predictor.rehearse(0), 0).usual, out.tokens_per_s->usual);
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
  const auto streams = [&](std::uint64_t budget_bytes) {
    options.budget_bytes = budget_bytes;
    const engine::PlannedRun tried = planner.plan(options);
    return !tried.plan.fits() || tried.work.streamed_bytes != 0;
  };
  std::uint64_t too_small = run.plan.least_budget_bytes / 2;
  const auto with_pinned = [&](std::uint64_t weights) {
    return std::max(run.plan.total_bytes(), run.plan.least_budget_bytes) + weights -
           std::min(run.plan.tape.pinned_bytes, weights) + weights / 64;
  };
  std::uint64_t enough = with_pinned(planner.header().data_bytes());
  const std::uint64_t most = enough + 16 * precision;
  if (streams(enough) && streams(most)) {  // more than this machine has
    return with_pinned(bytes_of_loaded(planner, run.plan));
  }
  while (enough - too_small > precision) {
    const std::uint64_t middle = too_small + (enough - too_small) / 2;
    (streams(middle) ? too_small : enough) = middle;
  }
  // What a small model streams does not fall evenly: a larger budget may lengthen chunks first.
  while (enough < most && (streams(enough) || streams(enough + margin))) enough += precision;
  return enough + margin;
}

}  // namespace sluice::cli
