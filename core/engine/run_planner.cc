// The planner of runs, and what it measures of them: steps without the weights.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/preparation.h"
#include "core/engine/rehearsal.h"
#include "kernels/kernel_table.h"
#include "streaming/data_extents.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

// `cpus` are those that choose_cpus() found here.
std::size_t planned_threads(const EngineOptions& options, const topology::CpuList& cpus) {
  return options.planned_threads != 0 ? options.planned_threads : cpus.size();
}

// Whether the files have all bytes of the segments; a file with only a header does not.
bool has_all(std::span<const streaming::ReaderFile> files,
             const std::vector<streaming::Segment>& segments) {
  return std::ranges::all_of(segments, [&](const streaming::Segment& segment) {
    return segment.offset + segment.bytes <= files[segment.file].bytes;
  });
}

// A planned run, ready to be rehearsed.
class RehearsedRun {
 public:
  // `opened` outlives the run.
  RehearsedRun(const OpenedModel& opened, const EngineOptions& options)
      : has_holes_(std::ranges::any_of(
            opened.model.files(),
            [](const gguf::ModelFile& file) { return streaming::is_mostly_hole(file.path); })),
        machine_(topology::read_machine()),
        cpus_(choose_cpus(options)),
        team_(cpus_),
        prepared_(opened, options, planned_threads(options, cpus_)),
        pin_(cpus_.front()) {
    if (!plan().fits()) throw plan::budget_error(plan());
  }

  const plan::MemoryPlan& plan() const { return prepared_.planned.plan; }
  // engine::share_of_time() of the threads of the run.
  double share_of_time() const { return engine::share_of_time(machine_, cpus_.size()); }

  // Whether steps of more than so many tokens read hardly more weights.
  bool needs_most_experts(std::size_t tokens) const {
    return std::ranges::all_of(
        prepared_.planned.layout->expert_groups(),
        [&](const streaming::ExpertGroup& group) { return group.share_needed(tokens) > 0.9; });
  }

  bool has_weights() const {
    const std::span<const streaming::ReaderFile> files = prepared_.reader.reader->files();
    return has_all(files, prepared_.planned.layout->segments()) && !has_holes_;
  }

  // Call this only once.
  Rehearsal rehearsal(bool reads_disk, std::optional<double> hit_rate = {}) {
    return {prepared_.planned,
            kernels::kernel_table(),
            team_,
            reads_disk ? std::move(prepared_.reader.reader) : nullptr,
            dram_buffer_bytes(machine_),
            hit_rate};
  }

 private:
  bool has_holes_;
  topology::Machine machine_;
  topology::CpuList cpus_;
  topology::ThreadTeam team_;
  Preparation prepared_;
  topology::ScopedPin pin_;
};

}  // namespace

RunPlanner::RunPlanner(const std::filesystem::path& model, const gguf::ParseOptions& options)
    : opened_(std::make_unique<OpenedModel>(model, options)) {}

RunPlanner::~RunPlanner() = default;
RunPlanner::RunPlanner(RunPlanner&& other) noexcept = default;
RunPlanner& RunPlanner::operator=(RunPlanner&& other) noexcept = default;

const gguf::Model& RunPlanner::header() const {
  return opened_->model;
}

const tokenizer::Tokenizer& RunPlanner::tokenizer() const {
  return *opened_->tokenizer;
}

PlannedRun RunPlanner::plan(const EngineOptions& options) const {
  const topology::CpuList cpus = choose_cpus(options);
  const Preparation prepared(*opened_, options, planned_threads(options, cpus));
  return {prepared.planned.plan, decode_work(prepared.planned), cpus};
}

StepTime RunPlanner::rehearse_step(const EngineOptions& options,
                                   std::optional<double> expert_hit_rate,
                                   ReadsDisk reads_disk) const {
  RehearsedRun run(*opened_, options);
  const bool has_read = reads_disk == ReadsDisk::yes && run.has_weights();
  Rehearsal rehearsal = run.rehearsal(has_read, expert_hit_rate);
  constexpr auto duration = std::chrono::milliseconds(900);
  std::vector<RehearsedStep> steps =
      rehearsal.steps_beside_memory(run.plan().cache.sequences, measuring_time(duration));
  for (RehearsedStep& step : steps) step.dram_bytes_per_s *= run.share_of_time();
  std::ranges::sort(steps, {}, &RehearsedStep::seconds);
  return {steps[steps.size() / 2].seconds, steps, has_read};
}

std::vector<StepPoint> RunPlanner::rehearse_steps(const EngineOptions& options,
                                                  std::uint64_t tokens_max, LogitsOf logits) const {
  constexpr std::size_t times = 4;
  constexpr auto duration = std::chrono::milliseconds(50);
  RehearsedRun run(*opened_, options);
  Rehearsal rehearsal = run.rehearsal(false);
  const std::uint64_t most =
      std::max<std::uint64_t>(1, std::min({tokens_max, std::uint64_t{run.plan().chunk},
                                           std::uint64_t{run.plan().cache.positions}}));
  std::vector<StepPoint> points;
  for (std::size_t tokens = 1; tokens <= most; tokens *= times) {
    // The best of both: a slow moment of the machine would bend the curve.
    const auto best = [&] { return rehearsal.step_seconds(1, tokens, logits, duration).front(); };
    const double seconds = std::min(best(), best());
    points.push_back({static_cast<double>(tokens), seconds});
    // From here on, time grows in proportion to tokens. With experts it may do so before that, as
    // long as each token needs others.
    const bool is_in_proportion =
        points.size() > 1 && seconds > 0.9 * times * points[points.size() - 2].seconds;
    if (is_in_proportion && run.needs_most_experts(tokens)) break;
  }
  return points;
}

PlannedRun plan_run(const std::filesystem::path& model, const EngineOptions& options) {
  return RunPlanner(model).plan(options);
}

}  // namespace sluice::engine
