#include "core/cli/serve.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/thread.h"
#include "core/batch/status_segment.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/run_status.h"
#include "core/cli/sandbox.h"
#include "core/cli/serve_setup.h"
#include "core/cli/speculation.h"
#include "core/gguf/gguf.h"
#include "core/http/transport/server.h"
#include "core/http/transport/systemd.h"
#include "core/sampling/sampler.h"
#include "topology/process_memory.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_period{100};
constexpr std::chrono::seconds status_period{1};

constexpr const char* description =
    "Serves the API of OpenAI: chat completions and completions, whole or as a stream, models,\n"
    "files and batches, and a page to chat at http://HOST:PORT/. Members of requests mean what\n"
    "they mean in a batch (`sluice batch --row-settings`). It listens before the model is\n"
    "loaded, and /health says whether it is. An address that other machines can reach needs\n"
    "--api-key-file, or --insecure. After Ctrl-C or SIGTERM nobody else can connect, and answers\n"
    "get --grace seconds to finish; then the exit status is 0. A second one ends at once. Under\n"
    "systemd the server takes the sockets of its unit (ListenStream=) and tells systemd when it "
    "is\n"
    "ready.\n\n"
    "Examples:\n"
    "  sluice serve model.gguf\n"
    "  sluice serve model.gguf --budget 4GiB --parallel 4 --port 9000\n"
    "  sluice serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
    "  sluice serve model.gguf --unix /run/user/1000/sluice.socket";

// Runs the server on a thread of its own.
class ServerThread {
 public:
  ServerThread(http::Server& server, const ServeOptions& options)
      : server_(server), thread_([&server, socket = options.unix_path] {
          enter_serving_sandbox(socket);
          server.run();
        }) {}
  ~ServerThread() {
    server_.stop(std::chrono::seconds(0));
    join();
  }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  // Returns when all answers have ended or the grace of Server::stop() is over.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  http::Server& server_;
  base::Thread thread_;
};

// Runs batches for as long as it lives.
class RunningJobs {
 public:
  RunningJobs(http::JobsApi* jobs, serve::Service& service, const http::BatchSettings& settings)
      : jobs_(jobs) {
    if (jobs_ != nullptr) jobs_->start(service, settings);
  }
  ~RunningJobs() { stop(); }
  RunningJobs(const RunningJobs&) = delete;
  RunningJobs& operator=(const RunningJobs&) = delete;

  void stop() {
    if (jobs_ != nullptr) jobs_->stop();
  }

 private:
  http::JobsApi* jobs_;
};

// Tells `sluice top` what the server does. A machine without shared memory goes without.
class StatusLine {
 public:
  StatusLine(const ServeOptions& options, const serve::Service& service) : service_(service) {
    status_.command = "serve";
    status_.model = options.common.model.filename().string();
    status_.budget_bytes = service.engine().plan().budget.bytes;
    try {
      publisher_ = std::make_unique<batch::StatusPublisher>();
    } catch (const std::system_error& error) {
      if (!options.common.quiet) warn(error.what());
    }
  }

  void look() {
    const Clock::time_point now = Clock::now();
    if (!publisher_ || now - last_ < status_period) return;
    const serve::Service::Statistics statistics = service_.statistics();
    const std::uint64_t tokens =
        statistics.scheduler.prompt_tokens_evaluated + statistics.scheduler.tokens_generated;
    const double seconds = std::chrono::duration<double>(now - last_).count();
    status_.tokens_per_s = static_cast<double>(tokens - tokens_) / seconds;
    status_.memory_bytes =
        topology::read_process_memory().resident_bytes().value_or(batch::Status::unknown_memory);
    status_.sequences = statistics.running;
    status_.experts = status_of_experts(statistics.experts);
    status_.guesses = status_of_guesses(statistics.scheduler);
    publisher_->publish(status_);
    tokens_ = tokens;
    last_ = now;
  }

 private:
  const serve::Service& service_;
  batch::Status status_;
  std::unique_ptr<batch::StatusPublisher> publisher_;
  std::uint64_t tokens_ = 0;
  Clock::time_point last_ = Clock::now();
};

// Tells the service manager that the server is alive, as long as the threads that matter answer:
// the one that computes and the one that serves.
class Watchdog {
 public:
  Watchdog(const http::ServiceManager& manager, serve::Service& service, http::Server& server)
      : manager_(manager), service_(service), server_(server) {
    ask();
  }

  void look() {
    const Clock::time_point now = Clock::now();
    if (!manager_.watchdog_period() || now - last_sign_ < *manager_.watchdog_period() / 3) return;
    if (!service_.has_given_sign() || !*has_served_) return;
    manager_.notify("WATCHDOG=1");
    last_sign_ = now;
    ask();
  }

 private:
  void ask() {
    *has_served_ = false;
    service_.ask_for_sign();
    server_.post([has_served = has_served_] { *has_served = true; });
  }

  const http::ServiceManager& manager_;
  serve::Service& service_;
  http::Server& server_;
  std::shared_ptr<std::atomic<bool>> has_served_ = std::make_shared<std::atomic<bool>>(false);
  Clock::time_point last_sign_ = Clock::now();
};

// Serves until a signal comes. Throws what has made the engine fail.
void serve_until_signal(const ServeOptions& options, serve::Service& service, http::Server& server,
                        const http::ServiceManager& manager) {
  StatusLine status(options, service);
  Watchdog watchdog(manager, service, server);
  while (interrupt_signal() == 0) {
    std::this_thread::sleep_for(look_period);
    if (const std::exception_ptr failure = service.failure()) std::rethrow_exception(failure);
    status.look();
    watchdog.look();
  }
}

// Writes the report of --report, if it is asked for. A server waits more than it computes, so there
// are no tokens per second in it.
void write_report(const RunWatch& watch, const CommonOptions& common, const RunRecord& run,
                  const serve::SchedulerCounts& counts) {
  if (common.report.empty()) return;
  nlohmann::ordered_json report = watch.report(common, run, {});
  report_counts(counts, report);
  report_drafts(common.speculate, counts, report);
  write_report_file(common, report);
}

std::string grace_line(const serve::Service& service, std::uint32_t grace_s) {
  const serve::Service::Statistics statistics = service.statistics();
  return fmt::format("stopping: {} texts have {} seconds to end",
                     statistics.running + statistics.queued_interactive, grace_s);
}

}  // namespace

namespace {

void add_network_options(CLI::App& command, ServeOptions& options) {
  constexpr const char* group = "Network";
  const auto add = [&](const std::string& name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("--host", options.host, "Address to listen on; localhost is 127.0.0.1")
      ->type_name("ADDRESS")
      ->capture_default_str();
  add("--port", options.port, "Port to listen on; 0 takes one that is free")
      ->type_name("N")
      ->check(count_between(0, std::numeric_limits<std::uint16_t>::max()))
      ->default_str("8080, or none with --unix");
  add("--unix", options.unix_path, "Listen on this path, for this user alone")->type_name("PATH");
  add("--api-key-file", options.api_key_file,
      "Require one of the keys in this file, which has one on each line")
      ->type_name("FILE");
  command
      .add_flag("--insecure", options.is_insecure,
                "Let other machines use the server without a key")
      ->group(group);
  add("--cors", options.origins,
      "Let pages of this origin use the server, such as https://chat.example.org; may be given "
      "several times")
      ->type_name("ORIGIN")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add("--rate", options.rate, "Most POST requests that a key may make in a minute; 0: any number")
      ->type_name("N")
      ->check(number_between(0, std::numeric_limits<double>::max(), "of 0 or more"))
      ->capture_default_str();
  command
      .add_flag(
          "--log-requests", options.logs_requests,
          "Write a line for each request to standard error: its id, route, status, time and tokens")
      ->group(group);
}

}  // namespace

CLI::App* add_serve(CLI::App& program, ServeOptions& options) {
  CLI::App* command = add_command(program, "serve", "Serve the API of OpenAI", description);
  add_common_options(*command, options.common);
  add_trace_option(*command, options.common);
  add_speculate_options(*command, options.common);
  add_sampling_options(*command, options.sampling, "another one for each start; 0 in batches");
  add_prompt_cache_options(*command, options.prompt_cache);
  add_network_options(*command, options);
  command
      ->add_option("--parallel", options.parallel,
                   "Number of texts to generate together; auto takes up to 4, if that takes no "
                   "memory from the weights")
      ->transform(count_or("auto", "0", 1, 4096))
      ->type_name("auto|N")
      ->default_str("auto");
  command
      ->add_option(
          "--queue", options.queue,
          "Most texts that run or wait; what comes on top gets status 429 (try again later)")
      ->type_name("N")
      ->check(count_between(1, 4096))
      ->capture_default_str();
  command
      ->add_option("-n,--tokens-max", options.tokens_max,
                   "Most tokens to generate for a request that has no max_tokens, if the context "
                   "has room for them")
      ->type_name("N")
      ->check(count_between(1, std::uint64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--shorten", options.shortens,
                    "Give a request whose max_tokens is -1 or too large as many as there is room "
                    "for in the context");
  command
      ->add_option("--grace", options.grace_s,
                   "Seconds that answers get to finish after Ctrl-C or SIGTERM")
      ->type_name("SECONDS")
      ->check(count_between(0, 86400))
      ->capture_default_str();
  command
      ->add_option(
          "--data", options.data,
          "Folder for files and batches, which one server at a time can use; none turns both off "
          "(default: sluice/serve/MODEL in the folder for state of this user)")
      ->type_name("DIR|none");
  command->add_option("--data-size", options.data_bytes_max, "Largest size of all files together")
      ->type_name("SIZE")
      ->transform(size())
      ->default_str(format_bytes(options.data_bytes_max));
  command->callback([command, &options] {
    if (options.data == "none" && command->count("--data-size") > 0) {
      throw CLI::ValidationError("--data-size", "--data none keeps no files: leave it out");
    }
    if (command->count("--unix") > 0 && command->count("--host") > 0 && !options.port) {
      throw CLI::ValidationError("--host", "with --unix it needs a --port too: leave it out");
    }
  });
  command->add_flag("--check-model", options.check_model,
                    "Refuse requests that name another model");
  add_chat_format_option(*command, options.chat_format);
  add_thinking_options(*command, options.thinking);
  return command;
}

int run_serve(const ServeOptions& options) {
  check_stop_texts(options.sampling);
  static_cast<void>(sampling::Sampler(options.sampling.sampler));
  check_run_options(options.common);
  const InterruptGuard guard;
  const RunWatch watch;
  const http::ServiceManager manager;
  std::vector<http::Listener> listeners = open_listeners(options);
  check_exposure(listeners, options);
  http::ApiOptions wanted = api_options(options, listeners);
  enter_sandbox(options.common, {.keep = {options.prompt_cache.folder, data_folder(options)},
                                 .remove = {options.unix_path}});
  // A file that cannot be used is found before anybody hears that there is a server.
  const bool writes_text = engine::writes_text(gguf::Model::open(options.common.model));
  read_draft_model(options.common.speculate);
  return_free_memory();
  std::string places;
  for (const http::Listener& listener : listeners) places += " " + listener.name();
  places += writes_text ? " (the API at /v1, a page to chat at /)" : " (the API at /v1)";

  const std::unique_ptr<http::JobsApi> jobs = open_jobs(options);
  wanted.jobs = jobs.get();
  // Each is used by those that follow it, and destroyed after them.
  Allowance allowance(clients_bytes, clients_reserve_bytes);
  http::Api api(wanted, allowance);
  http::Server server(std::move(listeners), {}, api, allowance);
  api.attach(server);
  std::unique_ptr<serve::Service> service;
  ServerThread running(server, options);
  if (!options.common.quiet) remark("listening on" + places);

  ServePreparation preparation = prepare_serve(options);
  if (!options.common.quiet && !preparation.parallel_reason.empty()) {
    remark(fmt::format("--parallel {}: {}", preparation.parallel, preparation.parallel_reason));
  }
  allowance.extend(preparation.working_bytes, preparation.queue_bytes);
  return_free_memory();
  service = std::make_unique<serve::Service>(
      [&](std::function<void()> stop_check) {
        engine::EngineOptions engine = preparation.engine;
        engine.stop_check = std::move(stop_check);
        return open_engine(options.common, engine, std::move(preparation.planner));
      },
      preparation.service);
  service->wait_until_ready();
  api.set_model(served_model(options, preparation, *service));
  http::BatchSettings batches = batch_settings(options, preparation, service->engine());
  batches.allowance = &allowance;
  RunningJobs running_jobs(jobs.get(), *service, batches);
  if (!options.common.quiet) {
    announce_sandbox();
    remark("ready");
  }
  manager.notify("READY=1\nSTATUS=serving");

  serve_until_signal(options, *service, server, manager);
  manager.notify("STOPPING=1\nSTATUS=letting answers end");
  if (!options.common.quiet) remark(grace_line(*service, options.grace_s));
  server.stop(std::chrono::seconds(options.grace_s));  // first of all, nobody else may connect
  running_jobs.stop();
  running.join();
  service->drain(Clock::now());
  const RunRecord record(service->engine());
  const serve::SchedulerCounts counts = service->statistics().scheduler;
  service.reset();  // frees its memory for measuring the limits
  write_report(watch, options.common, record, counts);
  options.common.trace->end();
  return 0;
}

}  // namespace sluice::cli
