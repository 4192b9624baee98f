// sluice under real memory cgroups, made by scripts/with-memory-limit: it keeps its budget, is
// never killed for lack of memory, and says the same as without a limit. Skipped where no cgroup
// can be made, and under sanitizers, whose own memory is several times the program's.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "core/plan/memory_plan.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace {

using sluice::test::content;
using sluice::test::is_sanitized;
using sluice::test::TemporaryFolder;

const std::string program = sluice::test::program_path;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
// For what is no part of a budget: pages of the system's libraries and what the kernel holds.
constexpr std::uint64_t slack_bytes = 8 * MiB;
constexpr int killed_status = 128 + SIGKILL, no_cgroup_status = 77;

struct Result {
  int status = -1;
  std::string output;
  std::string errors;
  nlohmann::json counters;  // of the cgroup, by with-memory-limit; null without a limit
};

// Runs a command of the shell, in a cgroup of `limit_bytes` when that is given. Pages of `evicted`
// are not in the page cache then: they would be free of charge.
Result run(const std::string& command, std::optional<std::uint64_t> limit_bytes = {},
           const std::string& evicted = {}) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  std::string line = command;
  if (limit_bytes) {
    line = std::string(sluice::test::source_folder) + "/scripts/with-memory-limit --report " +
           file("report") + (evicted.empty() ? "" : " --evict " + evicted) + " " +
           std::to_string(*limit_bytes) + " " + command;
  }
  line += " >" + file("out") + " 2>" + file("err") + " </dev/null";
  const int status = std::system(line.c_str());
  Result result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(file("out")),
                content(file("err")), nullptr};
  const std::string report = content(file("report"));
  if (!report.empty()) result.counters = nlohmann::json::parse(report);
  return result;
}

// Why cgroups cannot be tested here; empty when they can.
std::string obstacle() {
  if (is_sanitized) return "memory limits are not for sanitizers";
  const Result probe = run("true", 64 * MiB);
  if (probe.status == no_cgroup_status) return probe.errors.substr(0, probe.errors.find('\n'));
  INFO(probe.errors);
  REQUIRE(probe.status == 0);
  return {};
}

// A model of 62 MiB, of which a run needs to hold about 40, and a prompt that fills all buffers.
class Fixture {
 public:
  Fixture() : model_((folder_.path() / "model.gguf").string()) {
    const Result made = run(program + " synth small " + model_ + " --quant F32 --seed 1");
    INFO(made.errors);
    REQUIRE(made.status == 0);
    std::string tokens;
    for (int i = 0; i < 240; ++i) tokens += (i == 0 ? "" : ",") + std::to_string(300 + i * 13);
    command_ = program + " run " + model_ + " --prompt-tokens " + tokens +
               " -n 4 --temp 0 --ctx 256 --quiet ";
    const Result unlimited = run(command_);
    REQUIRE(unlimited.status == 0);
    text_ = unlimited.output;
    REQUIRE_FALSE(text_.empty());
  }

  std::string file(const char* name) const { return (folder_.path() / name).string(); }
  const std::string& model() const { return model_; }
  const std::string& text() const { return text_; }  // of a run without a limit

  Result generate(const std::string& options, std::uint64_t limit_bytes) const {
    return run(command_ + options, limit_bytes, model_);
  }

  // The plan for a budget; `sluice plan` prints it also when it does not fit. Under a limit,
  // because it measures DRAM with as much as a quarter of what it may have.
  nlohmann::json plan(std::uint64_t budget_bytes) const {
    const Result result = run(
        program + " plan " + model_ + " --ctx 256 --json --budget " + std::to_string(budget_bytes),
        256 * MiB);
    return nlohmann::json::parse(result.output);
  }

 private:
  TemporaryFolder folder_;
  std::string model_;
  std::string command_;
  std::string text_;
};

// As batch systems limit a job: addresses, not memory.
Result run_with_addresses(const std::string& command, std::uint64_t bytes) {
  return run("sh -c 'ulimit -v " + std::to_string(bytes / 1024) + " && exec " + command + "'");
}

void check_not_killed(const Result& result) {
  CHECK(result.status != killed_status);
  CHECK(result.counters.at("oom_kill") == 0);
  CHECK(result.counters.at("peak_bytes") <= result.counters.at("limit_bytes"));
}

void check_done(const Result& result, const std::string& text) {
  CHECK(result.status == 0);
  CHECK(result.output == text);
  check_not_killed(result);
}

// The number before " MiB" at the end of the line in which a run refuses its budget.
std::uint64_t named_least_mib(const std::string& errors) {
  const std::string before = "is ";
  const std::size_t at = errors.rfind(before);
  REQUIRE(at != std::string::npos);
  return std::stoull(errors.substr(at + before.size()));
}

bool is_one_line(const std::string& text) {
  return text.starts_with("sluice: ") && text.find('\n') == text.size() - 1;
}

}  // namespace

TEST_CASE("with-memory-limit keeps the exit status, reports kills and leaves nothing behind") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  CHECK(run("sh -c 'exit 9'", 64 * MiB).status == 9);
  CHECK(run("sh -c 'kill -TERM $$'", 64 * MiB).status == 128 + SIGTERM);
  CHECK(run("sh -c 'kill -TERM $PPID; sleep 20'", 64 * MiB).status == 128 + SIGTERM);

  // tail holds all of it, since any byte could be among the last.
  const std::string hog = "sh -c 'head -c 96M /dev/zero | tail -c 96M >/dev/null'";
  const Result within = run(hog, 192 * MiB);
  CHECK(within.status == 0);
  CHECK(within.counters.at("oom_kill") == 0);
  CHECK(within.counters.at("peak_bytes") >= 96 * MiB);
  const Result beyond = run(hog, 64 * MiB);
  CHECK(beyond.status == killed_status);
  CHECK(beyond.counters.at("oom_kill") >= 1);

  // A process that is left running would keep its cgroup from being removed.
  const Result orphan = run("sh -c 'sleep 60 & cat /proc/self/cgroup'", 64 * MiB);
  CHECK(orphan.errors.empty());
  CHECK(orphan.output.find("with-memory-limit-") != std::string::npos);
}

TEST_CASE("under a memory limit a run finds its budget and says the same") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::uint64_t least = fixture.plan(MiB).at("least_budget_bytes");
  const std::uint64_t whole = fixture.plan(1024 * MiB).at("total_bytes");
  REQUIRE(least + 16 * MiB < whole);
  for (const std::uint64_t budget : {least + 8 * MiB, (least + whole) / 2, whole + 8 * MiB}) {
    INFO("a budget of " << budget / MiB << " MiB is left");
    check_done(fixture.generate("", budget + sluice::plan::auto_reserve_bytes), fixture.text());
  }
}

TEST_CASE("a budget that is given is kept, however weights are read") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::uint64_t least = fixture.plan(MiB).at("least_budget_bytes");
  for (const char* io : {"uring", "pread", "mmap"}) {
    for (const std::uint64_t budget : {least + 8 * MiB, least + 16 * MiB}) {
      INFO(io << " with " << budget / MiB << " MiB");
      const Result result = fixture.generate(
          std::string("--io ") + io + " --budget " + std::to_string(budget), budget + slack_bytes);
      check_done(result, fixture.text());
      // The limit is not even touched: nothing has to be reclaimed.
      if (std::string(io) != "mmap") CHECK(result.counters.at("failcnt") == 0);
    }
  }
}

TEST_CASE("measuring for --report takes no more than the budget") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::uint64_t budget =
      fixture.plan(MiB).at("least_budget_bytes").get<std::uint64_t>() + 8 * MiB;
  const std::string report = fixture.file("report.json");
  check_done(fixture.generate("--budget " + std::to_string(budget) + " --report " + report,
                              budget + slack_bytes),
             fixture.text());
  const nlohmann::json told = nlohmann::json::parse(content(report));
  CHECK(told.at("planned_peak_bytes") <= budget);
  for (const nlohmann::json& line : told.at("plan")) {  // what the program takes was measured
    CHECK(line.at("name").get<std::string>().find("assumed") == std::string::npos);
  }

  // Of a model that is smaller than the buffers of a machine without a limit.
  const std::string tiny = fixture.file("tiny.gguf");
  REQUIRE(run(program + " synth tiny " + tiny).status == 0);
  const auto bytes = [&](const char* name) {
    const std::string plan = " plan " + tiny + " --ctx 64 --json --budget 1MiB";
    const Result result = run(program + plan, 32 * MiB, tiny);
    check_not_killed(result);
    return nlohmann::json::parse(result.output).at(name).get<std::uint64_t>();
  };
  const std::uint64_t least = bytes("least_budget_bytes");
  const Result result = run(program + " run " + tiny + " -p a -n 2 --ctx 64 -q --budget " +
                                std::to_string(least + MiB) + " --report " + report,
                            least + MiB + slack_bytes, tiny);
  INFO(result.errors);
  CHECK(result.status == 0);
  check_not_killed(result);
}

TEST_CASE("what the lists of a mixture's many matrices take is in the plan") {
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const TemporaryFolder folder;
  const std::string model = (folder.path() / "model.gguf").string(),
                    report = (folder.path() / "report.json").string();
  // 73,728 matrices of experts; a hole is read as zeros.
  REQUIRE(run(program + " synth qwen3-next-80b-a3b " + model + " --header-only").status == 0);
  const std::string settings = model + " -q --ctx 128 --budget ";
  const auto least =
      nlohmann::json::parse(run(program + " plan " + settings + "1GiB --json").output)
          .at("least_budget_bytes")
          .get<std::uint64_t>();
  const Result result = run(program + " run " + settings + std::to_string(least + 8 * MiB) +
                            " -n 2 -p hello --report " + report);
  INFO(result.errors);
  REQUIRE(result.status == 0);
  const nlohmann::json memory = nlohmann::json::parse(content(report));
  if (memory.at("measured_peak_bytes").is_null()) SLUICE_SKIP("the system tells no peak");
  const auto measured = memory.at("measured_peak_bytes").get<std::uint64_t>();
  CHECK(measured <= memory.at("planned_peak_bytes").get<std::uint64_t>() / 100 * 101);
}

TEST_CASE("a limit that is too small ends with status 4 and names a budget that works") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const Result refused = fixture.generate("", sluice::plan::auto_reserve_bytes + 16 * MiB);
  INFO(refused.errors);
  CHECK(refused.status == 4);
  CHECK(refused.output.empty());
  CHECK(is_one_line(refused.errors));
  check_not_killed(refused);

  const std::uint64_t least = named_least_mib(refused.errors) * MiB;
  for (const unsigned more : {0u, 1u, 2u, 4u, 6u}) {
    const std::uint64_t budget = least + more * MiB;
    INFO("a budget of " << budget / MiB << " MiB");
    check_done(fixture.generate("--budget " + std::to_string(budget), budget + slack_bytes),
               fixture.text());
  }
  const std::uint64_t less = least - 4 * MiB;
  CHECK(fixture.generate("--budget " + std::to_string(less), least + slack_bytes).status == 4);
}

TEST_CASE("a model that is smaller than a ring for its parts is mapped as a whole") {
  if (is_sanitized) SLUICE_SKIP("sanitizers need several times the memory of the program");
  const TemporaryFolder folder;
  const std::string model = (folder.path() / "tiny.gguf").string();
  REQUIRE(run(program + " synth tiny-gemma3n " + model).status == 0);
  const auto plan = [&](std::uint64_t budget) {
    const Result result = run(program + " plan " + model + " --ctx 256 --io mmap --json --budget " +
                              std::to_string(budget));
    return std::pair(result.status, nlohmann::json::parse(result.output));
  };
  const auto [refused, told] = plan(MiB);
  CHECK(refused == 4);
  const auto least = told.at("least_budget_bytes").get<std::uint64_t>();
  CHECK(plan(least + MiB).first == 0);
  CHECK(plan(least - 4 * MiB).first == 4);
}

TEST_CASE("a budget above the memory limit is no way to be killed") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::uint64_t limit =
      fixture.plan(MiB).at("least_budget_bytes").get<std::uint64_t>() + 16 * MiB;
  for (const char* io : {"auto", "uring", "pread", "mmap"}) {
    const Result result = fixture.generate(std::string("--budget 1GiB --io ") + io, limit);
    INFO(io << ": " << result.errors);
    check_not_killed(result);
    if (result.status == 0) {
      CHECK(result.output == fixture.text());
    } else {
      CHECK(result.status == 4);
      CHECK(is_one_line(result.errors));
    }
  }
}

TEST_CASE("a file that is larger than the free addresses opens, and runs in those there are") {
  if (is_sanitized) SLUICE_SKIP("limits of addresses are not for sanitizers");
  const TemporaryFolder folder;
  const std::string large = (folder.path() / "large.gguf").string();
  const std::string model = (folder.path() / "model.gguf").string();
  REQUIRE(run(program + " synth yi-9b " + large + " --header-only").status == 0);
  REQUIRE(run(program + " synth small " + model + " --quant F32 --seed 1").status == 0);
  const Result shown = run_with_addresses(program + " inspect " + large + " --json", 700 * MiB);
  INFO(shown.errors);
  REQUIRE(shown.status == 0);
  CHECK(nlohmann::json::parse(shown.output).at("runs_here").get<bool>());

  const std::string command = program + " run " + model +
                              " --prompt-tokens 300,313,326 -n 4 --temp 0 --ctx 256 --threads 2 "
                              "--quiet";
  const Result free = run(command);
  REQUIRE(free.status == 0);
  // With a little more than the program itself takes, weights are streamed.
  for (const std::uint64_t addresses : {240 * MiB, 320 * MiB, 700 * MiB}) {
    INFO(addresses / MiB);
    const Result limited = run_with_addresses(command, addresses);
    INFO(limited.errors);
    CHECK((limited.status == 0 || limited.status == 4));
    if (addresses > 300 * MiB) CHECK(limited.status == 0);
    if (limited.status == 0) CHECK(limited.output == free.output);
  }
  const Result machine = run_with_addresses(program + " machine", 700 * MiB);
  CHECK(machine.output.find("address space (ulimit -v)") != std::string::npos);
}

TEST_CASE("without /proc the machine's memory is the budget, and not any number") {
  if (is_sanitized) SLUICE_SKIP("the leak sanitizer looks for its threads in /proc");
  const TemporaryFolder folder;
  const std::string model = (folder.path() / "model.gguf").string();
  REQUIRE(run(program + " synth tiny " + model + " --seed 1").status == 0);
  const std::string without = "unshare --mount sh -c 'umount -l /proc && exec ";
  if (run(without + "true'").status != 0) SLUICE_SKIP("no mount namespace of its own here");
  const Result shown = run(without + program + " plan " + model + " --json'");
  INFO(shown.errors);
  REQUIRE(shown.status == 0);
  const auto most = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                    static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  CHECK(nlohmann::json::parse(shown.output).at("budget_bytes").get<std::uint64_t>() <= most);
}

namespace {

// Writes `bytes` of a repeated line, many times what the runs below may hold.
void write_long_text(const std::string& path, const std::string& line, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  std::string lines;
  while (lines.size() < std::size_t{1} << 20) lines += line;
  for (std::size_t done = 0; done < bytes; done += lines.size()) file << lines;
  REQUIRE(file.good());
}

}  // namespace

TEST_CASE("the length of a text takes no memory") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::string text = fixture.file("text");
  write_long_text(text, "to be or not to be, that is the question\n", 120 * MiB);
  const std::uint64_t budget =
      fixture.plan(MiB).at("least_budget_bytes").get<std::uint64_t>() + 8 * MiB;
  const auto in_group = [&](const std::string& before, const std::string& command) {
    return run(before + program + command + " -q --budget " + std::to_string(budget),
               budget + slack_bytes);
  };
  const std::string imatrix = " imatrix " + fixture.model() + " --ctx 64 --force -f " + text +
                              " -o " + fixture.file("imatrix");
  const std::string perplexity = " perplexity " + fixture.model() + " --ctx 64 -f " + text;
  for (const std::string& limited : {imatrix + " --chunks 2", perplexity + " --windows 2"}) {
    const Result result = in_group("", limited);
    INFO(limited << "\n" << result.errors);
    CHECK(result.status == 0);
    check_not_killed(result);
  }
  // All of the text takes too long: these are told to end, and are not killed before.
  for (const std::string& endless :
       {imatrix, perplexity, " perplexity " + fixture.model() + " --window 64 -f " + text,
        " run " + fixture.model() + " --window 64 -n 1 -f " + text}) {
    const Result result = in_group("timeout --preserve-status -s TERM 5 ", endless);
    INFO(endless << "\n" << result.errors);
    CHECK(result.status == 128 + SIGTERM);
    check_not_killed(result);
  }
  // A context is no place for a long text. All of it is counted.
  const std::string shorter = fixture.file("shorter");
  write_long_text(shorter, "to be or not to be, that is the question\n", 16 * MiB);
  const Result refused = in_group("", " run " + fixture.model() + " --ctx 64 -f " + shorter);
  INFO(refused.errors);
  CHECK(refused.status == 2);
  CHECK(refused.errors.find("but the context holds 64") != std::string::npos);
  check_not_killed(refused);
}

TEST_CASE("a text that cannot be cut needs memory, and ends with status 4 where there is none") {
  if (const std::string why = obstacle(); !why.empty()) SLUICE_SKIP(why);
  const Fixture fixture;
  const std::string text = fixture.file("text");
  write_long_text(text, "ta", 4 * MiB);  // the vocabulary has words of any two syllables
  const std::uint64_t budget =
      fixture.plan(MiB).at("least_budget_bytes").get<std::uint64_t>() + 8 * MiB;
  const std::string imatrix =
      program + " imatrix " + fixture.model() + " --ctx 64 --chunks 1 -q -f " + text + " -o ";
  const Result refused = run(imatrix + fixture.file("out") + " --budget " + std::to_string(budget),
                             budget + slack_bytes);
  INFO(refused.errors);
  CHECK(refused.status == 4);
  CHECK(is_one_line(refused.errors));
  check_not_killed(refused);
  CHECK(run(imatrix + fixture.file("out")).status == 0);
}
