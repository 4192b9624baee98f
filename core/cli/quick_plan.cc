#include "core/cli/quick_plan.h"

#include <exception>
#include <malloc.h>

#include "core/error.h"
#include "core/fetch/hub.h"
#include "core/gguf/quant_name.h"
#include "core/model/hyper_parameters.h"

namespace sluice::cli {

engine::RunPlanner next_planner(const std::filesystem::path& model) {
  ::malloc_trim(0);  // NOLINT(concurrency-mt-unsafe): there is one thread
  return engine::RunPlanner(model);
}

double QuickPlan::tokens_per_s(const engine::MachineLimits& limits) const {
  // Decoding reaches so much of what memory and disk allow; runs of models of 1 to 9 billion
  // weights reached 0.8 to 1.
  constexpr double usual_share_of_bound = 0.9;
  if (reads_whole(run.plan)) {
    return engine::decode_bound(limits, work, run.plan.chunk).tokens_per_s;
  }
  return usual_share_of_bound *
         engine::decode_bound(limits, work, run.plan.cache.sequences).tokens_per_s;
}

QuickPlan quick_plan(const engine::RunPlanner& planner, const PlanOptions& options) {
  const std::uint32_t context = model::trained_context(model::Keys(planner.header()));
  QuickPlan out{planner.plan(options_for_use(options, planner, context)), {}};
  if (options.use == PlannedUse::run && reads_whole(out.run.plan)) {
    PlanOptions of_texts = options;
    of_texts.use = PlannedUse::embed;
    return quick_plan(planner, of_texts);
  }
  const double hit_rate = out.run.work.has_streamed_experts()
                              ? options.hit_rate.value_or(out.run.work.usual_hit_rate())
                              : 1;
  out.work = out.run.work.with_hit_rate(hit_rate);
  return out;
}

KnownLimits measure_limits(const std::filesystem::path& model, const engine::RunPlanner& planner,
                           const engine::PlannedRun& run, const PlanOptions& options) {
  MachineRates rates(topology::read_machine(),
                     {model, planner.header().data_bytes(), static_cast<unsigned>(run.cpus.size()),
                      run.plan.cache.sequences, run.work, true});
  KnownLimits limits = rates.measure(run.cpus);
  rates.save(options.common.quiet);
  options.other.replace(limits, run.cpus);
  return limits;
}

std::optional<double> known_tokens_per_s(const std::filesystem::path& model) try {
  const engine::RunPlanner planner = next_planner(model);
  if (!engine::writes_text(planner.header())) return std::nullopt;
  const topology::Machine machine = topology::read_machine();
  const topology::ThreadChoice choice = topology::choose_threads(machine);
  // Which of the two numbers of threads is the better one takes time to measure. What is known is
  // of that one.
  for (const topology::CpuList& cpus : {choice.cpus, choice.alternative_cpus}) {
    if (cpus.empty()) continue;
    PlanOptions options;
    options.common.threads = static_cast<unsigned>(cpus.size());
    const QuickPlan quick = quick_plan(planner, options);
    if (!quick.run.plan.fits()) return std::nullopt;
    const MachineRates rates(machine, {model, planner.header().data_bytes(), options.common.threads,
                                       1, quick.run.work, true});
    if (const std::optional<engine::RateRange> steps = rates.steps()) return steps->usual;
    const engine::MachineLimits limits = rates.known();
    const bool is_enough = quick.work.hot_bytes >= bytes_beyond_caches &&
                           limits.dram_bytes_per_s > 0 && limits.int8_macs_per_s > 0 &&
                           (quick.work.streamed_bytes == 0 || limits.disk_bytes_per_s > 0);
    if (is_enough) return quick.tokens_per_s(limits);
  }
  return std::nullopt;
} catch (const std::exception&) {  // of a model that cannot be run or read
  return std::nullopt;
}

std::string quant_of(std::string_view name, const gguf::Model& model) {
  const std::string named = fetch::quant_in_name(name);
  return named.empty() ? gguf::quant_name(model) : named;
}

}  // namespace sluice::cli
