// A batch on an engine that makes every mistake of the scheduler show: results are those of each
// row alone, whatever the limits, the company and the interruptions.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/batch/done_rows.h"
#include "core/batch/job.h"
#include "core/batch/journal.h"
#include "core/error.h"
#include "core/files/checksum.h"
#include "core/rows/answer_body.h"
#include "core/sampling/text_stream.h"
#include "tests/catch.h"
#include "tests/fake_engine.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::batch;
using namespace sluice::rows;
using namespace sluice::serve;
using nlohmann::json;
using sluice::test::ByteTokenizer;
using sluice::test::content;
using sluice::test::FakeEngine;
using sluice::test::FakeLimits;
using sluice::test::TemporaryFolder;
using sluice::tokenizer::Token;

constexpr std::uint32_t positions_max = 300;

using Lines = std::map<std::uint64_t, std::string>;  // by row

JobOptions job_options(std::uint32_t parallel) {
  JobOptions options;
  options.task.positions_max = positions_max;
  options.scheduler.parallel = parallel;
  options.model_name = "fake";
  options.task.defaults.tokens_max = 20;
  return options;
}

// One result of a row when nothing else is there: the definition, without the scheduler.
Completion choice_alone(const ParsedRow& parsed, std::uint32_t choice) {
  const Request& request = parsed.request.value();
  std::vector<Token> tokens =
      ByteTokenizer().encode(std::get<std::string>(request.prompt), {.add_bos = true});
  Completion completion;
  completion.prompt_tokens = tokens.size();
  completion.finish = Finish::length;
  sluice::sampling::SamplerOptions options = request.sampler;
  if (choice != 0) options.seed ^= sluice::files::checksum_of(std::to_string(choice));
  sluice::sampling::Sampler sampler(options);
  sluice::sampling::TextStream text(request.stop);
  for (const Token token : tokens) sampler.accept_prompt(token);
  const auto is_stop = [&](Token token) {
    return std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
  };
  while (completion.completion_tokens < request.tokens_max) {
    std::vector<Token> banned;
    const bool is_early = completion.completion_tokens < request.tokens_min;
    if (is_early || request.ignores_end) banned.push_back(ByteTokenizer::end_token);
    if (is_early) {
      banned.insert(banned.end(), request.stop_tokens.begin(), request.stop_tokens.end());
    }
    const std::vector<float> logits = sluice::test::fake_logits(tokens);
    const Token token = sampler.sample(logits, banned);
    completion.finish = Finish::stop;
    if (token == ByteTokenizer::end_token || is_stop(token)) break;
    if (request.wants_logprobs) {
      sluice::sampling::append_logprobs(logits, token, request.top_logprobs, completion.logprobs);
    }
    ++completion.completion_tokens;
    sampler.accept(token);
    tokens.push_back(token);
    completion.text += text.push(std::string(1, static_cast<char>(token)));
    if (text.stopped()) break;
    completion.finish = Finish::length;
  }
  completion.text += text.finish();
  if (request.wants_logprobs) {
    std::uint64_t text_offset = 0;
    completion.logprobs_text = logprobs_text(parsed.header.form, completion, request.top_logprobs,
                                             ByteTokenizer(), text_offset);
  }
  return completion;
}

std::string alone(const Input& input, std::uint64_t row, const JobOptions& options) {
  const ParsedRow parsed = parse_row(input.read(row), row, options.task.defaults);
  std::vector<Completion> choices;
  for (std::uint32_t choice = 0; choice < parsed.request.value().choices; ++choice) {
    choices.push_back(choice_alone(parsed, choice));
  }
  return result_line(row, parsed.header, options.model_name, choices);
}

// Random rows, of which many begin alike.
std::string random_input(std::mt19937_64& random, std::size_t rows) {
  const auto text = [&](std::size_t most) {
    std::string out(random() % (most + 1), ' ');
    for (char& c : out) c = static_cast<char>('a' + random() % 3);
    return out;
  };
  const std::vector<std::string> beginnings = {text(0), text(100), text(140), text(40)};
  std::string input;
  for (std::size_t i = 0; i < rows; ++i) {
    json row = {{"prompt", beginnings[random() % beginnings.size()] + text(30)}};
    if (random() % 2 == 0) row["id"] = "row " + std::to_string(i);
    if (random() % 2 == 0) row["max_tokens"] = random() % 120;
    if (random() % 4 == 0) row["temperature"] = 0;
    if (random() % 4 == 0) row["seed"] = random() % 3;
    if (random() % 4 == 0) row["stop"] = {"e", "xy"};
    if (random() % 4 == 0) row["repeat_penalty"] = 1.5;
    if (random() % 8 == 0) row["repetition_penalty"] = 1.3;
    if (random() % 8 == 0) row["presence_penalty"] = 1;
    if (random() % 8 == 0) row["frequency_penalty"] = 0.5;
    if (random() % 8 == 0) row["logit_bias"] = {{"101", 5}, {"257", -3}};
    if (random() % 8 == 0) row["ignore_eos"] = true;
    if (random() % 8 == 0) row["stop_token_ids"] = {101, 102, 103};
    if (random() % 8 == 0) row["n"] = 1 + random() % 5;
    if (random() % 8 == 0) row["logprobs"] = random() % 4;
    if (random() % 8 == 0 && !row.contains("max_tokens")) row["min_tokens"] = 10;
    input += row.dump() + "\n";
  }
  return input;
}

std::string file_of(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.path() / "in.jsonl";
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

Lines run(FakeEngine& engine, const Input& input, const JobOptions& options,
          const Shard& shard = {}, SchedulerCounts* counts = nullptr) {
  Lines lines;
  DoneRows done(input.rows(), shard);
  Job job(engine, input, done, options, [&](std::string_view line) {
    const auto facts = read_result(line.substr(0, line.size() - 1));
    REQUIRE(facts);
    CHECK(lines.emplace(facts->row, line).second);  // every row once
  });
  while (job.step()) {
  }
  CHECK(done.is_complete());
  CHECK(done.count() == lines.size());
  if (counts != nullptr) *counts = job.counts();
  return lines;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

TEST_CASE("a row gives the same alone and in any company") {
  std::mt19937_64 random(sluice::test::random_seed());
  const TemporaryFolder folder;
  std::uint64_t forks = 0, preemptions = 0, evaluated_again = 0;
  for (int round = 0; round < 40; ++round) {
    const Input input(file_of(folder, random_input(random, 1 + random() % 40)));
    JobOptions options = job_options(1 + static_cast<std::uint32_t>(random() % 20));
    options.scheduler.shared_tokens_min = 1 + static_cast<std::uint32_t>(random() % 40);
    options.scheduler.kept_max = random() % 5;
    FakeLimits limits;
    limits.window = random() % 2 == 0 ? 0 : 100;
    limits.columns = 1 + static_cast<std::uint32_t>(random() % 64);
    limits.logits = 1 + static_cast<std::uint32_t>(random() % 16);
    // One row always fits. Every second round has so little room that rows take it from another.
    limits.pages = 10 + static_cast<std::uint32_t>(random() % (round % 2 == 0 ? 3 : 15));
    FakeEngine engine(limits);
    const Shard shard{1 + random() % 2, 2};
    SchedulerCounts counts;
    Lines lines = run(engine, input, options, shard, &counts);
    preemptions += counts.preemptions;
    evaluated_again += counts.tokens_evaluated_again;
    lines.merge(run(engine, input, options, {3 - shard.index, 2}));
    REQUIRE(lines.size() == input.rows());
    for (const auto& [row, line] : lines) CHECK(line == alone(input, row, options));
    CHECK(engine.free_pages() == limits.pages);  // all are given back
    forks += engine.forks;
  }
  CHECK(forks > 0);
  CHECK(preemptions > 0);
  CHECK(evaluated_again > 0);
}

TEST_CASE("a common beginning is evaluated once") {
  const TemporaryFolder folder;
  const std::string beginning(200, 'q');
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += json({{"prompt", beginning + std::to_string(i)}, {"max_tokens", 1}}).dump() + "\n";
  }
  const Input input(file_of(folder, text));
  for (const std::uint32_t parallel : {1U, 8U}) {
    FakeEngine engine({.columns = 64, .logits = 8, .pages = 400});
    run(engine, input, job_options(parallel));
    CHECK(engine.columns_used < 200 + 30 * 4);
  }
}

TEST_CASE("sequences decode together and are replaced at once") {
  const TemporaryFolder folder;
  std::string text;
  std::uint64_t tokens = 0;
  for (int i = 0; i < 64; ++i) {
    text += json({{"prompt", std::to_string(i)}, {"max_tokens", 40}}).dump() + "\n";
  }
  const Input input(file_of(folder, text));
  FakeEngine engine({.columns = 64, .logits = 8, .pages = 400});
  std::uint64_t steps = 0;
  DoneRows done(input.rows(), {});
  Job job(engine, input, done, job_options(8), [&](std::string_view line) {
    tokens += json::parse(line)["usage"]["completion_tokens"].get<std::uint64_t>();
  });
  while (job.step()) steps = job.counts().steps;
  CHECK(job.counts().running_max == 8);
  CHECK(job.counts().tokens_generated == tokens);
  // Every step but those of the last few rows has eight sequences, and one evaluation gives one
  // token or ends a row.
  CHECK(steps <= (tokens + 64) / 8 + 41);
}

TEST_CASE("every row of a hostile input has a result or an error that names its line") {
  const TemporaryFolder folder;
  const std::string huge(std::size_t{3} << 20, 'x');
  std::string text = "{\"id\":1,\"prompt\":\"good\"}\n\n";             // line 1
  text += "not json\n";                                                // 3
  text += "{\"id\":2,\"prompt\":7}\n";                                 // 4
  text += "{\"id\":3,\"prompt\":\"" + huge + "\"}\n";                  // 5
  text += "{\"id\":1,\"prompt\":\"again\"}\n";                         // 6
  text += std::string("{\"prompt\":\"a\0b\"}\n", 17);                  // 7
  text += "{\"prompt\":\"\\u0000\"}\n";                                // 8
  text += "{\"prompt\":[1,2,999]}\n";                                  // 9
  text += "{\"prompt\":\"x\",\"max_tokens\":4000}\n";                  // 10
  text += "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";  // 11
  text += "{\"prompt\":\"" + huge + huge + huge + "\"}\n";             // 12
  text += "{\"prompt\":\"\",\"max_tokens\":0}";                        // 13, no newline
  const Input input(file_of(folder, text));
  FakeEngine engine({.columns = 64, .logits = 8, .pages = 40});
  const Lines lines = run(engine, input, job_options(4));
  REQUIRE(lines.size() == 12);
  const std::map<std::uint64_t, std::uint64_t> bad_lines = {
      {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}, {8, 9}, {9, 10}, {10, 11}, {11, 12}};
  for (const auto& [row, line] : lines) {
    INFO(row << " " << line.substr(0, 200));
    const json error = json::parse(line)["error"];
    CHECK(error.is_null() == !bad_lines.contains(row));
    if (!error.is_null()) CHECK(error["line"] == bad_lines.at(row));
  }
  CHECK(json::parse(lines.at(4))["error"]["code"] == "prompt_too_long");
  CHECK(json::parse(lines.at(5))["error"]["code"] == "duplicate_id");
  CHECK(json::parse(lines.at(11))["error"]["code"] == "invalid_request");
  CHECK(json::parse(lines.at(12))["text"] == "");
}

TEST_CASE("an empty input is a complete job") {
  const TemporaryFolder folder;
  FakeEngine engine;
  CHECK(run(engine, Input(file_of(folder, "")), job_options(4)).empty());
}

TEST_CASE("long prompts lose the end that was asked for") {
  const TemporaryFolder folder;
  for (const std::size_t size : {positions_max, positions_max + 5, 9 * positions_max}) {
    std::string prompt(size, ' ');
    for (std::size_t i = 0; i < size; ++i) prompt[i] = static_cast<char>('a' + i % 26);
    const std::size_t kept = positions_max - 20 - 1;  // beside new tokens and BOS
    const auto row = [](const std::string& text) {
      return json({{"id", 1}, {"prompt", text}}).dump();
    };
    const Input input(file_of(folder, row(prompt)));
    for (const Truncate truncate : {Truncate::head, Truncate::tail}) {
      JobOptions options = job_options(1);
      options.task.truncate = truncate;
      FakeEngine engine;
      json cut = json::parse(run(engine, input, options).at(1));
      CHECK(cut["usage"]["truncated_tokens"].get<std::uint64_t>() > 0);
      cut["usage"].erase("truncated_tokens");
      const TemporaryFolder other;
      const std::string rest =
          truncate == Truncate::head ? prompt.substr(size - kept) : prompt.substr(0, kept);
      const Input shorter(file_of(other, row(rest)));
      CHECK(cut == json::parse(alone(shorter, 1, options)));
    }
    FakeEngine engine;
    const json refused = json::parse(run(engine, input, job_options(1)).at(1));
    CHECK(refused["error"]["code"] == "prompt_too_long");
  }
}

TEST_CASE("conversations go through the dialogue, whose refusal is an error of the row") {
  const TemporaryFolder folder;
  const Input input(file_of(folder,
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n"
                            "{\"messages\":[{\"role\":\"wizard\",\"content\":\"hi\"}]}\n"));
  const ByteTokenizer tokenizer;
  JobOptions options = job_options(2);
  const auto dialogue = std::make_shared<const sluice::chat::Dialogue>(
      sluice::chat::ChatSource{nullptr, sluice::chat::family_named("plain")}, tokenizer,
      sluice::chat::DialogueOptions{});
  options.task.dialogue = dialogue;
  FakeEngine engine;
  const Lines lines = run(engine, input, options);
  const json messages = json::array({{{"role", "user"}, {"content", "hi"}}});
  CHECK(json::parse(lines.at(1))["usage"]["prompt_tokens"] ==
        dialogue->encode(sluice::chat::DialogueBody{.messages = messages}).tokens.size());
  CHECK(json::parse(lines.at(2))["error"]["message"].get<std::string>().find("wizard") !=
        std::string::npos);
}

TEST_CASE("a row that can never fit is an error and the others run") {
  const TemporaryFolder folder;
  const Input input(file_of(folder,
                            "{\"prompt\":\"a\",\"max_tokens\":5}\n"
                            "{\"prompt\":\"b\",\"max_tokens\":200}\n"
                            "{\"prompt\":\"c\",\"max_tokens\":5}\n"));
  FakeEngine engine({.columns = 8, .logits = 8, .pages = 3});
  const Lines lines = run(engine, input, job_options(4));
  CHECK(json::parse(lines.at(1))["error"].is_null());
  CHECK(json::parse(lines.at(2))["error"]["code"] == "cannot_run");
  CHECK(json::parse(lines.at(3))["error"].is_null());
}

TEST_CASE("winding down finishes what generates and resuming does the rest") {
  std::mt19937_64 random(7);
  const TemporaryFolder folder;
  const Input input(file_of(folder, random_input(random, 40)));
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 100});
  Lines lines;
  DoneRows done(input.rows(), {});
  int jobs = 0;
  for (bool is_complete = false; !is_complete; ++jobs) {
    Job job(engine, input, done, job_options(6), [&](std::string_view line) {
      const auto facts = read_result(line.substr(0, line.size() - 1));
      CHECK(lines.emplace(facts->row, line).second);
    });
    for (int steps = 0; steps < 60 && job.step(); ++steps) {
    }
    job.wind_down();
    while (job.step()) {
    }
    is_complete = done.is_complete();
  }
  CHECK(jobs > 1);
  for (const auto& [row, line] : lines) CHECK(line == alone(input, row, job_options(1)));
}

TEST_CASE("a job whose rows are refused can be stopped after any of them") {
  struct Stopped {};
  const TemporaryFolder folder;
  const std::string refused = json({{"prompt", 5}}).dump() + "\n";
  std::string text;
  for (int i = 0; i < 40; ++i) text += refused;
  const Input input(file_of(folder, text));
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 100});
  DoneRows done(input.rows(), {});
  JobOptions options = job_options(4);
  std::uint64_t lines = 0, stops = 0;
  options.stop_check = [&] {
    CHECK(done.count() == lines);
    if (lines % 7 == 0) throw Stopped{};
  };
  Job job(engine, input, done, options, [&](std::string_view) { ++lines; });
  for (bool has_more = true; has_more;) {
    try {
      has_more = job.step();
    } catch (const Stopped&) {
      ++stops;
    }
  }
  CHECK(stops == 5);
  CHECK(lines == 40);
  CHECK(done.is_complete());
}

TEST_CASE("rows that need more than the engine was planned for are left out and run later") {
  std::mt19937_64 random(sluice::test::random_seed());
  const TemporaryFolder folder;
  const Input input(file_of(folder, random_input(random, 60)));
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 100});
  Lines lines;
  DoneRows done(input.rows(), {});
  const auto run_planned_for = [&](std::uint64_t positions) {
    JobOptions options = job_options(6);
    options.positions_planned = positions;
    Job job(engine, input, done, options, [&](std::string_view line) {
      const auto facts = read_result(line.substr(0, line.size() - 1));
      CHECK(lines.emplace(facts->row, line).second);
    });
    while (job.step()) {
    }
    return job.left_out();
  };
  const LeftOut left_out = run_planned_for(60);
  CHECK(left_out.rows == done.rows() - done.count());
  CHECK(left_out.rows != 0);
  CHECK(left_out.positions > 60);
  CHECK(run_planned_for(left_out.positions).rows == 0);
  CHECK(done.is_complete());
  for (const auto& [row, line] : lines) CHECK(line == alone(input, row, job_options(1)));
}

TEST_CASE("a row that cannot be made ends the job with the reason, after those before it") {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += json({{"prompt", "abc"}, {"max_tokens", 2}}).dump() + "\n";
  const std::string path = file_of(folder, text);
  const Input input(path);
  FakeEngine engine({.columns = 16, .logits = 8, .pages = 100});
  DoneRows done(input.rows(), {});
  Job job(engine, input, done, job_options(4), [](std::string_view) {});
  while (done.count() < 5) REQUIRE(job.step());
  std::filesystem::resize_file(path, text.size() / 2);
  CHECK_THROWS_AS(
      [&] {
        while (job.step()) {
        }
      }(),
      sluice::Error);
  CHECK(done.count() >= 5);
  CHECK(done.count() <= 25);
}

// A child runs the job on a journal and is killed at a random moment, again and again.
TEST_CASE("after any number of kill -9 every row is there once, byte by byte") {
  std::mt19937_64 random(sluice::test::random_seed());
  const TemporaryFolder folder;
  const Input input(file_of(folder, random_input(random, 100)));
  const std::filesystem::path output = folder.path() / "out.jsonl";
  const auto run_job = [&](const std::filesystem::path& path) {
    FakeEngine engine({.columns = 32, .logits = 8, .pages = 100});
    Journal journal(path);
    journal.go_on();
    DoneRows done(input.rows(), {}, journal.scan().found);
    Job job(engine, input, done, job_options(8),
            [&](std::string_view line) { journal.append(line); });
    while (job.step()) journal.sync_if_due();
  };
  run_job(folder.path() / "undisturbed.jsonl");
  const auto expected = sorted_lines(content(folder.path() / "undisturbed.jsonl"));
  REQUIRE(expected.size() == input.rows());
  int kills = 0;
  for (int life = 0; life < 20; ++life) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      run_job(output);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(random() % 4000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    kills += WIFSIGNALED(status) ? 1 : 0;
  }
  CHECK(kills > 0);
  run_job(output);
  CHECK(sorted_lines(content(output)) == expected);
}
