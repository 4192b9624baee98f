// Texts that a model writes for callers of the C API, and sequences that grow by them.
//
// Threads: any; calls of the same object run one after the other, but for stop() and close().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "core/capi/model.h"
#include "core/capi/piece_queue.h"
#include "core/capi/sluice.h"
#include "core/chat/dialogue.h"
#include "core/rows/task.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::capi {

class Text {
 public:
  // Throws what Model::memory_for and Model::submit throw.
  Text(std::shared_ptr<Model> model, rows::Task task);
  ~Text() { stop(); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  // Waits for it; null at the end. Valid until the next call. Throws what has made the text fail,
  // and UsageError when the model was closed.
  const sluice_piece* next();
  void stop();
  void close() { stop(); }
  // Throw UsageError before the end.
  void result(sluice_result& result) const;
  nlohmann::ordered_json tool_calls() const;

 private:
  // What the engine's thread leaves here for the caller's.
  struct Inbox {
    base::Mutex mutex;
    base::Condition changed;
    PieceQueue pieces SLUICE_GUARDED_BY(mutex);
    // Without texts: they have come as pieces.
    std::optional<rows::Outcome> outcome SLUICE_GUARDED_BY(mutex);
    bool is_stopped SLUICE_GUARDED_BY(mutex) = false;
  };

  std::optional<PieceQueue::Piece> wait();
  const sluice_piece* show(chat::SplitText split, std::optional<tokenizer::Token> token)
      SLUICE_REQUIRES(mutex_);
  void check_outcome() const;
  chat::AnswerEnd answer_end() const;

  std::shared_ptr<Model> model_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::uint64_t id_ = 0;
  mutable base::Mutex mutex_;
  std::optional<chat::AnswerReader> reader_ SLUICE_GUARDED_BY(mutex_);
  chat::SplitText shown_ SLUICE_GUARDED_BY(mutex_);
  sluice_piece piece_ SLUICE_GUARDED_BY(mutex_){};
  bool is_over_ SLUICE_GUARDED_BY(mutex_) = false;  // next() has told the end
};

// Gives all pieces of a text to `on_piece`, until it returns false and thereby ends the text.
void read_all(Text& text, const std::function<bool(const sluice_piece&)>& on_piece);

class Sequence {
 public:
  explicit Sequence(std::shared_ptr<Model> model) : model_(std::move(model)) {}

  void append(const std::string& text, bool parse_special);
  void append(std::span<const tokenizer::Token> tokens);
  void truncate(std::size_t count);
  std::vector<tokenizer::Token> tokens() const;
  void generate(const sluice_request& request,
                const std::function<bool(const sluice_piece&)>& on_piece, sluice_result* result);
  void close() {}

 private:
  std::shared_ptr<Model> model_;
  mutable base::Mutex mutex_;
  std::vector<tokenizer::Token> tokens_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::capi
