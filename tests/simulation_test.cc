// A whole server in a made-up world: a model that is a hash, or a tiny real one; the service and
// its scheduler with rows of both priorities, over a tape and an expert store on a disk that is
// slow, fails and is written to; a memory guard whose memory others take; drafts that are right,
// wrong and hostile; clients that come, cancel and come again, some of them by HTTP, slowly; a
// batch, files and records on disks that are full, fail and forget; and kills, with and without a
// loss of power, after which it goes on.
//
// A world follows from one seed: its time is virtual, and all that happens does so on the thread of
// the engine. What each row gives is what it gives alone, pages and descriptors are given back,
// nothing that was reported as durable is lost, memory stays within what others leave, and every
// row ends in bounded time.
//
// SLUICE_TEST_SEED=N SLUICE_SIMULATED_WORLDS=M runs the worlds N to N + M - 1, and with
// SLUICE_SIMULATED_SECONDS=S as many as there is time for (scripts/simulate).
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "core/serve/service.h"
#include "tests/catch.h"
#include "tests/drafted_rows.h"
#include "tests/fake_drafts.h"
#include "tests/forwarding_engine.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/serve_support.h"
#include "tests/simulated_batch.h"
#include "tests/simulated_edge.h"
#include "tests/simulated_machine.h"
#include "tests/simulated_models.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using rows::Outcome;
using rows::Task;
using serve::Service;
using Duration = VirtualTime::Duration;

// Of all worlds so far, by what it counts.
using Totals = std::map<std::string, std::uint64_t>;

// The process was killed. Ends a step, and with it the service.
struct Killed {};

// The process is at the end of its life, for a reason that is no defect.
enum class Death { none, killed, power_lost };

// A client that wants one text, and comes again until it has got it or has gone away.
struct Client {
  Task task;
  Given expected;
  Duration comes{0};
  std::optional<Duration> leaves = {};  // so long after it has come
  bool is_sabotaged = false;
  Given given = {};
  bool has_ended = false;
};

// Runs a world again.
std::string command_of(std::uint64_t seed) {
  const std::string number = std::to_string(seed);
  return "world " + number + ": SLUICE_TEST_SEED=" + number +
         " SLUICE_SIMULATED_WORLDS=1 build/release/tests/simulation_test\n";
}

class World {
 public:
  World(std::uint64_t seed, Totals& totals);

  // Returns what is wrong with the program; empty: nothing.
  std::string run();

 private:
  class Life;

  void violation(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  bool is_over() const {
    return batch_.is_complete() &&
           std::ranges::all_of(clients_, [](const Client& c) { return c.has_ended; }) &&
           std::ranges::all_of(questions_, [](const Question& q) { return q.has_ended; });
  }
  void add_clients();
  void add_questions();
  std::string input();
  void restart(Death death);

  std::uint64_t seed_;
  Random random_;
  Totals& totals_;
  std::string violation_;
  TemporaryFolder folder_;
  VirtualTime time_;
  DiskTroubles troubles_;
  SimulatedDisk files_disk_, batches_disk_;
  std::unique_ptr<SimulatedModel> model_;
  SimulatedBatch batch_;
  SimulatedStores stores_;
  std::vector<Client> clients_;
  std::vector<Question> questions_;                         // of clients that come by HTTP
  std::map<std::vector<Token>, std::vector<Token>> texts_;  // by prompt: what comes behind it
  std::atomic<std::uint64_t> steps_ = 0;  // the test's own thread sees whether it grows
  std::uint64_t steps_max_ = 0;
  std::uint64_t kills_left_ = 0;
};

std::filesystem::path made(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  return folder;
}

std::unique_ptr<SimulatedModel> any_model(Random& random) {
  if (chance(random, 10)) return std::make_unique<TinyModel>(random);
  return std::make_unique<HashModel>(random);
}

World::World(std::uint64_t seed, Totals& totals)
    : seed_(seed),
      random_(seed),
      totals_(totals),
      troubles_{.random = Random(random_())},
      files_disk_(made(folder_ / "files"), random_(), troubles_),
      batches_disk_(made(folder_ / "batches"), random_(), troubles_),
      model_(any_model(random_)),
      batch_(folder_ / "batches", input(), model_->plain(), model_->options(), batches_disk_, time_,
             [this](const std::string& what) { violation(what); }),
      stores_(folder_ / "files", folder_ / "batches", files_disk_, batches_disk_, random_(),
              [this](const std::string& what) { violation(what); }),
      kills_left_(chance(random_, 3) ? 0 : random_() % 5) {
  if (chance(random_, 2)) troubles_.errors_one_in = 10 + random_() % 300;
  if (chance(random_, 2)) troubles_.short_writes_one_in = 1 + random_() % 10;
  troubles_.on_call = [this] { time_.delay(Duration(random_() % 2000)); };
  add_clients();
  if (model_->writes_ascii() && chance(random_, 3)) add_questions();
}

void World::add_clients() {
  const std::size_t count = random_() % (chance(random_, 3) ? 100 : 24);
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < count; ++i) tasks.push_back(model_->task(random_));
  const std::vector<Given> expected = plain(model_->plain(), tasks);
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Client client{tasks[i], expected[i]};
    client.comes = Duration(random_() % 3'000'000);
    if (chance(random_, 4)) client.leaves = Duration(random_() % 200'000);
    if (chance(random_, 12)) {
      client.is_sabotaged = true;
      model_->sabotage(client.task, random_);
    }
    texts_[client.task.prompt] = client.expected.tokens;
    tokens += client.task.prompt.size() + client.expected.tokens.size();
    clients_.push_back(std::move(client));
  }
  // Each token has a step of its own, many times over: steps fail, and rows begin again.
  steps_max_ = 4000 * (tokens + 400 * batch_.rows() + 1000);
}

void World::add_questions() {
  const rows::TaskMaker maker(model_->plain().tokenizer(), model_->options());
  std::vector<Task> tasks;
  for (std::uint64_t count = 1 + random_() % 12; count != 0; --count) {
    questions_.push_back({model_->row(random_), {}});
    tasks.push_back(std::get<Task>(
        maker.make(rows::parse_body(questions_.back().body, rows::Form::completions, 1, {}), 1)));
  }
  const std::vector<Given> given = plain(model_->plain(), tasks);
  for (std::size_t i = 0; i < given.size(); ++i) {
    questions_[i].expected = given[i].outcome->completion.text;
  }
}

std::string World::input() {
  std::string text;
  for (std::uint64_t rows = 1 + random_() % 16; rows != 0; --rows) {
    text += model_->row(random_) + "\n";
  }
  return text;
}

// One run of the server, from its start to its end or its death.
class World::Life {
 public:
  explicit Life(World& world);
  Death run();

 private:
  serve::ServiceOptions options();
  void begin();
  void open_edge();
  void turn_edge();
  void plan_troubles();
  void in_step();
  void look_at_memory();
  void come(Client& client);
  void end(Client& client, const Task& task, const Outcome& outcome);
  std::optional<std::uint64_t> submit(const Task& task, serve::Events events);
  void ended();
  bool goes_on_until_over();
  bool has_texts() const;
  void idle();
  void die(Death death);
  void finish();

  World& world_;
  Random random_;
  std::unique_ptr<SteppedMemory> memory_;  // null: limits come from nowhere
  std::unique_ptr<engine::Engine> engine_;
  std::shared_ptr<int> callbacks_ = std::make_shared<int>(0);  // a share for each that is held
  std::function<void()> stop_check_;
  Death death_ = Death::none;
  bool has_finished_ = false;
  std::size_t under_way_ = 0;
  std::promise<void> over_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<SimulatedEdge> edge_;
};

World::Life::Life(World& world) : world_(world), random_(world.random_()) {
  if (chance(random_, 3)) memory_ = std::make_unique<SteppedMemory>(world_.time_);
  engine_ = world_.model_->open(
      random_, {.in_step = [this] { in_step(); },
                .violation = [this](const std::string& what) { world_.violation(what); },
                .memory = memory_.get()});
}

Death World::Life::run() {
  const std::uint32_t free = engine_->free_positions();
  FakeDisk& disk = world_.model_->disk;
  disk.on_attempt = [this] {
    // Most reads are quick, and some stall.
    const bool stalls = chance(random_, 2000);
    world_.totals_["reads that stalled"] += stalls ? 1 : 0;
    world_.time_.pass(stalls ? Duration(500'000 + random_() % 2'000'000)
                             : Duration(10 + random_() % 300));
  };
  world_.troubles_.kill = [this] { die(chance(random_, 2) ? Death::power_lost : Death::killed); };
  plan_troubles();
  service_ = std::make_unique<Service>(
      [this](std::function<void()> stop_check) {
        stop_check_ = std::move(stop_check);
        return std::make_unique<ForwardingEngine>(*engine_);
      },
      options());
  service_->wait_until_ready();
  // From here on all happens on the engine's thread, which one text sets going.
  Task spark = world_.model_->task(random_);
  spark.tokens_max = 1;
  submit(spark, {.on_token = {}, .on_done = [this](const Task&, const Outcome&) {
                   begin();
                   ended();
                 }});
  if (!goes_on_until_over()) {
    std::printf("%s%zu texts are under way, and nothing goes on\n",
                command_of(world_.seed_).c_str(), under_way_);
    std::fflush(stdout);
    std::abort();
  }
  if (edge_ && death_ == Death::none) edge_->end();
  // The service tells the edge of ends until it is drained; then the edge may go, which cancels the
  // texts of the clients that it still has.
  service_->drain(std::chrono::steady_clock::now());
  const Service::Statistics counts = service_->statistics();
  const std::exception_ptr failure = service_->failure();
  if (edge_) {
    world_.totals_["answers by HTTP"] += edge_->answers;
    world_.totals_["requests by HTTP that came again"] += edge_->refusals;
    world_.totals_["clients by HTTP that vanished"] += edge_->vanished;
    edge_.reset();
  }
  service_.reset();
  disk.on_attempt = nullptr;
  world_.time_.forget_events();
  world_.totals_["steps of the scheduler"] += counts.scheduler.steps;
  world_.totals_["steps given up"] += counts.steps_given_up;
  world_.totals_["steps whose weights could not be read"] += counts.read_failures;
  world_.totals_["rows preempted"] += counts.scheduler.preemptions;
  world_.totals_["tokens from the prompt cache"] += counts.scheduler.prompt_tokens_restored;
  world_.totals_["drafts"] += counts.scheduler.tokens_drafted;
  world_.totals_["drafts that were right"] += counts.scheduler.tokens_accepted;
  if (death_ == Death::none && failure) world_.violation("the service has failed");
  if (under_way_ != 0) world_.violation("a text has not ended");
  if (engine_->free_positions() != free) world_.violation("pages are not given back");
  if (callbacks_.use_count() != 1) world_.violation("callbacks are held after their end");
  if (counts.accepted != counts.completed + counts.failed + counts.cancelled &&
      death_ == Death::none) {
    world_.violation("texts were counted wrongly");
  }
  return death_;
}

// The server's thread is the engine's: it has its turn in the middle of steps, and between them.
void World::Life::open_edge() {
  edge_ = std::make_unique<SimulatedEdge>(
      world_.folder_ / "socket", *service_,
      std::make_shared<const rows::TaskMaker>(engine_->tokenizer(), world_.model_->options()),
      world_.questions_, random_(), [this](const std::string& what) { world_.violation(what); });
  world_.time_.at(1ms, [this] { turn_edge(); });
}

void World::Life::turn_edge() {
  edge_->turn();
  if (edge_->is_done()) return;
  world_.time_.at(Duration(random_() % 3000), [this] { turn_edge(); });
}

// All clients come, and the batch goes on.
void World::Life::begin() {
  for (Client& client : world_.clients_) {
    if (client.has_ended) continue;
    world_.time_.at(client.comes, [this, &client] { come(client); });
  }
  if (!world_.questions_.empty()) open_edge();
  const auto on_done = [this](const Task& task, const Outcome& outcome) {
    if (death_ == Death::none) world_.batch_.ended(task, outcome);
    ended();
  };
  world_.batch_.begin(
      1 + random_() % 8,
      [this, on_done](const Task& task) {
        Task background = task;
        background.priority = rows::Priority::background;
        return submit(background, {.on_token = {}, .on_done = on_done});
      },
      [this](std::uint64_t number) { service_->cancel(number, "enough"); });
}

serve::ServiceOptions World::Life::options() {
  serve::ServiceOptions options;
  options.queue_max = 1 + random_() % 20;
  options.retry_pause = 0ms;
  serve::SchedulerOptions& scheduler = options.scheduler;
  scheduler.parallel = 1 + static_cast<std::uint32_t>(random_() % 12);
  scheduler.shared_tokens_min = 1 + static_cast<std::uint32_t>(random_() % 40);
  scheduler.kept_max = random_() % 6;
  scheduler.prompt_columns_beside = static_cast<std::uint32_t>(random_() % 20);
  if (chance(random_, 3)) return options;
  scheduler.drafts.row_max = 1 + static_cast<std::uint32_t>(random_() % 8);
  scheduler.drafts.is_eager = true;  // otherwise real times decide
  scheduler.drafts.make_sources =
      [this, shared = std::make_shared<speculate::SharedTexts>()](const Task& task) {
        std::vector<Token> text = task.prompt;
        const auto known = world_.texts_.find(task.prompt);
        if (known != world_.texts_.end()) {
          text.insert(text.end(), known->second.begin(), known->second.end());
        }
        serve::DraftOptions::Sources sources;
        sources.push_back(any_source(std::move(text), random_(),
                                     static_cast<Token>(engine_->facts().vocabulary), shared));
        return sources;
      };
  return options;
}

// What will go wrong in this life, and when.
void World::Life::plan_troubles() {
  VirtualTime& time = world_.time_;
  const auto some_time = [&](std::uint64_t most_ms) {
    return Duration(random_() % (most_ms * 1000));
  };
  for (std::uint64_t i = random_() % 4; i != 0; --i) {
    time.at(some_time(4000), [this, length = some_time(chance(random_, 2) ? 5 : 3000)] {
      world_.model_->disk.bad = {world_.model_->some_stretch(random_)};
      ++world_.totals_["stretches of the weights that could not be read"];
      world_.time_.at(length, [this] { world_.model_->disk.bad.clear(); });
    });
  }
  for (std::uint64_t i = random_() % 4; i != 0; --i) {
    time.at(some_time(4000), [this, length = some_time(chance(random_, 2) ? 5 : 3000)] {
      world_.model_->disk.wrong = {world_.model_->known_stretch(random_)};
      ++world_.totals_["stretches of the weights that were read as others"];
      world_.time_.at(length, [this] { world_.model_->disk.wrong.clear(); });
    });
  }
  for (std::uint64_t i = random_() % 3; i != 0; --i) {
    time.at(some_time(4000), [this] { world_.troubles_.is_full = true; });
    time.at(some_time(6000) + 10ms, [this] { world_.troubles_.is_full = false; });
  }
  time.at(6s, [this] { world_.troubles_.is_full = false; });
  for (std::uint64_t i = random_() % 12; i != 0; --i) {
    time.at(some_time(5000), [this] { world_.stores_.act(); });
  }
  for (std::uint64_t i = random_() % 6; i != 0; --i) {
    time.at(some_time(4000), [this] { world_.model_->disturb(random_); });
  }
  if (memory_) {
    time.at(memory_->first_look(), [this] { look_at_memory(); });
    for (std::uint64_t i = random_() % 4; i != 0; --i) {
      time.at(chance(random_, 3) ? 0us : some_time(4000), [this] {
        ++world_.totals_["limits of memory that were lowered"];
        memory_->usable = chance(random_, 2) ? 0 : random_() % (std::uint64_t{80} << 20);
      });
      time.at(some_time(8000), [this] { memory_->usable = ~std::uint64_t{0}; });
    }
  }
  if (world_.kills_left_ == 0) return;
  --world_.kills_left_;
  const auto kill = [this] { die(chance(random_, 2) ? Death::power_lost : Death::killed); };
  switch (random_() % 3) {
    case 0:
      return time.at(some_time(4000), kill);
    case 1:
      world_.troubles_.calls_until_kill = 1 + random_() % 150;
      return;
    default:  // somebody changes the model, and starts the server again when it complains
      time.at(some_time(3000), [this] {
        ++world_.totals_["model files that were written to"];
        world_.model_->write_to_file();
      });
      return time.at(some_time(2000) + 3s, kill);
  }
}

// Lets the guard look, and again when it wants to; later if the machine is busy.
void World::Life::look_at_memory() {
  const std::chrono::milliseconds next = memory_->look();
  world_.time_.at(next + Duration(random_() % 100'000), [this] { look_at_memory(); });
}

// Before each segment, or each product.
void World::Life::in_step() {
  if (service_ == nullptr) return;  // the engine is being opened
  world_.time_.pass(Duration(1 + random_() % 20));
  if (death_ != Death::none) throw Killed();
  if (++world_.steps_ > world_.steps_max_) {
    world_.violation("rows do not end");
    die(Death::killed);
    throw Killed();
  }
  if (chance(random_, 16)) world_.batch_.look();
  stop_check_();
}

void World::Life::come(Client& client) {
  if (client.has_ended || death_ != Death::none) return;
  client.given = {};
  const auto number =
      submit(client.task, {.on_token =
                               [this, &client](const Task&, const rows::TokenEvent& event) {
                                 if (client.given.outcome)
                                   world_.violation("a token after the end");
                                 if (event.token) client.given.tokens.push_back(*event.token);
                                 client.given.streamed += event.text;
                               },
                           .on_done =
                               [this, &client](const Task& task, const Outcome& outcome) {
                                 if (death_ == Death::none) end(client, task, outcome);
                                 ended();
                               }});
  if (!number) {
    ++world_.totals_["texts that were refused"];
    return world_.time_.at(Duration(10'000 + random_() % 200'000),
                           [this, &client] { come(client); });
  }
  if (!client.leaves) return;
  world_.time_.at(*client.leaves, [this, number, &client] {
    if (!client.has_ended) service_->cancel(*number, "enough");
  });
}

void World::Life::end(Client& client, const Task&, const Outcome& outcome) {
  if (client.given.outcome) return world_.violation("a text has two ends");
  client.given.outcome = outcome;
  if (outcome.may_run_again) {
    ++world_.totals_["texts that were asked for again"];
    world_.time_.at(Duration(100'000 + random_() % 1'000'000), [this, &client] { come(client); });
    return;
  }
  client.has_ended = true;
  switch (outcome.end) {
    case Outcome::End::completed:
      ++world_.totals_["texts completed"];
      if (client.given == client.expected) return;
      return world_.violation("a text is another than alone: \"" + client.given.streamed +
                              "\" and not \"" + client.expected.streamed + "\"");
    case Outcome::End::cancelled:
      ++world_.totals_["texts cancelled"];
      if (client.leaves && outcome.problem == "enough" &&
          begins_as(client.given, client.expected)) {
        return;
      }
      return world_.violation("a text was cancelled that is not the beginning of what it is alone");
    case Outcome::End::failed:
      ++world_.totals_["texts that threw"];
      if (client.is_sabotaged && tells_problem(outcome)) return;
      return world_.violation("a text has failed: " + outcome.problem);
  }
}

std::optional<std::uint64_t> World::Life::submit(const Task& task, serve::Events events) {
  events.on_done = [on_done = std::move(events.on_done), held = callbacks_](
                       const Task& ended_task, const Outcome& outcome) {
    on_done(ended_task, outcome);
  };
  ++under_way_;
  const auto answer = service_->submit(task, std::move(events));
  if (const auto* number = std::get_if<std::uint64_t>(&answer)) return *number;
  --under_way_;
  return std::nullopt;
}

void World::Life::ended() {
  --under_way_;
  idle();
}

// Waits for the end; false when there was no step for two minutes. A stopped or busy machine may
// let one look at the steps come much too late, and then the next one sees them go on.
bool World::Life::goes_on_until_over() {
  const std::future<void> over = over_.get_future();
  std::uint64_t seen = world_.steps_;
  for (int looks_in_vain = 0; looks_in_vain < 4; ++looks_in_vain) {
    if (over.wait_for(30s) == std::future_status::ready) return true;
    if (const std::uint64_t now = world_.steps_; now != seen) {
      seen = now;
      looks_in_vain = -1;
    }
  }
  return false;
}

// Whether the service has texts of the edge.
bool World::Life::has_texts() const {
  const Service::Statistics now = service_->statistics();
  return now.queued_interactive + now.queued_background + now.running != 0;
}

// Time passes until there is something to do, or nothing is left.
void World::Life::idle() {
  while (under_way_ == 0 && !has_finished_) {
    const bool is_over = world_.is_over();
    const bool is_dead = death_ != Death::none || !world_.violation_.empty();
    if (is_dead || (is_over && !has_texts())) return finish();
    if (is_over) {
      edge_->turn();  // the texts of clients that have gone have to end
    } else if (!world_.time_.pass_to_next()) {
      world_.violation("nothing goes on any more");
    }
    if (!edge_ || under_way_ != 0) continue;
    // The edge may have begun a text, of whose end this is not told: this one ends then.
    Task sign = world_.model_->task(random_);
    sign.tokens_max = 1;
    sign.priority = rows::Priority::background;
    submit(sign, {.on_token = {}, .on_done = [this](const Task&, const Outcome&) { ended(); }});
  }
}

// A dead process does nothing any more.
void World::Life::die(Death death) {
  if (death_ != Death::none) return;
  death_ = death;
  world_.files_disk_.lose_power();
  world_.batches_disk_.lose_power();
}

void World::Life::finish() {
  has_finished_ = true;
  over_.set_value();
}

void World::restart(Death death) {
  const bool loses_power = death == Death::power_lost;
  stores_.end();
  batch_.end(loses_power);
  troubles_.calls_until_kill = 0;
  troubles_.is_full = false;
  for (SimulatedDisk* disk : {&files_disk_, &batches_disk_}) {
    if (loses_power) {
      disk->restart();
    } else {
      disk->come_back();
    }
  }
  if (death == Death::killed) ++totals_["kills"];
  if (loses_power) ++totals_["losses of power"];
}

std::string World::run() {
  do {
    while (!stores_.begin()) time_.delay(1s);
    Death death = Death::none;
    {
      Life life(*this);
      death = life.run();
    }
    if (death == Death::none && violation_.empty()) stores_.check();
    restart(death);
  } while (violation_.empty() && !is_over());
  totals_["worlds of " + model_->name()] += 1;
  totals_["waves of steps"] += steps_;
  totals_["lines of journals"] += batch_.lines_written();
  totals_["disk calls that failed"] += troubles_.errors;
  totals_["disk calls without room"] += troubles_.full;
  totals_["short writes"] += troubles_.short_writes;
  totals_["virtual seconds"] += static_cast<std::uint64_t>(time_.since_start() / 1s);
  return violation_;
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* given = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

std::size_t open_descriptors() {
  return files_in("/proc/self/fd");
}

void tell(const Totals& totals) {
  for (const auto& [what, count] : totals) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
}

}  // namespace

TEST_CASE("worlds of faults give what worlds without give, and lose nothing") {
  const std::uint64_t seed = from_environment("SLUICE_TEST_SEED", 1);
  const std::uint64_t seconds = from_environment("SLUICE_SIMULATED_SECONDS", 0);
  const std::uint64_t worlds = from_environment("SLUICE_SIMULATED_WORLDS", is_sanitized ? 8 : 40);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  Totals totals;
  for (std::uint64_t i = 0; seconds != 0 ? std::chrono::steady_clock::now() < end : i < worlds;
       ++i) {
    const std::size_t descriptors = open_descriptors();
    std::string problem = std::make_unique<World>(seed + i, totals)->run();
    if (problem.empty() && open_descriptors() != descriptors) problem = "descriptors are left open";
    if (problem.empty()) continue;
    tell(totals);
    FAIL(command_of(seed + i) << problem);
  }
  tell(totals);
  CHECK(totals["texts completed"] != 0);
}

}  // namespace sluice::test
