// A model that is open for callers of the C API: a service with its engine, and what turns requests
// into tasks for it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "core/allowance.h"
#include "core/capi/sluice.h"
#include "core/engine/engine.h"
#include "core/rows/task_maker.h"
#include "core/serve/service.h"

namespace sluice::capi {

// What sluice_plan() gives. Throws what engine::plan_run throws, and UsageError.
nlohmann::ordered_json plan_json(const std::filesystem::path& path,
                                 const sluice_model_options& options);

class Model {
 public:
  // Throws what engine::Engine::open throws, and UsageError.
  Model(const std::filesystem::path& path, const sluice_model_options& options);

  // Ends all texts. The memory is free when nobody holds the model any more.
  void close() { service_->stop(); }

  const tokenizer::Tokenizer& tokenizer() const { return service_->engine().tokenizer(); }
  nlohmann::ordered_json info() const;

  // Throws UsageError, which names the first that is not in the vocabulary.
  void check_tokens(std::span<const tokenizer::Token> tokens) const;

  // The tokens that make the model answer `messages`, a JSON list. Throws UsageError.
  std::vector<tokenizer::Token> chat_tokens(const std::string& messages) const;

  // The task of a request; `tokens` take the place of its prompt. Tasks are made one after the
  // other, as memory is planned for one. Throws UsageError.
  rows::Task task(const sluice_request& request,
                  const std::optional<std::vector<tokenizer::Token>>& tokens = {});

  // What a text holds for its task, and PieceQueue::share_bytes: to be given back before
  // the model is gone. Throws Busy.
  Allowance::Held memory_for(const rows::Task& task);

  // Returns the id. Throws UsageError when the model was closed, and Busy.
  std::uint64_t submit(rows::Task task, serve::Events events);
  void cancel(std::uint64_t id) { service_->cancel(id); }

 private:
  rows::Task make_task(const sluice_request& request,
                       const std::optional<std::vector<tokenizer::Token>>& tokens)
      SLUICE_REQUIRES(making_);

  mutable base::Mutex making_;
  std::optional<Allowance> texts_;        // what texts may hold
  std::optional<rows::TaskMaker> maker_;  // outlives the tasks that it has made
  std::unique_ptr<serve::Service> service_;
  std::atomic<std::uint64_t> requests_{0};
};

}  // namespace sluice::capi
