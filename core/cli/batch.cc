#include "core/cli/batch.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/batch/input_form.h"
#include "core/batch/parallel_choice.h"
#include "core/batch/progress.h"
#include "core/batch/status_segment.h"
#include "core/chat/families.h"
#include "core/cli/batch_output.h"
#include "core/cli/batch_setup.h"
#include "core/cli/chat_setup.h"
#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/run_status.h"
#include "core/cli/sandbox.h"
#include "core/cli/speculation.h"
#include "core/cli/terminal.h"
#include "core/error.h"
#include "core/rows/row_settings.h"
#include "topology/process_memory.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds status_period{1};
constexpr std::chrono::seconds line_period{60};

constexpr const char* description =
    "Each line of IN.jsonl is a row, in the form of OpenAI's batch files (custom_id, method, url,\n"
    "body) or plain: {\"id\": \"a\", \"prompt\": \"...\", \"max_tokens\": 64}. Each gets one line\n"
    "in OUT.jsonl, as soon as it is done; a bad row gets an error that names its line.\n"
    "Whatever stopped a job, the same command goes on with it. OUT.jsonl.state holds what the\n"
    "job was started with: if the input or a setting has changed since, the command refuses to\n"
    "go on. Results do not depend on --parallel, --budget or --shard.\n"
    "Ctrl-C or SIGTERM ends with status 75 when rows are left (-o -: 130 or 143); a second one\n"
    "ends at once.\n\n"
    "Examples:\n"
    "  sluice batch model.gguf in.jsonl -o out.jsonl --budget 4GiB\n"
    "  sluice batch model.gguf in.jsonl -o part-2.jsonl --shard 2/4\n"
    "  sluice batch model.gguf - -o - < in.jsonl > out.jsonl";

// Reports a running job to all who watch it: the terminal and `sluice top`.
class Watch {
 public:
  Watch(const BatchOptions& options, const engine::Engine& engine, const batch::Job& job)
      : options_(options),
        engine_(engine),
        job_(job),
        meter_(job.done().rows(), job.done().count()),
        progress_(options.common.quiet) {
    status_.command = "batch";
    status_.model = options.common.model.filename().string();
    status_.budget_bytes = engine.plan().budget.bytes;
    try {
      publisher_ = std::make_unique<batch::StatusPublisher>();
      publish();
    } catch (const std::system_error& error) {
      if (!options.common.quiet) warn(error.what());
    }
  }

  // Call this after each step.
  void look() {
    const Clock::time_point now = Clock::now();
    const serve::SchedulerCounts& counts = job_.counts();
    meter_.update(job_.done().count(), counts.prompt_tokens_evaluated + counts.tokens_generated,
                  now);
    if (progress_.shown()) {
      constexpr std::size_t bar_columns = 80;
      const bool has_room = window_size(STDERR_FILENO).columns >= bar_columns;
      progress_.show(has_room ? meter_.bar() : meter_.line());
    } else if (!options_.common.quiet && now - last_line_ >= line_period) {
      remark(meter_.line());
      last_line_ = now;
    }
    if (publisher_ && now - last_status_ >= status_period) {
      publish();
      last_status_ = now;
    }
  }

  void end() { progress_.clear(); }

 private:
  void publish() {
    status_.memory_bytes =
        topology::read_process_memory().resident_bytes().value_or(batch::Status::unknown_memory);
    status_.tokens_per_s = meter_.tokens_per_s();
    status_.rows = job_.done().rows();
    status_.rows_done = job_.done().count();
    status_.seconds_left = meter_.seconds_left();
    status_.sequences = job_.running();
    status_.experts = status_of_experts(engine_.expert_statistics());
    status_.guesses = status_of_guesses(job_.counts());
    publisher_->publish(status_);
  }

  const BatchOptions& options_;
  const engine::Engine& engine_;
  const batch::Job& job_;
  batch::ProgressMeter meter_;
  Progress progress_;
  batch::Status status_;
  std::unique_ptr<batch::StatusPublisher> publisher_;
  Clock::time_point last_line_ = Clock::now();
  Clock::time_point last_status_{};
};

// The time that running rows get to finish after a signal.
class Grace {
 public:
  explicit Grace(std::chrono::seconds length) : length_(length) {}

  // Ends the step in which a signal comes, and the step in which the time is over.
  void stop_check() const {
    if (!end_ || is_over()) throw_if_interrupted();
  }

  bool has_begun() const { return end_.has_value(); }
  void begin() { end_ = Clock::now() + length_; }
  bool is_over() const { return end_ && Clock::now() >= *end_; }

 private:
  std::chrono::seconds length_;
  std::optional<Clock::time_point> end_;
};

// Runs steps until all rows are done, until the grace after a signal is over, or until nobody reads
// the output any more.
void run_steps(batch::Job& job, batch::Journal* journal, Watch& watch, Grace& grace,
               const bool& has_reader) {
  bool has_more = true;
  while (has_reader && has_more && !grace.is_over()) {
    try {
      has_more = job.step();
      watch.look();
    } catch (const Interrupted&) {  // rows are as before the step
    }
    if (journal != nullptr) journal->sync_if_due();
    if (interrupt_signal() != 0 && !grace.has_begun()) {
      job.wind_down();
      grace.begin();
    }
  }
  watch.end();
}

Throughput throughput(const serve::SchedulerCounts& counts, double seconds) {
  return {.prefill_tokens_per_s = rate(counts.prompt_tokens_evaluated, seconds),
          .decode_tokens_per_s = rate(counts.tokens_generated, seconds)};
}

// What this process did, with one engine or several in turn.
struct Work {
  serve::SchedulerCounts counts;
  std::uint64_t rows_done_before = 0;
  double seconds = 0;   // of steps
  double waited_s = 0;  // part of it: waiting for rows that were still being made

  void add(const batch::Job& job, double job_seconds) {
    const serve::SchedulerCounts& more = job.counts();
    counts.steps += more.steps;
    counts.prompt_tokens_evaluated += more.prompt_tokens_evaluated;
    counts.prompt_tokens_shared += more.prompt_tokens_shared;
    counts.tokens_generated += more.tokens_generated;
    counts.tokens_forced += more.tokens_forced;
    counts.row_steps += more.row_steps;
    counts.tokens_drafted += more.tokens_drafted;
    counts.tokens_accepted += more.tokens_accepted;
    for (std::size_t kind = 0; kind < more.drafts_by_kind.size(); ++kind) {
      counts.drafts_by_kind[kind].drafted += more.drafts_by_kind[kind].drafted;
      counts.drafts_by_kind[kind].accepted += more.drafts_by_kind[kind].accepted;
    }
    counts.running_max = std::max(counts.running_max, more.running_max);
    seconds += job_seconds;
    waited_s += job.waited_s();
  }
};

void write_report(const BatchOptions& options, const RunWatch& watch, const RunRecord& record,
                  const batch::DoneRows& done, const Work& work, std::uint32_t parallel) {
  if (options.common.report.empty()) return;
  const serve::SchedulerCounts& counts = work.counts;
  nlohmann::ordered_json report =
      watch.report(options.common, record, throughput(counts, work.seconds));
  report["parallel"] = parallel;
  report["rows"] = done.rows();
  report["rows_done"] = done.count();
  report["rows_done_before"] = work.rows_done_before;
  report["errors"] = done.errors();
  report["errors_by_code"] = nlohmann::ordered_json::object();
  for (std::size_t code = 0; code < batch::error_codes.size(); ++code) {
    const std::uint64_t count = done.errors_by_code()[code];
    if (count != 0) report["errors_by_code"][std::string(batch::error_codes[code])] = count;
  }
  report["rows_cut_by_max_tokens"] = done.cut();
  report["seconds"] = work.seconds;
  report["waited_for_rows_s"] = work.waited_s;
  report_counts(counts, report);
  report_drafts(options.common.speculate, counts, report);
  write_report_file(options.common, report);
}

std::string rows_line(const batch::DoneRows& done) {
  return fmt::format("{} of {} rows are done, {} of them errors", done.count(), done.rows(),
                     done.errors());
}

// `goes_on`: the same command computes what is left.
void tell_end(const batch::DoneRows& done, const Work& work, bool goes_on) {
  const serve::SchedulerCounts& counts = work.counts;
  std::string line = rows_line(done);
  if (const auto speed = rate(counts.tokens_generated, work.seconds)) {
    line += fmt::format("; generated {} tokens ({} tokens/s)", counts.tokens_generated,
                        format_speed(*speed));
  }
  if (counts.prompt_tokens_shared != 0) {
    line += fmt::format(", {} prompt tokens were shared", counts.prompt_tokens_shared);
  }
  line += drafts_text(counts);
  if (!done.is_complete() && goes_on) line += "; the same command goes on with the rest";
  remark(line);
  tell_outcomes(done);
}

batch::Shard shard_of(const BatchOptions& options) {
  if (const auto shard = batch::parse_shard(options.shard)) return *shard;
  throw UsageError(fmt::format("--shard {}: give I/N, part I of N, with I from 1 to N, such as 1/4",
                               options.shard));
}

// Reads the input once and finds its rows.
batch::Input read_input(const BatchOptions& options) {
  Progress progress(options.common.quiet);
  return batch::Input(options.input, [&](const batch::Input::Progress& at) {
    throw_if_interrupted();
    if (!progress.shown()) return;
    std::string line = fmt::format("reading {}: {} rows in {}", input_name(options.input), at.rows,
                                   format_bytes(at.bytes));
    if (at.total_bytes != 0) line += fmt::format(" of {}", format_bytes(at.total_bytes));
    progress.show(line);
  });
}

// A job and its output. Rows that need more than the engine was planned for run last, with another
// engine.
class Run {
 public:
  Run(const BatchOptions& options, const batch::Input& input, batch::DoneRows& done,
      const OpenedOutput& output)
      : options_(options),
        input_(input),
        done_(done),
        journal_(output.journal.get()),
        now_(output.now) {
    work_.rows_done_before = done.count();
  }

  // Returns the exit status.
  int run() {
    batch::LeftOut left_out;
    while (true) {
      PreparedEngine prepared = prepare_engine(options_, {input_, done_, left_out, now_},
                                               [this] { grace_.stop_check(); });
      left_out = run_with(prepared);
      if (!has_reader_) throw_no_reader();
      if (left_out.rows == 0 || interrupt_signal() != 0) return end(std::move(prepared));
      if (options_.common.quiet) continue;
      remark(fmt::format("planning anew for {} rows that are longer than those looked at before",
                         left_out.rows));
    }
  }

 private:
  batch::LeftOut run_with(const PreparedEngine& prepared) {
    batch::Job job(*prepared.engine, input_, done_, prepared.job,
                   [this](std::string_view line) { append(line); });
    Watch watch(options_, *prepared.engine, job);
    const Stopwatch stopwatch;
    run_steps(job, journal_, watch, grace_, has_reader_);
    work_.add(job, stopwatch.seconds());
    return job.left_out();
  }

  void append(std::string_view line) {
    if (journal_ != nullptr) {
      journal_->append(line);
    } else {
      has_reader_ = has_reader_ && write_output(line);
    }
  }

  int end(PreparedEngine prepared) const {
    if (journal_ != nullptr) journal_->sync();
    const RunRecord record(*prepared.engine);
    // Its memory is not there for measuring the machine otherwise, nor for sorting.
    prepared.engine.reset();
    if (journal_ != nullptr && options_.ordered && done_.is_complete()) order_results(*journal_);
    if (!options_.common.quiet) {
      tell_end(done_, work_, journal_ != nullptr);
      remark(memory_line(record));
      announce_sandbox();
    }
    write_report(options_, watch_, record, done_, work_, prepared.job.scheduler.parallel);
    options_.common.trace->end();
    if (done_.is_complete()) return 0;
    return journal_ != nullptr ? exit_status_resume : exit_status_of_signal(interrupt_signal());
  }

  const BatchOptions& options_;
  const batch::Input& input_;
  batch::DoneRows& done_;
  batch::Journal* journal_;  // null: results go to standard output
  std::optional<std::tm> now_;
  const RunWatch watch_;
  Grace grace_{std::chrono::seconds(options_.grace_s)};
  Work work_;
  bool has_reader_ = true;
};

// Runs the job; the caller reports a signal that comes before it has begun.
int run_rows(const BatchOptions& options) {
  const batch::Shard shard = shard_of(options);
  if (options.output == "-" && (options.ordered || options.retry_errors || options.restart)) {
    throw UsageError(
        "--ordered, --retry-errors and --restart need an output that is a file, not -");
  }
  const bool has_file = options.output != "-";
  if (has_file) refuse_unnamed(options.output);
  enter_sandbox(options.common,
                {.read = {options.input},
                 .write = {options.output, has_file ? batch::state_path(options.output) : "-"},
                 .keep = {options.prompt_cache.folder},
                 .has_temporary = is_copied(options.input)});
  const batch::Input input = read_input(options);
  const auto takes_messages = [&] {
    return options.chat_format != "auto" || has_chat_template(options.common.model);
  };
  if (const auto problem = batch::explain_no_rows(input, options.input.string(), takes_messages)) {
    throw UsageError(*problem);
  }
  OpenedOutput output{nullptr, chat::template_time()};
  if (has_file) output = open_output(options, input, shard);
  batch::Journal* journal = output.journal.get();
  batch::DoneRows done(input.rows(), shard);
  if (journal != nullptr) {
    const batch::JournalScan& scan = journal->scan();
    done = batch::DoneRows(input.rows(), shard, scan.found, scan.examples);
    journal->forget_found();
  }
  if (!done.is_complete()) return Run(options, input, done, output).run();
  if (!options.common.quiet) {
    remark(rows_line(done));
    tell_outcomes(done);
  }
  if (!options.common.report.empty() && !options.common.quiet) {
    warn("--report: nothing was computed, so there is nothing to measure");
  }
  if (options.ordered && journal != nullptr) order_results(*journal);
  return 0;
}

}  // namespace

namespace {

void add_resuming_options(CLI::App& command, BatchOptions& options) {
  constexpr const char* group = "Stopping and going on";
  command
      .add_option("--grace", options.grace_s,
                  "Seconds that running rows get to finish after Ctrl-C or SIGTERM")
      ->type_name("SECONDS")
      ->check(count_between(0, 86400))
      ->capture_default_str()
      ->group(group);
  CLI::Option* retry =
      command
          .add_flag("--retry-errors", options.retry_errors,
                    "Compute rows that ended in an error again, and keep the other results")
          ->group(group);
  CLI::Option* restart = command
                             .add_flag("--restart", options.restart,
                                       "Delete the results of an earlier run and start over")
                             ->excludes(retry)
                             ->group(group);
  command.get_option("--force")
      ->description(
          "Keep the results of an earlier run although the input or a setting has changed, and "
          "replace any file by that of --report")
      ->excludes(restart)
      ->group(group);
}

}  // namespace

CLI::App* add_batch(CLI::App& program, BatchOptions& options) {
  CLI::App* command =
      add_command(program, "batch", "Generate for every row of a file", description);
  add_common_options(*command, options.common, "what the longest row needs");
  add_trace_option(*command, options.common);
  add_speculate_options(*command, options.common);
  add_sampling_options(*command, options.sampling, "0");
  add_prompt_cache_options(*command, options.prompt_cache);
  command->add_option("IN.jsonl", options.input, "The file of rows; - reads the standard input")
      ->type_name("")
      ->required();
  command
      ->add_option("-o,--output", options.output,
                   "The file of results; - writes to the standard output, where an interrupted job "
                   "cannot go on")
      ->type_name("OUT.jsonl")
      ->required();
  command
      ->add_option("--parallel", options.parallel,
                   "Number of rows to run together; auto measures, and takes the smallest number "
                   "with which the job is about as fast as with any other")
      ->transform(count_or("auto", "0", 1, batch::parallel_max))
      ->type_name("auto|N")
      ->default_str("auto");
  command
      ->add_option("--shard", options.shard,
                   "Compute part I of N of the rows, for `sluice merge`: every Nth row, beginning "
                   "with row I")
      ->type_name("I/N")
      ->capture_default_str();
  command
      ->add_option("-n,--tokens-max", options.tokens_max,
                   "Most tokens to generate for a row that has no max_tokens")
      ->type_name("N")
      ->check(count_between(0, std::uint64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--truncate", options.truncate,
                   "Cut the beginning (head) or the end (tail) off a prompt that is too long for "
                   "--ctx; no makes its row an error")
      ->check(one_of({"no", "head", "tail"}))
      ->type_name("no|head|tail")
      ->capture_default_str();
  command->add_flag(
      "--shorten", options.shortens,
      "Give a row whose max_tokens is -1 or too large as many as there is room for in "
      "--ctx");
  command->add_flag("--check-model", options.check_model, "Refuse rows that name another model");
  command->add_flag("--ordered", options.ordered,
                    "Sort the results into the order of the input when all rows are done");
  command->set_version_flag("--row-settings", rows::row_settings_markdown,
                            "Print the table of members that a row may have, and exit");
  add_chat_format_option(*command, options.chat_format);
  add_thinking_options(*command, options.thinking);
  add_resuming_options(*command, options);
  return command;
}

int run_batch(const BatchOptions& options) {
  // Refuse bad values before anything is read.
  check_stop_texts(options.sampling);
  static_cast<void>(sampling::Sampler(options.sampling.sampler));
  return run_resumable(options.output, [&] { return run_rows(options); });
}

int run_resumable(const std::filesystem::path& output, const std::function<int()>& run) {
  const InterruptGuard guard;
  try {
    return run();
  } catch (const Interrupted&) {
    if (output == "-") throw;
    return exit_status_resume;
  }
}

}  // namespace sluice::cli
