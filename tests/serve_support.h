// Tasks for the tests of core/serve, on the engine of tests/fake_engine.h.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.h"
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

inline std::string text_of(std::size_t size, char c) {
  return std::string(size, c);
}

// Parts of it can be written in one way only, and others not.
inline constexpr const char* half_fixed =
    R"("root ::= ((\"yes\" | \"no\") \" is the answer to it; \" [a-z]{1,3} \". \")*")";

inline rows::Task random_task(const Maker& maker, std::mt19937_64& random) {
  const std::string prompt =
      text_of(random() % 130, 'q') + text_of(random() % 20, static_cast<char>('a' + random() % 3));
  const auto priority =
      random() % 2 == 0 ? rows::Priority::interactive : rows::Priority::background;
  if (random() % 3 == 0) {
    return maker.task(R"({"prompt":")" + prompt + R"(","max_tokens":)" +
                          std::to_string(random() % 140) + R"(,"grammar":)" + half_fixed + "}",
                      random() % 5, priority);
  }
  return maker.task(
      body_of(prompt, static_cast<int>(random() % 140), static_cast<int>(random() % 5)), 1,
      priority);
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

// One of the things that a defect, a client or a lack of memory makes code throw.
[[noreturn]] inline void throw_something(std::uint64_t kind) {
  if (kind % 5 == 0) throw UsageError("two\nlines");
  if (kind % 5 == 1) throw std::bad_alloc();
  if (kind % 5 == 2) throw std::system_error(EIO, std::generic_category(), "cannot read /srv/x");
  if (kind % 5 == 3) throw std::logic_error("a defect");
  throw std::out_of_range(nlohmann::json::parse("{").dump());
}

// Makes a task throw at a random point of its life, if it comes there.
inline void sabotage(rows::Task& task, std::mt19937_64& random) {
  const std::uint64_t kind = random();
  // Throws when it is called for the nth time.
  const auto fuse = [kind, left = std::make_shared<std::uint64_t>(random() % 30)] {
    if ((*left)-- == 0) throw_something(kind);
  };
  switch (random() % 6) {
    case 0:
      task.watch = [kind]() -> rows::Task::Forced { throw_something(kind); };
      break;
    case 1:
      task.watch = [fuse]() -> rows::Task::Forced {
        return [fuse](std::string_view) -> std::vector<Token> {
          fuse();
          return {};
        };
      };
      break;
    case 2:
      task.guide = [kind]() -> std::unique_ptr<constrain::Guide> { throw_something(kind); };
      break;
    case 3:
      task.piece = [fuse, bytes = std::make_shared<ByteTokenizer>()](Token token) {
        fuse();
        return bytes->piece(token);
      };
      break;
    case 4:
      task.make_reader = [kind]() -> chat::AnswerReader { throw_something(kind); };
      break;
    default:
      task.sampler.temperature = -1;  // of no sampler
  }
}

// Whether an outcome is that of a task that has thrown: a problem in one line, without paths.
inline bool tells_problem(const rows::Outcome& outcome) {
  return outcome.end == rows::Outcome::End::failed && !outcome.problem.empty() &&
         !outcome.may_run_again && outcome.cause != nullptr &&
         outcome.problem.find('\n') == std::string::npos &&
         outcome.problem.find("/srv") == std::string::npos;
}

}  // namespace sluice::test
