// sluice chat through pipes: what is answered, what its commands do, and how it ends.
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/program.h"
#include "tests/sanitized.h"
#include "tests/tiny_llama.h"

namespace {

using namespace sluice::test;

// A conversation with a tiny model, of the lines of `input` ("\n" between them).
struct Talk {
  Talk() : model(make_model(folder)) {}

  Result operator()(const std::string& input, const std::string& options = "") const {
    write(folder.file("input"), input);
    return shell("sluice chat " + model + " --chat-format chatml --temp 0 " + options +
                 (options.find("-n ") == std::string::npos ? " -n 8 <" : " <") +
                 folder.file("input"));
  }

  Folder folder;
  std::string model;
};

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The number before `words` in the output of /stats.
std::size_t number_before(const std::string& text, const std::string& words) {
  const std::size_t end = text.find(" " + words);
  REQUIRE(end != std::string::npos);
  const std::size_t begin = text.find_last_not_of("0123456789", end - 1) + 1;
  return std::stoul(text.substr(begin, end - begin));
}

}  // namespace

TEST_CASE("each line is answered, and answers alone go to standard output") {
  const Talk talk;
  const Result two = talk("hello\n\n  \nhow are you");
  INFO(two.errors);
  CHECK(two.status == 0);
  CHECK(lines(two.output) == 2);
  CHECK(two.errors.find("chat format: ChatML") != std::string::npos);
  CHECK(two.errors.find("> ") == std::string::npos);
  const Result quiet = talk("hello\r\nhow are you\n/quit\nmore\n", "-q");
  CHECK(quiet.output == two.output);
  CHECK(quiet.errors.empty());
  CHECK(talk("", "-q").output.empty());
  CHECK(talk("hello\n", "--system 'be brief'").output != talk("hello\n").output);
}

TEST_CASE("what was said before counts, and is not computed again") {
  const Talk talk;
  const Result both = talk("hello\nhello\n/stats\n");
  const std::string first = talk("hello\n").output;
  REQUIRE(both.output.starts_with(first));
  CHECK(both.output != first + first);
  const std::size_t held = number_before(both.errors, "tokens are held");
  const std::size_t reused = number_before(both.errors, "tokens of prompts were held");
  const std::size_t once = number_before(talk("hello\n/stats\n").errors, "tokens are held");
  CHECK(reused == once);
  CHECK(held > once);
  // A forgotten conversation begins as the first did.
  CHECK(talk("hello\n/reset\nhello\n").output == first + first);
  // The penalty is for what the text repeats, not for what was forgotten.
  const std::string penalised = talk("hello\n", "--repeat-penalty 1.5").output;
  CHECK(talk("hello\n/reset\nhello\n", "--repeat-penalty 1.5").output == penalised + penalised);
}

TEST_CASE("a saved conversation goes on where it was") {
  const Talk talk;
  const std::string file = talk.folder.file("saved conversation.json");
  const Result whole = talk("hello\nonce more\n/save " + file + " \nand more\n", "--system sys");
  const nlohmann::json saved = nlohmann::json::parse(content(file));
  REQUIRE(saved.size() == 5);
  CHECK(saved[0]["role"] == "system");
  CHECK(saved[3]["content"] == "once more");
  CHECK(whole.output.starts_with(saved[2]["content"].get<std::string>() + "\n"));
  const Result rest = talk("/load " + file + "\nand more\n/save " + file + "\n");
  CHECK(rest.status == 0);
  CHECK(rest.output == whole.output.substr(whole.output.size() - rest.output.size()));
  CHECK(nlohmann::json::parse(content(file)).size() == 7);
}

TEST_CASE("what goes wrong at the prompt is told in a line, and the chat goes on") {
  const Talk talk;
  const std::string answer = talk("hello\n", "-q").output;
  write(talk.folder.file("bad.json"), "[1]");
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {"/dance", "/dance"},
           {"/load", "/load FILE"},
           {"/save", "/save FILE"},
           {"/reset now", "/reset"},
           {"/undo", "no message yet"},
           {"/regenerate", "no message yet"},
           {"/load " + talk.folder.file("absent"), "absent"},
           {"/load " + talk.folder.file("bad.json"), "message 1"},
           {"/save " + talk.folder.file("no/such/folder"), "folder"}}) {
    const Result result = talk(line + "\nhello\n", "-q");
    INFO(line << "\n" << result.errors);
    CHECK(result.status == 0);
    CHECK(is_one_line(result.errors));
    CHECK(result.errors.find(says) != std::string::npos);
    CHECK(result.output == answer);
  }
  if (!sluice::test::is_sanitized) {  // sanitizers need more memory than that
    const std::string large = talk.folder.file("large");
    REQUIRE(shell("truncate -s 100M " + large).status == 0);
    const Result limited =
        shell("ulimit -d 150000; printf '/file " + large + "\\nhello\\n' | sluice chat " +
              talk.model + " --chat-format chatml --temp 0 -q -n 8");
    CHECK(limited.errors.find("too much to be held at once") != std::string::npos);
    CHECK(limited.status == 0);
    CHECK(limited.output == answer);
  }
  CHECK(talk("/help\n").errors.find("/save FILE") != std::string::npos);
  CHECK(talk("/?\n").errors.find("/save FILE") != std::string::npos);
  CHECK(lines(talk("exit\n/bye\nhello\n").output) == 1);  // through a pipe it is a message
  CHECK(talk("hello\n").errors.find("cut off after 8 tokens") != std::string::npos);
  CHECK(lines(talk("//help\n").output) == 1);
}

TEST_CASE("a full context is told, with the remedy, and nothing is lost by it") {
  const Talk talk;
  const std::string long_line(400, 'x');
  const Result result = talk("hello\n" + long_line + "\n/stats\n/reset\nhello\n", "-q --ctx 120");
  INFO(result.errors);
  CHECK(result.status == 0);
  CHECK(lines(result.output) == 2);
  CHECK(result.errors.find("context holds 120; /save FILE keeps") != std::string::npos);
  CHECK(result.errors.find("/reset") != std::string::npos);
  check_fails("sluice run " + talk.model + " -q --ctx 20 -p " + long_line, 2, "raise --ctx");
  check_fails("sluice chat " + talk.model + " --chat-format chatml -q --ctx 20 -p " + long_line, 2,
              "raise --ctx");
  CHECK(number_before(result.errors, "messages") == 2);
  const std::string cut = talk("hello\n", "-q --ctx 56 -n -1").errors;
  CHECK(cut.find("cut off") != std::string::npos);
  CHECK(is_one_line(cut));
}

TEST_CASE("an answer ends before a stop text, and the next one does not see it") {
  const Talk talk;
  const std::string whole = talk("hello\n", "-q").output;
  const std::string stop = whole.substr(whole.size() / 2, 3);
  const Result result =
      talk("hello\n/save " + talk.folder.file("s") + "\nhello\n", "-q --stop '" + stop + "'");
  CHECK(result.output.starts_with(whole.substr(0, whole.find(stop)) + "\n"));
  const nlohmann::json saved = nlohmann::json::parse(content(talk.folder.file("s")));
  CHECK(saved[1]["content"] == whole.substr(0, whole.find(stop)));
  const Result set = talk("/set stop " + stop + "\n/set\nhello\n/undo\n/set stop\nhello\n");
  INFO(set.errors);
  CHECK(set.output == whole.substr(0, whole.find(stop)) + "\n" + whole);
  CHECK(set.errors.find("stop            '" + stop + "'\n") != std::string::npos);
  CHECK(talk("/set\n").errors.find("stop            none\n") != std::string::npos);
  // One that cannot be used is refused at once, and the chat goes on without it.
  const Result bad = talk("/set stop \xFF\nhello\n", "-q");
  CHECK(bad.output == whole);
  CHECK(bad.errors.find("not valid UTF-8") != std::string::npos);
}

TEST_CASE("a model without a known chat format is refused with the remedy") {
  const Talk talk;
  check_fails("sluice chat " + talk.model + " -q", 2, "--chat-format");
  check_fails("sluice chat m --chat-format morse", 2, "morse");
  check_fails("sluice chat m -n 0", 2, "0");
  check_fails("sluice chat m --stop ''", 2, "stop text");
}

TEST_CASE("a reader that goes away ends a chat without an error") {
  const Talk talk;
  const Result result =
      shell("{ yes hello | sluice chat " + talk.model +
            " -q --chat-format chatml -n 50 --temp 0 --ctx 2000; echo $? >&2; } | "
            "head -c 1");
  CHECK(result.errors == "0\n");
}

namespace {

// A chat whose input and output are pipes of the test, and which answers without end.
class RunningChat {
 public:
  explicit RunningChat(const std::string& model) {
    std::array<int, 2> in{}, out{};
    REQUIRE(::pipe(in.data()) == 0);
    REQUIRE(::pipe(out.data()) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
      ::execl(program.c_str(), program.c_str(), "chat", model.c_str(), "-q", "--chat-format",
              "chatml", "--temp", "0", "--ctx", "60000", nullptr);
      ::_exit(99);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  ~RunningChat() {
    ::close(input_);
    ::close(output_);
  }
  RunningChat(const RunningChat&) = delete;
  RunningChat& operator=(const RunningChat&) = delete;

  void say(const std::string& line) const {
    CHECK(::write(input_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  void signal(int number) const { ::kill(child_, number); }

  // Reads up to and with the first `end`, or to the end of the output.
  std::string read_until(char end) const {
    std::string text;
    char byte = 0;
    while (::read(output_, &byte, 1) == 1) {
      text += byte;
      if (byte == end) break;
    }
    return text;
  }

  // Closes the input and returns the exit status.
  int finish() {
    ::close(input_);
    input_ = -1;
    read_until('\0');
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t child_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace

TEST_CASE("Ctrl-C stops an answer and not the chat; SIGTERM ends it") {
  const Talk talk;
  RunningChat chat(talk.model);
  chat.say("hello\n");
  CHECK(chat.read_until(' ').size() > 1);  // it answers, and stops for no other reason
  chat.signal(SIGINT);
  CHECK(chat.read_until('\n').ends_with('\n'));
  chat.say("hello\n");
  CHECK(chat.read_until(' ').size() > 1);
  chat.signal(SIGTERM);
  CHECK(chat.finish() == 128 + SIGTERM);
}

TEST_CASE("Ctrl-C while nothing is answered ends a chat that has no terminal") {
  const Talk talk;
  RunningChat chat(talk.model);
  chat.say("hello\n");
  CHECK(chat.read_until(' ').size() > 1);
  chat.signal(SIGINT);
  CHECK(chat.read_until('\n').ends_with('\n'));
  ::usleep(100000);  // now it waits for a line; if it does not yet, the test is only weaker
  chat.signal(SIGINT);
  CHECK(chat.finish() == 128 + SIGINT);
}

namespace {

// A model with a template that opens a thought.
struct Thinker {
  Thinker() : model(folder.file("thinker.gguf")) {
    sluice::test::TinyLlama(
        {.name = "thinker",
         .tokens = 340,
         .chat_template = "{% for m in messages %}<|im_start|>{{ m.content }}"
                          "<|im_end|>{% endfor %}<|im_start|><think>",
         .control_tokens = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"}})
        .write(model);
  }
  Result operator()(const std::string& command, const std::string& options) const {
    return shell("sluice " + command + " " + model + " --temp 0 -n 12 " + options);
  }

  Folder folder;
  std::string model;
};

}  // namespace

TEST_CASE("a prompt by -p goes through the model's template, and --raw turns that off") {
  const Thinker thinker;
  const Result run = thinker("run", "-p hi --think off");
  INFO(run.errors);
  CHECK(run.status == 0);
  CHECK(run.errors.find("chat template; --raw") != std::string::npos);
  CHECK(thinker("chat", "-p hi --think off").output == run.output + "\n");
  const Result raw = thinker("run", "-p hi --raw");
  CHECK(raw.errors.find("chat template") == std::string::npos);
  CHECK(raw.output != run.output);
  CHECK(shell("printf hi | sluice run " + thinker.model + " --temp 0 -n 12").output == raw.output);
  CHECK(thinker("run", "-p hi --think off --system brief").output != run.output);
  check_fails("sluice run " + thinker.model + " -q -p hi --raw --system brief", 2, "--system");
  check_fails("sluice run " + make_model(thinker.folder) + " -q -p hi --system brief", 2,
              "chat template");
}

TEST_CASE("a text for a model that answers messages is told, with the way to send it as one") {
  const Thinker thinker;
  const std::string says = "--chat sends it as a message";
  const std::string input = thinker.folder.file("input");
  write(input, "hi\n");
  const std::string message = thinker("run", "-p hi --think off").output;
  for (const std::string& from : {"<" + input, "-f " + input}) {
    const Result raw = thinker("run", from);
    CHECK(raw.errors.find(says) != std::string::npos);
    CHECK(raw.output == thinker("run", "-p hi --raw").output);
    CHECK(thinker("run", "-q " + from).errors.empty());
    CHECK(thinker("run", "--raw " + from).errors.find(says) == std::string::npos);
    CHECK(thinker("run", "--parse-special " + from).errors.find(says) == std::string::npos);
    const Result chat = thinker("run", "--chat --think off " + from);
    CHECK(chat.errors.find(says) == std::string::npos);
    CHECK(chat.output == message);
  }
  check_fails("sluice run " + thinker.model + " --chat --raw -p x", 2, "--chat");
  check_fails("sluice run " + make_model(thinker.folder) + " --chat -f " + input, 2,
              "no chat template");
  CHECK(shell("sluice run " + thinker.folder.file("tiny.gguf") + " -n 1 <" + input)
            .errors.find(says) == std::string::npos);
}

TEST_CASE("rows of texts for a model that answers messages are told once") {
  const Thinker thinker;
  const std::string rows = thinker.folder.file("rows");
  const auto warnings = [&](const std::string& row, const std::string& options = "") {
    write(rows, row + "\n" + row + "\n" + row + "\n");
    const Result result =
        shell("sluice batch " + thinker.model + " " + rows + " -o - -n 2" + options);
    CHECK(result.status == 0);
    const std::size_t at = result.errors.find("\"messages\" in its place");
    if (at == std::string::npos) return 0;
    return result.errors.find("\"messages\" in its place", at + 1) == std::string::npos ? 1 : 2;
  };
  CHECK(warnings("{\"prompt\": \"hi\"}") == 1);
  CHECK(warnings("{\"prompt\": \"hi\"}", " -q") == 0);
  CHECK(warnings("{\"prompt\": [1, 2]}") == 0);
  CHECK(warnings("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}") == 0);
}

TEST_CASE("a thought goes to standard error, and its budget ends it") {
  const Thinker thinker;
  const Result whole = thinker("chat", "-p hi");
  CHECK(whole.output == "\n");  // it thinks to the end
  const Result short_thought = thinker("chat", "-p hi --think-budget 3");
  CHECK(short_thought.output.size() > 1);
  CHECK(short_thought.errors.find("prompt") != std::string::npos);
  CHECK(thinker("run", "-p hi --think-budget 3 -q").errors.empty());
}
