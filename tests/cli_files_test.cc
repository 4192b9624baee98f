// What commands make of files that exist, and of what is piped into them.
#include <vector>

#include "tests/program.h"

using namespace sluice::test;

TEST_CASE("what exists is replaced only when that is asked for") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string moe = folder.file("moe.gguf");
  REQUIRE(shell("sluice synth tiny-qwen3moe " + moe).status == 0);
  write(folder.file("text"), "one two three four five six seven");
  const std::string precious = folder.file("precious");
  const std::string words = "{\"this\": \"is no report\"}\n";
  const std::size_t files = folder.file_count();
  for (const std::string& command : std::vector<std::string>{
           "synth tiny " + precious, "synth tiny --header-only " + precious,
           "quantize -q " + model + " " + precious + " --quant Q8_0",
           "imatrix " + model + " -q -f " + folder.file("text") + " -o " + precious,
           "logits " + model + " -q --tokens 1,2 -o " + precious,
           "run " + model + " -q -p x -n 1 --report " + precious,
           "chat " + model + " --chat-format chatml -q -p x -n 1 --report " + precious,
           "bench " + model + " -q -p 2 -n 2 --report " + precious,
           "perplexity " + model + " -q -f " + folder.file("text") + " --report " + precious,
           "plan " + model + " -q --budget 1GiB --report " + precious,
           "plan " + model + " -q --table --budgets 1GiB --report " + precious,
           "run " + moe + " -q -p x -n 1 --trace-experts " + precious}) {
    write(precious, words);
    check_fails("sluice " + command, 2, "precious exists: give --force");
    CHECK(content(precious) == words);
    CHECK(shell("sluice " + command + " --force").status == 0);
    CHECK(content(precious) != words);
    CHECK(folder.file_count() == files + 1);
  }
  // A batch finds out before it writes anything.
  write(folder.file("rows"), "{\"prompt\": \"x\", \"max_tokens\": 1}\n");
  const std::string batch = "sluice batch " + model + " " + folder.file("rows") + " -q -o " +
                            folder.file("results") + " --report " + precious;
  write(precious, words);
  check_fails(batch, 2, "precious exists: give --force");
  CHECK(content(precious) == words);
  CHECK_FALSE(fs::exists(folder.file("results")));
  CHECK(shell(batch + " --force").status == 0);
  CHECK(shell(batch).status == 0);
  // A command that measures, or is gone on with, replaces what it has written.
  for (const std::string& command :
       {"run " + moe + " -q -p x -n 1 --report " + folder.file("report"),
        "plan " + model + " -q --budget 1GiB --report " + folder.file("report"),
        "plan " + model + " -q --table --budgets 1GiB --report " + folder.file("report"),
        "run " + moe + " -q -p x -n 1 --trace-experts " + folder.file("trace")}) {
    for (int i = 0; i < 2; ++i) CHECK(shell("sluice " + command).status == 0);
  }
  CHECK(shell("sluice logits " + model + " -q --tokens 1 -o /dev/stdout").status == 0);
}

// 5 where reading or writing fails, 2 where the user has to name something else.
TEST_CASE("the same failure has the same status in every command") {
  const Folder folder;
  const std::string model = make_model(folder), encoder = folder.file("e.gguf"),
                    scores = folder.file("s.gguf"), rows = folder.file("rows.jsonl"),
                    text = folder.file("text"), out = folder.file("out");
  REQUIRE(shell("sluice synth tiny-bert " + encoder).status == 0);
  REQUIRE(shell("sluice synth tiny-bert-scores " + scores).status == 0);
  write(text, "the water and the night\n");
  write(rows, "{\"prompt\": \"a\", \"max_tokens\": 1}\n");
  std::string parts;
  for (const std::string part : {"1", "2"}) {
    const std::string path = folder.file("part-" + part);
    REQUIRE(shell("sluice batch " + model + " " + rows + " -q --parallel 1 -o " + path +
                  " --shard " + part + "/2")
                .status == 0);
    parts += " " + path;
  }
  const std::string batch = "sluice batch " + model + " ", embed = "sluice embed " + encoder,
                    merge = "sluice merge", quantize = "sluice quantize ",
                    imatrix = "sluice imatrix " + model, type = " --quant Q4_K_M";
  fs::create_directory(folder.file("folder"));
  for (const std::string& to : {folder.file("folder"), folder.file("none/out")}) {
    check_fails(batch + rows + " -q -o " + to, 5, "cannot write " + to);
    check_fails(embed + " -q -f " + text + " -o " + to, 5, "cannot write " + to);
    check_fails(merge + parts + " -o " + to, 5, "cannot write " + to);
    check_fails(quantize + model + " " + to + type, 5, "cannot write " + to);
    check_fails(imatrix + " -q -f " + text + " -o " + to, 5, "cannot write " + to);
    check_fails("sluice import " + folder.file("folder") + " " + to, 5, "cannot write " + to);
    check_fails("sluice synth tiny " + to, 5, "cannot write " + to);
    check_fails("sluice logits " + model + " -q --tokens 1,2 -o " + to, 5, "cannot write " + to);
  }
  for (const std::string& from : {folder.file("none"), folder.file("none/in")}) {
    check_fails(batch + from + " -q -o " + out, 5, from);
    check_fails(embed + " -q -f " + from + " -o " + out, 5, from);
    check_fails("sluice rerank " + scores + " -q --query x -f " + from, 5, from);
    check_fails(merge + parts + " " + from + " -o " + out, 5, from);
    check_fails(quantize + from + " " + out + type, 5, from);
    check_fails(quantize + model + " " + out + type + " --imatrix " + from, 5, from);
    check_fails(quantize + model + " " + out + type + " --tensor-types " + from, 5, from);
    check_fails(imatrix + " -q -f " + from + " -o " + out, 5, from);
    check_fails("sluice import " + from + " " + out, 5, from);
    check_fails("sluice run " + model + " -q -f " + from, 5, from);
    check_fails("sluice perplexity " + model + " -q -f " + from, 5, from);
  }
  for (const std::string& command :
       {quantize + model + " " + out, "sluice import " + folder.file("folder") + " " + out}) {
    check_fails(command + " --quant Q99", 2, "unknown quantisation 'Q99'; known: ");
  }
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("an output without a name is refused as such") {
  const Folder folder;
  const std::string model = make_model(folder);
  check_fails("sluice quantize " + model + " '' --quant Q8_0 --force", 2, "name of the output");
  check_fails("sluice synth tiny ''", 2, "name of the output");
  check_fails("sluice embed " + model + " -f x -o ''", 2, "name of the output");
  // A folder is no file, which is found before a run and not behind it.
  for (const std::string& command :
       {"run " + model + " -p x -n 1 --report " + folder.path().string(),
        "synth tiny " + folder.path().string() + " --force"}) {
    const Result result = shell("sluice " + command);
    CHECK(result.status == 5);
    CHECK(result.output.empty());
    CHECK(result.errors.find("Is a directory") != std::string::npos);
  }
}

TEST_CASE("a file that is written to a pipe has no report behind it") {
  const Folder folder;
  const std::string model = make_model(folder);
  write(folder.file("text"), "one two three four five six seven");
  const std::string expected = folder.file("expected"), piped = folder.file("piped");
  for (const auto& [command, option] : std::vector<std::pair<std::string, std::string>>{
           {"synth tiny ", ""},
           {"quantize -q --quant Q8_0 " + model + " ", ""},
           {"imatrix " + model + " -q -f " + folder.file("text"), " -o "}}) {
    INFO(command);
    const std::string start = "sluice " + command + option;
    CHECK(shell(start + expected + " --force").status == 0);
    CHECK(shell(start + "/dev/stdout 2>" + folder.file("said") + " | cat >" + piped).status == 0);
    CHECK(content(piped) == content(expected));
    CHECK(content(folder.file("said")).starts_with("/dev/stdout: "));
  }
}

TEST_CASE("a file whose reader goes away is an error, standard output without one is none") {
  const Folder folder;
  const std::string model = make_model(folder), fifo = folder.file("fifo");
  REQUIRE(shell("mkfifo " + fifo).status == 0);
  std::string tokens = "1";
  for (int i = 0; i < 400; ++i) tokens += ",1";
  const std::string logits = "sluice logits " + model + " -q --tokens " + tokens + " -o ";
  const Result lost =
      shell("head -c 10 " + fifo + " >" + folder.file("front") + " & " + logits + fifo);
  CHECK(lost.status == 5);
  CHECK(lost.errors.find(fifo) != std::string::npos);
  write(folder.file("text"), std::string(1'000'000, '7'));
  const Result read = shell("{ sluice tokenize " + model + " -f " + folder.file("text") +
                            "; echo $? >&2; } | head -c 1");
  CHECK(read.errors == "0\n");
}

TEST_CASE("measurements never go over what a command reads or writes") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string moe = folder.file("moe.gguf");
  REQUIRE(shell("sluice synth tiny-qwen3moe " + moe).status == 0);
  const std::string words = "one two three four five six seven\n";
  const std::string used = folder.file("used"), other = folder.file("other");
  const std::string text = folder.file("text"), vectors = folder.file("out.jsonl");
  write(text, words);
  fs::create_hard_link(text, folder.file("link"));
  const std::vector<std::pair<std::string, std::string>> commands_and_reports = {
      {"logits " + model + " --tokens 1,2 -o " + used, used},
      {"logits " + model + " --tokens 1,2 -o " + used, folder.file("./used")},
      {"imatrix " + model + " -f " + text + " -o " + used, used},
      {"imatrix " + model + " -f " + text + " -o " + other, text},
      {"embed " + model + " -f " + text + " -o " + vectors, vectors},
      {"embed " + model + " -f " + text + " -o " + vectors, vectors + ".state"},
      {"embed " + model + " -f " + text + " -o " + vectors, text},
      {"perplexity " + model + " -f " + text, folder.file("link")},
      {"rerank " + model + " --query x -f " + text, text},
      {"run " + model + " -n 1 -f " + text, text},
      {"run " + moe + " -n 1 -p x --trace-experts " + used, used},
  };
  const std::size_t files = folder.file_count();
  for (const auto& [command, report] : commands_and_reports) {
    for (const char* sandbox : {"auto", "off"}) {
      check_fails("sluice " + command + " -q --force --report " + report + " --sandbox " + sandbox,
                  2, "is the same file as");
    }
    CHECK(content(text) == words);
    CHECK(folder.file_count() == files);
  }
  for (const std::string& table : {model, folder.path().string()}) {
    check_fails("sluice plan --table " + table + " -q --force --report " + model, 2, "the model");
  }
  check_fails("sluice run " + moe + " -q --force -n 1 -f " + text + " --trace-experts " + text, 2,
              "is the same file as");
  CHECK(shell("sluice logits " + model + " -q --tokens 1,2 -o " + used + " --report " + other)
            .status == 0);
  check_fails("sluice plan " + model + " -q --report " + model, 2, "is the same file as");
  CHECK(shell("sluice plan " + model + " -q --report /dev/null").status == 0);
  CHECK(shell("sluice logits " + model + " -q --tokens 1 -o /dev/null --report /dev/null").status ==
        0);
}

TEST_CASE("no file of a checkpoint is replaced by what is made of it") {
  const Folder folder;
  for (const char* name : {"config.json", "vocab.txt", "tokenizer.model", "old.gguf"}) {
    write(folder.file(name), "{}");
  }
  const std::string import = "sluice import " + folder.path().string() + " --force -q ";
  for (const char* name : {"config.json", "vocab.txt", "tokenizer.model"}) {
    check_fails(import + folder.file(name), 2, "a file of the checkpoint");
  }
  check_fails(import + folder.file("old.gguf"), 3, "architectures");
}

TEST_CASE("what is piped in stands before the prompt") {
  const Folder folder;
  const std::string model = make_model(folder);
  const std::string run = "sluice run " + model + " -q -n 8 --temp 0 --ctx 400 ";
  const std::string chat =
      "sluice chat " + model + " --chat-format chatml -q -n 8 --temp 0 --ctx 400 ";
  write(folder.file("document"), "A long letter.\nIt has two lines.\n");
  for (const std::string& command : {run, chat}) {
    const std::string joined = "-p 'A long letter.\nIt has two lines.\n\nSummarise'";
    const std::string expected = shell(command + joined).output;
    CHECK(expected != shell(command + "-p Summarise").output);
    CHECK(shell("cat " + folder.file("document") + " | " + command + "-p Summarise").output ==
          expected);
    CHECK(shell(command + "-p Summarise <" + folder.file("document")).output == expected);
    CHECK(shell("(sleep 1; cat " + folder.file("document") + ") | " + command + "-p Summarise")
              .output == expected);
  }
  const std::string alone = shell(run + "-p Summarise").output;
  CHECK(shell("printf '' | " + run + "-p Summarise").output == alone);
  CHECK(shell(run + "-p Summarise <&-").output == alone);
  CHECK(shell("cat " + folder.file("document") + " | " + run + "-p ''").output ==
        shell(run + "-f " + folder.file("document")).output);
  CHECK(shell("echo x | sluice run " + model + " -n 1 -p y")
            .errors.find("1 B of standard input come before -p") != std::string::npos);
  // A pipe that nobody closes, and nobody writes to.
  const Result open = shell("mkfifo " + folder.file("open") + "; sluice run " + model +
                            " -n 8 --temp 0 --ctx 400 -p Summarise <>" + folder.file("open"));
  CHECK(open.output == alone);
  CHECK(open.errors.find("nothing came from it in 10 s") != std::string::npos);
}
