#include "core/batch/job.h"

#include <algorithm>
#include <utility>

namespace sluice::batch {

// As many tasks as can begin in one step.
PreparerLimits preparer_limits(const serve::SchedulerOptions& scheduler) {
  return {.tasks_max = std::max<std::size_t>(scheduler.parallel, 2)};
}

Job::Job(engine::Engine& engine, const Input& input, DoneRows& done, const JobOptions& options,
         JobRows::Append append)
    : rows_(engine.tokenizer(), input, done, options, std::move(append)),
      scheduler_(
          engine, options.scheduler,
          [this](rows::Priority least) {
            return least == rows::Priority::background ? rows_.next() : std::nullopt;
          },
          [this](const rows::Task& task, const rows::Outcome& outcome) {
            rows_.take(task, outcome);
          }) {
  rows_.prepare_ahead(preparer_limits(options.scheduler), options.helper_cpus);
}

}  // namespace sluice::batch
