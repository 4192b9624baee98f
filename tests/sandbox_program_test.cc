// --sandbox: that commands do in it what they do without, and that a kernel which lacks it is said
// to. What it keeps a process from is in confinement_test.cc.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/confinement.h"
#include "tests/catch.h"
#include "tests/program.h"
#include "tests/serving_program.h"

namespace {

using namespace sluice::test;
using nlohmann::json;

bool skips() {
  return !sluice::base::possible_confinement().is_whole();
}

void skip() {
  SLUICE_SKIP("this kernel, or this build, has no whole sandbox");
}

json report_of(const Folder& folder, const std::string& name) {
  return json::parse(content(folder.file(name)));
}

// The same command without a sandbox and in one; what it says of the run is not compared.
std::string same_in_both(const std::string& command) {
  const Result without = shell(command + " --sandbox off");
  const Result within = shell(command + " --sandbox on");
  INFO(command << "\n" << without.errors << "\n" << within.errors);
  CHECK(without.status == 0);
  CHECK(within.status == 0);
  CHECK(within.output == without.output);
  CHECK_FALSE(within.output.empty());
  return within.output;
}

}  // namespace

TEST_CASE("run streams a model in a sandbox as without one") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = folder.file("small.gguf");
  REQUIRE(shell("sluice synth small " + model + " --seed 1").status == 0);
  const json plan = json::parse(shell("sluice plan " + model + " --ctx 64 --json").output);
  const std::string budget = std::to_string(plan["least_budget_bytes"].get<std::uint64_t>());
  const auto run = [&](const std::string& sandbox) {
    return shell("sluice run " + model + " --raw -p 'A river' -n 8 --seed 1 --ctx 64 --budget " +
                 budget + " --report " + folder.file(sandbox.empty() ? "auto" : sandbox) +
                 (sandbox.empty() ? "" : " --sandbox " + sandbox));
  };
  const Result without = run("off"), within = run("on"), automatic = run("");
  INFO(within.errors);
  REQUIRE(without.status == 0);
  CHECK(within.status == 0);
  CHECK(within.output == without.output);
  CHECK(automatic.output == without.output);
  const json off = report_of(folder, "off"), on = report_of(folder, "on");
  CHECK(off["sandbox"] == "off");
  CHECK(on["sandbox"] == "files, calls");
  CHECK(report_of(folder, "auto")["sandbox"] == "files, calls");
  CHECK(on["io"] == off["io"]);
  CHECK(on["streamed_bytes_per_step"] > 0);
  CHECK(on["disk_notes"] == off["disk_notes"]);
}

TEST_CASE("run reads prompts, schemas and a prompt cache in a sandbox") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder), rest = " -n 6 --temp 0 -q";
  write(folder.file("prompt"), "One morning");
  write(folder.file("schema"), R"({"type": "integer"})");
  const std::string run = "sluice run " + model;
  same_in_both(run + " --raw -f " + folder.file("prompt") + rest);
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  same_in_both("{ echo piped >" + pipe + " & }; " + run + " --raw -f " + pipe + rest);
  same_in_both(run + " --raw --json-schema " + folder.file("schema") + " -p 1" + rest);
  const std::string cache = " --prompt-cache " + folder.file("new/cache");
  same_in_both(run + " --raw -p 'The same' --ctx 128" + cache + rest);
  CHECK(std::filesystem::is_directory(folder.file("new/cache")));
  // Shards, through a link from another folder.
  std::filesystem::create_directory(folder.file("links"));
  std::filesystem::create_symlink(model, folder.file("links/model.gguf"));
  same_in_both("sluice run " + folder.file("links/model.gguf") + " --raw -p a" + rest);
}

TEST_CASE("a batch begins, stops and goes on in a sandbox") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder);
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    rows += json({{"id", std::to_string(i)}, {"prompt", "Row"}, {"max_tokens", 4}}).dump() + "\n";
  }
  write(folder.file("in"), rows);
  const auto batch = [&](const std::string& out, const std::string& rest) {
    return shell("sluice batch " + model + " " + folder.file("in") + " -o " + folder.file(out) +
                 " --ordered " + rest);
  };
  REQUIRE(batch("without", "--sandbox off").status == 0);
  const std::string expected = content(folder.file("without"));
  const Result whole = batch("within", "--sandbox on");
  INFO(whole.errors);
  CHECK(whole.status == 0);
  CHECK(content(folder.file("within")) == expected);
  // What was written before is found again, up to a line that is cut off.
  write(folder.file("within"), expected.substr(0, expected.size() / 2));
  CHECK(batch("within", "--sandbox on").status == 0);
  CHECK(content(folder.file("within")) == expected);
  const Result piped =
      shell("sluice batch " + model + " - -o - --sandbox on < " + folder.file("in"));
  CHECK(piped.status == 0);
  CHECK(std::ranges::count(piped.output, '\n') == 12);
}

TEST_CASE("embed, perplexity, logits, imatrix and bench work in a sandbox") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + " ";
  write(folder.file("text"), text);
  same_in_both("sluice perplexity " + model + " -f " + folder.file("text") + " --ctx 32 -q");
  for (const std::string sandbox : {"off", "on"}) {
    const std::string rest = " -q --sandbox " + sandbox;
    const Result logits = shell("sluice logits " + model + " --tokens 1,2,3 -o " +
                                folder.file("logits-" + sandbox) + rest);
    CHECK(logits.status == 0);
    const Result imatrix = shell("sluice imatrix " + model + " -f " + folder.file("text") +
                                 " --ctx 32 -o " + folder.file("imatrix-" + sandbox) + rest);
    INFO(logits.errors << imatrix.errors);
    CHECK(imatrix.status == 0);
  }
  CHECK(content(folder.file("logits-on")) == content(folder.file("logits-off")));
  CHECK(content(folder.file("imatrix-on")) == content(folder.file("imatrix-off")));
  const Result bench = shell("sluice bench " + model + " -p 4 -n 4 --repeat 1 --json --sandbox on");
  INFO(bench.errors);
  CHECK(bench.status == 0);
  CHECK(json::parse(bench.output)["sandbox"] == "files, calls");
}

TEST_CASE("commands that show what is in files read them in a sandbox") {
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("text"), "One morning");
  write(folder.file("body"), R"({"messages":[{"role":"user","content":"Hello"}]})");
  write(folder.file("template"), "{{ messages[0].content }} {{ strftime_now('%Y') | length }}");
  CHECK(shell("sluice inspect " + model).status == 0);
  const std::string tokens = shell("sluice tokenize --ids " + model + " -p 'One morning'").output;
  CHECK_FALSE(tokens.empty());
  CHECK(shell("sluice tokenize --ids " + model + " -f " + folder.file("text")).output == tokens);
  CHECK(shell("echo -n 'One morning' | sluice tokenize --ids " + model).output == tokens);
  const Result shown =
      shell("cd " + folder.path().string() + " && sluice template body --template " + "template");
  INFO(shown.errors);
  CHECK(shown.output == "Hello 4");
}

TEST_CASE("a chat in a sandbox reads files, and writes below its folder alone") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder);
  const std::filesystem::path outside =
      std::filesystem::path(program).parent_path() / "outside-of-the-sandbox";
  std::filesystem::create_directory(folder.file("here"));
  write(folder.file("note"), "a note");
  const Result chat =
      shell("cd " + folder.file("here") + " && printf '%s\\n' '/file " + folder.file("note") +
            "' 'Hello' '/save talk.json' '/save " + outside.string() + "' '/load talk.json' | " +
            "sluice chat " + model + " --chat-format chatml -n 4 --sandbox on");
  INFO(chat.errors);
  CHECK(chat.status == 0);
  CHECK(content(folder.file("here/talk.json")).find("a note") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(outside));
  CHECK(chat.errors.find("--sandbox off") != std::string::npos);
  CHECK(chat.errors.find("loaded 2 messages") != std::string::npos);
}

namespace {

// The filters of system calls that hold for each thread of a process.
std::vector<std::string> filters_of_threads(pid_t process) {
  std::vector<std::string> found;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    const std::string status = content(task.path() / "status");
    const std::size_t at = status.find("Seccomp_filters:");
    if (at != std::string::npos) found.push_back(status.substr(at, status.find('\n', at) - at));
  }
  return found;
}

}  // namespace

TEST_CASE("a server in a sandbox keeps files, batches, pages of prompts and its socket") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder), socket = folder.file("socket");
  Serving server(folder, model,
                 {"--sandbox", "on", "--unix", socket, "--prompt-cache", folder.file("cache")});
  CHECK(std::filesystem::exists(socket));
  const json answer =
      post(server.port, "/v1/completions", {{"prompt", "One"}, {"seed", 1}, {"max_tokens", 4}});
  CHECK(answer["usage"]["completion_tokens"] == 4);
  const Answer metrics = HttpClient(server.port).ask("GET", "/metrics");
  CHECK(metrics.status == 200);
  CHECK(metrics.body.find("sluice_memory_bytes") != std::string::npos);

  const std::string row = R"({"custom_id":"a","method":"POST","url":"/v1/completions",)"
                          R"("body":{"prompt":"Two","max_tokens":3}})";
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"rows.jsonl\"\r\n\r\n" +
      row + "\n\r\n--b--\r\n";
  const std::string head =
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "multipart/form-data; boundary=b\r\nContent-Length: ";
  HttpClient uploading(server.port);
  uploading.send(head + std::to_string(form.size()) + "\r\n\r\n" + form);
  const Answer uploaded = uploading.read_answer();
  INFO(uploaded.body);
  REQUIRE(uploaded.status == 200);
  json batch = post(server.port, "/v1/batches",
                    {{"input_file_id", json::parse(uploaded.body)["id"]},
                     {"endpoint", "/v1/completions"},
                     {"completion_window", "24h"}});
  const std::string path = "/v1/batches/" + batch["id"].get<std::string>();
  for (int i = 0; i < 6000 && batch["status"] != "completed"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    batch = json::parse(HttpClient(server.port).ask("GET", path).body);
  }
  INFO(batch.dump());
  REQUIRE(batch["status"] == "completed");
  const Answer results =
      HttpClient(server.port)
          .ask("GET", "/v1/files/" + batch["output_file_id"].get<std::string>() + "/content");
  CHECK(results.body.find("\"custom_id\":\"a\"") != std::string::npos);

  // The thread that serves connections has a filter more than the others.
  const std::vector<std::string> filters = filters_of_threads(server.process());
  REQUIRE_FALSE(filters.empty());
  const std::string least = *std::ranges::min_element(filters);
  CHECK(least != "Seccomp_filters:\t0");
  CHECK(std::ranges::count_if(filters, [&](const std::string& of) { return of != least; }) == 1);
  CHECK(server.stop(SIGTERM) == 0);
  CHECK_FALSE(std::filesystem::exists(socket));
}

namespace {

// Starts the program where Landlock, or filters too, cannot be had. Returns the exit status.
int run_without(std::initializer_list<long> calls, const std::string& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<sock_filter> filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const long call : calls) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog all = {static_cast<unsigned short>(filter.size()), filter.data()};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) ::_exit(99);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(98);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a kernel without a sandbox is announced, and refused where one is demanded") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string run = "'" + program + "' run " + model + " --raw -p a -n 2 --temp 0";
  const std::string ends = " >" + folder.file("out") + " 2>" + folder.file("err") + " </dev/null";
  const std::string expected = shell("sluice run " + model + " --raw -p a -n 2 --temp 0").output;
  struct Lack {
    std::initializer_list<long> calls;
    const char* says;
    const char* holds;
  };
  const std::initializer_list<long> landlock = {SYS_landlock_create_ruleset};
  const std::initializer_list<long> both = {SYS_landlock_create_ruleset, SYS_seccomp};
  for (const Lack& lack : {Lack{landlock, "Landlock", "calls"}, Lack{both, "seccomp", "off"}}) {
    INFO(lack.says);
    const std::string report = " --report " + folder.file("report") + " --force";
    CHECK(run_without(lack.calls, run + report + ends) == 0);
    CHECK(content(folder.file("out")) == expected);
    const std::string said = content(folder.file("err"));
    CHECK(said.find("the sandbox is not whole") != std::string::npos);
    CHECK(said.find(lack.says) != std::string::npos);
    CHECK(report_of(folder, "report")["sandbox"] == lack.holds);
    CHECK(run_without(lack.calls, run + " -q" + ends) == 0);
    CHECK(content(folder.file("err")).empty());
    CHECK(run_without(lack.calls, run + " --sandbox on" + ends) == 1);
    CHECK(is_one_line(content(folder.file("err"))));
    CHECK(content(folder.file("err")).find("--sandbox on") != std::string::npos);
    CHECK(run_without(lack.calls, run + " --sandbox off" + ends) == 0);
    CHECK(content(folder.file("err")).find("sandbox") == std::string::npos);
  }
  check_fails("sluice run " + model + " -p a --sandbox maybe", 2, "--sandbox");
}
