// Rows that a scheduler runs, and what they gave: to compare runs with drafts with runs without.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/serve/scheduler.h"

namespace sluice::test {

// A step that fails as if weights could not be read.
struct StepFault : std::system_error {
  StepFault() : std::system_error(EIO, std::generic_category(), "a fault") {}
};

// What a row gave: its outcome, and the tokens and texts of its events.
struct Given {
  std::optional<rows::Outcome> outcome;
  std::vector<tokenizer::Token> tokens;
  std::string streamed;

  bool operator==(const Given& other) const {
    const rows::Completion &a = outcome->completion, &b = other.outcome->completion;
    const auto are_same = [](const sampling::TokenLogprob& x, const sampling::TokenLogprob& y) {
      return x.token == y.token && std::memcmp(&x.logprob, &y.logprob, sizeof x.logprob) == 0;
    };
    return outcome->end == other.outcome->end && outcome->problem == other.outcome->problem &&
           a.text == b.text && a.finish == b.finish && a.has_stop_text == b.has_stop_text &&
           a.completion_tokens == b.completion_tokens && tokens == other.tokens &&
           streamed == other.streamed && std::ranges::equal(a.logprobs, b.logprobs, are_same);
  }
};

// Whether a row that was cancelled has given the beginning of what it gives otherwise. Its end may
// be text that was held back: otherwise that became a stop text, or the row failed.
inline bool begins_as(const Given& cancelled, const Given& whole) {
  const std::size_t tokens = cancelled.tokens.size();
  return tokens <= whole.tokens.size() &&
         std::equal(cancelled.tokens.begin(), cancelled.tokens.end(), whole.tokens.begin()) &&
         (whole.streamed.starts_with(cancelled.streamed) ||
          cancelled.streamed.starts_with(whole.streamed));
}

// Runs tasks, which it numbers from 1, and gathers what becomes of them.
class Rows {
 public:
  Rows(engine::Engine& engine, const serve::SchedulerOptions& options,
       std::vector<rows::Task> tasks)
      : tasks_(std::move(tasks)),
        given_(tasks_.size()),
        scheduler_(
            engine, options, [this](rows::Priority least) { return next(least); },
            [this](const rows::Task& task, const rows::Outcome& outcome) {
              of(task).outcome = outcome;
            },
            [this](const rows::Task& task, const rows::TokenEvent& event) {
              if (event.token) of(task).tokens.push_back(*event.token);
              of(task).streamed += event.text;
            }) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) tasks_[i].id = i + 1;
  }

  const std::vector<Given>& run() {
    for (bool is_running = true; is_running;) {
      try {
        is_running = scheduler_.step();
      } catch (const std::system_error&) {  // tried again
      }
    }
    return given_;
  }
  serve::Scheduler& scheduler() { return scheduler_; }
  std::size_t admitted() const { return admitted_; }

 private:
  std::optional<rows::Task> next(rows::Priority least) {
    if (admitted_ == tasks_.size() || tasks_[admitted_].priority > least) return std::nullopt;
    return tasks_[admitted_++];
  }
  Given& of(const rows::Task& task) { return given_[task.id - 1]; }

  std::vector<rows::Task> tasks_;
  std::vector<Given> given_;
  std::size_t admitted_ = 0;
  serve::Scheduler scheduler_;
};

// Without drafts, one after the other.
inline std::vector<Given> plain(engine::Engine& engine, const std::vector<rows::Task>& tasks) {
  return Rows(engine, {.kept_max = 0}, tasks).run();
}

}  // namespace sluice::test
