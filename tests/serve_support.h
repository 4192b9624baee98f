// Tasks for the tests of core/serve, on the engine of tests/fake_engine.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/rows/task_maker.h"
#include "core/serve/scheduler.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"

namespace sluice::test {

// Makes tasks as a server does, from bodies of requests. What threads call here throws instead of
// asserting, because the assertions of Catch2 belong to one thread.
class Maker {
 public:
  Maker() : maker_(tokenizer_, options()) {}

  rows::Task task(const std::string& body, std::uint64_t number = 1,
                  rows::Priority priority = rows::Priority::interactive) const {
    auto made = maker_.make(
        rows::parse_body(body, rows::Form::completions, number, maker_.options().defaults), number);
    std::get<rows::Task>(made).priority = priority;
    return std::get<rows::Task>(std::move(made));
  }
  const rows::TaskMaker& maker() const { return maker_; }

 private:
  static rows::TaskOptions options() {
    rows::TaskOptions options;
    options.positions_max = 300;
    options.defaults.tokens_max = 20;
    return options;
  }
  ByteTokenizer tokenizer_;
  rows::TaskMaker maker_;
};

inline std::string body_of(const std::string& prompt, int tokens_max, int seed) {
  return R"({"prompt":")" + prompt + R"(","max_tokens":)" + std::to_string(tokens_max) +
         R"(,"seed":)" + std::to_string(seed) + R"(,"stop":["e","xy"]})";
}

// The text of a task by itself. Log probabilities are asked for, so that each token has a step.
inline std::string alone(rows::Task task) {
  task.top_logprobs = 0;
  FakeEngine engine;
  std::string text;
  bool has_given = false;
  serve::Scheduler scheduler(
      engine, {},
      [&](rows::Priority) -> std::optional<rows::Task> {
        if (std::exchange(has_given, true)) return std::nullopt;
        return task;
      },
      [&](const rows::Task&, const rows::Outcome& outcome) { text = outcome.completion.text; });
  while (scheduler.step()) {
  }
  return text;
}

}  // namespace sluice::test
