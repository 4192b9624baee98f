// The service on an engine that makes every mistake of the scheduler show: each task gives the same
// as alone, from whichever thread, whatever is cancelled around it, and ends exactly once.
#include "core/serve/service.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <variant>
#include <vector>

#include "core/rows/task_maker.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/serve_support.h"

namespace {

using namespace sluice::rows;
using namespace sluice::serve;
using sluice::test::alone;
using sluice::test::body_of;
using sluice::test::FakeEngine;
using sluice::test::FakeLimits;
using sluice::test::Maker;
using Clock = std::chrono::steady_clock;

// What became of a task.
struct Ended {
  std::uint64_t id = 0;
  std::string streamed;
  std::uint64_t tokens = 0;
  Outcome outcome;
};

// Collects what a task gives, and checks that nothing comes after its end.
class Collector {
 public:
  Events events() {
    return {[this](const Task& task, const TokenEvent& event) { take(task, event); },
            [this](const Task& task, const Outcome& outcome) { end(task, outcome); }};
  }
  Ended get() { return ended_.get_future().get(); }

  std::function<void(const Task&)> on_token;

 private:
  void take(const Task& task, const TokenEvent& event) {
    if (is_over_) std::abort();
    so_far_.streamed += event.text;
    so_far_.tokens += event.token ? 1 : 0;
    if (on_token) on_token(task);
  }
  void end(const Task& task, const Outcome& outcome) {
    if (is_over_.exchange(true)) std::abort();
    so_far_.id = task.id;
    so_far_.outcome = outcome;
    ended_.set_value(so_far_);
  }

  std::atomic<bool> is_over_ = false;
  Ended so_far_;
  std::promise<Ended> ended_;
};

// Holds up the first one that passes.
class Gate {
 public:
  void pass() {
    if (has_passed_.exchange(true)) return;
    arrived_.set_value();
    opened_.get_future().wait();
  }
  void wait_for_arrival() { arrived_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::atomic<bool> has_passed_ = false;
  std::promise<void> arrived_, opened_;
};

Service::OpenEngine fake(const FakeLimits& limits = {}) {
  return [limits](std::function<void()> stop_check) {
    auto engine = std::make_unique<FakeEngine>(limits);
    engine->stop_check = std::move(stop_check);
    return engine;
  };
}

std::uint64_t accepted(std::variant<std::uint64_t, Service::Refusal> answer) {
  return std::get<std::uint64_t>(answer);
}

}  // namespace

TEST_CASE("tasks of several threads give what each gives alone, and their text as it comes") {
  const Maker maker;
  Service service(fake(), {.scheduler = {.parallel = 5}, .queue_max = 1000});
  service.wait_until_ready();
  const auto client = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 40; ++i) {
      const std::string prompt(random() % 120, static_cast<char>('a' + random() % 3));
      const Priority priority = random() % 2 == 0 ? Priority::interactive : Priority::background;
      const Task task = maker.task(
          body_of(prompt, static_cast<int>(random() % 40), static_cast<int>(random() % 4)), i,
          priority);
      Collector collector;
      const std::uint64_t id = std::get<std::uint64_t>(service.submit(task, collector.events()));
      const bool is_cancelled = random() % 3 == 0;
      if (is_cancelled) service.cancel(id, "no longer wanted");
      const Ended ended = collector.get();
      const std::string expected = alone(task);
      if (ended.id != id) std::abort();
      if (ended.outcome.end == Outcome::End::cancelled) {
        if (!is_cancelled || ended.outcome.problem != "no longer wanted") std::abort();
        if (!expected.starts_with(ended.streamed)) std::abort();
      } else if (ended.streamed != expected || ended.outcome.completion.text != expected ||
                 ended.tokens != ended.outcome.completion.completion_tokens) {
        std::abort();
      }
    }
  };
  const unsigned seed = static_cast<unsigned>(sluice::test::random_seed());
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 4; ++i) clients.emplace_back(client, seed + i);
  for (std::thread& thread : clients) thread.join();
  const Service::Statistics statistics = service.statistics();
  CHECK(statistics.accepted == 160);
  CHECK(statistics.completed + statistics.cancelled == 160);
  CHECK(statistics.failed == 0);
  CHECK(statistics.running == 0);
  CHECK(statistics.first_tokens > 0);
}

TEST_CASE("a task that is cancelled inside of a prompt chunk ends the step, and others go on") {
  const Maker maker;
  FakeLimits limits;
  limits.columns = 256;
  std::atomic<std::uint64_t> to_cancel = 0;
  Service* serving = nullptr;
  Service service(
      [&](std::function<void()> stop_check) {
        auto engine = std::make_unique<FakeEngine>(limits);
        engine->stop_check = [&, stop_check] {
          if (const std::uint64_t id = to_cancel.exchange(0)) serving->cancel(id);
          stop_check();
        };
        return engine;
      },
      {.scheduler = {.parallel = 4}});
  serving = &service;
  service.wait_until_ready();
  const Task other_task = maker.task(body_of("abc", 40, 1));
  Collector other, cancelled;
  bool has_told = false;
  other.on_token = [&](const Task&) {  // the engine waits until the second task is there
    if (std::exchange(has_told, true)) return;
    const Task task = maker.task(body_of(std::string(200, 'q'), 40, 1));
    to_cancel = std::get<std::uint64_t>(service.submit(task, cancelled.events()));
  };
  accepted(service.submit(other_task, other.events()));
  const Ended ended = cancelled.get();
  CHECK(ended.outcome.end == Outcome::End::cancelled);
  CHECK(ended.tokens == 0);
  CHECK(other.get().outcome.completion.text == alone(other_task));
  CHECK(service.statistics().steps_given_up == 1);
}

TEST_CASE("a service tells how the experts of a mixture were used") {
  const sluice::streaming::ExpertStatistics used = {4, 8, 6, 1000, 0};
  for (const bool is_mixture : {false, true}) {
    Service service(
        [&](std::function<void()> stop_check) {
          auto engine = std::make_unique<FakeEngine>();
          engine->stop_check = std::move(stop_check);
          if (is_mixture) engine->experts = used;
          return engine;
        },
        {.scheduler = {.parallel = 1}});
    service.wait_until_ready();
    Collector collector;
    accepted(service.submit(Maker().task(body_of("abc", 4, 1)), collector.events()));
    collector.get();
    REQUIRE(service.drain(Clock::now() + std::chrono::hours(1)));
    const auto experts = service.statistics().experts;
    REQUIRE(experts.has_value() == is_mixture);
    if (is_mixture) CHECK(experts->hit_rate() == 0.75);
  }
}

TEST_CASE("a full queue refuses, and so does a service that is not running") {
  const Maker maker;
  std::promise<void> go_on;
  Service service(
      [&](std::function<void()> stop_check) {
        go_on.get_future().wait();
        auto engine = std::make_unique<FakeEngine>();
        engine->stop_check = std::move(stop_check);
        return engine;
      },
      {.scheduler = {.parallel = 1}, .queue_max = 2});
  const Task task = maker.task(body_of("abc", 20, 1));
  Collector early;
  CHECK(std::get<Service::Refusal>(service.submit(task, early.events())) ==
        Service::Refusal::not_running);
  CHECK(service.state() == Service::State::loading);
  go_on.set_value();
  service.wait_until_ready();
  // The engine stays in a step of the first task while the queue fills.
  Gate gate;
  Collector collectors[5];
  collectors[0].on_token = [&](const Task&) { gate.pass(); };
  accepted(service.submit(task, collectors[0].events()));
  gate.wait_for_arrival();
  accepted(service.submit(task, collectors[1].events()));
  const std::uint64_t waiting = accepted(service.submit(task, collectors[2].events()));
  CHECK(std::get<Service::Refusal>(service.submit(task, early.events())) ==
        Service::Refusal::queue_is_full);
  Task background = task;
  background.priority = Priority::background;
  accepted(service.submit(background, collectors[3].events()));  // has a queue of its own
  service.cancel(waiting);
  CHECK(service.statistics().queued_interactive == 1);
  CHECK(service.statistics().queued_background == 1);
  accepted(service.submit(task, collectors[4].events()));
  gate.open();
  CHECK(collectors[2].get().outcome.end == Outcome::End::cancelled);
  for (const int i : {0, 1, 3, 4}) {
    CHECK(collectors[i].get().outcome.completion.text == alone(task));
  }
  service.stop();
  CHECK(std::get<Service::Refusal>(service.submit(task, early.events())) ==
        Service::Refusal::not_running);
}

TEST_CASE("draining lets what runs end, and cancels what is left at the deadline") {
  const Maker maker;
  {
    Service service(fake(), {.scheduler = {.parallel = 2}});
    service.wait_until_ready();
    const Task task = maker.task(body_of("abc", 200, 1));
    Collector collectors[3];
    for (Collector& collector : collectors) accepted(service.submit(task, collector.events()));
    CHECK(service.drain(Clock::now() + std::chrono::hours(1)));
    CHECK(service.state() == Service::State::stopped);
    for (Collector& collector : collectors) {
      CHECK(collector.get().outcome.completion.text == alone(task));
    }
  }
  Service service(fake({.pages = 40000}), {});
  service.wait_until_ready();
  Task endless = maker.task(R"({"prompt":"abc","max_tokens":200,"ignore_eos":true})");
  endless.tokens_max = 1000000;  // takes hours
  Collector collector, background;
  Task waiting = maker.task(body_of("abc", 20, 1), 2, Priority::background);
  accepted(service.submit(endless, collector.events()));
  accepted(service.submit(waiting, background.events()));
  CHECK_FALSE(service.drain(Clock::now()));
  CHECK(collector.get().outcome.end == Outcome::End::cancelled);
  CHECK(background.get().outcome.end == Outcome::End::cancelled);
}

TEST_CASE("a failure of the engine ends all tasks as failed") {
  const Maker maker;
  SECTION("while it is opened") {
    Service service(
        [](const std::function<void()>&) -> std::unique_ptr<sluice::engine::Engine> {
          throw std::runtime_error("no such model");
        },
        {});
    CHECK_THROWS_WITH(service.wait_until_ready(), "no such model");
    CHECK(service.state() == Service::State::failed);
  }
  SECTION("in a step") {
    std::atomic<bool> is_broken = false;
    Service service(
        [&](std::function<void()> stop_check) {
          auto engine = std::make_unique<FakeEngine>();
          engine->stop_check = [&, stop_check] {
            if (is_broken) throw std::runtime_error("the disk is gone");
            stop_check();
          };
          return engine;
        },
        {.scheduler = {.parallel = 1}});
    service.wait_until_ready();
    Collector running, waiting;
    const Task task = maker.task(body_of("abc", 20, 1));
    Gate gate;
    running.on_token = [&](const Task&) { gate.pass(); };
    std::atomic<int> told_in_handler = 0;
    const auto looking = [&](Collector& collector) {
      Events events = collector.events();
      events.on_done = [&, tell = events.on_done](const Task& ended, const Outcome& outcome) {
        if (std::current_exception()) ++told_in_handler;
        tell(ended, outcome);
      };
      return events;
    };
    accepted(service.submit(task, looking(running)));
    accepted(service.submit(task, looking(waiting)));
    gate.wait_for_arrival();
    is_broken = true;
    gate.open();
    const Ended ended = running.get();
    CHECK(ended.outcome.end == Outcome::End::failed);
    CHECK(ended.outcome.problem == "the disk is gone");
    CHECK(waiting.get().outcome.end == Outcome::End::failed);
    CHECK(service.drain(Clock::now() + std::chrono::hours(1)));  // waits until it has failed
    CHECK(service.state() == Service::State::failed);
    CHECK(service.statistics().failed == 2);
    CHECK(told_in_handler == 0);
  }
}

namespace {

// An engine on a disk that fails whenever `fails` says so.
Service::OpenEngine on_bad_disk(std::function<bool()> fails) {
  return [fails = std::move(fails)](std::function<void()> stop_check) {
    auto engine = std::make_unique<FakeEngine>();
    engine->stop_check = [fails, stop_check = std::move(stop_check)] {
      if (fails()) throw std::system_error(EIO, std::generic_category(), "/srv/model.gguf");
      stop_check();
    };
    return engine;
  };
}

}  // namespace

TEST_CASE("a step whose weights cannot be read is tried again, which shows in nothing") {
  const Maker maker;
  std::atomic<int> reads = 0;
  Service service(on_bad_disk([&] { return ++reads % 7 == 0; }),
                  {.scheduler = {.parallel = 3}, .retry_pause = std::chrono::milliseconds(0)});
  service.wait_until_ready();
  Collector collectors[8];
  const auto task = [&](int i) { return maker.task(body_of("abc", 20, i)); };
  for (int i = 0; i < 8; ++i) accepted(service.submit(task(i), collectors[i].events()));
  for (int i = 0; i < 8; ++i) CHECK(collectors[i].get().outcome.completion.text == alone(task(i)));
  const Service::Statistics statistics = service.statistics();
  CHECK(statistics.read_failures > 5);
  CHECK(statistics.steps_failed == 0);
  CHECK_FALSE(statistics.is_in_trouble);
}

TEST_CASE("weights that cannot be read fail the tasks of the step, and no others") {
  const Maker maker;
  std::atomic<bool> is_broken = false;
  std::string trouble;
  Service service(on_bad_disk([&] { return is_broken.load(); }),
                  {.scheduler = {.parallel = 2},
                   .step_tries = 3,
                   .retry_pause = std::chrono::milliseconds(1),
                   .on_trouble = [&](const std::string& line) { trouble = line; }});
  service.wait_until_ready();
  Collector running[2], waiting;
  const Task task = maker.task(R"({"prompt":"abc","max_tokens":20,"ignore_eos":true,"seed":1})");
  Gate gate;
  running[0].on_token = [&](const Task&) { gate.pass(); };
  running[1].on_token = [&](const Task&) { is_broken = true; };
  Events events = running[0].events();
  bool was_in_trouble = false;
  events.on_done = [&, end = events.on_done](const Task& ended, const Outcome& outcome) {
    is_broken = false;
    was_in_trouble = service.statistics().is_in_trouble;
    end(ended, outcome);
  };
  accepted(service.submit(task, std::move(events)));
  gate.wait_for_arrival();
  accepted(service.submit(task, running[1].events()));
  accepted(service.submit(task, waiting.events()));
  gate.open();
  for (Collector& collector : running) {
    const Outcome outcome = collector.get().outcome;
    CHECK(outcome.end == Outcome::End::failed);
    CHECK(outcome.may_run_again);
    CHECK(outcome.problem.find("Input/output error") != std::string::npos);
    CHECK(outcome.problem.find("/srv") == std::string::npos);
  }
  CHECK(was_in_trouble);
  CHECK(waiting.get().outcome.completion.text == alone(task));
  const Service::Statistics statistics = service.statistics();
  CHECK(statistics.state == Service::State::ready);
  CHECK(statistics.failed == 2);
  CHECK(statistics.read_failures == 3);
  CHECK(statistics.steps_failed == 1);
  CHECK_FALSE(statistics.is_in_trouble);
  service.stop();
  CHECK(service.drain(Clock::now() + std::chrono::hours(1)));
  CHECK(trouble.find("/srv/model.gguf") != std::string::npos);  // for those who run the server
}

TEST_CASE("stopping does not wait for a disk that fails") {
  const Maker maker;
  std::promise<void> failed;
  std::atomic<int> reads = 0;
  Service service(on_bad_disk([&] {
                    if (++reads == 1) failed.set_value();
                    return true;
                  }),
                  {.retry_pause = std::chrono::hours(1)});
  service.wait_until_ready();
  Collector collector;
  accepted(service.submit(maker.task(body_of("abc", 20, 1)), collector.events()));
  failed.get_future().wait();
  service.stop();
  CHECK(collector.get().outcome.end == Outcome::End::cancelled);
}

TEST_CASE("stopping ends the opening of the engine") {
  std::atomic<bool> is_opening = false;
  Service service(
      [&](const std::function<void()>& stop_check) -> std::unique_ptr<sluice::engine::Engine> {
        is_opening = true;
        for (;;) stop_check();
      },
      {});
  while (!is_opening) std::this_thread::yield();
  service.cancel(1);  // no such task
  CHECK(service.state() == Service::State::loading);
  CHECK(service.drain(Clock::now() + std::chrono::hours(1)));
  CHECK(service.state() == Service::State::stopped);
}

TEST_CASE("bodies of requests are rows without an envelope") {
  const Maker maker;
  const auto refused = [&](const std::string& body, Form form = Form::completions) {
    const auto made = maker.maker().make(parse_body(body, form, 1, {}), 1);
    REQUIRE(std::holds_alternative<RefusedRow>(made));
    return std::get<RefusedRow>(made).reason;
  };
  CHECK(refused("{").find("JSON") != std::string::npos);
  CHECK(refused("{}").find("prompt") != std::string::npos);
  CHECK(refused("{}", Form::chat).find("messages") != std::string::npos);
  CHECK(refused(R"({"prompt":"x","id":"a"})").find("id") != std::string::npos);
  const std::string body = R"({"prompt":"xyz","max_tokens":7,"model":"m"})";
  const Task task = maker.task(body, 9);
  CHECK(task.header.model == "m");
  CHECK(task.header.form == Form::completions);
  CHECK(task.tokens_max == 7);
  const Task same = maker.task(R"({"model":"m","max_tokens":7,"prompt":"xyz"})", 9);
  CHECK(alone(task) == alone(same));
}

TEST_CASE("tasks and callbacks that throw do not touch the others, nor the service") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Maker maker;
  std::atomic<int> lost = 0;
  Service service(fake(), {.scheduler = {.parallel = 4},
                           .queue_max = 1000,
                           .on_trouble = [&](const std::string&) { ++lost; }});
  service.wait_until_ready();
  struct One {
    Task task;  // as it was meant
    bool is_sound = true;
    bool loses_end = false;
    std::atomic<int> ends = 0;
    int tokens_left = -1;  // until on_token throws
    std::promise<Outcome> ended;
  };
  std::vector<std::unique_ptr<One>> all;
  int loses = 0;
  for (int i = 0; i < 200; ++i) {
    auto& one = *all.emplace_back(std::make_unique<One>());
    const std::string prompt(random() % 120, static_cast<char>('a' + random() % 3));
    one.task = maker.task(body_of(prompt, static_cast<int>(random() % 40), i), i,
                          random() % 2 == 0 ? Priority::interactive : Priority::background);
    one.is_sound = random() % 2 == 0;
    one.loses_end = random() % 4 == 0;
    loses += one.loses_end ? 1 : 0;
    Task task = one.task;
    if (!one.is_sound && random() % 3 != 0) {
      sluice::test::sabotage(task, random);
    } else if (!one.is_sound) {
      one.tokens_left = static_cast<int>(random() % 30);
    }
    const std::uint64_t kind = random();
    accepted(service.submit(std::move(task), {[&one, kind](const Task&, const TokenEvent&) {
                                                if (one.ends != 0) std::abort();
                                                if (one.tokens_left-- == 0)
                                                  sluice::test::throw_something(kind);
                                              },
                                              [&one, kind](const Task&, const Outcome& outcome) {
                                                if (++one.ends != 1) std::abort();
                                                one.ended.set_value(outcome);
                                                if (one.loses_end)
                                                  sluice::test::throw_something(kind);
                                              }}));
  }
  for (const auto& one : all) {
    const Outcome outcome = one->ended.get_future().get();
    if (one->is_sound) CHECK(outcome.end == Outcome::End::completed);
    if (outcome.end == Outcome::End::completed) {
      CHECK(outcome.completion.text == alone(one->task));
    } else {
      CHECK(sluice::test::tells_problem(outcome));
    }
  }
  CHECK(service.drain(Clock::now() + std::chrono::hours(1)));
  CHECK(service.state() == Service::State::stopped);
  CHECK(lost == loses);
  for (const auto& one : all) CHECK(one->ends == 1);
}
