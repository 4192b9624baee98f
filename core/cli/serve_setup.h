// Prepares a server: who may connect, how many texts run together, and what requests mean.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/cli/serve.h"
#include "core/engine/engine.h"
#include "core/http/api/api.h"
#include "core/http/jobs/jobs_api.h"
#include "core/http/transport/listener.h"
#include "core/rows/task_maker.h"
#include "core/serve/service.h"

namespace sluice::cli {

// The sockets of systemd, if there are some; else those of --unix, --host and --port.
std::vector<http::Listener> open_listeners(const ServeOptions& options);

// Throws UsageError when others than this machine's users could connect without a key.
void check_exposure(const std::vector<http::Listener>& listeners, const ServeOptions& options);

// Where files and batches are. Empty with --data none, and where there is no usual place.
std::filesystem::path data_folder(const ServeOptions& options);

// That folder, locked. Null with --data none, and when the usual folder is used
// by another server.
std::unique_ptr<http::JobsApi> open_jobs(const ServeOptions& options);

http::ApiOptions api_options(const ServeOptions& options,
                             const std::vector<http::Listener>& listeners);

// What clients may make the server hold while the model is being loaded, and most of it afterwards.
inline constexpr std::uint64_t clients_bytes = std::uint64_t{32} << 20;
// Of it, what only answers under way may use.
inline constexpr std::uint64_t clients_reserve_bytes = std::uint64_t{8} << 20;

// What the header of the model and the options say, before the engine is opened.
struct ServePreparation {
  // The plan's line "requests" is the sum of these and clients_bytes.
  std::uint64_t working_bytes = 0;  // of threads, rows that run, and requests that are being read
  std::uint64_t queue_bytes = 0;    // of prompts that wait
  std::optional<engine::RunPlanner> planner;  // of the model, until it is opened
  engine::EngineOptions engine;
  serve::ServiceOptions service;
  std::uint32_t parallel = 1;
  std::string parallel_reason;     // of auto
  std::vector<std::string> names;  // of the model; the first is its own
  rows::TaskOptions tasks;         // without what needs the engine
  std::optional<chat::ChatSource> chat_source;
  std::string no_dialogue;  // why there is no source
  // What the results of batches depend on; empty where there are none.
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
};

ServePreparation prepare_serve(const ServeOptions& options);

// The part of it that the header of a model decides: how many texts run together, and what the
// server holds besides the engine. `sluice plan --for serve` asks this too.
void plan_serve(const ServeOptions& options, const engine::RunPlanner& planner,
                ServePreparation& preparation);

// The model as the API sees it, once it runs. `service` must outlive the result.
http::ServedModel served_model(const ServeOptions& options, const ServePreparation& preparation,
                               serve::Service& service);

// How the rows of batches are run. `engine` must outlive the result.
http::BatchSettings batch_settings(const ServeOptions& options, const ServePreparation& preparation,
                                   const engine::Engine& engine);

}  // namespace sluice::cli
