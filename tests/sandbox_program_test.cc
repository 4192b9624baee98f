// --sandbox: that commands do in it what they do without, and that a kernel which lacks it is said
// to. What it keeps a process from is in confinement_test.cc.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
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
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/confinement.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/program.h"
#include "tests/serving_program.h"
#include "tests/small_hub.h"
#include "tests/synthetic_checkpoint.h"

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

namespace {

// A checkpoint whose files are links, as those of the hub's cache are. Returns its folder.
std::string make_linked_checkpoint(const Folder& folder) {
  const std::filesystem::path blobs = folder.file("blobs"), links = folder.file("links");
  std::filesystem::create_directory(blobs);
  std::filesystem::create_directory(links);
  const CheckpointFamily family = checkpoint_family("LlamaForCausalLM");
  const std::string model = folder.file("shape.gguf");
  sluice::synth::SyntheticModel(family.shape, "F32").write(model, 7, {});
  SyntheticCheckpoint(family, model).write_to(blobs);
  for (const auto& file : std::filesystem::directory_iterator(blobs)) {
    std::filesystem::create_symlink(file.path(), links / file.path().filename());
  }
  return links.string();
}

}  // namespace

TEST_CASE("quantize and import write the same files in a sandbox as without one") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = folder.file("f16.gguf"), checkpoint = make_linked_checkpoint(folder);
  REQUIRE(shell("sluice synth tiny " + model + " --seed 1 --quant F16").status == 0);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "word" + std::to_string(i) + " ";
  write(folder.file("text"), text);
  const std::string imatrix = folder.file("imatrix");
  REQUIRE(
      shell("sluice imatrix " + model + " -f " + folder.file("text") + " --ctx 32 -o " + imatrix)
          .status == 0);
  std::filesystem::create_symlink(model, folder.file("links/model.gguf"));
  write(folder.file("types"), "*.ffn_down.weight = Q8_0\n");
  struct Conversion {
    std::string command, options;
  };
  for (const Conversion& conversion :
       {Conversion{
            "quantize " + folder.file("links/model.gguf") + " ",
            " --quant Q4_K_M --imatrix " + imatrix + " --tensor-types " + folder.file("types")},
        Conversion{"import " + checkpoint + " ", " --quant Q8_0"}}) {
    for (const std::string sandbox : {"off", "on"}) {
      std::filesystem::create_directories(folder.file(sandbox));
      const Result result =
          shell("sluice " + conversion.command + folder.file(sandbox) + "/out.gguf --force" +
                conversion.options + " --sandbox " + sandbox);
      INFO(conversion.command << result.errors);
      REQUIRE(result.status == 0);
    }
    CHECK(content(folder.file("on/out.gguf")) == content(folder.file("off/out.gguf")));
    CHECK(files_in(folder.file("on")) == 1);
  }
}

TEST_CASE("plans are made in a sandbox as without one") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder);
  std::filesystem::create_directory(folder.file("links"));
  std::filesystem::create_symlink(model, folder.file("links/one.gguf"));
  const auto plan = [&](const std::string& command, const std::string& sandbox) {
    const Result result =
        shell("sluice plan " + command + " --json --threads 1 --ctx 64 --sandbox " + sandbox);
    INFO(command << result.errors);
    REQUIRE(result.status == 0);
    return json::parse(result.output);
  };
  const std::string report = " --report " + folder.file("report");
  const json without = plan(model + " --budget 64MiB", "off");
  const json within = plan(model + " --budget 64MiB --draft " + model + report, "on");
  CHECK(report_of(folder, "report") == within);
  CHECK(within["predicted_decode_tokens_per_s"].is_number());
  for (const char* member : {"budget_bytes", "fits", "context", "streamed_bytes_per_step"}) {
    INFO(member);
    CHECK(within[member] == without[member]);
  }
  // The quantisations of one file, which are on no disk; and a folder of links.
  for (const std::string& named : {model, folder.file("links")}) {
    const std::string table = "--table " + named + " --budgets 64MiB";
    const json off = plan(table, "off")["files"], on = plan(table, "on")["files"];
    REQUIRE(on.size() == off.size());
    for (std::size_t i = 0; i < on.size(); ++i) {
      CHECK(on[i]["name"] == off[i]["name"]);
      CHECK(on[i]["bytes"] == off[i]["bytes"]);
      CHECK(on[i]["budgets"][0]["fits"] == off[i]["budgets"][0]["fits"]);
    }
  }
  const json table = plan("--table " + model + " --report " + folder.file("table"), "on");
  CHECK(table["files"].size() > 10);
  CHECK(report_of(folder, "table") == table);
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
            // Temporary files may be written too; the program may lie where those of others are.
            "TMPDIR=$PWD sluice chat " + model + " --chat-format chatml -n 4 --sandbox on");
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

namespace {

// Starts the program. It is ended when this is destroyed.
class Started {
 public:
  Started(const Folder& folder, std::vector<std::string> words) : errors_(folder.file("errors")) {
    words.insert(words.begin(), program);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      const int errors = ::open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(null, 0);
      ::dup2(null, 1);
      ::dup2(errors, 2);
      ::setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
  }
  ~Started() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  bool has_ended() const {
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid != 0;
  }

  // Whether all its threads have a filter that this process has not.
  bool is_confined() const {
    const std::string own = filters_of_threads(::getpid()).front();
    const std::vector<std::string> filters = filters_of_threads(process_);
    return !filters.empty() && std::ranges::count(filters, own) == 0;
  }

  // Waits until `is_so` or the program has ended; returns whether it was so.
  bool waits_until(const auto& is_so) const {
    for (int i = 0; i < 60'000 && !has_ended(); ++i) {
      if (is_so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  // Returns the exit status.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string errors() const { return content(errors_); }

 private:
  std::string errors_;
  pid_t process_ = -1;
};

}  // namespace

TEST_CASE("quantize reads nothing beside its model once it is confined") {
  if (skips()) return skip();
  const Folder folder, other;
  const std::string model = make_model(folder), pipe = folder.file("types");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Started quantize(folder, {"quantize", model, folder.file("out.gguf"), "--quant", "Q8_0",
                            "--tensor-types", pipe});
  // It waits for the end of the pipe when it has looked at the model for the first time. Then
  // another file comes into the model's place.
  int types = -1;
  REQUIRE(quantize.waits_until([&] {
    types = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return types >= 0;
  }));
  CHECK(quantize.is_confined());
  std::filesystem::rename(model, other.file("model.gguf"));
  std::filesystem::create_symlink(other.file("model.gguf"), model);
  const std::string line = "*.ffn_down.weight = Q8_0\n";
  CHECK(::write(types, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  ::close(types);
  const int status = quantize.wait();
  INFO(quantize.errors());
  CHECK(status == 5);
  CHECK(is_one_line(quantize.errors()));
  CHECK(quantize.errors().find("--sandbox off") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("out.gguf")));
}

TEST_CASE("import and plan are confined") {
  if (skips()) return skip();
  const Folder folder;
  const std::string model = make_model(folder), checkpoint = make_linked_checkpoint(folder);
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  // They wait for a reader of the pipe.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"import", checkpoint, pipe},
        std::vector<std::string>{"plan", model, "--report", pipe}}) {
    INFO(words[0]);
    Started command(folder, words);
    REQUIRE(command.waits_until([&] { return command.is_confined(); }));
    CHECK_FALSE(content(pipe).empty());
    CHECK(command.wait() == 0);
  }
}

TEST_CASE("a pull is confined to its caches, one of which leads to another disk") {
  if (skips()) return skip();
  SmallHub hub([](const HubRequest&) { return Fault::slow; });
  const Caches caches(hub);
  const Folder folder;
  const std::string text = "GGUF" + std::string(20'000'000, 'x'), sum = sha256_of(text);
  hub.put("m.gguf", text);
  // The repository is a link to a folder elsewhere.
  const std::filesystem::path repository = caches.repository();
  std::filesystem::create_directories(repository.parent_path());
  std::filesystem::create_directory(folder.file("disk"));
  std::filesystem::create_directory_symlink(folder.file("disk"), repository);
  Started pull(folder, {"pull", "hf:o/r/m.gguf"});
  REQUIRE(pull.waits_until([&] { return pull.is_confined(); }));
  hub.slowness = std::chrono::microseconds(0);
  CHECK(pull.wait() == 0);
  CHECK(content(folder.file("disk/blobs/" + sum)) == text);

  // Elsewhere it writes nothing, whatever the cache leads to.
  std::filesystem::remove(folder.file("disk/blobs/" + sum));
  std::filesystem::create_directory(folder.file("private"));
  std::filesystem::remove_all(folder.file("disk/blobs"));
  std::filesystem::create_directory_symlink(folder.file("private"), folder.file("disk/blobs"));
  const Result refused = shell("sluice pull -q hf:o/r/m.gguf");
  CHECK(refused.status == 5);
  CHECK(is_one_line(refused.errors));
  CHECK(refused.errors.find("--sandbox off") != std::string::npos);
  CHECK(files_in(folder.file("private")) == 0);
  CHECK(shell("sluice pull -q hf:o/r/m.gguf --sandbox off").status == 0);
  CHECK(files_in(folder.file("private")) == 1);
}

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
