// sluice batch as a program: results on the real engine, going on, refusing, signals, full disks.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "tests/program.h"
#include "tests/sanitized.h"
#include "tests/tiny_llama.h"

namespace {

using namespace sluice::test;
using nlohmann::json;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::string sorted(const std::string& text) {
  std::vector<json> lines = lines_of(text);
  std::ranges::sort(lines, {}, [](const json& line) { return line.dump(); });
  return json(lines).dump();
}

std::string rows(int count, int tokens = 12) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += json({{"id", i},
                  {"prompt", "once upon a time there was a river " + std::to_string(i % 7)},
                  {"max_tokens", i % tokens + 1}})
                .dump() +
            "\n";
  }
  return text;
}

// Rows that are not done before another process has looked at the job.
constexpr int long_job = is_sanitized ? 30 : 150;

// `sluice batch MODEL IN` with files in a folder; the output is OUT.
struct Job {
  explicit Job(const std::string& input) : model(make_model(folder)) {
    write(folder.file("in"), input);
  }
  std::string command(const std::string& options = "", const std::string& out = "out") const {
    // Measuring for --parallel auto takes seconds.
    const std::string parallel =
        options.find("--parallel") == std::string::npos ? " --parallel 4 " : " ";
    return "sluice batch " + model + " " + folder.file("in") + " -o " + folder.file(out) + " -q" +
           parallel + options;
  }
  std::string output(const std::string& out = "out") const { return content(folder.file(out)); }

  Folder folder;
  std::string model;
};

// The program, running beside the test. It is killed when the test case ends before it.
class RunningProgram {
 public:
  explicit RunningProgram(std::vector<std::string> arguments, rlim_t file_bytes_max = RLIM_INFINITY,
                          int standard_input = STDIN_FILENO)
      : child_(::fork()) {
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      std::signal(SIGTERM, SIG_DFL);
      std::signal(SIGINT, SIG_DFL);
      const rlimit limit{file_bytes_max, file_bytes_max};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::dup2(standard_input, STDIN_FILENO);
      arguments.insert(arguments.begin(), program);
      std::vector<char*> words;
      for (std::string& argument : arguments) words.push_back(argument.data());
      words.push_back(nullptr);
      ::execv(program.c_str(), words.data());
      ::_exit(99);
    }
  }
  ~RunningProgram() {
    kill(SIGKILL);
    status();
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t id() const { return child_; }
  void kill(int signal) const {
    if (!status_) ::kill(child_, signal);
  }

  // Waits until `is_true`, or until the program has ended, and says which.
  bool waits_for(const std::function<bool()>& is_true) {
    while (!is_true()) {
      if (has_ended(WNOHANG)) return is_true();
      ::usleep(1000);
    }
    return true;
  }

  // The exit status, or -N when signal N ended it.
  int status() {
    while (!has_ended(0)) {
    }
    return *status_;
  }

 private:
  bool has_ended(int options) {
    int status = 0;
    if (!status_ && ::waitpid(child_, &status, options) == child_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return status_.has_value();
  }

  pid_t child_;
  std::optional<int> status_;
};

std::vector<std::string> batch_of(const Job& job, const std::string& in,
                                  const std::string& grace = "0") {
  return {"batch", job.model,    in,  "-o",      job.folder.file("out"),
          "-q",    "--parallel", "4", "--grace", grace};
}

// Of a program that a signal reaches when it has read `front` of a standard input that nobody ends.
int status_of_waiting(const std::vector<std::string>& command, const std::string& front,
                      int signal) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  REQUIRE(::write(ends[1], front.data(), front.size()) == static_cast<ssize_t>(front.size()));
  RunningProgram program(command, RLIM_INFINITY, ends[0]);
  REQUIRE(program.waits_for([&] {
    int unread = 1;
    return ::ioctl(ends[0], FIONREAD, &unread) == 0 && unread == 0;
  }));
  program.kill(signal);
  const int status = program.status();
  ::close(ends[0]);
  ::close(ends[1]);
  return status;
}

}  // namespace

TEST_CASE("results are the same with any --parallel and --budget, in parts and through pipes") {
  const Job job(rows(30));
  REQUIRE(shell(job.command("--parallel 1")).status == 0);
  const std::string expected = sorted(job.output());
  CHECK(lines_of(job.output()).size() == 30);
  for (const char* options : {"--parallel 3", "--parallel 16 --budget 100MiB", "--parallel auto",
                              "--parallel 64 --io pread"}) {
    INFO(options);
    REQUIRE(shell(job.command(options, "other") + " --restart").status == 0);
    CHECK(sorted(job.output("other")) == expected);
  }
  const std::string pipe =
      "sluice batch " + job.model + " - -o - -q --parallel 5 <" + job.folder.file("in");
  CHECK(sorted(shell(pipe).output) == expected);
  std::string parts;
  for (const char* shard : {"1", "2", "3"}) {
    REQUIRE(shell(job.command("--shard " + std::string(shard) + "/3", shard)).status == 0);
    parts = job.folder.file(shard) + " " + parts;
  }
  REQUIRE(shell("sluice merge -q -o " + job.folder.file("merged") + " " + parts).status == 0);
  CHECK(sorted(job.output("merged")) == expected);
  for (int i = 0; i < 30; ++i) {
    CHECK(lines_of(job.output("merged"))[static_cast<std::size_t>(i)]["id"] == i);
  }
  CHECK(shell(job.command("--seed 1", "seeded")).status == 0);
  CHECK(sorted(job.output("seeded")) != expected);
}

// By the line "memory 12.34 MiB planned, 11.90 MiB at its peak" at the end. The kernel does not
// tell a peak everywhere.
void check_within_plan(const Job& job, const std::string& options) {
  const Result result =
      shell("sluice batch " + job.model + " " + job.folder.file("in") + " --restart -o " +
            job.folder.file("out") + " --budget 72MiB " + options);
  INFO(options << "\n" << result.errors);
  REQUIRE(result.status == 0);
  const std::regex line("memory ([0-9.]+) MiB planned(, ([0-9.]+) MiB at its peak)?");
  std::smatch found;
  REQUIRE(std::regex_search(result.errors, found, line));
  if (!found[2].matched) SLUICE_SKIP("the system tells no peak of memory");
  CHECK(std::stod(found[3]) <= std::stod(found[1]));
}

TEST_CASE("the peak of memory is within the plan, with any number of sequences") {
  if (*emulator != '\0') SLUICE_SKIP("the memory of the emulator counts too");
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const Job job(rows(80, 30));
  for (const char* options : {"--parallel 1", "--parallel 4 --io pread", "--parallel 16",
                              "--parallel 64", "--parallel 64 --io pread"}) {
    check_within_plan(job, options);
  }
}

TEST_CASE("the peak of memory is within the plan with rows that are as large as they may be") {
  if (*emulator != '\0') SLUICE_SKIP("the memory of the emulator counts too");
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const std::string huge(std::size_t{10} << 20, 'a');
  const std::string large = huge.substr(0, (std::size_t{4} << 20) - 100);
  const Job job(rows(10) + json({{"prompt", huge}}).dump() + "\n" +
                json({{"prompt", large}}).dump() + "\n" +
                json({{"prompt", std::vector<int>(130000, 1)}}).dump() + "\n" +
                std::string(1000000, '[') + "\n" + rows(10).substr(0, 200));
  for (const char* options : {"--parallel 1 --truncate tail", "--parallel 8 --io pread"}) {
    check_within_plan(job, options);
  }
}

TEST_CASE("OpenAI's rows and conversations, errors counted but no failure") {
  const Job job(
      "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
      "{\"model\":\"m\",\"prompt\":\"hello\",\"max_tokens\":4}}\n"
      "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":4}}\n"
      "broken\n");
  const Result result = shell("sluice batch " + job.model + " " + job.folder.file("in") +
                              " --parallel 2 --chat-format chatml -o " + job.folder.file("out"));
  CHECK(result.status == 0);
  CHECK(result.errors.find("3 of 3 rows are done, 1 of them errors") != std::string::npos);
  for (const json& line : lines_of(job.output())) {
    if (line["id"] == nullptr) {
      CHECK(line["error"]["line"] == 3);
      continue;
    }
    const json body = line["response"]["body"];
    CHECK(body["choices"].size() == 1);
    CHECK(body["usage"]["completion_tokens"] == 4);
    CHECK(body["object"] == (line["custom_id"] == "b" ? "chat.completion" : "text_completion"));
  }
  // Without a format that is known, only conversations are errors.
  REQUIRE(shell(job.command("", "auto")).status == 0);
  for (const json& line : lines_of(job.output("auto"))) {
    const bool is_good = line.contains("custom_id") && line["custom_id"] == "a";
    CHECK(line["error"].is_null() == is_good);
  }
}

TEST_CASE("a template writes conversations with tools, and thoughts stand apart in results") {
  const Job job(
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"tools\":[{\"name\":\"f\"}]}\n"
      "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}}\n"
      "{\"prompt\":\"hello\"}\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":20}\n");
  const std::string model = job.folder.file("thinker.gguf");
  sluice::test::TinyLlama(
      {.name = "thinker",
       .tokens = 340,
       .chat_template = "{{ tools | tojson if tools }}{{ messages[0].content }}<think>",
       .control_tokens = {"<think>", "</think>"}})
      .write(model);
  const auto results = [&](const std::string& options) {
    const Result result =
        shell("sluice batch " + model + " " + job.folder.file("in") +
              " --temp 0 -n 6 --ctx 64 -q --restart " + options + " -o " + job.folder.file("out"));
    INFO(result.errors);
    CHECK(result.status == 0);
    std::map<std::uint64_t, json> by_row;
    for (const json& line : lines_of(job.output())) {
      by_row[line.contains("row") ? line["row"].get<std::uint64_t>() : 3] = line;
    }
    return by_row;
  };
  auto thinking = results("");
  CHECK(thinking[1]["text"] == "");
  CHECK_FALSE(thinking[1]["reasoning_content"].get<std::string>().empty());
  CHECK(thinking[2]["usage"]["prompt_tokens"] > thinking[1]["usage"]["prompt_tokens"]);
  const json message = thinking[3]["response"]["body"]["choices"][0]["message"];
  CHECK(message["reasoning_content"] == thinking[1]["reasoning_content"]);
  CHECK_FALSE(thinking[4].contains("reasoning_content"));
  // A budget ends the thought in the model's place.
  auto short_thought = results("--think-budget 1");
  CHECK(thinking[5]["text"] == "");
  CHECK_FALSE(short_thought[5]["text"].get<std::string>().empty());
  CHECK(short_thought[4] == thinking[4]);
  auto plain = results("--think off");
  CHECK_FALSE(plain[1].contains("reasoning_content"));
  CHECK_FALSE(plain[1]["text"].get<std::string>().empty());
  CHECK(plain[4] == thinking[4]);
}

TEST_CASE("a message that the template leaves out is told once, unless quiet") {
  const std::string row =
      R"({"messages":[{"role":"user","content":"hello"},{"role":"tool","content":"lost"}]})"
      "\n";
  const Job job(row + row + row);
  const std::string model = job.folder.file("users.gguf");
  sluice::test::TinyLlama({.name = "users",
                           .tokens = 340,
                           .chat_template = "{{ messages[0].content }}",
                           .control_tokens = {}})
      .write(model);
  const std::string command = "sluice batch " + model + " " + job.folder.file("in") +
                              " --temp 0 -n 6 --ctx 64 --restart -o " + job.folder.file("out");
  const Result told = shell(command), quiet = shell(command + " -q");
  CHECK(told.status == 0);
  const std::size_t first = told.errors.find("leaves a message of the role \"tool\" out");
  CHECK(first != std::string::npos);
  CHECK(told.errors.find("leaves a message", first + 1) == std::string::npos);
  CHECK(quiet.errors.find("leaves a message") == std::string::npos);
  CHECK(lines_of(job.output()).size() == 3);
}

TEST_CASE("a row has what it asks for, alone and in company") {
  const std::string first =
      "{\"prompt\":\"hello\",\"n\":3,\"logprobs\":2,\"max_tokens\":5,\"ignore_eos\":true,"
      "\"repetition_penalty\":1.2,\"presence_penalty\":0.5}\n";
  const std::string body = "{\"model\":\"tiny\",\"prompt\":\"hello\",\"max_tokens\":5}}\n";
  const std::string openai = "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":";
  const Job job(first + openai + body + "{\"model\":\"other\",\"prompt\":\"hello\"}\n" + rows(9));
  REQUIRE(shell(job.command("--parallel 1")).status == 0);
  REQUIRE(shell(job.command("--parallel 16", "together")).status == 0);
  CHECK(sorted(job.output()) == sorted(job.output("together")));
  for (const json& line : lines_of(job.output())) {
    if (line.value("row", 0) != 1) continue;
    REQUIRE(line["choices"].size() == 3);
    CHECK(line["choices"][0]["text"] != line["choices"][1]["text"]);
    CHECK(line["choices"][2]["logprobs"].size() == 5);
    CHECK(line["choices"][2]["logprobs"][0]["top_logprobs"].size() == 2);
    CHECK(line["usage"]["completion_tokens"] == 15);
  }
  // What is not given has the same defaults in each form; what is given holds for each too.
  const auto text_of_openai = [&](const std::string& options) {
    REQUIRE(shell(job.command(options, "form") + " --restart").status == 0);
    for (const json& line : lines_of(job.output("form"))) {
      if (line.contains("custom_id")) return line["response"]["body"]["choices"][0]["text"].dump();
    }
    return std::string();
  };
  const std::string usual = text_of_openai("");
  CHECK(usual == text_of_openai("--temp 0.8 --top-k 40 --top-p 0.95 --min-p 0.05"));
  CHECK(usual != text_of_openai("--temp 0"));
  // The name of the model counts only when that is asked for.
  const auto errors = [&](const std::string& options) {
    const Result result = shell("sluice batch " + job.model + " " + job.folder.file("in") +
                                " --restart -o " + job.folder.file("x") + " " + options);
    return result.errors.find("1 of them errors") != std::string::npos;
  };
  CHECK_FALSE(errors("--parallel 4"));
  CHECK(errors("--parallel 4 --check-model"));
  CHECK(shell("sluice batch --row-settings").output.find("| `max_tokens` |") != std::string::npos);
}

TEST_CASE("a model's own settings hold where neither the row nor the command line has others") {
  const std::string body = R"({"prompt":"hello","max_tokens":16,"ignore_eos":true})";
  const Job job(body + "\n" + R"({"custom_id":"a","url":"/v1/completions","body":)" + body + "}\n");
  const auto texts_of = [&](const std::vector<std::pair<std::string, float>>& recommended,
                            const std::string& options) {
    const std::string model = job.folder.file("advised.gguf");
    sluice::test::TinyLlama({.name = "advised", .recommended = recommended}).write(model);
    const Result result =
        shell("sluice batch " + model + " " + job.folder.file("in") +
              " --restart --parallel 1 -o " + job.folder.file("out") + " " + options);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    const bool is_told = options != "-q" && recommended.size() == 2;
    CHECK((result.errors.find("the model file recommends temperature 0, min-p 0.1") !=
           std::string::npos) == is_told);
    std::vector<std::string> texts(2);
    for (const json& line : lines_of(job.output())) {
      const bool is_openai = line.contains("custom_id");
      texts[is_openai ? 1 : 0] =
          (is_openai ? line["response"]["body"]["choices"][0] : line)["text"].get<std::string>();
    }
    return texts;
  };
  const auto greedy = texts_of({}, "--temp 0");
  const auto usual = texts_of({}, "");
  CHECK(greedy[0] == greedy[1]);
  CHECK(usual != greedy);
  CHECK(texts_of({{"temp", 0.f}, {"min_p", 0.1f}}, "-q") == greedy);
  CHECK(texts_of({{"temp", 0.f}, {"min_p", 0.1f}}, "--temp 0.8") != greedy);
  CHECK(texts_of({{"temp", -1.f}}, "") == usual);
}

TEST_CASE("what was begun with other settings is refused, until told what to do") {
  const Job job(rows(6));
  REQUIRE(shell(job.command()).status == 0);
  const std::string first = job.output();
  CHECK(shell(job.command()).status == 0);
  CHECK(job.output() == first);
  check_fails(job.command("--temp 0"), 2, "--temp");
  check_fails(job.command("--shard 1/2"), 2, "--shard");
  write(job.folder.file("in"), rows(8));
  check_fails(job.command(), 2, "input");
  CHECK(job.output() == first);
  CHECK(shell(job.command("--force")).status == 0);
  CHECK(job.output().starts_with(first));
  CHECK(lines_of(job.output()).size() == 8);
  CHECK(shell(job.command("--restart --temp 0")).status == 0);
  CHECK(lines_of(job.output()).size() == 8);
  fs::remove(job.folder.file("out.state"));
  check_fails(job.command("--temp 0"), 2, "out.state");
}

TEST_CASE("sinks that nobody gave are those that a window usually has") {
  const Job job(rows(4));
  REQUIRE(shell(job.command("--window 32")).status == 0);
  const std::string all = job.output();
  write(job.folder.file("out"), all.substr(0, all.find('\n') + 1));
  check_fails(job.command("--window 32 --sinks 0"), 2, "--sinks was 4 and is 0");
  CHECK(shell(job.command("--window 32 --sinks 4")).status == 0);
  CHECK(sorted(job.output()) == sorted(all));
}

TEST_CASE("what is said never comes into an output, whichever descriptors are closed") {
  const Job job(rows(6));
  REQUIRE(shell(job.command("--temp 0 -q")).status == 0);
  const std::string expected = sorted(job.output());
  for (const char* closed : {"1>&-", "2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"}) {
    for (const char* sandbox : {"auto", "off"}) {
      INFO(closed << " " << sandbox);
      fs::remove(job.folder.file("out"));
      shell(job.command(std::string("--temp 0 --sandbox ") + sandbox) + " " + closed);
      CHECK(sorted(job.output()) == expected);
    }
  }
}

TEST_CASE("rows that ended in an error are computed again when that is asked for") {
  const std::string long_row =
      json({{"id", "long"}, {"prompt", std::string(300, 'a')}, {"max_tokens", 4}}).dump() + "\n";
  const Job job(rows(3) + long_row + rows(9).substr(rows(3).size()) + "broken\n");
  REQUIRE(shell(job.command("--ctx 100")).status == 0);
  const std::string first = job.output();
  const auto is_error = [](const json& line) { return !line["error"].is_null(); };
  REQUIRE(std::ranges::count_if(lines_of(first), is_error) == 2);
  check_fails(job.command("--ctx 512 --retry-errors"), 2, "--ctx");
  CHECK(job.output() == first);
  REQUIRE(shell(job.command("--ctx 512 --retry-errors --force")).status == 0);
  REQUIRE(shell(job.command("--ctx 512", "at-once")).status == 0);
  CHECK(sorted(job.output()) == sorted(job.output("at-once")));
  CHECK(std::ranges::count_if(lines_of(job.output()), is_error) == 1);
  REQUIRE(shell(job.command("--ctx 512 --retry-errors")).status == 0);  // an error it stays
  CHECK(sorted(job.output()) == sorted(job.output("at-once")));
  check_fails(job.command("--retry-errors --restart"), 2);
}

TEST_CASE("results come in the order of the input when that is asked for") {
  const Job job(rows(40));
  fs::create_symlink(job.folder.file("elsewhere"), job.folder.file("out"));
  const auto is_ordered = [&](const std::string& out) {
    std::uint64_t row = 0;
    return std::ranges::all_of(lines_of(job.output(out)),
                               [&](const json& line) { return line["row"] == ++row; }) &&
           row == 40;
  };
  REQUIRE(shell(job.command("--ordered")).status == 0);
  CHECK(is_ordered("out"));
  CHECK(fs::is_symlink(job.folder.file("out")));
  REQUIRE(shell(job.command("", "later")).status == 0);
  CHECK_FALSE(is_ordered("later"));
  const std::size_t files = job.folder.file_count();
  REQUIRE(shell(job.command("--ordered", "later")).status == 0);
  CHECK(job.output("later") == job.output());
  CHECK(job.folder.file_count() == files);
  check_fails("sluice batch " + job.model + " " + job.folder.file("in") + " -o - --ordered", 2,
              "--ordered");
}

TEST_CASE("the context of a batch follows from its longest row, within the budget") {
  if (*emulator != '\0') SLUICE_SKIP("the memory of the emulator counts too");
  const std::string long_row =
      json({{"id", "long"}, {"prompt", std::vector<int>(1900, 5)}, {"max_tokens", 56}}).dump();
  const Job job(rows(3) + long_row + "\n");
  const auto run = [&](const std::string& options) {
    return shell("sluice batch " + job.model + " " + job.folder.file("in") + " --parallel 1 -o " +
                 job.folder.file("x") + " --restart " + options);
  };
  CHECK(run("").errors.find("--ctx 1956: what the longest row needs") != std::string::npos);
  if (is_sanitized) return;
  // Between the budgets that are refused and those that are enough there are some that are too
  // small for the long row alone.
  Result result;
  bool is_cut = false;
  for (int kib = 14 << 10; kib < 64 << 10 && !is_cut; kib += 256) {
    result = run("--budget " + std::to_string(kib) + "KiB");
    is_cut =
        result.errors.find("the most that fits the budget; 1 longer rows") != std::string::npos;
  }
  REQUIRE(is_cut);
  REQUIRE(result.status == 0);
  std::uint64_t errors = 0;
  for (const json& line : lines_of(job.output("x"))) {
    if (line["error"].is_null()) continue;
    ++errors;
    CHECK(line["id"] == "long");
    CHECK(line["error"]["code"] == "prompt_too_long");
    CHECK(line["error"]["message"].get<std::string>().find("--budget") != std::string::npos);
  }
  CHECK(errors == 1);
}

// Rows of a large job are not all looked at beforehand.
TEST_CASE("a row that is longer than those that were looked at is run at the end") {
  std::string input;
  for (int i = 0; i < 5000; ++i) {
    const bool is_odd = i == 3;
    input += json({{"id", i},
                   {"prompt", is_odd ? "x" : "once upon a time there was a river"},
                   {"ignore_eos", true},
                   {"max_tokens", is_odd ? 300 : 0}})
                 .dump() +
             "\n";
  }
  const Job job(input);
  const std::string command = "sluice batch " + job.model + " " + job.folder.file("in") +
                              " --parallel 4 -o " + job.folder.file("out");
  const Result result = shell(command);
  REQUIRE(result.status == 0);
  CHECK(result.errors.find("planning anew for 1 rows") != std::string::npos);
  CHECK(result.errors.find("5000 of 5000 rows are done, 0 of them errors") != std::string::npos);
  const std::string results = job.output();
  CHECK(lines_of(results).size() == 5000);
  // The same bytes come where all rows are looked at.
  write(job.folder.file("in"), input.substr(0, input.find("{\"id\":1000,")));
  REQUIRE(shell(job.command("", "few")).status == 0);
  const std::string few = job.output("few");
  const std::size_t at = few.find("{\"row\":4,");
  REQUIRE(at != std::string::npos);
  const std::string odd = few.substr(at, few.find('\n', at) + 1 - at);
  CHECK(odd.find("\"completion_tokens\":300") != std::string::npos);
  CHECK(results.find(odd) != std::string::npos);
  CHECK(shell(command + " --force -q").status == 0);
  CHECK(job.output() == results);
}

TEST_CASE("merge replaces an output only when told to") {
  const Job job(rows(4));
  REQUIRE(shell(job.command("--shard 1/2", "p1")).status == 0);
  REQUIRE(shell(job.command("--shard 2/2", "p2")).status == 0);
  const std::string merge = "sluice merge -q " + job.folder.file("p1") + " " +
                            job.folder.file("p2") + " -o " + job.folder.file("merged");
  REQUIRE(shell(merge).status == 0);
  const std::string merged = job.output("merged");
  CHECK(lines_of(merged).size() == 4);
  check_fails(merge, 2, "--force");
  const std::string part = job.output("p1");
  check_fails("sluice merge " + job.folder.file("p1") + " " + job.folder.file("p2") +
                  " --force -o " + job.folder.file("p1"),
              2, "a part: name another one");
  CHECK(job.output("p1") == part);
  CHECK(shell(merge + " --force").status == 0);
  CHECK(job.output("merged") == merged);
  write(job.folder.file("merged.state"), "notes");
  check_fails(merge + " --force", 2, "merged.state is no state");
  CHECK(job.output("merged.state") == "notes");
  fs::remove(job.folder.file("merged.state"));
  CHECK(job.output("merged") == merged);
  write(job.folder.file("merged"), "mine");
  check_fails(merge + " --force", 2, "not the output");
  CHECK(job.output("merged") == "mine");
}

TEST_CASE("a message of an earlier result is shown in one line, with escapes") {
  const Job job("{\"prompt\": 7}\n");
  REQUIRE(shell(job.command("", "out")).status == 0);
  std::string result = job.output("out");
  const std::size_t begin = result.find("\"message\":\"");
  REQUIRE(begin != std::string::npos);
  result.insert(begin + 11, "one\\u001b[31m\\ntwo");
  write(job.folder.file("out"), result);
  const Result merged =
      shell("sluice merge " + job.folder.file("out") + " -o " + job.folder.file("merged"));
  INFO(merged.errors);
  CHECK(merged.errors.find("one\\x1b[31m\\ntwo") != std::string::npos);
}

TEST_CASE("a file that no batch has written is never touched, under whatever name") {
  const Job job(rows(6));
  REQUIRE(shell(job.command("", "done")).status == 0);
  const std::string model = content(job.model), input = content(job.folder.file("in"));
  const std::string result = job.output("done").substr(0, job.output("done").find('\n') + 1);
  for (const std::string& text :
       {std::string("mine\n"), std::string("mine"), std::string("\n"), std::string("\n\n"),
        std::string(1, '\0'), std::string("\0mine", 5), result + "mine\n", result + "mine",
        result.substr(0, 20), model}) {
    for (const char* options : {"", "--restart", "--force"}) {
      INFO(text.substr(0, 100) << " " << options);
      write(job.folder.file("notes"), text);
      check_fails(job.command(options, "notes"), 2, "notes");
      CHECK(content(job.folder.file("notes")) == text);
      CHECK_FALSE(fs::exists(job.folder.file("notes.state")));
    }
  }
  // The input and the model by any name, and what is no file.
  fs::create_symlink(job.model, job.folder.file("link"));
  fs::create_hard_link(job.model, job.folder.file("hard"));
  fs::create_hard_link(job.folder.file("in"), job.folder.file("hard-in"));
  REQUIRE(::mkfifo(job.folder.file("fifo").c_str(), 0600) == 0);
  for (const char* out : {"tiny.gguf", "link", "hard", "in", "hard-in", "./in", "", "fifo"}) {
    for (const char* options : {"", "--restart", "--force"}) {
      INFO(out << " " << options);
      // A folder is no choice of a file.
      check_fails(job.command(options, out), *out == '\0' ? 5 : 2, job.folder.file(out));
    }
  }
  const std::vector<std::pair<std::string, std::string>> outputs_and_reports = {
      {"done", "link"},   {"done", "hard-in"}, {"done", "done"},
      {"done", "./done"}, {"new", "new"},      {"new", "new.state"}};
  for (const auto& [out, report] : outputs_and_reports) {
    check_fails(job.command("--report " + job.folder.file(report), out), 2, "same file");
  }
  CHECK(content(job.model) == model);
  CHECK(content(job.folder.file("in")) == input);
  CHECK(lines_of(job.output("done")).size() == 6);
  // A state that is none.
  write(job.folder.file("out.state"), "mine");
  check_fails(job.command(), 2, "out.state");
  CHECK(content(job.folder.file("out.state")) == "mine");
  CHECK(job.output().empty());
}

TEST_CASE("a link to an output is followed") {
  const Job job(rows(6));
  fs::create_symlink(job.folder.file("elsewhere"), job.folder.file("out"));
  REQUIRE(shell(job.command()).status == 0);
  CHECK(fs::is_symlink(job.folder.file("out")));
  CHECK(lines_of(job.output("elsewhere")).size() == 6);
}

TEST_CASE("a shard of the model is no output") {
  const Folder folder;
  const std::string first = folder.file("m-00001-of-00002.gguf");
  const std::string second = folder.file("m-00002-of-00002.gguf");
  const auto write_shard = [](const std::string& path, std::uint16_t number) {
    sluice::gguf::Writer writer;
    writer.add("general.architecture", "llama");
    writer.add("split.no", number);
    writer.add("split.count", std::uint16_t{2});
    writer.add("split.tensors.count", std::int32_t{2});
    const std::array<std::uint64_t, 1> dims = {8};
    writer.add_tensor("t" + std::to_string(number), dims, 0);
    writer.write(path, [](std::size_t, const sluice::gguf::Writer::Sink& sink) {
      sink(std::vector<std::byte>(32));
    });
  };
  write_shard(first, 0);
  write_shard(second, 1);
  write(folder.file("in"), rows(2));
  const std::string before = content(second);
  for (const char* options : {"", "--restart", "--force"}) {
    check_fails(
        "sluice batch " + first + " " + folder.file("in") + " -q -o " + second + " " + options, 2,
        "same file");
  }
  CHECK(content(second) == before);
}

TEST_CASE("a model that was trained further is another model") {
  const Job job(rows(3));
  REQUIRE(shell(job.command()).status == 0);
  const std::string first = job.output();
  // Weights far behind the first MiB, in the middle of a tensor or at its end.
  std::string weights = content(job.model);
  REQUIRE(weights.size() > (std::size_t{1} << 20) + 20000);
  for (std::size_t at = weights.size() - 16384; at < weights.size(); ++at) {
    weights[at] = static_cast<char>(weights[at] ^ 1);
  }
  write(job.model, weights);
  check_fails(job.command(), 2, "the model");
  CHECK(job.output() == first);
  CHECK(shell(job.command("--force")).status == 0);
  // Another version of sluice need not give the same text.
  std::string state = content(job.folder.file("out.state"));
  const std::size_t version = state.find("\"the version of sluice\": \"");
  REQUIRE(version != std::string::npos);
  state.insert(version + 26, "9.");
  write(job.folder.file("out.state"), state);
  check_fails(job.command(), 2, "the version of sluice");
}

TEST_CASE("wrong usage of batch, merge and top is named") {
  const Job job(rows(2));
  for (const char* bad :
       {"--shard 0/2", "--shard 3/2", "--shard 2", "--parallel 0", "--parallel many",
        "--truncate middle", "-n -1", "--stop ''", "--restart --force", "--chat-format no-such"}) {
    INFO(bad);
    check_fails(job.command(bad), 2);
  }
  check_fails("sluice batch " + job.model, 2);
  check_fails("sluice batch " + job.model + " " + job.folder.file("in"), 2, "output");
  check_fails("sluice batch " + job.model + " " + job.folder.file("no") + " -o x", 5, "no");
  check_fails("sluice batch " + job.folder.file("no") + " " + job.folder.file("in") + " -o x", 5);
  check_fails("sluice batch " + job.folder.file("in") + " " + job.folder.file("in") + " -q -o " +
                  job.folder.file("x"),
              3);
  check_fails(job.command("", "no/out"), 5, "no/out");
  check_fails("sluice batch " + job.model + " " + job.folder.file("in") + " -o ''", 2, "is empty");
  check_fails("sluice batch " + job.model + " " + job.folder.file("in") + " -q -o /dev/full", 2,
              "-o -");
  check_fails("sluice merge " + job.folder.file("m"), 2, "--output");
  check_fails("sluice merge " + job.folder.file("in") + " -o " + job.folder.file("m"), 2, "state");
  check_fails("sluice top more", 2);
}

TEST_CASE("the scripts for Slurm say how they are submitted") {
  const std::string scripts = std::string(source_folder) + "/scripts/slurm/";
  for (const char* command : {"merge.sh parts", "batch-array.sh", "batch-array.sh model in.jsonl",
                              "batch-array.sh model in.jsonl parts"}) {  // and no array
    const Result result = shell("env -u SLURM_ARRAY_TASK_ID bash " + scripts + command);
    INFO(command << "\n" << result.errors);
    CHECK(result.status == 2);
    CHECK(result.errors.starts_with("usage: sbatch "));
  }
}

// The command between the quotes of a message.
std::string quoted_command(const std::string& message) {
  const std::size_t begin = message.find('`') + 1;
  return message.substr(begin, message.find('`', begin) - begin);
}

TEST_CASE("an input without rows is refused, with the command that makes rows of it") {
  const std::vector<std::pair<std::string, std::string>> inputs{
      {"plain text", "Once upon a time\nthere was a river.\nIt was long.\n"},
      {"CSV", "id,question\n1,\"where, then?\"\n2,when?\n"},
      {"CSV", "question;id\nwhere, then?;1\n"},
      {"a table with tabs", "id\tprompt\n1\twhere?\n2\twhen?\n"},
      {"a JSON array", "[{\"prompt\": \"where?\"}, {\"prompt\": \"when?\"}]\n"},
      {"a JSON array", "[\n  \"where?\",\n  \"when?\"\n]\n"},
      {"JSON that spans several lines", "{\n  \"prompt\": \"where?\"\n}\n{\n \"prompt\": \"b\"}\n"},
      {"JSON texts", "\"where?\"\n\"when?\"\n"},
      {"Python's notation", "{'prompt': 'where?'}\n{'prompt': \"it's\"}\n"}};
  for (const auto& [form, input] : inputs) {
    INFO(input);
    Job job("");
    const std::string path = job.folder.file("it's in.txt");
    write(path, input);
    const std::string name = "\"" + path + "\"";
    const std::string plain =
        "sluice batch " + job.model + " " + name + " -o " + job.folder.file("out") + " -n 2 ";
    // A model without a template goes on with texts; the rows below are for one that answers.
    CHECK(quoted_command(shell(plain).errors).find("\"messages\"") == std::string::npos);
    const std::string command = plain + "--chat-format chatml ";
    check_fails(command, 2, form);
    CHECK_FALSE(fs::exists(job.folder.file("out")));
    const std::string convert = quoted_command(shell(command).errors);
    const std::string tool = convert.substr(0, convert.find(' '));
    if (shell("command -v " + tool).status != 0) continue;
    INFO(convert);
    const bool has_objects = input.find("prompt\"") != std::string::npos || form[0] == 'P';
    CHECK((has_objects || convert.find("\"messages\"") != std::string::npos));
    REQUIRE(shell("cd " + job.folder.path().string() + " && " + convert).status == 0);
    fs::rename(job.folder.file("rows.jsonl"), job.folder.file("in"));
    const Result result = shell(job.command("-n 2 --chat-format chatml"));
    INFO(result.errors);
    REQUIRE(result.status == 0);
    for (const json& line : lines_of(job.output())) CHECK(line["error"].is_null());
    CHECK_FALSE(job.output().empty());
  }
  Job packed("\x1F\x8B\x08 more");
  check_fails(packed.command(), 2, "gzip -dc");
  write(packed.folder.file("in"), std::string("a\0b\n", 4));
  check_fails(packed.command(), 2, "no text");
  write(packed.folder.file("in"), "broken\n{\"prompt\": \"a\"}\n");
  CHECK(shell(packed.command("-n 1")).status == 0);
}

TEST_CASE("a job says what its errors are and which answers are cut, also when it is done") {
  const std::string cut = json({{"prompt", "once upon"}, {"max_tokens", 2}}).dump();
  const Job job("broken\n" + cut + "\n[1]\n" + cut + "\n" +
                json({{"prompt", std::string(300, 'a')}}).dump() + "\n");
  const std::string command = "sluice batch " + job.model + " " + job.folder.file("in") +
                              " --ctx 64 -o " + job.folder.file("out") + " --report " +
                              job.folder.file("report");
  const auto check = [](const std::string& said,
                        const char* sum = "5 of 5 rows are done, 3 of them errors") {
    INFO(said);
    CHECK(said.find(sum) != std::string::npos);
    CHECK(said.find("2 errors invalid_request, such as row 1, line 1: the row is not JSON: byte 1: "
                    "'b' cannot stand here") != std::string::npos);
    CHECK(said.find("1 error prompt_too_long, such as row 5, line 5: ") != std::string::npos);
    CHECK(said.find("2 of the rows have an answer that max_tokens (or -n) cut off") !=
          std::string::npos);
    CHECK(said.find("there is one row") == std::string::npos);
  };
  check(shell(command).errors);
  const json report = json::parse(content(job.folder.file("report")));
  CHECK(report["errors_by_code"] == json{{"invalid_request", 2}, {"prompt_too_long", 1}});
  CHECK(report["rows_cut_by_max_tokens"] == 2);
  check(shell(command).errors);
  const Result again = shell(command + " --retry-errors");
  CHECK(again.errors.find("computing 3 rows again that ended in an error") != std::string::npos);
  check(again.errors);
  std::string merge = "sluice merge -o " + job.folder.file("merged");
  for (const std::string part : {"1", "2"}) {
    REQUIRE(shell(job.command("--ctx 64 --shard " + part + "/2", part)).status == 0);
    merge += " " + job.folder.file(part);
  }
  check(shell(merge).errors, "5 rows of 2 parts, 3 of them errors");
}

TEST_CASE("an empty input gives an empty output") {
  const Job job("\n\n");
  CHECK(shell(job.command()).status == 0);
  CHECK(job.output().empty());
  CHECK(fs::exists(job.folder.file("out")));
}

TEST_CASE("standard output that is full or closed ends the job as for every command") {
  const Job job(rows(6));
  const std::string piped =
      "sluice batch " + job.model + " " + job.folder.file("in") + " -q --parallel 4 -o -";
  check_fails(piped + " >/dev/full", 5, "standard output");
  // Rows are left that nobody has, so that is no success, as it is of a text that was read enough.
  const std::string gone = job.folder.file("gone");
  const std::string left = shell("{ until test -e " + gone + "; do sleep 0.01; done; " + piped +
                                 "; echo $? >&2; } | touch " + gone)
                               .errors;
  CHECK(left.find("the program that read standard output has ended") != std::string::npos);
  CHECK(left.ends_with("\n5\n"));
}

TEST_CASE("a signal ends a job with the status that says to go on, and the rest is done later") {
  const Job job(rows(long_job, 60));
  REQUIRE(shell(job.command("--parallel 4", "undisturbed")).status == 0);
  int interrupted = 0;
  for (const char* grace : {"0", "3600"}) {
    RunningProgram running(batch_of(job, job.folder.file("in"), grace));
    REQUIRE(running.waits_for([&] { return !job.output().empty(); }));
    const json top = json::parse(shell("sluice top --json").output);
    bool is_listed = !fs::is_directory("/dev/shm");
    for (const json& entry : top["jobs"]) {
      if (entry["pid"] != running.id()) continue;
      is_listed = true;
      CHECK(entry["rows"] == long_job);
    }
    running.kill(SIGTERM);
    const int status = running.status();
    CHECK((status == 75 || status == 0));
    CHECK((is_listed || status == 0));  // it may have ended before
    interrupted += status == 75 ? 1 : 0;
    lines_of(job.output());  // each of them whole
    REQUIRE(shell(job.command()).status == 0);
    CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
    fs::remove(job.folder.file("out"));
  }
  CHECK(interrupted > 0);
}

TEST_CASE("what went to standard output is not gone on with, and the status says so") {
  const Job job(rows(long_job, 60));
  const std::string out = job.folder.file("out");
  const Result result = shell("'" + program + "' batch " + job.model + " " + job.folder.file("in") +
                              " -o - --parallel 4 --grace 0 >" + out + " & job=$!; until test -s " +
                              out + "; do sleep 0.01; done; kill -TERM $job; wait $job");
  CHECK(result.status == 128 + SIGTERM);
  CHECK(result.errors.find("rows are done") != std::string::npos);
  CHECK(result.errors.find("goes on") == std::string::npos);
}

TEST_CASE("the first signal ends a job that is still waiting for its input") {
  const Job job(rows(3));
  for (const int signal : {SIGINT, SIGTERM}) {
    CHECK(status_of_waiting(batch_of(job, "-"), "{", signal) == 75);

    // A named pipe that the job has opened.
    const std::string fifo = job.folder.file("fifo" + std::to_string(signal));
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    RunningProgram named(batch_of(job, fifo));
    int writer = -1;
    REQUIRE(named.waits_for([&] {
      writer = ::open(fifo.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      return writer >= 0;
    }));
    named.kill(signal);
    CHECK(named.status() == 75);
    ::close(writer);
  }
  CHECK_FALSE(fs::exists(job.folder.file("out")));
}

TEST_CASE("a signal ends embed before its first row with the status that says to go on") {
  const Folder folder;
  const std::string model = folder.file("m.gguf");
  REQUIRE(shell("sluice synth tiny-bert " + model).status == 0);
  for (const bool has_file : {true, false}) {
    std::vector<std::string> command = {"embed", model, "-f", "-", "-q"};
    if (has_file) command.insert(command.end(), {"-o", folder.file("out.jsonl")});
    CHECK(status_of_waiting(command, "a", SIGTERM) == (has_file ? 75 : 128 + SIGTERM));
  }
}

TEST_CASE("a pipe is an input like any other, and can be gone on with") {
  const Job job(rows(12));
  REQUIRE(shell(job.command("", "undisturbed")).status == 0);
  const std::string piped = "bash -c '\"" + program + "\" batch " + job.model + " <(cat " +
                            job.folder.file("in") + ") -q --parallel 4 -o " +
                            job.folder.file("out") + "'";
  REQUIRE(shell(piped).status == 0);
  CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
  const std::string half = job.output().substr(0, job.output().size() / 2);
  write(job.folder.file("out"), half);
  REQUIRE(shell(piped).status == 0);
  CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
  check_fails("sluice batch " + job.model + " " + job.folder.file("") + " -q -o x", 5, "directory");
  check_fails("TMPDIR=" + job.folder.file("no") + " sluice batch " + job.model + " - -q -o -", 5,
              "TMPDIR names no folder");
}

TEST_CASE("a full disk ends with status 5, and the job goes on when there is room") {
  const Job job(rows(60));
  REQUIRE(shell(job.command("--parallel 4", "undisturbed")).status == 0);
  const auto whole = static_cast<rlim_t>(job.output("undisturbed").size());
  for (const rlim_t limit : {whole / 3, whole / 2, whole - 1}) {
    fs::remove(job.folder.file("out"));
    CHECK(RunningProgram(batch_of(job, job.folder.file("in")), limit).status() == 5);
    const std::string partly = job.output();
    CHECK(partly.size() <= limit);
    CHECK(partly.ends_with('\n'));
    REQUIRE(shell(job.command()).status == 0);
    CHECK(job.output().starts_with(partly));
    CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
  }
}

TEST_CASE("two jobs cannot write one output") {
  const Job job(rows(long_job, 60));
  RunningProgram running(batch_of(job, job.folder.file("in")));
  REQUIRE(running.waits_for([&] { return !job.output().empty(); }));
  check_fails(job.command("--parallel 4"), 2, "another process");
  check_fails(job.command("--parallel 4 --restart"), 2, "another process");
  running.kill(SIGKILL);
  CHECK(running.status() == -SIGKILL);
  REQUIRE(shell(job.command("--parallel 4")).status == 0);
  CHECK(lines_of(job.output()).size() == long_job);
}

TEST_CASE("an output that disappears or is replaced ends the job with status 5") {
  const Job job(rows(long_job, 60));
  REQUIRE(shell(job.command("--parallel 4", "undisturbed")).status == 0);
  const std::string out = job.folder.file("out");
  int seen = 0;
  for (const bool is_replaced : {false, true}) {
    RunningProgram running(batch_of(job, job.folder.file("in")));
    REQUIRE(running.waits_for([&] { return !job.output().empty(); }));
    if (is_replaced) {
      REQUIRE(shell("sed -i '' " + out).status == 0);
    } else {
      fs::remove(out);
    }
    const int status = running.status();
    CHECK((status == 5 || status == 0));  // 0: the job was faster
    seen += status == 5 ? 1 : 0;
    REQUIRE(shell(job.command()).status == 0);
    CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
    fs::remove(out);
  }
  CHECK(seen > 0);
}

TEST_CASE("a job that goes on over midnight keeps the day that its templates see") {
  std::string input;
  for (int i = 0; i < 6; ++i) {
    input += R"({"id":)" + std::to_string(i) +
             R"(,"messages":[{"role":"user","content":"hello"}]})"
             "\n";
  }
  const Job job(input);
  const std::string model = job.folder.file("dated.gguf");
  sluice::test::TinyLlama(
      {.name = "dated",
       .tokens = 340,
       .chat_template = "{{ strftime_now('%Y-%m-%d %H') }}{{ messages[0].content }}"})
      .write(model);
  const auto run = [&](int day, const std::string& options, const std::string& out = "out") {
    const Result result =
        shell("export SOURCE_DATE_EPOCH=" + std::to_string(day * 86400 + 7200) + "; sluice batch " +
              model + " " + job.folder.file("in") + " -n 9 --ctx 64 -q --parallel 2 " + options +
              " -o " + job.folder.file(out));
    INFO(result.errors);
    CHECK(result.status == 0);
    return sorted(job.output(out));
  };
  const std::string first = run(1, "");
  const std::string all = job.output();
  write(job.folder.file("out"), all.substr(0, all.find('\n') + 1));
  CHECK(run(2, "") == first);  // it goes on with the rest
  CHECK(run(2, "--restart") != first);
  // A job that has no results yet begins on its day.
  fs::remove(job.folder.file("out"));
  CHECK(run(2, "") != first);
  run(1, "--shard 1/2", "a");
  run(1, "--shard 2/2", "b");
  const std::string merge = "sluice merge " + job.folder.file("a") + " " + job.folder.file("b") +
                            " -o " + job.folder.file("merged");
  REQUIRE(shell(merge).status == 0);
  CHECK(sorted(job.output("merged")) == first);
  run(2, "--shard 2/2 --restart", "b");
  fs::remove(job.folder.file("merged"));
  check_fails(merge, 2, "the date was");
}
