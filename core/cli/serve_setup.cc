#include "core/cli/serve_setup.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <random>
#include <tuple>
#include <utility>

#include "core/cli/files.h"
#include "core/cli/output.h"
#include "core/cli/row_setup.h"
#include "core/cli/sampling_defaults.h"
#include "core/cli/speculation.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/http/jobs/batch_store.h"

namespace sluice::cli {
namespace {

constexpr std::uint16_t default_port = 8080;
constexpr std::uint32_t parallel_most = 4;  // that auto chooses

rows::TaskOptions task_options(const ServeOptions& options, const gguf::Metadata& metadata) {
  std::random_device device;
  rows::TaskOptions tasks;
  tasks.defaults.sampler = settled_sampler(options.sampling, metadata);
  // Requests are numbered, and the seed of one that names none is made of both.
  tasks.defaults.sampler.seed =
      options.sampling.seed.value_or(std::uint64_t{device()} << 32U | device());
  tasks.defaults.stop = options.sampling.stop;
  tasks.defaults.tokens_max = options.tokens_max;
  tasks.defaults.shortens = options.shortens;
  tasks.shortens_default = true;
  tasks.remedy = "start the server with a larger --ctx";
  tasks.thought_tokens_max = options.thinking.tokens_max;
  return tasks;
}

// What the process holds besides the engine.
void plan_requests(const ServeOptions& options, const engine::RunPlanner& planner,
                   std::uint64_t positions, ServePreparation& preparation) {
  constexpr std::uint64_t threads = 3 * (std::uint64_t{512} << 10);  // their stacks
  const rows::TaskMaker maker(planner.tokenizer(),
                              task_options(options, planner.header().metadata()));
  const std::uint64_t jobs = data_folder(options).empty() ? 0
                                                          : http::BatchStore::memory_bytes_max +
                                                                http::FileStore::memory_bytes_max;
  preparation.working_bytes = threads + jobs +
                              2 * serve::rows_bytes(preparation.service.scheduler, positions) +
                              // A request and a row of a batch may be read at the same time.
                              2 * maker.work_bytes(rows::request_bytes_max);
  preparation.queue_bytes = options.queue * positions * sizeof(tokenizer::Token);
  preparation.engine.caller_bytes =
      preparation.working_bytes + preparation.queue_bytes + clients_bytes;
}

// The most sequences, up to a few, for which no more weights have to be streamed than for one.
std::pair<std::uint32_t, std::string> choose_parallel(const engine::RunPlanner& planner,
                                                      engine::EngineOptions options) {
  const auto plan_with = [&](std::uint32_t parallel) {
    options.parallel = parallel;
    return planner.plan(options);
  };
  const engine::PlannedRun alone = plan_with(1);
  for (std::uint32_t parallel = parallel_most; parallel > 1; parallel /= 2) {
    const engine::PlannedRun run = plan_with(parallel);
    const bool is_as_good = run.plan.fits() && run.plan.context >= alone.plan.context &&
                            run.work.streamed_bytes <= alone.work.streamed_bytes;
    if (is_as_good) return {parallel, "as many as cost no memory that weights need, up to 4"};
  }
  return {1, "more texts at a time would take memory from the weights"};
}

}  // namespace

std::vector<http::Listener> open_listeners(const ServeOptions& options) {
  std::vector<http::Listener> listeners = http::Listener::from_systemd();
  if (!listeners.empty()) return listeners;
  if (!options.unix_path.empty()) listeners.push_back(http::Listener::on_path(options.unix_path));
  if (options.port || options.unix_path.empty()) {
    listeners.push_back(http::Listener::on_port(options.host, options.port.value_or(default_port)));
  }
  return listeners;
}

void check_exposure(const std::vector<http::Listener>& listeners, const ServeOptions& options) {
  if (options.is_insecure || !options.api_key_file.empty()) return;
  for (const http::Listener& listener : listeners) {
    if (listener.is_local()) continue;
    throw UsageError(
        fmt::format("{}: other machines could use the server without a key; give "
                    "--api-key-file FILE, or --insecure",
                    listener.name()));
  }
}

// --insecure lets any name stand for the server where other machines can reach it; on sockets of
// this machine alone only if there are no others, since it has no other meaning then.
http::ApiOptions api_options(const ServeOptions& options,
                             const std::vector<http::Listener>& listeners) {
  http::ApiOptions api;
  if (!options.api_key_file.empty()) api.keys = http::ApiKeys::read(options.api_key_file);
  for (const std::string& origin : options.origins) http::check_origin(origin);
  const bool is_local = std::ranges::all_of(listeners, &http::Listener::is_local);
  api.origins = {.allowed = options.origins,
                 .any_host = !api.keys.empty() || (options.is_insecure && is_local),
                 .any_host_from_afar = options.is_insecure};
  api.requests_per_minute = options.rate;
  api.texts_max = options.queue;
  api.on_trouble = [](const std::string& line) { warn(line); };
  if (options.logs_requests) api.log = [](const std::string& line) { remark(line); };
  return api;
}

void plan_serve(const ServeOptions& options, const engine::RunPlanner& planner,
                ServePreparation& preparation) {
  engine::EngineOptions& wanted = preparation.engine;
  wanted = engine_options(options.common, options.parallel == 0 ? parallel_most : options.parallel);
  wanted.prompt_cache = options.prompt_cache;
  wanted.checkpoints = checkpoints_of_conversations;
  preparation.service.scheduler.drafts = draft_options(options.common.speculate);
  const auto plan_for = [&](std::uint32_t parallel) {
    preparation.service.scheduler.parallel = wanted.parallel = parallel;
    plan_requests(options, planner, std::max(planner.plan(wanted).plan.context, 1U), preparation);
  };
  plan_for(std::max(options.parallel, parallel_most));
  preparation.parallel = options.parallel;
  // Counted beside the texts, if it is taken for one. Whether it is for all of them is seen when
  // the model is opened.
  wanted.parallel = 1;
  settle_predictor(options.common.speculate, planner, wanted);
  if (options.parallel == 0) {
    std::tie(preparation.parallel, preparation.parallel_reason) = choose_parallel(planner, wanted);
  }
  plan_for(preparation.parallel);
}

ServePreparation prepare_serve(const ServeOptions& options) {
  ServePreparation preparation;
  const engine::RunPlanner& planner =
      preparation.planner.emplace(options.common.model, gguf::ParseOptions{});
  plan_serve(options, planner, preparation);
  preparation.service.queue_max = options.queue;
  preparation.service.on_trouble = [](const std::string& line) { warn(line); };
  const gguf::Metadata& metadata = planner.header().metadata();
  preparation.names = model_names(options.common.model, metadata);
  preparation.tasks = task_options(options, metadata);
  if (!options.common.quiet) tell_recommendation(options.sampling, metadata);
  preparation.chat_source =
      chat::ChatSource::find(options.chat_format, metadata, preparation.no_dialogue);
  preparation.settings = recorded_settings(options, planner.header());
  return preparation;
}

namespace {

rows::TaskOptions task_options_for(const ServeOptions& options, const ServePreparation& preparation,
                                   const engine::Engine& engine) {
  rows::TaskOptions tasks = preparation.tasks;
  if (options.check_model) tasks.model_names = preparation.names;
  tasks.positions_max = options.common.window == 0 ? engine.plan().context : 0;
  tasks.no_dialogue = preparation.no_dialogue;
  tasks.dialogue =
      make_dialogue(options.thinking.think, preparation.chat_source, engine.tokenizer());
  return tasks;
}

}  // namespace

std::filesystem::path data_folder(const ServeOptions& options) {
  if (options.data == "none") return {};
  if (!options.data.empty()) return options.data;
  const char* of_systemd = std::getenv("STATE_DIRECTORY");  // NOLINT(concurrency-mt-unsafe)
  if (of_systemd != nullptr && *of_systemd != '\0') return of_systemd;
  const std::filesystem::path state = state_folder();
  return state.empty() ? state : state / "serve" / options.common.model.stem();
}

std::unique_ptr<http::JobsApi> open_jobs(const ServeOptions& options) {
  const std::filesystem::path folder = data_folder(options);
  if (folder.empty()) return nullptr;
  if (!options.data.empty()) {
    return std::make_unique<http::JobsApi>(folder, options.data_bytes_max);
  }
  try {
    return std::make_unique<http::JobsApi>(folder, options.data_bytes_max);
  } catch (const std::exception& error) {
    if (!options.common.quiet) warn(fmt::format("no files and batches: {}", error.what()));
    return nullptr;
  }
}

// A result of a batch is to depend on its row alone, so its seed does not come from this run.
http::BatchSettings batch_settings(const ServeOptions& options, const ServePreparation& preparation,
                                   const engine::Engine& engine) {
  http::BatchSettings settings;
  settings.task = task_options_for(options, preparation, engine);
  settings.task.defaults.sampler.seed = options.sampling.seed.value_or(0);
  settings.model_name = preparation.names.front();
  settings.texts_max = std::size_t{2} * preparation.parallel;
  settings.state = preparation.settings;
  settings.state["--ctx"] = settings.task.positions_max;
  settings.state["the name of the model"] = settings.model_name;
  settings.on_pause = [](const std::string& line) { warn(line); };
  return settings;
}

http::ServedModel served_model(const ServeOptions& options, const ServePreparation& preparation,
                               serve::Service& service) {
  const engine::Engine& engine = service.engine();
  const rows::TaskOptions tasks = task_options_for(options, preparation, engine);
  return {.service = &service,
          .maker = std::make_shared<const rows::TaskMaker>(engine.tokenizer(), tasks),
          .name = preparation.names.front(),
          .created = static_cast<std::uint64_t>(std::time(nullptr)),
          .parallel = preparation.parallel,
          .context = tasks.positions_max};
}

}  // namespace sluice::cli
