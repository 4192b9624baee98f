#include "core/cli/batch_setup.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "core/batch/parallel_choice.h"
#include "core/batch/task_preparer.h"
#include "core/chat/dialogue.h"
#include "core/cli/chat_setup.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/row_setup.h"
#include "core/cli/sampling_defaults.h"
#include "core/cli/speculation.h"
#include "core/engine/engine.h"
#include "core/engine/machine_limits.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/hyper_parameters.h"
#include "core/serve/drafter.h"
#include "kvcache/layout.h"
#include "streaming/disk_speed.h"
#include "topology/machine.h"

namespace sluice::cli {
namespace {

// Of a job with more than twice this many rows only a sample is examined: this many rows, evenly
// spaced, and this many of the longest rows.
constexpr std::uint64_t sample_rows = 2048;

// What the remaining rows need, from the model's header alone.
struct Need {
  std::uint64_t rows = 0;  // all rows, whether they can be run or not
  std::uint64_t rows_to_run = 0;
  std::uint32_t positions = 1;           // of the longest row
  std::uint64_t positions_together = 0;  // of all that can be run, in whole pages
  std::uint64_t work_bytes = 0;          // to make the task of a row
  std::uint64_t held_bytes = 0;          // of a running row, for its settings
  batch::Workload work = {};             // of the rows that can be run
  bool is_estimate = false;              // not all rows were examined

  void take_longest(const rows::Task& task) {
    positions = std::max(positions, static_cast<std::uint32_t>(positions_of(task)));
    held_bytes = std::max(held_bytes, task.held_bytes);
  }

  void count(const rows::Task& task) {
    positions_together += task.choices * in_pages(positions_of(task));
    rows_to_run += task.choices;
    work.rows += task.choices;
    work.prompt_tokens += task.prompt.size();
    work.generated_tokens += std::uint64_t{task.choices} * task.tokens_max;
  }

  // Scales the counts of `rows_counted` rows up to all rows, and leaves room for rows that are
  // somewhat longer than those examined.
  void extrapolate(std::uint64_t rows_counted, std::uint32_t positions_max) {
    is_estimate = true;
    const double times = static_cast<double>(rows) / static_cast<double>(rows_counted);
    for (std::uint64_t* count : {&positions_together, &rows_to_run, &work.rows, &work.prompt_tokens,
                                 &work.generated_tokens}) {
      *count = static_cast<std::uint64_t>(static_cast<double>(*count) * times);
    }
    const std::uint64_t most =
        positions_max == 0 ? std::numeric_limits<std::uint32_t>::max() / 2 : positions_max;
    positions = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(in_pages(positions + positions / 8), most));
    held_bytes += held_bytes / 8;
  }

  static std::uint64_t positions_of(const rows::Task& task) {
    return task.prompt.size() + task.tokens_max;
  }

  // The positions that n running sequences need on average; at least the longest row, at most n
  // times the longest row.
  std::uint64_t cache_positions(std::uint32_t n) const {
    const std::uint64_t runs = std::max<std::uint64_t>(rows_to_run, 1);
    const std::uint64_t longest = in_pages(positions);
    return std::clamp((n * positions_together + runs - 1) / runs, longest, n * longest);
  }

  static std::uint64_t in_pages(std::uint64_t positions) {
    constexpr std::uint64_t page = kvcache::page_positions;
    return (positions + page - 1) / page * page;
  }
};

// The engine's options for n sequences that run together.
engine::EngineOptions options_for(engine::EngineOptions options, const Need& need,
                                  std::uint32_t n) {
  serve::SchedulerOptions scheduler;
  scheduler.parallel = n;
  scheduler.drafts = draft_options({.mode = options.drafts == 0 ? "off" : "auto"});
  if (!options.helper.empty()) {
    scheduler.drafts.bytes_per_token = serve::Drafter::bytes_per_token;
  }
  options.parallel = n;
  options.cache_positions = need.cache_positions(n);
  options.caller_bytes = need.work_bytes + serve::rows_bytes(scheduler, need.positions) +
                         batch::prepared_bytes(batch::preparer_limits(scheduler), need.positions) +
                         (n + 2) * need.held_bytes;
  return options;
}

std::vector<std::uint32_t> rows_left(const batch::Input& input, const batch::DoneRows& done) {
  const batch::Shard& shard = done.shard();
  std::vector<std::uint32_t> rows;
  rows.reserve(done.rows() - done.count());
  for (std::uint64_t row = shard.index; row <= input.rows(); row += shard.count) {
    if (!done.has(row)) rows.push_back(static_cast<std::uint32_t>(row));
  }
  return rows;
}

Need look_through(const BatchOptions& options, const rows::TaskOptions& tasks,
                  const tokenizer::Tokenizer& tokenizer, const KnownJob& job) {
  const batch::Input& input = job.input;
  const batch::RowTasks maker(tokenizer, input, tasks);
  Progress progress(options.common.quiet);
  std::vector<std::uint32_t> left = rows_left(input, job.done);
  const std::size_t looks = std::min<std::size_t>(left.size(), 2 * sample_rows);
  std::size_t looked = 0;
  Need need;
  need.rows = left.size();
  const auto look = [&](std::uint32_t row, bool counts) {
    throw_if_interrupted();
    progress.show(fmt::format("looking at row {} of {}", ++looked, looks));
    const auto made = maker.make(row);
    const auto* task = std::get_if<rows::Task>(&made);
    if (task == nullptr) return;
    need.take_longest(*task);
    if (counts) need.count(*task);
  };
  if (left.size() <= 2 * sample_rows) {
    for (const std::uint32_t row : left) look(row, true);
  } else {
    for (std::uint64_t i = 0; i < sample_rows; ++i) look(left[i * left.size() / sample_rows], true);
    std::ranges::nth_element(left, left.begin() + sample_rows, std::greater(),
                             [&](std::uint32_t row) { return input.row_bytes(row); });
    left.resize(sample_rows);
    for (const std::uint32_t row : left) look(row, false);
    need.extrapolate(sample_rows, tasks.positions_max);
  }
  need.work_bytes = maker.work_bytes();  // the rows have shown whether there are grammars
  need.positions = std::max(need.positions, static_cast<std::uint32_t>(job.left_out.positions));
  need.held_bytes = std::max(need.held_bytes, job.left_out.held_bytes);
  return need;
}

// The most tokens of a step that --parallel auto measures. Such a step takes as long as a prompt of
// so many tokens: a short job must not wait for it longer than a better choice can save. But a
// curve needs more than one point.
std::uint64_t rehearsed_tokens_max(const batch::Workload& work) {
  constexpr std::uint64_t least = 16, most = 256, share = 64;
  return std::clamp((work.prompt_tokens + work.generated_tokens) / share, least, most);
}

// The measurements that --parallel auto uses.
struct Measured {
  std::array<engine::StepPoint, 8> steps = {};
  std::size_t steps_count = 0;
  double disk_bytes_per_s = 0;  // 0: nothing is streamed
};

Measured measure(const engine::RunPlanner& planner, const std::filesystem::path& model,
                 const engine::EngineOptions& options, std::uint64_t tokens_max, bool is_streamed,
                 std::uint64_t memory_max) {
  constexpr auto disk_time = std::chrono::milliseconds(500);
  Measured out;
  const std::vector<engine::StepPoint> steps =
      planner.rehearse_steps(options, tokens_max, engine::LogitsOf::all_tokens);
  out.steps_count = std::min(steps.size(), out.steps.size());
  std::copy_n(steps.begin(), out.steps_count, out.steps.begin());
  if (is_streamed) {
    const auto duration = engine::measuring_time(disk_time);
    const std::uint64_t bytes = engine::measuring_bytes(topology::read_machine(), memory_max);
    out.disk_bytes_per_s =
        streaming::measure_disk(model, duration, options.io, 0, bytes).bytes_per_s;
  }
  return out;
}

// Measures in a child process. Measuring needs buffers that are not in the plan; they are gone with
// the child before the engine allocates, so the peak of this process is that of its plan. No other
// thread runs yet, so the fork is safe.
Measured measure_in_child(const engine::RunPlanner& planner, const std::filesystem::path& model,
                          const engine::EngineOptions& options, std::uint64_t tokens_max,
                          bool is_streamed, std::uint64_t memory_max) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const base::Descriptor reading(ends[0]);
  base::Descriptor writing(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      const Measured measured =
          measure(planner, model, options, tokens_max, is_streamed, memory_max);
      status = ::write(writing.number(), &measured, sizeof measured) == sizeof measured ? 0 : 1;
    } catch (...) {  // the parent notices that no result came
    }
    ::_exit(status);
  }
  writing.close();
  Measured measured;
  const bool has_come =
      child > 0 && ::read(reading.number(), &measured, sizeof measured) == sizeof measured;
  if (child > 0) ::waitpid(child, nullptr, 0);
  throw_if_interrupted();
  if (!has_come) {
    throw Error(ExitCode::failure,
                "the speed of a step cannot be measured: give --parallel N instead of auto");
  }
  return measured;
}

batch::ParallelChoice choose_parallel(const engine::RunPlanner& planner,
                                      const BatchOptions& options,
                                      const engine::EngineOptions& wanted, const Need& need) {
  const auto run_with = [&](std::uint32_t parallel) {
    return planner.plan(options_for(wanted, need, parallel));
  };
  if (!run_with(1).plan.fits()) return {1, "not even one sequence fits the budget"};
  const std::uint32_t most =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(need.rows_to_run, batch::parallel_max));
  const engine::PlannedRun many = run_with(most);
  const bool is_streamed = !many.plan.fits() || many.work.streamed_bytes != 0;
  const Measured measured =
      measure_in_child(planner, options.common.model, options_for(wanted, need, 1),
                       rehearsed_tokens_max(need.work), is_streamed, many.plan.budget.bytes);
  std::vector<batch::StepCurve::Point> points;
  for (std::size_t i = 0; i < measured.steps_count; ++i) {
    points.push_back({measured.steps[i].tokens, measured.steps[i].seconds});
  }
  const auto streamed_bytes = [&](std::uint32_t parallel) -> std::optional<std::uint64_t> {
    throw_if_interrupted();
    const engine::PlannedRun run = run_with(parallel);
    return run.plan.fits() ? std::optional(run.work.streamed_bytes) : std::nullopt;
  };
  return batch::choose_parallel(batch::StepCurve(std::move(points)), measured.disk_bytes_per_s,
                                need.work, streamed_bytes);
}

// The most positions that a row may need; 0 (no limit) with a window.
std::uint32_t positions_max(const CommonOptions& common, const gguf::Model& header) {
  if (common.window != 0) return 0;
  if (common.context != 0) return common.context;
  return model::Keys(header).count("context_length", model::context_max);
}

rows::Truncate truncate_named(const std::string& name) {
  if (name == "head") return rows::Truncate::head;
  return name == "tail" ? rows::Truncate::tail : rows::Truncate::no;
}

rows::TaskOptions task_options(const BatchOptions& options, const gguf::Metadata& metadata) {
  rows::TaskOptions tasks;
  tasks.defaults.sampler = settled_sampler(options.sampling, metadata);
  tasks.defaults.sampler.seed = options.sampling.seed.value_or(0);
  tasks.defaults.stop = options.sampling.stop;
  tasks.defaults.tokens_max = options.tokens_max;
  tasks.defaults.shortens = options.shortens;
  tasks.truncate = truncate_named(options.truncate);
  tasks.thought_tokens_max = options.thinking.tokens_max;
  return tasks;
}

// Tells each warning of rows once. May be called by any thread.
std::function<void(const std::string&)> warn_once() {
  struct Told {
    base::Mutex mutex;
    std::set<std::string> warnings SLUICE_GUARDED_BY(mutex);
  };
  return [told = std::make_shared<Told>()](const std::string& warning) {
    const base::MutexLock lock(told->mutex);
    if (!told->warnings.insert(warning).second) return;
    warn(warning + "; this is said once");
  };
}

// Prepares a job up to the point where its engine is opened.
class Preparation {
 public:
  Preparation(const BatchOptions& options, const KnownJob& job, std::function<void()> stop_check)
      : options_(options),
        job_(job),
        wanted_(engine_options(
            options.common, options.parallel == 0 ? plan::draft_sequences_max : options.parallel)),
        planner_(options.common.model, {}) {
    wanted_.stop_check = std::move(stop_check);
    wanted_.prompt_cache = options.prompt_cache;
    engine::require_text(planner_.header());
    const gguf::Metadata& metadata = planner_.header().metadata();
    tasks_ = task_options(options, metadata);
    if (!options.common.quiet && job.left_out.rows == 0) {
      tell_recommendation(options.sampling, metadata);
    }
    tasks_.now = job.now;
    tasks_.dialogue =
        make_dialogue(options.thinking.think,
                      chat::ChatSource::find(options.chat_format, metadata, tasks_.no_dialogue),
                      planner_.tokenizer());
    tasks_.positions_max = positions_max(options.common, planner_.header());
    if (has_chat_template(metadata)) {
      tasks_.warning_of_texts =
          "the model answers messages, but a row with \"prompt\" is continued as a text: give "
          "\"messages\" in its place";
    }
    names_ = model_names(options.common.model, metadata);
    if (options.check_model) tasks_.model_names = names_;
    examine();
    if (options.common.window == 0 && options.common.context == 0) choose_context();
    if (wanted_.window == 0) wanted_.context = std::min(need_.positions, tasks_.positions_max);
    choose_parallel();
  }

  PreparedEngine open() {
    return_free_memory();
    if (!options_.common.quiet) tasks_.on_warning = warn_once();  // not while rows are examined
    PreparedEngine prepared;
    prepared.job.scheduler.parallel = parallel_;
    prepared.job.scheduler.drafts = draft_options(options_.common.speculate);
    prepared.job.positions_planned = need_.positions;
    prepared.job.held_bytes_planned = need_.held_bytes;
    prepared.job.helper_cpus = topology::read_machine().allowed_cpus;
    prepared.job.task = tasks_;
    prepared.job.stop_check = wanted_.stop_check;
    prepared.engine =
        open_engine(options_.common, options_for(wanted_, need_, parallel_), std::move(planner_));
    prepared.job.model_name = names_.front();
    return prepared;
  }

 private:
  // Finds out what the rows need. Frees the memory for this before plans are made.
  void examine() {
    need_ = look_through(options_, tasks_, planner_.tokenizer(), job_);
    return_free_memory();
  }

  // Chooses the context when none was given: what the longest row needs, within the budget. Longer
  // rows become errors, unless rows may be truncated: then their results would depend on the
  // budget.
  void choose_context() {
    const bool may_be_cut = tasks_.truncate != rows::Truncate::no || tasks_.defaults.shortens;
    const std::uint32_t longest = need_.positions;
    const std::uint32_t context = may_be_cut ? longest : fitting_context();
    if (context == longest) {
      const char* reason = need_.is_estimate
                               ? "what the longest of the rows looked at needs, and more"
                               : "what the longest row needs";
      if (need_.rows_to_run != 0) say(fmt::format("--ctx {}: {}", context, reason));
      return;
    }
    const std::uint64_t rows_before = need_.rows_to_run;
    tasks_.positions_max = context;
    tasks_.remedy = "raise --budget, or give --ctx or --truncate";
    examine();
    say(fmt::format("--ctx {}: the most that fits the budget; {}{} longer rows are errors", context,
                    need_.is_estimate ? "about " : "", rows_before - need_.rows_to_run));
  }

  // The longest context that fits the budget, but no longer than the longest row. If nothing fits
  // it is the longest row's, and the engine reports the error.
  std::uint32_t fitting_context() const {
    engine::EngineOptions wanted = wanted_;
    Need need = need_;
    const auto fits = [&](std::uint32_t context) {
      throw_if_interrupted();
      wanted.context = need.positions = context;
      const std::uint32_t parallel = std::max(options_.parallel, 1U);
      const plan::MemoryPlan plan = planner_.plan(options_for(wanted, need, parallel)).plan;
      // The least budget has a margin for what differs between this plan and the engine's own.
      return plan.fits() && plan.least_budget_bytes <= plan.budget.bytes;
    };
    const std::uint32_t longest = need_.positions;
    if (fits(longest)) return longest;
    std::uint32_t fitting = 0, too_long = longest;
    while (too_long - fitting > kvcache::page_positions) {
      const std::uint32_t middle = fitting + (too_long - fitting) / 2;
      (fits(middle) ? fitting : too_long) = middle;
    }
    return fitting == 0 ? longest : fitting;
  }

  void choose_parallel() {
    parallel_ = std::max(options_.parallel, 1U);
    if (options_.parallel != 0 || need_.rows_to_run <= 1) return;
    // Counted beside the rows, if it is taken for one. Whether it is for all of them is seen when
    // the model is opened.
    engine::EngineOptions alone = options_for(wanted_, need_, 1);
    settle_predictor(options_.common.speculate, planner_, alone);
    wanted_.predicts = alone.predicts;
    const batch::ParallelChoice choice = cli::choose_parallel(planner_, options_, wanted_, need_);
    parallel_ = choice.parallel;
    say(fmt::format("--parallel {}: {}", choice.parallel, choice.reason));
  }

  void say(const std::string& line) const {
    if (!options_.common.quiet) remark(line);
  }

  const BatchOptions& options_;
  const KnownJob& job_;
  engine::EngineOptions wanted_;
  engine::RunPlanner planner_;
  std::vector<std::string> names_;  // of the model
  rows::TaskOptions tasks_;         // its dialogue uses the tokenizer of planner_
  Need need_;
  std::uint32_t parallel_ = 1;
};

}  // namespace

engine::EngineOptions options_of_rows(const CommonOptions& common,
                                      const engine::RunPlanner& planner, std::uint32_t positions,
                                      std::uint32_t parallel) {
  constexpr std::uint64_t usual_row_bytes = std::uint64_t{1} << 16;
  Need need{.rows = parallel, .rows_to_run = parallel, .positions = positions};
  need.positions_together = std::uint64_t{parallel} * Need::in_pages(positions);
  const rows::TaskOptions usual;
  need.work_bytes = rows::TaskMaker(planner.tokenizer(), usual).work_bytes(usual_row_bytes);
  engine::EngineOptions options = engine_options(common, parallel);
  if (options.window == 0) options.context = positions;
  return options_for(options, need, parallel);
}

PreparedEngine prepare_engine(const BatchOptions& options, const KnownJob& job,
                              std::function<void()> stop_check) {
  return Preparation(options, job, std::move(stop_check)).open();
}

}  // namespace sluice::cli
