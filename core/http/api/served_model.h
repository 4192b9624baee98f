// A model that a server runs, and what the API says of it.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/rows/task_maker.h"
#include "core/serve/service.h"

namespace sluice::http {

// `service` must outlive the server's run.
struct ServedModel {
  serve::Service* service = nullptr;
  std::shared_ptr<const rows::TaskMaker> maker;
  std::string name;
  std::uint64_t created = 0;  // seconds since 1970
  std::uint32_t parallel = 1;
  std::uint32_t context = 0;  // 0: no end
};

// The model in OpenAI's form, with some facts besides.
nlohmann::ordered_json model_json(const ServedModel& model);

// The model, the defaults of requests and the memory plan.
nlohmann::ordered_json props_json(const ServedModel& model);

// "ok", "loading", "stopping", ...
std::string_view state_name(serve::Service::State state);

}  // namespace sluice::http
