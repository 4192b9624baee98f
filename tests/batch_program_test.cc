// sluice batch as a program: results on the real engine, going on, refusing, signals, full disks.
#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "tests/program.h"
#include "tests/sanitized.h"

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

pid_t start(const Job& job, const std::string& grace, rlim_t file_bytes_max = RLIM_INFINITY) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    const rlimit limit{file_bytes_max, file_bytes_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string in = job.folder.file("in"), out = job.folder.file("out");
    ::execl(program.c_str(), program.c_str(), "batch", job.model.c_str(), in.c_str(), "-o",
            out.c_str(), "-q", "--parallel", "4", "--grace", grace.c_str(), nullptr);
    ::_exit(99);
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
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
  REQUIRE(shell("sluice merge -q " + job.folder.file("merged") + " " + parts).status == 0);
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
            job.folder.file("out") + " --budget 64MiB " + options);
  INFO(options << "\n" << result.errors);
  REQUIRE(result.status == 0);
  const std::regex line("memory ([0-9.]+) MiB planned(, ([0-9.]+) MiB at its peak)?");
  std::smatch found;
  REQUIRE(std::regex_search(result.errors, found, line));
  if (!found[2].matched) SLUICE_SKIP("the system tells no peak of memory");
  CHECK(std::stod(found[3]) <= std::stod(found[1]));
}

TEST_CASE("the peak of memory is within the plan, with any number of sequences") {
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const Job job(rows(80, 30));
  for (const char* options : {"--parallel 1", "--parallel 4 --io pread", "--parallel 16",
                              "--parallel 64", "--parallel 64 --io pread"}) {
    check_within_plan(job, options);
  }
}

TEST_CASE("the peak of memory is within the plan with rows that are as large as they may be") {
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

TEST_CASE("what was begun otherwise is refused, until told what to do") {
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
  write(job.folder.file("notes"), "mine\n");
  check_fails(job.command("", "notes"), 2, "--restart");
  CHECK(content(job.folder.file("notes")) == "mine\n");
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
  check_fails("sluice batch " + job.model + " " + job.folder.file("in") + " -q -o /dev/full", 2);
  check_fails("sluice merge " + job.folder.file("m"), 2);
  check_fails("sluice merge " + job.folder.file("m") + " " + job.folder.file("in"), 2, "state");
  check_fails("sluice top more", 2);
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
  CHECK(shell("{ " + piped + "; echo $? >&2; } | head -c 1").errors == "0\n");
}

TEST_CASE("a signal ends a job with the status that says to go on, and the rest is done later") {
  const Job job(rows(long_job, 60));
  REQUIRE(shell(job.command("--parallel 4", "undisturbed")).status == 0);
  int interrupted = 0;
  for (const char* grace : {"0", "3600"}) {
    const pid_t child = start(job, grace);
    while (job.output().empty()) ::usleep(1000);  // it generates
    const json top = json::parse(shell("sluice top --json").output);
    for (const json& entry : top["jobs"]) {
      if (entry["pid"] == child) CHECK(entry["rows"] == long_job);
    }
    ::kill(child, SIGTERM);
    const int status = status_of(child);
    CHECK((status == 75 || status == 0));
    interrupted += status == 75 ? 1 : 0;
    lines_of(job.output());  // each of them whole
    REQUIRE(shell(job.command()).status == 0);
    CHECK(sorted(job.output()) == sorted(job.output("undisturbed")));
    fs::remove(job.folder.file("out"));
  }
  CHECK(interrupted > 0);
}

TEST_CASE("a full disk ends with status 5, and the job goes on when there is room") {
  const Job job(rows(60));
  REQUIRE(shell(job.command("--parallel 4", "undisturbed")).status == 0);
  const auto whole = static_cast<rlim_t>(job.output("undisturbed").size());
  for (const rlim_t limit : {whole / 3, whole / 2, whole - 1}) {
    fs::remove(job.folder.file("out"));
    CHECK(status_of(start(job, "0", limit)) == 5);
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
  const pid_t child = start(job, "0");
  while (job.output().empty()) ::usleep(1000);
  check_fails(job.command("--parallel 4"), 2, "another process");
  check_fails(job.command("--parallel 4 --restart"), 2, "another process");
  ::kill(child, SIGKILL);
  CHECK(status_of(child) == -SIGKILL);
  REQUIRE(shell(job.command("--parallel 4")).status == 0);
  CHECK(lines_of(job.output()).size() == long_job);
}
