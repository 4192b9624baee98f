#include "core/cli/batch_setup.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/batch/digest.h"
#include "core/batch/parallel_choice.h"
#include "core/chat/chat_format.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/engine/machine_limits.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/hyper_parameters.h"
#include "kvcache/layout.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sluice::cli {
namespace {

using batch::Journal;

constexpr std::uint32_t context_default_max = 4096;
constexpr std::size_t identity_bytes = std::size_t{1} << 20;

// The file's length and the digest of its beginning, where the header with all names and sizes is.
std::string model_identity(const std::filesystem::path& model) {
  std::ifstream file(model, std::ios::binary);
  if (!file) {
    throw std::system_error(errno, std::generic_category(), "cannot open " + model.string());
  }
  std::string beginning(identity_bytes, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(file.gcount()));
  return fmt::format("{} bytes, {:016x}", std::filesystem::file_size(model),
                     batch::digest_of(beginning));
}

chat::Role role_named(const std::string& name) {
  if (name == "system" || name == "developer") return chat::Role::system;
  if (name == "user") return chat::Role::user;
  if (name == "assistant") return chat::Role::assistant;
  throw UsageError(fmt::format("the role \"{}\" is not system, user or assistant", name));
}

std::vector<chat::Message> to_chat(const std::vector<batch::Message>& messages) {
  std::vector<chat::Message> result;
  result.reserve(messages.size());
  for (const batch::Message& message : messages) {
    result.push_back({role_named(message.role), message.content});
  }
  return result;
}

// What the rows that are left need, from the model's header alone.
struct Need {
  std::uint64_t rows = 0;  // that can be run, and those that cannot
  std::uint64_t rows_to_run = 0;
  std::uint32_t positions = 1;           // of the longest
  std::uint64_t positions_together = 0;  // of all that can be run, each in whole pages
  std::uint64_t work_bytes = 0;          // to make a task of a row

  // What n sequences need at a time on average, but at least the longest row.
  std::uint64_t cache_positions(std::uint32_t n) const {
    const std::uint64_t runs = std::max<std::uint64_t>(rows_to_run, 1);
    return std::max<std::uint64_t>(in_pages(positions), (n * positions_together + runs - 1) / runs);
  }

  static std::uint64_t in_pages(std::uint64_t positions) {
    constexpr std::uint64_t page = kvcache::page_positions;
    return (positions + page - 1) / page * page;
  }
};

// What a batch wants of the engine when n sequences run together.
engine::EngineOptions options_for(engine::EngineOptions options, const Need& need, std::uint32_t n,
                                  batch::SchedulerOptions scheduler) {
  scheduler.parallel = n;
  options.parallel = n;
  options.cache_positions = need.cache_positions(n);
  options.caller_bytes = need.work_bytes + batch::rows_bytes(scheduler, need.positions);
  return options;
}

Need look_through(const BatchOptions& options, const batch::TaskOptions& tasks,
                  const tokenizer::Tokenizer& tokenizer, const batch::Input& input,
                  const batch::Shard& shard, const std::vector<batch::ResultFacts>& done) {
  std::set<std::uint64_t> is_done;
  for (const batch::ResultFacts& facts : done) is_done.insert(facts.row);
  const batch::TaskMaker maker(tokenizer, input, tasks);
  Progress progress(options.common.quiet);
  Need need;
  need.work_bytes = maker.work_bytes();
  for (std::uint64_t row = shard.index; row <= input.rows(); row += shard.count) {
    throw_if_interrupted();
    if (is_done.contains(row)) continue;
    progress.show(fmt::format("looking through row {} of {}", row, input.rows()));
    ++need.rows;
    const auto made = maker.make(row);
    if (const auto* task = std::get_if<batch::Task>(&made)) {
      const std::uint64_t positions = task->prompt.size() + task->tokens_max;
      need.positions = std::max(need.positions, static_cast<std::uint32_t>(positions));
      need.positions_together += Need::in_pages(positions);
      ++need.rows_to_run;
    }
  }
  return need;
}

// Measuring needs buffers that are no part of the plan. A child holds them and is gone before the
// engine takes its memory, so that the peak of this process is that of its plan. There are no
// threads yet that the fork could cut off.
engine::MachineLimits measure_in_child(const topology::CpuList& cpus,
                                       const std::filesystem::path& model) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      const engine::MachineLimits limits = engine::measure_machine_limits(cpus, model);
      const std::array<double, 3> rates{limits.dram_bytes_per_s, limits.int8_macs_per_s,
                                        limits.disk_bytes_per_s};
      status = ::write(ends[1], rates.data(), sizeof rates) == sizeof rates ? 0 : 1;
    } catch (...) {  // the parent sees that nothing came
    }
    ::_exit(status);
  }
  ::close(ends[1]);
  std::array<double, 3> rates{};
  const bool has_come = child > 0 && ::read(ends[0], rates.data(), sizeof rates) == sizeof rates;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  throw_if_interrupted();
  if (!has_come) {
    throw Error(ExitCode::failure,
                "the limits of the machine cannot be measured: give --parallel N instead of auto");
  }
  return {rates[0], rates[1], rates[2], {}};
}

// What the allocator keeps of freed memory would count as held when the engine plans its own.
void return_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

batch::ParallelChoice choose_parallel(const BatchOptions& options,
                                      const engine::EngineOptions& wanted, const Need& need) {
  const auto run_with = [&](std::uint32_t parallel) {
    return engine::plan_run(options.common.model, options_for(wanted, need, parallel, {}));
  };
  const engine::PlannedRun one = run_with(1);
  const engine::MachineLimits limits = measure_in_child(one.cpus, options.common.model);
  const auto work_of = [&](std::uint32_t parallel) -> std::optional<engine::DecodeWork> {
    throw_if_interrupted();
    const engine::PlannedRun run = run_with(parallel);
    return run.plan.fits() ? std::optional(run.work) : std::nullopt;
  };
  return batch::choose_parallel(limits, need.rows, work_of);
}

// A limit that does not depend on the budget, as results must not: 0 (none) with a window.
std::uint32_t positions_max(const CommonOptions& common, const gguf::Model& header) {
  if (common.window != 0) return 0;
  if (common.context != 0) return common.context;
  const std::uint32_t trained = model::read_hyper_parameters(header).context;
  return trained == 0 ? context_default_max : std::min(trained, context_default_max);
}

batch::Truncate truncate_named(const std::string& name) {
  if (name == "head") return batch::Truncate::head;
  return name == "tail" ? batch::Truncate::tail : batch::Truncate::no;
}

}  // namespace

batch::TaskOptions task_options(const BatchOptions& options) {
  batch::TaskOptions tasks;
  tasks.defaults.sampler = options.sampling.sampler;
  tasks.defaults.sampler.seed = options.sampling.seed.value_or(0);
  tasks.defaults.stop = options.sampling.stop;
  tasks.defaults.tokens_max = options.tokens_max;
  tasks.truncate = truncate_named(options.truncate);
  return tasks;
}

batch::JobState job_state(const BatchOptions& options, const batch::Input& input,
                          const batch::Shard& shard) {
  const engine::SamplerOptions& sampler = options.sampling.sampler;
  batch::JobState state{input.bytes(), input.digest(), input.rows(), shard, {}};
  state.settings = {{"the model", model_identity(options.common.model)},
                    {"--temp", sampler.temperature},
                    {"--top-k", sampler.top_k},
                    {"--top-p", sampler.top_p},
                    {"--min-p", sampler.min_p},
                    {"--repeat-penalty", sampler.repeat_penalty},
                    {"--seed", options.sampling.seed.value_or(0)},
                    {"--stop", options.sampling.stop},
                    {"-n", options.tokens_max},
                    {"--ctx", options.common.context},
                    {"--window", options.common.window},
                    {"--sinks", options.common.sinks.value_or(0)},
                    {"--kv", options.common.kv},
                    {"--truncate", options.truncate},
                    {"--chat-format", options.chat_format}};
  return state;
}

std::unique_ptr<Journal> open_journal(const BatchOptions& options, const batch::JobState& state) {
  const std::filesystem::path& path = options.output;
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind)) {
    throw UsageError(
        fmt::format("{} is not a regular file, which going on after an interruption "
                    "needs: use -o - and redirect it",
                    path.string()));
  }
  auto journal = std::make_unique<Journal>(path, options.restart);
  if (journal->found().empty()) {
    batch::write_state(path, state);
    return journal;
  }
  const std::optional<batch::JobState> before = batch::read_state(path);
  if (!before) {
    throw UsageError(
        fmt::format("{} has results, but {} is missing: give --restart to write them "
                    "anew, or name another output",
                    path.string(), batch::state_path(path).string()));
  }
  const std::vector<std::string> changed = batch::differences(*before, state);
  if (changed.empty()) return journal;
  if (!options.force) {
    throw UsageError(
        fmt::format("{} was begun otherwise: {}; give --restart to begin anew, or "
                    "--force to keep what is there and go on",
                    path.string(), fmt::join(changed, "; ")));
  }
  batch::write_state(path, state);
  return journal;
}

batch::ChatFormat chat_format(const std::string& name, const std::string& chat_template,
                              const tokenizer::Tokenizer& tokenizer) {
  try {
    const chat::Family family =
        name == "auto" ? chat::recognise_family(chat_template) : chat::family_named(name);
    const auto format = std::make_shared<const chat::ChatFormat>(family, tokenizer);
    return {[format](const std::vector<batch::Message>& messages) {
              return format->encode(to_chat(messages), true);
            },
            [format](tokenizer::Token token) { return format->ends_answer(token); },
            format->stop_texts()};
  } catch (const UsageError& error) {
    const std::string reason = error.what();
    return {[reason](const std::vector<batch::Message>&) -> std::vector<tokenizer::Token> {
              throw UsageError(reason);
            },
            {},
            {}};
  }
}

PreparedEngine prepare_engine(const BatchOptions& options, const batch::Input& input,
                              const batch::Shard& shard,
                              const std::vector<batch::ResultFacts>& done) {
  engine::EngineOptions wanted = engine_options(options.common);
  PreparedEngine prepared;
  batch::TaskOptions& tasks = prepared.job.task;
  tasks = task_options(options);
  Need need;
  {  // what the header takes is given back before the engine plans its memory
    const gguf::Model header = gguf::Model::open(options.common.model, {.header_only = true});
    const auto tokenizer = tokenizer::Tokenizer::from_metadata(header.metadata());
    const std::string chat_template(
        header.metadata().find_string("tokenizer.chat_template").value_or(""));
    tasks.chat = chat_format(options.chat_format, chat_template, *tokenizer);
    tasks.positions_max = positions_max(options.common, header);
    need = look_through(options, tasks, *tokenizer, input, shard, done);
  }
  return_free_memory();
  if (wanted.window == 0) wanted.context = std::min(need.positions, tasks.positions_max);
  std::uint32_t& parallel = prepared.job.scheduler.parallel;
  parallel = std::max(options.parallel, 1U);
  if (options.parallel == 0 && need.rows > 1) {
    const batch::ParallelChoice choice = choose_parallel(options, wanted, need);
    parallel = choice.parallel;
    if (!options.common.quiet) {
      remark(fmt::format("--parallel {}: {}", choice.parallel, choice.reason));
    }
  }
  prepared.engine =
      open_engine(options.common, options_for(wanted, need, parallel, prepared.job.scheduler));
  const engine::EngineFacts& facts = prepared.engine->facts();
  tasks.chat = chat_format(options.chat_format, facts.chat_template, prepared.engine->tokenizer());
  prepared.job.model_name =
      facts.model_name.empty() ? options.common.model.stem().string() : facts.model_name;
  return prepared;
}

}  // namespace sluice::cli
