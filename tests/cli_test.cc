// The program itself: exit statuses, what goes to which stream, and how it ends when told to.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/program.h"
#include "tests/sanitized.h"

using namespace sluice::test;

namespace {

nlohmann::json plan_of(const std::string& options) {
  const Result result = shell("sluice plan --json " + options);
  INFO(options << "\n" << result.errors);
  REQUIRE(result.status == 0);
  return nlohmann::json::parse(result.output);
}

// The commands that the help lists.
std::vector<std::string> commands() {
  const std::string help = shell("sluice --help").output, title = "\nCommands:\n";
  const std::size_t begin = help.find(title);
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(help.substr(begin + title.size()));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  REQUIRE(names.size() >= 25);
  return names;
}

}  // namespace

TEST_CASE("each command has a help with an example") {
  CHECK(shell("sluice --help").output.find("Example") != std::string::npos);
  for (const std::string& command : commands()) {
    const Result help = shell("sluice " + command + " --help");
    INFO(command);
    CHECK(help.status == 0);
    CHECK(help.errors.empty());
    const std::size_t examples = help.output.find("\nExample");
    REQUIRE(examples != std::string::npos);
    CHECK(help.output.find("sluice " + command, examples) != std::string::npos);
  }
  CHECK(shell("sluice --version").output.starts_with("sluice "));
}

TEST_CASE("a help has the command's own options first, and no line that is too long") {
  const std::string main_help = shell("sluice --help").output;
  CHECK(main_help.find("75 `batch`") != std::string::npos);
  for (const std::string& command : commands()) {
    const std::string help = shell("sluice " + command + " --help").output;
    INFO(command << "\n" << help);
    for (const char* noise : {"Excludes", "Needs", "REQUIRED", "...  ", "(1x)", "(2x)", "\n\n\n"}) {
      CHECK(help.find(noise) == std::string::npos);
    }
    const std::size_t shared = std::min(help.find("\nSampling:"), help.find("\nCommon options:"));
    if (shared != std::string::npos) {
      CHECK(help.rfind("\nOptions:", shared) != help.find("\nOptions:", shared));
      CHECK(help.find("\n  -h,--help") > shared);
    }
    for (std::size_t begin = 0; begin < help.size();) {
      const std::size_t end = std::min(help.find('\n', begin), help.size());
      CHECK(end - begin <= 80);
      begin = end + 1;
    }
  }
}

TEST_CASE("doctor says what the machine can run, and refuses a folder that is not there") {
  const Result result = shell("sluice doctor --json .");
  INFO(result.errors);
  REQUIRE(result.status == 0);
  const auto findings = nlohmann::json::parse(result.output);
  for (const auto& check : findings["checks"]) {
    CHECK_FALSE(check["found"].get<std::string>().empty());
    if (check["health"].get<std::string>() == "good") {
      CHECK(check["remedy"].get<std::string>().empty());
    }
  }
  CHECK(findings["checks"].size() >= 8);
  REQUIRE(findings["reach"].size() >= 3);
  CHECK(findings["reach"][0]["bound_tokens_per_s"].is_number());
  CHECK(findings["made_from"]["measurements"].get<int>() >= 1);
  const std::string text = shell("sluice doctor").output;
  for (const auto& check : findings["checks"]) {
    CHECK(("\n" + text).find("\n" + check["name"].get<std::string>()) != std::string::npos);
  }
  check_fails("sluice doctor /nowhere/at/all", 2, "no such folder");
}

TEST_CASE("sizes have fractions and short units, and a budget beyond the machine is told") {
  const Folder folder;
  const std::string plan = "sluice plan " + make_model(folder) + " --ctx 64 --json --budget ";
  const auto budget = [&](const std::string& size) {
    const Result result = shell(plan + size);
    return nlohmann::json::parse(result.output)["budget_bytes"].get<std::uint64_t>();
  };
  constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
  for (const char* size : {"512M", "512mb", "0.5GiB", "'512 MiB'", "536870912B"}) {
    INFO(size);
    CHECK(budget(size) == 512 * MiB);
  }
  CHECK(budget("500.5M") == 500 * MiB + MiB / 2);
  for (const char* bad :
       {"4.5", ".5G", "4.G", "1.2.3G", "4X", "4GiBB", "4Gi", "G", "1e3M", "0.0G"}) {
    INFO(bad);
    check_fails(plan + bad, 2);
  }
  const Result beyond = shell(plan + "1000TiB");
  CHECK(beyond.status == 0);
  CHECK(beyond.errors.find("more than this machine has: ") != std::string::npos);
  const Result run =
      shell("sluice run " + folder.file("tiny.gguf") + " -p x -n 2 --budget 1000TiB");
  CHECK(run.status == 0);
  CHECK(run.errors.find("more than this machine has: ") != std::string::npos);
}

TEST_CASE("the short names that others use work too") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string expected = shell("sluice run " + model + " -p hello -n 8 --temp 0 -q").output;
  for (const std::string& options :
       {" -m " + model + " -c 128 -t 2", " --model " + model + " --ctx-size 128 --threads 1",
        " -m " + model + " --ctx 128 -t auto"}) {
    INFO(options);
    CHECK(shell("sluice run" + options + " -p hello -n 8 --temp 0 -q").output == expected);
  }
  CHECK(shell("sluice inspect -m " + model).status == 0);
  check_fails("sluice run " + model + " -m " + model + " -p x", 2);
  write(folder.file("in"), "{\"prompt\":\"x\",\"max_tokens\":1}\n");
  CHECK(shell("sluice batch " + folder.file("in") + " -q -o " + folder.file("out") + " -m " + model)
            .status == 0);
  check_fails("sluice run -q -c 2 -m " + model + " -p 'far too long for two'", 2, "--ctx");
}

TEST_CASE("a run says why it ended") {
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -p hello --temp 0 ";
  const auto says = [&](const std::string& options, const char* reason) {
    const Result result = shell(run + options);
    INFO(options << "\n" << result.errors);
    CHECK(result.status == 0);
    CHECK(result.errors.find(std::string("; ended: ") + reason) != std::string::npos);
  };
  says("-n 3", "-n tokens were reached");
  says("-n -1 --ctx 32", "the context is full");
  const std::string text = shell(run + "-n 20 -q").output;
  says("-n 20 --stop '" + text.substr(text.size() / 2, 2) + "'", "a stop text came");
}

// Also the code that finds out which instructions there are must do without them.
TEST_CASE("a CPU without the newer instructions gives the same text") {
  if (is_sanitized) SLUICE_SKIP("sanitizers do not run under emulation");
  if (*emulator != '\0') SLUICE_SKIP("the program is of another machine");
  if (shell("command -v qemu-x86_64").status != 0) SLUICE_SKIP("no qemu-x86_64 (qemu-user)");
  const Folder folder;
  const std::string generate = " run " + make_model(folder) + " -p river -n 8 --temp 0 -q";
  const Result here = shell("sluice" + generate);
  REQUIRE(here.status == 0);
  for (const char* cpu : {"Nehalem", "Haswell"}) {
    INFO(cpu);
    const Result there = shell(std::string("qemu-x86_64 -cpu ") + cpu + " " + program + generate);
    CHECK(there.status == 0);
    CHECK(there.output == here.output);
    const Result machine =
        shell(std::string("qemu-x86_64 -cpu ") + cpu + " " + program + " machine");
    CHECK(machine.status == 0);
    const bool is_slow = machine.errors.find("many times slower") != std::string::npos;
    CHECK(is_slow == (cpu == std::string("Nehalem")));
  }
}

TEST_CASE("run without a prompt says so, and an empty prompt is one") {
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -n 4 -q --temp 0 ";
  check_fails(run + "</dev/null", 2, "there is no prompt");
  check_fails("printf '' | " + run, 2, "there is no prompt");
  const Result none = shell("sluice run demo -n 4 </dev/null");
  CHECK(none.status == 2);
  CHECK(none.errors.find("answers messages") == std::string::npos);
  const Result joined = shell("sluice run demo --raw -p x -n 4 2>&1");
  CHECK(joined.output.find("\nsluice: ") != std::string::npos);
  CHECK(shell(run + "-p '' </dev/null").status == 0);
  CHECK(shell(run + "-f /dev/null").status == 0);
  CHECK(shell("printf 'a' | " + run).status == 0);
}

TEST_CASE("a model that was installed with the program has a name") {
  if (*emulator != '\0') SLUICE_SKIP("the program is started by a script, which is not installed");
  const Folder folder;
  fs::create_directories(folder.file("bin"));
  fs::create_directories(folder.file("share/sluice"));
  fs::copy_file(program, folder.file("bin/sluice"));
  fs::rename(make_model(folder), folder.file("share/sluice/small.gguf"));
  const std::string installed = "cd " + folder.file("") + " && bin/sluice ";
  CHECK(shell(installed + "inspect small").status == 0);
  CHECK(shell(installed + "run small -p river -n 2 -q").status == 0);

  // A file of that name comes first, and a path is never looked up.
  write(folder.file("small"), "no model");
  CHECK(shell(installed + "inspect small").status != 0);
  CHECK(shell(installed + "inspect ./large").status != 0);
  const Result large = shell(installed + "inspect large");
  CHECK(large.status == 5);
  CHECK(large.errors.find("a name that `sluice list` shows, such as small,") != std::string::npos);
  const Result close = shell(installed + "inspect smal");
  CHECK(close.errors.find("did you mean the installed model small?") != std::string::npos);

  // From a folder that does not hold them, too, where a sandbox hides them.
  fs::create_directories(folder.file("elsewhere"));
  const std::string elsewhere = "cd " + folder.file("elsewhere") + " && ../bin/sluice ";
  check_fails(elsewhere + "run smal -p x", 5, "did you mean the installed model small?");
  check_fails(elsewhere + "run large -p x", 5, "such as small, or a reference");
  check_fails(elsewhere + "run OWNER/REPO:Q4_K_M -p x", 5, "did you mean hf:OWNER/REPO:Q4_K_M?");
  check_fails(elsewhere + "run .. -p x", 5, "sluice import");
  CHECK(shell(elsewhere + "run small -f nothing").errors.find("MODEL") == std::string::npos);
}

TEST_CASE("wrong usage ends with status 2 and one line that names it") {
  check_fails("sluice run", 2, "MODEL");
  check_fails("sluice run m --no-such-option", 2, "--no-such-option");
  check_fails("sluice run m -p x -f y", 2, "excludes");
  check_fails("sluice run m run", 2, "run");
  check_fails("sluice logits m --tokens 1,x -o o", 2, "\"x\"");
  for (const char* list : {"''", "1,,2", "1,2,", ",1", "-1", "1.5", "4294967297"}) {
    check_fails(std::string("sluice logits m -o o --tokens=") + list, 2, "--tokens");
  }
  check_fails("sluice bench m -p 1,,2", 2, "--prompt-tokens");
  check_fails("sluice plan m --table --budgets 3GiB,,4GiB", 2, "--budgets");
  check_fails("sluice plan m --for run,,2cpu", 2, "--for");
  for (const char* cpus : {"99999999999999999999999cpu", "4294967297cpu", "1025cpu", "0cpu", "cpu",
                           "-1cpu", "1.5cpu", "1 cpu"}) {
    check_fails(std::string("sluice plan m --for '") + cpus + "'", 2,
                std::string("--for: \"") + cpus + "\"");
  }
  for (const char* seed : {"-1", "1.5", "18446744073709551616", "x"}) {
    check_fails(std::string("sluice synth tiny o --seed=") + seed, 2, "--seed");
  }
  for (const char* count : {"0", "-1", "1.5", "x"}) {
    check_fails(std::string("sluice logits m --tokens 1 -o o --chunk=") + count, 2, "--chunk: \"");
    check_fails(std::string("sluice synth tiny o --layers=") + count, 2, "--layers: \"");
  }
  check_fails("sluice run m -p x -n -2", 2, "-2");
  for (const char* bad :
       {"--temp -1", "--temp nan", "--temp x", "--top-k -1", "--top-p 1.5", "--min-p -0.1",
        "--repeat-penalty 0", "--seed -2", "--ctx 0", "--ctx 1.5", "--ctx 99999999999",
        "--threads 0", "--threads many", "--kv int3", "--io floppy", "--budget 0", "--budget 4XB",
        "--budget -1", "--budget 99999999999GiB"}) {
    check_fails(std::string("sluice run m -p x ") + bad, 2);
  }
  check_fails("sluice run m -p x --stop ''", 2, "stop text");
  check_fails("sluice bench m -p 0 -n 0", 2, "-p and -n");
}

TEST_CASE("what is not there is named, with what was probably meant, in the order of the line") {
  check_fails("sluice rnu demo", 2, "there is no command \"rnu\": did you mean run?");
  check_fails("sluice pull llama3", 2, "'llama3' is no reference to a model");
  check_fails("sluice pul hf:a/b", 2, "there is no command \"pul\": did you mean pull?");
  check_fails("sluice help rnu", 2, "did you mean run?");
  check_fails("sluice -p x run m", 2, "-p is no option of sluice alone");
  check_fails("sluice --budget=4GiB run m", 2, "the command comes first");
  check_fails("sluice bench m --temp 0", 2, "there is no option --temp of bench");
  check_fails("sluice template", 2, "MODEL is required");
  check_fails("sluice template a", 2, "BODIES.jsonl is missing");
  check_fails("sluice template --template t a b c", 2, "\"c\" is an argument too many");
  check_fails("sluice pull o/r:Q4_K_M", 2, "write hf: before it");
  check_fails("sluice run '' -p x", 2, "--model: the name is empty");
  check_fails("sluice run m -p x -f ''", 2, "--prompt excludes --file");
  check_fails("sluice run m -p x -- first -n", 2, "\"first\" is an argument too many");
  check_fails("sluice synth tinny o", 2, "unknown shape 'tinny': `sluice synth --list`");
  check_fails("sluice synth small-moe o --routing even", 2, "uniform or skewed or real");
  check_fails("sluice run m --tmep 0.5", 2, "there is no option --tmep: did you mean --temp?");
  check_fails("sluice run m --budgt=4GiB", 2, "did you mean --budget?");
  check_fails("sluice run m -temp 0.5", 2, "did you mean --temp?");
  check_fails("sluice run m --shard 1/2", 2, "it is one of batch");
  check_fails("sluice run m first second", 2,
              "\"first\" is an argument too many: give a text with -p");
  check_fails("sluice run m -p", 2, "--prompt needs a value");
  check_fails("sluice run m -t 1 -t 2", 2, "--threads is there twice");
  for (const char* foreign : {"-ngl 99", "--n-gpu-layers 99", "-ngl=1"}) {
    check_fails(std::string("sluice run m -p x ") + foreign, 2, "CPU alone");
  }
  check_fails("sluice run m -p x -ctk q8_0", 2, "--kv");
  check_fails("sluice run m -p x --budget 4", 2, "4 are bytes: did you mean 4GiB?");
  check_fails("sluice run m -p x --budget 5500", 2, "5500MiB?");
  // The value of an option is no option and no command, whatever it looks like.
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -n 1 -q -p ";
  for (const char* text : {"--tmep", "-ngl", "help", "-V"}) {
    INFO(text);
    CHECK(shell(run + text).status == 0);
  }
}

TEST_CASE("help and version are commands too, and sluice alone is a short tour") {
  CHECK(shell("sluice help").output == shell("sluice --help").output);
  CHECK(shell("sluice help run").output == shell("sluice run --help").output);
  CHECK(shell("sluice help help").output == shell("sluice help").output);
  check_fails("sluice help run chat", 2, "\"chat\" is an argument too many");
  check_fails("sluice version 2", 2, "\"2\" is an argument too many");
  for (const char* version : {"version", "-V"}) {
    CHECK(shell(std::string("sluice ") + version).output == shell("sluice --version").output);
  }
  const Result alone = shell("sluice");
  CHECK(alone.status == 0);
  CHECK(alone.errors.empty());
  for (const char* part : {"sluice chat demo", "sluice plan", "sluice help"}) {
    CHECK(alone.output.find(part) != std::string::npos);
  }
}

TEST_CASE("names of options that llama.cpp has mean the same here") {
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -p hello -q ";
  const std::string expected = shell(run + "-n 8 --temp 0").output;
  CHECK_FALSE(expected.empty());
  for (const char* options :
       {"--n-predict 8 --temperature 0", "--max-tokens=8 --temperature=0", "--predict 8 --temp=0",
        "-n=8 --temp 0 --seed -1", "-n8 --temp 0 --seed=-1"}) {
    INFO(options);
    CHECK(shell(run + options).output == expected);
  }
  check_fails("sluice batch m in -o out --seed -1", 2, "-1");
}

TEST_CASE("bad models and failed reading and writing have statuses of their own") {
  const Folder folder;
  const std::string model = make_model(folder);
  check_fails("sluice run " + folder.file("absent") + " -p x", 5, "absent");
  check_fails("sluice run /dev/null -p x", 5, "/dev/null: a model is read in several places");
  check_fails("sluice run " + model + " -q -f " + folder.file("absent.txt"), 5, "absent.txt");
  write(folder.file("bad.gguf"), "this is not a model");
  check_fails("sluice run " + folder.file("bad.gguf") + " -p x", 3, "bad.gguf");
  check_fails("sluice machine >/dev/full", 5, "standard output");
  check_fails("sluice run --help >/dev/full", 5);
  check_fails("sluice run " + model + " -q -p x -n 4 --temp 0 >/dev/full", 5);
  check_fails("sluice logits " + model + " -q --tokens 1,2 -o /dev/full", 5, "/dev/full");
  check_fails("sluice logits " + model + " -q --tokens 1,2 -o " + folder.file("no/o.f32"), 5);
}

TEST_CASE("a reader that goes away is no error") {
  const Folder folder;
  const std::string model = make_model(folder);
  const Result result =
      shell("{ sluice run " + model + " -q -p x -n 2000 --temp 0; echo $? >&2; } | head -c 1");
  CHECK(result.output.size() == 1);
  CHECK(result.errors == "0\n");
}

TEST_CASE("machine --json is one JSON object") {
  const nlohmann::json machine = nlohmann::json::parse(shell("sluice machine --json").output);
  CHECK(machine["threads"].get<int>() >= 1);
  CHECK(machine["threads_cpus"].size() == machine["threads"].get<std::size_t>());
  CHECK(shell("SLUICE_ISA=scalar sluice machine --json").output.find("\"scalar\"") !=
        std::string::npos);
  check_fails("SLUICE_ISA=abacus sluice machine", 2, "abacus");
}

TEST_CASE("greedy runs repeat, seeds repeat, and -n counts") {
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -p hello ";
  const Result first = shell(run + "-n 20 --temp 0");
  REQUIRE(first.status == 0);
  CHECK(first.errors.find("generated 20 tokens") != std::string::npos);
  CHECK(first.errors.find("seed ") != std::string::npos);
  CHECK_FALSE(first.output.empty());
  CHECK(shell(run + "-n 20 --temp 0").output == first.output);
  CHECK(first.output.starts_with(shell(run + "-n 5 --temp 0").output));
  CHECK(shell(run + "-n 0 --temp 0").output.empty());
  const Result quiet = shell(run + "-n 20 --temp 0 --quiet");
  CHECK(quiet.errors.empty());
  CHECK(quiet.output == first.output);
  CHECK(shell(run + "-n 20 --seed 3").output == shell(run + "-n 20 --seed 3").output);

  // Ends before a stop text that lies in the middle of what came above.
  const std::string stop = first.output.substr(first.output.size() / 2, 2);
  const Result stopped = shell(run + "-q -n 20 --temp 0 --stop '" + stop + "'");
  CHECK(stopped.output == first.output.substr(0, first.output.find(stop)));
}

TEST_CASE("a prompt comes from an option, a file, a pipe or as ids, or is empty") {
  const Folder folder;
  const std::string run = "sluice run " + make_model(folder) + " -q -n 8 --temp 0 ";
  const std::string expected = shell(run + "-p hello").output;
  write(folder.file("prompt.txt"), "hello\n");
  CHECK(shell(run + "-f " + folder.file("prompt.txt")).output == expected);
  CHECK(shell("echo hello | " + run).output == expected);
  CHECK(shell("echo hello | " + run + "-p -").output == expected);
  std::string ids = shell("sluice tokenize " + folder.file("tiny.gguf") + " --ids -p hello").output;
  ids.pop_back();
  for (char& character : ids) character = character == ' ' ? ',' : character;
  CHECK(shell(run + "--prompt-tokens " + ids).output == expected);
  CHECK(shell(run + "-p ''").status == 0);
  check_fails(run + "--prompt-tokens 1,123456789", 2, "123456789");
  check_fails(run + "--ctx 2 -p 'far too long for two'", 2, "--ctx");
}

TEST_CASE("a line that a template cannot take is named, and the others are written") {
  const Folder folder;
  write(folder.file("chat.jinja"), "{{ messages | length }}");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  write(folder.file("bodies.jsonl"), R"({"messages": )" + deep + "}\n" +
                                         R"({"messages": [{"role": "user", "content": "x"}]})" +
                                         "\n{\n");
  const Result result = shell("sluice template --template " + folder.file("chat.jinja") + " " +
                              folder.file("bodies.jsonl"));
  CHECK(result.status == 1);
  CHECK(result.output == "1");
  CHECK(result.errors.find("line 1: the JSON of the line is more than") != std::string::npos);
  CHECK(result.errors.find("line 3: the line is not JSON") != std::string::npos);
}

TEST_CASE("a configuration file gives what the command line does not") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string config = folder.file("config.ini");
  write(config, "ctx = 64\n[run]\ntemp = 0\nquiet = true\ntokens-max = 6\n[bench]\nrepeat = 2\n");
  const std::string run = "sluice run " + model + " -p hello ";
  const Result result = shell(run + "--config " + config);
  CHECK(result.errors.empty());
  CHECK(result.output == shell(run + "--temp 0 -n 6").output);
  CHECK(shell(run + "-n 3 --config " + config).output == shell(run + "--temp 0 -n 3").output);
  write(config,
        "[run]  # 1\nprompt = \"say # 1\"  # \"2\"\nquiet = true # 3\n#temp = 1\ntemp = 0\n");
  const std::string bare = "sluice run " + model + " -n 6 ";
  CHECK(shell(bare + "--config " + config).output == shell(bare + "--temp 0 -p 'say # 1'").output);
  // What stands in the command's section goes before what holds for all, and a section that no
  // command has is a mistake.
  write(config, "\xef\xbb\xbftokens-max = 2\ntemp = 0\nquiet = true\n[run]\ntokens-max = 6\n");
  CHECK(shell(run + "--config " + config).output == shell(run + "--temp 0 -n 6").output);
  CHECK(shell(run + "-n 3 --config " + config).output == shell(run + "--temp 0 -n 3").output);
  for (const char* section : {"rnu", "run.more"}) {
    write(config, std::string("[") + section + "]\nquiet = true\n");
    check_fails(run + "--config " + config, 2, std::string("[") + section + "]");
  }
  const auto check_refused = [&](const std::string& text, const std::string& says) {
    write(config, text);
    check_fails(run + "--config " + config, 2, config + says);
  };
  check_refused("colour = red\n", ", line 1: sluice run has no option \"colour\"");
  check_refused("# temp = 1\n\n  temp = -4\n", ", line 3: --temp: \"-4\" is not a number");
  check_refused("ctx = 9\n[bench]\nctx = x\n[run]\nctx = y\n", ", line 5: --ctx: \"y\"");
  check_refused("quiet = maybe\n", ", line 1: quiet is true or false");
  check_refused("quiet = []\n", ", line 1: quiet has 0 values: give one");
  check_refused("quiet = [true, false]\n", ", line 1: quiet has 2 values: give one");
  check_refused("ctx = 8\nctx = 9\n", ", line 2: ctx has 2 values: give one");
  check_refused("system = Be brief\n", ", line 1: system has 2 values: give one, between quotes");
  check_refused("temp = 0\nctx = [64\n", ", line 2: the list has no \"]\" at its end");
  check_refused("ctx = [64  # bytes]\n[run]\nx = 1\n# ]\n", ", line 1: --ctx: ");
  check_refused("# ctx = [6\nh = true\n", ", line 2: sluice run has no option \"h\"");
  check_refused("temp = 0\n[rnu]\ntemp = 0\n", ", line 2: section [rnu]: there is no such command");
  check_fails(run + "--config " + folder.file("absent.ini"), 5, "absent.ini");
}

TEST_CASE("logits are complete or not there") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string output = folder.file("out.f32");
  REQUIRE(shell("sluice logits " + model + " --tokens 1,2,3 -o " + output).status == 0);
  const std::string three = content(output);
  REQUIRE(three.size() % (3 * sizeof(float)) == 0);
  REQUIRE(shell("sluice logits " + model + " --tokens 1,2 --force -o " + output).status == 0);
  CHECK(content(output).size() == three.size() / 3 * 2);
  CHECK(folder.file_count() == 2);
  check_fails("sluice logits " + model + " -q --tokens 1,99999999 -o " + folder.file("x"), 2,
              "99999999");
  CHECK(folder.file_count() == 2);
}

TEST_CASE("no model is written over, whatever its name") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string bytes = content(model);
  const std::string link = folder.file("link"), hard = folder.file("hard");
  fs::create_symlink(model, link);
  fs::create_hard_link(model, hard);
  for (const std::string& name : {model, link, hard}) {
    check_fails("sluice run " + model + " -q -p x -n 2 --report " + name, 2, "the model");
    check_fails("sluice bench " + model + " -q -p 2 -n 2 --report " + name, 2, "the model");
    check_fails("sluice logits " + model + " -q --tokens 1,2 -o " + name, 2, "the model");
    check_fails("sluice quantize " + model + " " + name + " --quant Q8_0", 2, "same file");
    CHECK(content(model) == bytes);
  }
}

TEST_CASE("a context beyond what the model was trained for is told") {
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("rows"), "{\"prompt\": \"x\", \"max_tokens\": 1}\n");
  const auto warns = [](const std::string& command) {
    const Result result = shell("sluice " + command);
    INFO(command << "\n" << result.errors);
    CHECK(result.status == 0);
    return result.errors.find("tokens that the model was trained for") != std::string::npos;
  };
  for (const std::string& command :
       std::vector<std::string>{"run " + model + " -p x -n 1", "plan " + model,
                                "chat " + model + " --chat-format chatml -p x -n 1",
                                "batch " + model + " " + folder.file("rows") + " -o -"}) {
    CHECK(warns(command + " --ctx 5000"));
    CHECK(!warns(command + " --ctx 5000 --quiet"));
    CHECK(warns(command + " --window 5000"));
    CHECK(!warns(command + " --ctx 5000 --window 64"));
    const Result both = shell("sluice " + command + " --ctx 5000 --window 64");
    CHECK(both.errors.find("a token sees the newest 64") != std::string::npos);
    CHECK(!warns(command + " --ctx 64"));
    CHECK(!warns(command));
  }
}

TEST_CASE("perplexity of a text, and what is too short for one") {
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("text"), "one two three four five six seven eight nine ten");
  const auto measure = [&](const std::string& options) {
    return nlohmann::json::parse(
        shell("sluice perplexity " + model + " -q --json -f " + folder.file("text") + options)
            .output);
  };
  const nlohmann::json whole = measure("");
  CHECK(whole["windows"] == 1);
  CHECK(whole["tokens_scored"].get<int>() == whole["window_tokens"].get<int>() - 1);
  CHECK(whole["perplexity"].get<double>() >= 1);
  const nlohmann::json cut = measure(" --ctx 8");
  CHECK(cut["windows"].get<int>() == whole["window_tokens"].get<int>() / 8);
  CHECK(cut["tokens_scored"].get<int>() == 3 * cut["windows"].get<int>());
  CHECK(measure(" --ctx 8 --windows 1")["windows"] == 1);
  write(folder.file("empty"), "");
  check_fails("sluice perplexity " + model + " -q -f " + folder.file("empty"), 2, "at least 2");
  check_fails("sluice perplexity " + model + " -q -f -", 2, "standard input has too little text");
}

TEST_CASE("bench and --report give the same fields") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string file = folder.file("report.json");
  const Result bench =
      shell("sluice bench " + model + " -q -p 8 -n 4 --repeat 2 --json --report " + file);
  REQUIRE(bench.status == 0);
  const nlohmann::json report = nlohmann::json::parse(bench.output);
  CHECK(report == nlohmann::json::parse(content(file)));
  for (const char* field :
       {"prefill_tokens_per_s", "decode_tokens_per_s", "parallel", "threads", "isa", "io",
        "bound_tokens_per_s", "dram_bytes_per_s", "disk_bytes_per_s", "int8_macs_per_s",
        "weights_bytes", "pinned_bytes", "streamed_bytes_per_step", "planned_peak_bytes",
        "measured_peak_bytes", "refaults"}) {
    INFO(field);
    CHECK(report.contains(field));
  }
  CHECK(report["context"] == 12);
  CHECK(report["decode_tokens_per_s_each"].size() == 2);
  CHECK(report["decode_tokens_per_s"].get<double>() > 0);
}

TEST_CASE("bench says whether its measurements come from a quiet moment, and how many it made") {
  const Folder folder;
  const Result bench = shell("sluice bench " + make_model(folder) + " -q -p 8 -n 4 --json");
  REQUIRE(bench.status == 0);
  const nlohmann::json report = nlohmann::json::parse(bench.output);
  const std::size_t repeats = report["decode_tokens_per_s_each"].size();
  CHECK(repeats >= 1);
  CHECK(repeats <= 6);
  CHECK(report["cpu_share_of_others_each"].size() == repeats);
  CHECK(report["is_quiet"].is_boolean());
  CHECK(report["decoded_tokens"].get<int>() == 4);
  CHECK(report["machine"]["is_slow_now"].is_boolean());
}

TEST_CASE("bench measures each prompt with each length, and prints them in several forms") {
  const Folder folder;
  const std::string bench = "sluice bench " + make_model(folder) + " -q -p 8,4 -n 2,3 --repeat 1 ";
  const Result json = shell(bench + "--format json");
  REQUIRE(json.status == 0);
  const nlohmann::json report = nlohmann::json::parse(json.output);
  REQUIRE(report["results"].size() == 4);
  std::vector<std::pair<int, int>> measured;
  for (const auto& result : report["results"]) {
    measured.emplace_back(result["prompt_tokens"].get<int>(),
                          result["generated_tokens"].get<int>());
    CHECK(result["prefill_tokens_per_s"].get<double>() > 0);
    CHECK(result["decode_tokens_per_s_each"].size() == 1);
  }
  CHECK(measured == std::vector<std::pair<int, int>>{{8, 2}, {8, 3}, {4, 2}, {4, 3}});
  CHECK(report["prompt_tokens"] == 8);
  CHECK(report["decode_tokens_per_s"] == report["results"][0]["decode_tokens_per_s"]);
  CHECK(report["context"] == 11);
  for (const char* name : {"cpu", "version", "date"}) {
    INFO(name);
    CHECK_FALSE(report[name].get<std::string>().empty());
  }
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::string csv = shell(bench + "--format csv").output;
  CHECK(lines(csv) == 5);
  CHECK(csv.starts_with("date,version,cpu,model,"));
  const std::string markdown = shell(bench + "--format md").output;
  CHECK(lines(markdown) == 2 + 4 + 2);
  CHECK(markdown.starts_with("| model |"));
  const std::string table = shell(bench).output;
  CHECK(table.find("decode of 3 behind 4") != std::string::npos);
  check_fails(bench + "--format yaml", 2, "yaml");
  check_fails(bench + "--format csv --json", 2, "excludes");
  check_fails("sluice bench m -p 0,x -n 1", 2, "x");
  check_fails("sluice bench m -p 0 -n 0,0", 2, "-p and -n");
}

TEST_CASE("an option that does nothing is not passed over in silence") {
  const Folder folder;
  const std::string model = make_model(folder);
  check_fails("sluice plan --hit-rate 0.5 " + model, 2, "--hit-rate: the model has no experts");
  for (const char* twice : {"6GiB --budget 4GiB", "disk=1GB/s --disk 2GB/s", "2cpu --threads 1",
                            "dram=1GB/s --dram 2GB/s"}) {
    check_fails("sluice plan m --for run," + std::string(twice), 2, "--for says it too");
  }
  for (const char* twice : {"run,serve", "4GiB,6GiB", "1cpu,2cpu", "avx2,scalar"}) {
    check_fails("sluice plan m --for " + std::string(twice), 2, "comes behind another of its kind");
  }
  check_fails("sluice synth tiny m --quant Q9", 2, "F32, and pure-X with the type X");
  check_fails("sluice plan m --table --budgets 1GiB --budget 2GiB", 2, "excludes");
  const std::string encoder = folder.file("bert.gguf"), recurrent = folder.file("rwkv.gguf");
  REQUIRE(shell("sluice synth tiny-bert " + encoder + "; sluice synth tiny-rwkv7 " + recurrent)
              .status == 0);
  for (const char* use : {"run", "chat", "batch"}) {
    check_fails("sluice plan " + encoder + " --for " + use, 2, "writes no text");
  }
  CHECK(shell("sluice plan " + encoder).status == 0);
  for (const std::string& command :
       {"plan " + encoder, "plan " + recurrent, "run " + recurrent + " -p x -n 1"}) {
    const Result done = shell("sluice " + command + " --kv f16");
    CHECK(done.status == 0);
    CHECK(done.errors.find("--kv is of no use") != std::string::npos);
  }
  for (const char* command : {"plan", "run --raw -p x -n 1"}) {
    const Result done = shell("sluice " + std::string(command) + " --window 9 -m " + recurrent);
    CHECK(done.status == 0);
    CHECK(done.errors.find("its texts only have no end") != std::string::npos);
  }
  check_fails("sluice serve m --data none --data-size 1GiB", 2, "keeps no files");
  check_fails("sluice serve m --unix s --host 0.0.0.0", 2, "needs a --port");
  check_fails("sluice embed m -f m --restart", 2, "give -o");
  check_fails("sluice batch m m -o - --restart", 2, "not -");
  check_fails("sluice perplexity " + model + " -f " + model + " --window 8 --windows 2", 2,
              "--windows: with a --window");
  check_fails("sluice run m --prompt-tokens 1 --parse-special", 2, "excludes");
  check_fails("sluice run " + model + " --prompt-tokens 1 --chat", 2, "--chat, --system");
  check_fails("sluice logits " + model + " --tokens 1 -o -", 2, "name a file");
  for (const char* command :
       {"run --speculate off -p x -n 1", "bench -p 2 -n 1", "plan --speculate off"}) {
    const Result done = shell("sluice " + std::string(command) + " --draft-max 3 -m " + model);
    CHECK(done.status == 0);
    CHECK(done.errors.find("--draft-max is of no use") != std::string::npos);
    CHECK(shell("sluice " + std::string(command) + " -q --draft-max 3 -m " + model).errors.empty());
  }
  const std::string run = "sluice run " + model + " -q -p x -n 1 --temp 0 ";
  CHECK(shell(run + "--draft-max 3").status == 0);
  check_fails(run + "--trace-experts " + folder.file("trace"), 2, "has no experts");
  CHECK_FALSE(fs::exists(folder.file("trace")));
}

TEST_CASE("the experts of a run are reported, and traced token by token") {
  const Folder folder;
  const std::string model = folder.file("model.gguf"), trace = folder.file("trace");
  REQUIRE(shell("sluice synth tiny-qwen3moe " + model).status == 0);
  const Result bench =
      shell("sluice bench " + model + " -q -p 8 -n 4 --repeat 1 --json --trace-experts " + trace);
  REQUIRE(bench.status == 0);
  const nlohmann::json report = nlohmann::json::parse(bench.output);
  CHECK(report["expert_hit_rate"] == 1);  // all of them fit
  CHECK(report["expert_hit_rate_by_layer"].size() == 3);
  CHECK(report["expert_bytes_read_per_token"] == 0);
  CHECK(report["expert_stall_seconds"] == 0);
  CHECK(report["expert_cache_bytes"].get<double>() > 0);
  std::istringstream lines(content(trace));
  std::string line;
  std::getline(lines, line);
  CHECK(line == "sluice experts 1");
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::size_t group = 0, experts = 0;
    char colon = 0;
    std::set<std::size_t> chosen;
    words >> group >> experts >> colon;
    for (std::size_t expert = 0; words >> expert;) chosen.insert(expert);
    INFO(line);
    CHECK((group < 3 && experts == 8 && colon == ':' && chosen.size() == 3));
    CHECK(*chosen.rbegin() < experts);
  }
  CHECK(count == 3 * (1 + 8 + 4));  // one token warms up
  check_fails("sluice bench " + model + " -q -p 1 -n 1 --trace-experts " + model, 2, "model");
  // The text is right, but a trace that cannot be written is lost, in the middle as at the end.
  for (const std::size_t length : {1, 3000}) {
    const std::string run =
        "sluice run " + model + " -q --raw --seed 1 -n 9 --ctx 4096 -p " + std::string(length, 'x');
    const Result lost = shell(run + " --trace-experts /dev/full");
    CHECK(lost.status == 5);
    CHECK(is_one_line(lost.errors));
    CHECK(lost.errors.find("/dev/full") != std::string::npos);
    CHECK(lost.output == shell(run).output);
  }
}

TEST_CASE("a plan for a mixture depends on how many of its experts are found in memory") {
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  REQUIRE(shell("sluice synth small-moe " + model + " --header-only").status == 0);
  const auto plan = [&](const std::string& options) {
    return plan_of(model + " -q --ctx 64 " + options);
  };
  const std::string tight = " --budget " + std::to_string(is_sanitized ? 800 : 80) + "MiB ";
  if (!is_sanitized) {  // whose own memory is beyond any budget that would stream
    const nlohmann::json alike = plan(tight);
    CHECK(alike["expert_hit_rate"].get<double>() > 0.05);
    CHECK(alike["expert_hit_rate"].get<double>() < 0.95);
    CHECK(alike["predicted_decode_tokens_per_s_without_hits"].get<double>() > 0);
    for (const double rate : {0.0, 1.0}) {
      CHECK(plan(tight + "--hit-rate " + std::to_string(rate))["expert_hit_rate"] == rate);
    }
  }
  CHECK_FALSE(plan("").contains("expert_hit_rate"));
  check_fails("sluice plan " + model + " --hit-rate 2", 2, "--hit-rate");
}

TEST_CASE("the first megabytes of a download say what the model is") {
  const Folder folder;
  const std::string model = folder.file("whole.gguf"), part = folder.file("part.gguf");
  REQUIRE(shell("sluice synth small-moe " + model).status == 0);
  const auto bytes = static_cast<std::uint64_t>(fs::file_size(model));
  REQUIRE(shell("head -c " + std::to_string(bytes / 2) + " " + model + " > " + part).status == 0);
  auto whole = nlohmann::json::parse(shell("sluice inspect " + model + " --json").output);
  auto first = nlohmann::json::parse(shell("sluice inspect " + part + " --json").output);
  CHECK(whole["missing_bytes"] == 0);
  CHECK(first["missing_bytes"].get<std::uint64_t>() == bytes - bytes / 2);
  CHECK(first["runs_here"] == true);
  for (const char* same : {"architecture", "parameters", "types", "metadata", "tensors"}) {
    INFO(same);
    CHECK(whole[same] == first[same]);
  }
  const std::string both = "sluice plan --table --json --budgets 1GiB --ctx 64 ";
  const auto table = nlohmann::json::parse(shell(both + model + " " + part).output);
  REQUIRE(table["files"].size() == 2);
  for (const auto& file : table["files"]) CHECK(file["bytes"].get<std::uint64_t>() == bytes);
  CHECK(table["files"][0]["missing_bytes"] == 0);
  CHECK(table["files"][1]["missing_bytes"] == first["missing_bytes"]);
  const std::string lines = shell("sluice plan --table --budgets 1GiB --ctx 64 " + part).output;
  CHECK(lines.find("part.gguf is planned as it will be: ") != std::string::npos);
  const Result text = shell("sluice inspect " + part);
  CHECK(text.status == 0);
  CHECK(text.output.find("the rest has not come yet") != std::string::npos);
  CHECK(text.output.find("yes, when the file is complete") != std::string::npos);
  CHECK(shell("sluice plan " + part + " --ctx 64").status == 0);
  check_fails("sluice run " + part + " -p x", 3, "cut short");
}

TEST_CASE("a plan says what is needed, for whom, and on which machine") {
  if (is_sanitized) SLUICE_SKIP("its own memory is beyond any budget that would stream");
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  REQUIRE(shell("sluice synth small-moe " + model + " --header-only").status == 0);
  const auto plan = [&](const std::string& options) { return plan_of(model + " " + options); };
  constexpr double disk = 1e8, dram = 2e9;
  const nlohmann::json slow = plan("--ctx 64 --budget 80MiB --disk 0.1GB/s --dram 2GB/s");
  CHECK(slow["disk_bytes_per_s"].get<double>() == disk);
  CHECK(slow["dram_bytes_per_s"].get<double>() == dram);
  const double streamed = slow["streamed_bytes_per_step"].get<double>();
  REQUIRE(streamed > 0);
  CHECK(slow["bound_tokens_per_s"].get<double>() <= disk / streamed * 1.01);
  CHECK(slow["predicted_decode_tokens_per_s"].get<double>() <= disk / streamed * 1.01);
  CHECK(slow["predicted_decode_tokens_per_s_without_hits"].get<double>() <=
        slow["predicted_decode_tokens_per_s"].get<double>());
  CHECK(slow["predicted_prefill_tokens_per_s"].get<double>() > 0);
  CHECK(slow["predicted_first_token"]["prompt_tokens"] == 64);
  CHECK(slow["model_context"].get<int>() > 64);
  const nlohmann::json listed =
      plan("--ctx 64 --for run,80MiB,1cpu,disk=0.1GB/s,dram=2GB/s,int8=1M/s");
  CHECK(listed["int8_macs_per_s"].get<double>() == 1e6);
  CHECK(listed["bound"] == "compute");
  CHECK(listed["budget_bytes"] == slow["budget_bytes"]);
  CHECK(listed["disk_bytes_per_s"].get<double>() == disk);

  // With the budget that it names nothing is streamed, and with less something is.
  const auto whole = slow["budget_without_streaming_bytes"].get<std::uint64_t>();
  CHECK(plan("--ctx 64 --budget " + std::to_string(whole))["streamed_bytes_per_step"] == 0);
  CHECK(plan("--ctx 64 --budget " + std::to_string(whole * 9 / 10))["streamed_bytes_per_step"] !=
        0);
  // Of a small model a larger budget may stream more, since its chunks are longer.
  const std::string small = folder.file("small.gguf");
  REQUIRE(shell("sluice synth tiny " + small + " --header-only").status == 0);
  const auto plan_of_small = [&](std::uint64_t budget) {
    return plan_of(small + " --ctx 1000 --budget " + std::to_string(budget));
  };
  const std::uint64_t least_of_small = plan_of_small(1 << 30)["least_budget_bytes"];
  for (const std::uint64_t mib : {2, 3, 4}) {
    const nlohmann::json streaming = plan_of_small(least_of_small + (mib << 20));
    INFO(streaming);
    CHECK(plan_of_small(streaming["budget_without_streaming_bytes"])["streamed_bytes_per_step"] ==
          0);
  }

  const auto least = [&](const std::string& use) {
    return plan("--ctx 64 --for " + use)["least_budget_bytes"].get<std::uint64_t>();
  };
  CHECK(least("serve") > least("run"));
  CHECK(least("batch") > least("run"));
  for (const char* bad : {"--disk 3", "--disk fast", "--dram -1GB/s", "--for nobody",
                          "--for serve,disk=x", "--for int8=0G/s", "--disk 0GB/s"}) {
    check_fails("sluice plan " + model + " " + bad, 2);
  }
}

TEST_CASE("the least budget of a plan for run is enough for run") {
  if (is_sanitized) SLUICE_SKIP("its own memory is larger than in a release");
  const Folder folder;
  const std::string model = make_model(folder), report = folder.file("report.json");
  const auto requests = [](const nlohmann::json& lines) {
    for (const nlohmann::json& line : lines) {
      if (line["name"] == "requests") return line["bytes"].get<std::uint64_t>();
    }
    return std::uint64_t{0};
  };
  // Also of the context that the plan chooses.
  const nlohmann::json chosen = plan_of(model + " --budget 1GiB");
  const std::string context = std::to_string(chosen["context"].get<std::uint64_t>());
  CHECK(requests(chosen["lines"]) ==
        requests(plan_of(model + " --budget 1GiB --ctx " + context)["lines"]));
  for (const char* options : {"--ctx 64", "--ctx 50000", "--ctx 50000 --speculate off",
                              "--ctx 2000 --speculate suffix"}) {
    INFO(options);
    const std::string rest = " " + model + " " + options + " -q";
    const nlohmann::json planned = plan_of(rest);
    const auto least = planned["least_budget_bytes"].get<std::uint64_t>();
    constexpr std::uint64_t scatter = 2 << 20;  // between the code and heap of two processes
    const Result run = shell("sluice run -p x -n 2 --force --report " + report + rest +
                             " --budget " + std::to_string(least + scatter));
    INFO(run.errors);
    CHECK(run.status == 0);
    const nlohmann::json told = nlohmann::json::parse(content(report));
    CHECK(requests(told["plan"]) >= requests(planned["lines"]));
    CHECK(requests(told["plan"]) <= requests(planned["lines"]) + 100);  // the copies of "x"
  }
}

TEST_CASE("a plan does not count a table as streamed of which rows are read") {
  if (is_sanitized) SLUICE_SKIP("its own memory is beyond any budget that would stream");
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  REQUIRE(shell("sluice synth qwen38-flash-next --layers 2 --header-only " + model).status == 0);
  const nlohmann::json planned =
      plan_of(model + " --ctx 64 --budget 2GiB --for run,1cpu,dram=10GB/s,int8=1000G/s,disk=1GB/s");
  // The table has 32 GiB. 64 tokens take a step, which reads the rest of the file at most.
  CHECK(planned["budget_without_streaming_bytes"].get<std::uint64_t>() < std::uint64_t{8} << 30);
  CHECK(planned["predicted_first_token"]["seconds"].get<double>() < 8);
}

TEST_CASE("a plan for another machine has the memory of that one") {
  const Folder folder;
  const std::string model = make_model(folder), encoder = folder.file("encoder.gguf");
  REQUIRE(shell("sluice synth tiny-bert " + encoder).status == 0);
  // Neither the budget nor these keys and values fit into any machine.
  constexpr std::uint64_t TiB = std::uint64_t{1} << 40;
  const std::string large = " --ctx 5000000 --parallel 200 --kv f32 --for run,100TiB";
  for (const std::string& given : {encoder + " --for embed,100TiB", model + large}) {
    const Result result = shell("sluice plan --json " + given);
    INFO(given << "\n" << result.errors);
    REQUIRE(result.status == 0);
    const nlohmann::json planned = nlohmann::json::parse(result.output);
    CHECK(planned["budget_bytes"].get<std::uint64_t>() == 100 * TiB);
    CHECK(planned["budget_source"] == "--for");
    CHECK(result.errors.find("this machine") == std::string::npos);
  }
  // So have the columns of a table.
  const Result table = shell("sluice plan --table --json --budgets 1GiB,100TiB " + model +
                             " --ctx 5000000 --parallel 200 --kv f32");
  INFO(table.errors);
  REQUIRE(table.status == 0);
  const nlohmann::json json = nlohmann::json::parse(table.output);
  const nlohmann::json& columns = json["files"][0]["budgets"];
  CHECK(columns[0]["fits"] == false);
  CHECK(columns[1]["fits"] == true);
}

TEST_CASE("a plan for another machine has the threads of that one") {
  if (is_sanitized) SLUICE_SKIP("its own memory is beyond any budget that would stream");
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  REQUIRE(shell("sluice synth small-moe " + model + " --header-only").status == 0);
  const auto run = [&](const std::string& machine) {
    Result result =
        shell("sluice plan " + model + " --json --ctx 64 --budget 2GiB --for " + machine);
    INFO(machine << "\n" << result.errors);
    REQUIRE(result.status == 0);
    return result;
  };
  const auto plan = [&](const std::string& machine) {
    return nlohmann::json::parse(run(machine).output);
  };
  const auto bytes = [](const nlohmann::json& planned, const std::string& name) {
    for (const nlohmann::json& line : planned["lines"]) {
      if (line["name"] == name) return line["bytes"].get<std::uint64_t>();
    }
    return std::uint64_t{0};
  };
  // Whatever this machine has, one of 500 CPUs has more.
  const std::string rates = ",dram=50GB/s,disk=1GB/s,int8=100G/s";
  const nlohmann::json one = plan("1cpu" + rates), many = plan("500cpu" + rates);
  REQUIRE(bytes(one, "thread stacks") > 0);
  CHECK(bytes(many, "thread stacks") == 500 * bytes(one, "thread stacks"));
  CHECK(bytes(many, "activations") > bytes(one, "activations"));
  CHECK(many["int8_macs_per_s"].get<double>() == 1e11);
  CHECK(many["dram_bytes_per_s"].get<double>() == 5e10);
  CHECK(many["predicted_decode_tokens_per_s"].get<double>() > 0);
  CHECK(many["made_from"]["earlier_runs"] == 0);
  CHECK(many["made_from"]["cpu_share_of_others"].get<double>() >= 0);
  CHECK(many["made_from"]["cpu_share_of_others"].get<double>() <= 1);
  // Its processors are like those here, and there are more of them.
  const double here = plan("1cpu,dram=50GB/s")["int8_macs_per_s"].get<double>();
  CHECK(plan("500cpu,dram=50GB/s")["int8_macs_per_s"].get<double>() > 1.5 * here);

  for (const std::string isa : {"scalar", "avx2", "avx512", "amx", "neon", "i8mm"}) {
    const auto own = run("1cpu," + isa);
    const bool is_here = own.errors.find("has no such instruction set") == std::string::npos;
    CHECK(is_here == (shell("SLUICE_ISA=" + isa + " sluice machine").status == 0));
    CHECK(run("1cpu," + isa + ",int8=1G/s").errors.find("instruction set") == std::string::npos);
  }
  check_fails("sluice plan " + model + " --for avx3", 2, "avx3");
}

TEST_CASE("no prediction is beyond its bound") {
  if (is_sanitized) SLUICE_SKIP("its own memory is beyond any budget that would stream");
  const Folder folder;
  for (const std::string shape : {"tiny", "small-moe"}) {
    const std::string model = folder.file(shape + ".gguf");
    REQUIRE(shell("sluice synth " + shape + " " + model).status == 0);
    for (const std::string options : {"", " --budget 80MiB", " --for dram=1GB/s,int8=1G/s"}) {
      INFO(shape << options);
      const nlohmann::json plan = plan_of(model + " --ctx 64" + options);
      const auto& range = plan["predicted_decode_tokens_per_s_range"];
      const double usual = plan["predicted_decode_tokens_per_s"].get<double>();
      CHECK(range["low"].get<double>() <= usual);
      CHECK(usual <= range["high"].get<double>());
      CHECK(range["high"].get<double>() <= plan["bound_tokens_per_s"].get<double>());
    }
  }
}

TEST_CASE("a table of plans has each file or quantisation, at each budget") {
  if (is_sanitized) SLUICE_SKIP("its own memory is beyond any budget that would stream");
  const Folder folder;
  const std::string models = folder.file("models");
  const std::string model = models + "/model.gguf", other = models + "/other-Q4_0.gguf";
  REQUIRE(shell("mkdir " + models).status == 0);
  REQUIRE(shell("sluice synth small-moe " + model + " --quant F16 --header-only").status == 0);
  REQUIRE(shell("sluice synth tiny " + other + " --quant Q4_0").status == 0);
  const auto table = [&](const std::string& options) {
    const Result result = shell("sluice plan --table --json --ctx 64 " + options);
    INFO(options << "\n" << result.errors);
    REQUIRE(result.status == 0);
    return nlohmann::json::parse(result.output)["files"];
  };
  // The second of the files is no model, and is left out with a warning.
  REQUIRE(shell("echo none > " + models + "/notes.gguf").status == 0);
  const nlohmann::json both = table(models + " --budgets 40MiB,80MiB,8GiB");
  REQUIRE(both.size() == 2);
  CHECK(both[0]["name"].get<std::string>() == "model.gguf");
  CHECK(both[0]["quant"].get<std::string>() == "F16");
  CHECK(both[1]["quant"].get<std::string>() == "Q4_0");
  CHECK(table(model + " " + other + " --budget 1GiB").size() == 2);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto is_choice = [&](const nlohmann::json& file) {
      return file["budgets"][i]["is_choice"].get<bool>();
    };
    const auto fits = [&](const nlohmann::json& file) {
      return file["budgets"][i]["fits"].get<bool>();
    };
    CHECK(std::ranges::count_if(both, is_choice) == (std::ranges::any_of(both, fits) ? 1 : 0));
  }
  for (const nlohmann::json& file : both) {
    REQUIRE(file["budgets"].size() == 3);
    for (const nlohmann::json& budget : file["budgets"]) {
      const bool fits = budget["fits"].get<bool>();
      CHECK(budget["predicted_decode_tokens_per_s"].is_null() == !fits);
      CHECK(budget["streamed_bytes_per_step"].is_null() == !fits);
    }
    CHECK(file["budgets"][2]["fits"].get<bool>());
    CHECK(file["budgets"][2]["streamed_bytes_per_step"].get<std::uint64_t>() == 0);
  }
  // Of one file there are its quantisations, too, with the sizes that they would have.
  const nlohmann::json all = table(other);
  REQUIRE(all.size() > 10);
  CHECK(all[0]["budgets"].size() == 4);
  // One that is larger has no more in it.
  for (const nlohmann::json& row : all) CHECK(row["bytes"] <= all[0]["bytes"]);
  for (const char* quant : {"Q2_K", "Q3_K_M"}) {
    const std::string made = folder.file(std::string(quant) + ".gguf");
    REQUIRE(shell("sluice quantize " + other + " " + made + " --quiet --quant " + quant).status ==
            0);
    const auto found = std::find_if(all.begin(), all.end(), [&](const nlohmann::json& row) {
      return row["quant"].get<std::string>() == quant;
    });
    REQUIRE(found != all.end());
    CHECK((*found)["bytes"].get<std::uint64_t>() == std::filesystem::file_size(made));
  }
  CHECK(shell("sluice plan --table " + models + " --ctx 64").output.find("other-Q4_0.gguf") !=
        std::string::npos);
  // No later shard, whatever its name reminds of.
  const std::string book = folder.file("book");
  fs::create_directory(book);
  fs::copy_file(model, book + "/heart-of-darkness.gguf");
  CHECK(shell("sluice plan --table " + book + " --ctx 64").output.find("heart-of-darkness") !=
        std::string::npos);
  check_fails("sluice plan " + model + " " + other, 2, "--table");
  check_fails("sluice plan " + model + " --budgets 1GiB", 2, "--table");
  check_fails("sluice plan --table " + models + " --budgets 1XB", 2);
  const Result none = shell("sluice plan --table " + models + " --budgets 1MiB,2MiB -q");
  CHECK(none.status == 4);
  CHECK(none.errors.find("none of the files fits a budget of 2.00 MiB") != std::string::npos);
  REQUIRE(shell("mkdir " + folder.file("text") + "; cp " + models + "/notes.gguf " +
                folder.file("text"))
              .status == 0);
  check_fails("sluice plan --table " + folder.file("text"), 3, "notes.gguf");
  check_fails("sluice plan --table " + folder.file("nothing.gguf"), 5);
}

TEST_CASE("synth writes as many layers of a shape as are asked for, if they make a model") {
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  for (const auto& [shape, least] : {std::pair("qwen38-flash-next", 2), std::pair("yi-9b", 1),
                                     std::pair("gemma4-e2b", 25), std::pair("glm-4.5-air", 2)}) {
    const std::string synth =
        std::string("sluice synth --header-only --force ") + shape + " " + model + " --layers ";
    INFO(shape);
    REQUIRE(shell(synth + std::to_string(least)).status == 0);
    const Result inspected = shell("sluice inspect " + model);
    CHECK(inspected.output.find("runs here     yes") != std::string::npos);
    check_fails(synth + std::to_string(least - 1), 2, "--layers");
    check_fails(synth + "49", 2, "--layers");
  }
}

TEST_CASE("synth adds a block that predicts tokens where the architecture has one") {
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  REQUIRE(shell("sluice synth tiny-qwen35 " + model + " --predictor --header-only").status == 0);
  CHECK(shell("sluice inspect " + model).output.find("is used for guesses") != std::string::npos);
  check_fails("sluice synth tiny-llama " + folder.file("other.gguf") + " --predictor", 2, "llama");
}

TEST_CASE("a plan names the tables that stay on the disk, and what of them a token reads") {
  const Folder folder;
  const auto tables = [&](const std::string& shape) {
    const std::string model = folder.file(shape + ".gguf");
    REQUIRE(shell("sluice synth --quant Q8_0 --header-only " + shape + " " + model).status == 0);
    const std::string text = shell("sluice plan --ctx 32 " + model).output;
    const Result result = shell("sluice plan --ctx 32 --json " + model);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    nlohmann::json found = nlohmann::json::parse(result.output)["tables_on_disk"];
    for (const nlohmann::json& table : found) {
      CHECK(text.find(table["name"].get<std::string>() + ": ") != std::string::npos);
    }
    return found;
  };
  const nlohmann::json of_ngrams = tables("tiny-qwen4exp");
  REQUIRE(of_ngrams.size() == 2);
  CHECK(of_ngrams[0]["name"].get<std::string>() == "token_embd.weight");
  CHECK(of_ngrams[0]["rows_per_token"].get<int>() == 1);
  const nlohmann::json& ngrams = of_ngrams[1];
  CHECK(ngrams["name"].get<std::string>() == "per_layer_token_embd.weight");
  CHECK(ngrams["rows_per_token"].get<int>() == 8);
  // 34 bytes of Q8_0 are 32 numbers.
  const auto row_bytes = ngrams["row_bytes"].get<std::uint64_t>();
  CHECK(ngrams["bytes"].get<std::uint64_t>() % row_bytes == 0);
  CHECK(ngrams["held_bytes"].get<std::uint64_t>() == 32 * 8 * (row_bytes / 34 * 32) * 4);
  // The head is the table of embeddings, which is pinned or streamed as other matrices are.
  CHECK(tables("tiny-gemma3").empty());
  CHECK(tables("tiny-gemma4").size() == 1);
}

TEST_CASE("plans and runs keep what they measure, and a plan has a range made from it") {
  const Folder folder;
  const std::string state =
      "SLUICE_QUICK_MEASURES=1 XDG_STATE_HOME='" + folder.file("state") + "' ";
  const std::string model = make_model(folder),
                    file = folder.file("state") + "/sluice/machine-quick.json";
  const auto plan = [&] {
    const Result result = shell(state + "sluice plan " + model + " --ctx 64 --json");
    INFO(result.errors);
    REQUIRE(result.status == 0);
    CHECK(result.errors.empty());
    return nlohmann::json::parse(result.output);
  };
  for (int measurements = 1; measurements <= 3; ++measurements) {
    const nlohmann::json json = plan();
    const auto& range = json["predicted_decode_tokens_per_s_range"];
    const auto predicted = json["predicted_decode_tokens_per_s"].get<double>();
    CHECK(range["low"].get<double>() < predicted);
    CHECK(predicted < range["high"].get<double>());
    const auto& from = json["made_from"];
    CHECK(from["measurements"].get<int>() == measurements);
    CHECK(from["earlier_runs"].get<int>() == 0);
    CHECK(from["first"].get<std::string>() <= from["last"].get<std::string>());
    for (const char* name : {"dram_bytes_per_s", "int8_macs_per_s", "disk_bytes_per_s"}) {
      INFO(name);
      CHECK(from[name]["low"].get<double>() > 0);
      CHECK(from[name]["low"].get<double>() <= from[name]["usual"].get<double>());
      CHECK(from[name]["usual"].get<double>() <= from[name]["high"].get<double>());
      CHECK(json[name].get<double>() == from[name]["high"].get<double>());
    }
  }
  CHECK(shell(state + "sluice bench " + model + " -q -p 0 -n 4 --ctx 64").status == 0);
  CHECK(plan()["made_from"]["earlier_runs"].get<int>() == 1);

  write(file, "{\"version\":");
  CHECK(plan()["made_from"]["measurements"].get<int>() == 1);
  // What plans of real runs are made from has none of these.
  CHECK_FALSE(std::filesystem::exists(folder.file("state") + "/sluice/machine.json"));
}

TEST_CASE("a plan is made where nothing can be kept") {
  const Folder folder;
  write(folder.file("file"), "x");
  const std::string plan = " sluice plan " + make_model(folder) + " --ctx 64 ";
  const Result nowhere = shell("XDG_STATE_HOME='" + folder.file("file") + "'" + plan);
  CHECK(nowhere.status == 0);
  CHECK(nowhere.errors.find("warning: the profile of this machine") != std::string::npos);
  CHECK(nowhere.output.find("made from one measurement of this machine") != std::string::npos);
  const Result homeless = shell("unset XDG_STATE_HOME HOME;" + plan);
  CHECK(homeless.status == 0);
  CHECK(homeless.errors.empty());
}

TEST_CASE("a plan in words names the least budget, prompts and remedies") {
  const Folder folder;
  const std::string plan = "sluice plan " + make_model(folder) + " --ctx 64 ";
  const Result fits = shell(plan + "--report " + folder.file("report"));
  CHECK(fits.status == 0);
  for (const char* part : {"fits for run, with a context of 64 tokens (the model was trained for",
                           "prompts: about ", "the first token behind 64 tokens comes after ",
                           "least budget: ", "nothing is streamed from "}) {
    INFO(part);
    CHECK(fits.output.find(part) != std::string::npos);
  }
  CHECK(nlohmann::json::parse(content(folder.file("report")))["fits"] == true);
  const Result not_so = shell(plan + "--budget 1MiB");
  CHECK(not_so.status == 4);
  CHECK(is_one_line(not_so.errors));
  CHECK(not_so.errors.find("raise --budget, or lower --ctx") != std::string::npos);
  CHECK(not_so.output.find("fit") == std::string::npos);
}

// The program is stopped where it surely is: writing to a pipe that no one reads, or about to.
TEST_CASE("a signal ends a run cleanly with the status that shells give it") {
  const Folder folder;
  const std::string model = make_model(folder);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::signal(signal, SIG_DFL);  // it may be ignored here, and would then stay so
      ::dup2(pipe[1], STDOUT_FILENO);
      ::close(pipe[0]);
      ::close(pipe[1]);
      const std::vector<const char*> arguments{
          program.c_str(), "run", model.c_str(), "-q",    "-p",   "hello", "-n", "-1",
          "--temp",        "0",   "--ctx",       "60000", nullptr};
      ::execv(program.c_str(), const_cast<char* const*>(arguments.data()));
      ::_exit(99);
    }
    ::close(pipe[1]);
    char byte = 0;
    CHECK(::read(pipe[0], &byte, 1) == 1);  // it generates
    ::kill(child, signal);
    std::array<char, 4096> rest{};
    while (::read(pipe[0], rest.data(), rest.size()) > 0) {
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(pipe[0]);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + signal);
  }
}

TEST_CASE("a file may not grow further: an error of writing, and nothing unfinished is left") {
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("text"), std::string(4000, 'a'));
  const std::size_t files = folder.file_count();
  // As a shell's limit is by default: what exceeds it gets SIGXFSZ.
  const std::string limited = "ulimit -f 1; ";
  const std::string out = folder.file("out");
  check_fails(limited + "sluice synth tiny " + out, 5, "File too large");
  check_fails(limited + "sluice quantize " + model + " -q " + out + " --quant Q4_0", 5,
              "File too large");
  check_fails(limited + "sluice logits " + model + " -q --tokens 1,2,3 -o " + out, 5,
              "File too large");
  check_fails(limited + "sluice imatrix " + model + " -q -f " + folder.file("text") + " -o " + out,
              5, "File too large");
  check_fails(limited + "sluice bench " + model + " -q -p 2 -n 2 >/dev/null --report " + out, 5,
              "File too large");
  CHECK(folder.file_count() == files);
  check_fails(limited + "sluice run " + model + " -q -p x -n 2000 --temp 0 >" + out, 5,
              "standard output");
}

TEST_CASE("where shared memory is full, run, batch and serve go on without a status") {
  const std::string full =
      "unshare -m sh -c 'mount -t tmpfs -o size=4k none /dev/shm && "
      "head -c 4096 /dev/zero >/dev/shm/full && ! dd if=/dev/zero of=/dev/shm/more count=1 2>&- "
      "&& ";
  if (shell(full + "true'").status != 0) SLUICE_SKIP("a full /dev/shm needs root");
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("in"), "{\"prompt\":\"x\",\"max_tokens\":1}\n");
  const std::string out = folder.file("out"), log = folder.file("log");
  // serve is told to end when it is ready.
  for (const std::string& command :
       {program + " run " + model + " -p x -n 2",
        program + " batch " + model + " " + folder.file("in") + " -o " + out,
        "(" + program + " serve " + model + " --port 0 --data " + folder.file("data") + " 2>" +
            log + " & until grep -q shared " + log +
            " || ! kill -0 $!; do sleep 0.05; done; kill $!; wait $!; cat " + log + " >&2)"}) {
    const Result result = shell(full + command + "'");
    INFO(command << "\n" << result.errors);
    CHECK(result.status == 0);
    CHECK(result.errors.find("no shared memory") != std::string::npos);
    CHECK(result.errors.find("No space left") != std::string::npos);
  }
}

TEST_CASE("a terminal that is gone leaves nothing unfinished") {
  const Folder folder;
  const std::string model = make_model(folder);
  std::string tokens = "1";
  for (int i = 0; i < 30'000; ++i) tokens += ",2";  // far more than a moment's work
  const Result result = shell("cd " + folder.path().string() + "; (exec '" + program + "' logits " +
                              model + " -q --tokens " + tokens + " -o out) & " +
                              "until ls out.* >/dev/null 2>&1 || ! kill -0 $!; do :; done; " +
                              "kill -HUP $!; wait $!; echo $? >&2");
  CHECK(result.errors == "129\n");
  CHECK(folder.file_count() == 1);
}

TEST_CASE("a window has no end, and the plan shows what it keeps") {
  const Folder folder;
  const std::string model = make_model(folder);
  const auto plan = [&](const std::string& options) { return plan_of(model + " " + options); };
  const auto cache_bytes = [](const nlohmann::json& json) {
    for (const auto& line : json["lines"]) {
      if (line["name"] == "keys and values") return line["bytes"].get<std::uint64_t>();
    }
    return std::uint64_t{0};
  };
  const auto whole = plan("--ctx 4096"), eight = plan("--ctx 4096 --kv f16");
  CHECK(whole["parallel"] == 1);
  CHECK(whole["window"] == 0);
  CHECK(cache_bytes(whole) > 0);
  CHECK(cache_bytes(eight) > 3 * cache_bytes(whole) / 2);
  CHECK(cache_bytes(plan("--ctx 4096 --parallel 3")) == 3 * cache_bytes(whole));
  const auto windowed = plan("--window 64");
  CHECK(windowed["window"] == 64);
  CHECK(windowed["sinks"] == 4);
  CHECK(cache_bytes(windowed) < cache_bytes(whole) / 16);
  CHECK(plan("--window 3")["sinks"] == 2);  // one position must be left for the token itself

  const Result bench =
      shell("sluice bench " + model + " -p 30 -n 60 --repeat 1 --window 16 --json --quiet");
  CHECK(bench.status == 0);
  CHECK(nlohmann::json::parse(bench.output)["generated_tokens"] == 60);
  check_fails("sluice plan " + model + " --sinks 3", 2, "--window");
  check_fails("sluice plan " + model + " --window 8 --sinks 8", 2, "--sinks");
  check_fails("sluice plan " + model + " --window 0", 2, "--window");
  check_fails("sluice plan " + model + " --kv q8_0", 2, "int8 or f16 or f32");
}
