#include "core/cli/draft_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/model/hyper_parameters.h"
#include "core/plan/memory_plan.h"
#include "core/text/quoted.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary.h"

namespace sluice::cli {
namespace {

// Of a text without a known length. What is longer gets no drafts behind that.
constexpr std::uint32_t usual_context = 4096;
// A prompt is read beside steps of the other model, so its pieces are short.
constexpr std::uint32_t prompt_columns = 64;

// Whether a model has no token of this id, or one that its file lists as unused.
bool is_padding(const engine::RunPlanner& planner, std::size_t id) {
  if (id >= planner.tokenizer().vocabulary_size()) return true;
  const auto types = planner.header().metadata().find_integers("tokenizer.ggml.token_type");
  return types && (*types)[id] == static_cast<std::int64_t>(tokenizer::TokenType::unused);
}

}  // namespace

void DraftModel::read() {
  if (!planner_) planner_.emplace(path_, gguf::ParseOptions{});
}

void DraftModel::plan_for(engine::EngineOptions& options, std::uint32_t rows) {
  drafter_.reset();
  read();
  options_ = {};
  options_.is_helper = true;
  options_.threads = options.threads;
  options_.io = options.io;
  options_.kv = options.kv;
  options_.window = options.window;
  options_.sinks = options.sinks;
  options_.context = options.context;
  if (options.window == 0 && options.context == 0) {
    const std::uint32_t trained = model::trained_context(model::Keys(planner_->header()));
    options_.context = std::min(trained, usual_context);
  }
  options_.chunk = prompt_columns;
  options_.parallel = std::min(rows, plan::draft_sequences_max);
  plan::MemoryPlan plan = planner_->plan(options_).plan;
  if (!plan.cuts_back()) {  // drafts are evaluated in a fork
    ++options_.parallel;
    plan = planner_->plan(options_).plan;
  }
  options.helper = plan::helper_lines(plan);
}

void DraftModel::check_vocabulary(const engine::RunPlanner& helped) {
  read();
  const tokenizer::Tokenizer &own = planner_->tokenizer(), &other = helped.tokenizer();
  const auto name = [](const tokenizer::Tokenizer& tokenizer, tokenizer::Token token) {
    if (static_cast<std::size_t>(token) >= tokenizer.vocabulary_size()) return std::string("none");
    return text::quoted(tokenizer.piece(token, true));
  };
  const std::size_t most = std::max(own.vocabulary_size(), other.vocabulary_size());
  for (std::size_t id = 0; id < most; ++id) {
    const auto token = static_cast<tokenizer::Token>(id);
    const bool is_same = id < std::min(own.vocabulary_size(), other.vocabulary_size()) &&
                         own.piece(token, true) == other.piece(token, true);
    if (is_same || (is_padding(*planner_, id) && is_padding(helped, id))) continue;
    throw UsageError(
        fmt::format("--draft {}: a draft model needs the vocabulary of the model, but token {} is "
                    "{} in it and {} in the model: take a smaller model of the same family",
                    path_.string(), token, name(own, token), name(other, token)));
  }
}

void DraftModel::open(const engine::Engine& helped,
                      std::function<void(std::uint64_t, std::uint64_t)> on_load) {
  options_.helped = &helped;
  options_.on_load = std::move(on_load);
  std::unique_ptr<engine::Engine> engine = engine::Engine::open(std::move(*planner_), options_);
  planner_.reset();
  options_.helped = nullptr;
  options_.on_load = {};
  // With a window a text has no end, however short the window is.
  const std::uint32_t positions = engine->plan().cache.positions;
  drafter_ = std::make_shared<serve::Drafter>(std::move(engine), positions);
}

void DraftModel::close() {
  drafter_.reset();
  planner_.reset();
}

}  // namespace sluice::cli
