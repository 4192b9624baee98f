// sluice chat in a real terminal (tmux): each of its commands, editing, pasted text, a new size of
// the window, and Ctrl-C.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/program.h"

namespace {

using namespace sluice::test;
using nlohmann::json;

// A program in a terminal of its own, whose screen can be read.
class Terminal {
 public:
  explicit Terminal(const std::string& command)
      : tmux_("tmux -f /dev/null -S '" + folder_.file("socket") + "' ") {
    write(folder_.file("script"), "export XDG_STATE_HOME='" + folder_.file("state") +
                                      "' LC_ALL=C.UTF-8\ntrap : INT\n" + command +
                                      "\necho \"status $?\"\nsleep 1000\n");
    REQUIRE(shell("env -u TMUX " + tmux_ + "-u new-session -d -x 100 -y 40 sh '" +
                  folder_.file("script") + "'")
                .status == 0);
  }
  ~Terminal() { hang_up(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void key(const std::string& name) const { shell(tmux_ + "send-keys " + name); }
  void type(const std::string& text) const {
    write(folder_.file("typed"), text);
    shell(tmux_ + "send-keys -l -- \"$(cat '" + folder_.file("typed") + "')\"");
  }
  void say(const std::string& line) const {
    type(line);
    key("Enter");
  }
  // As a terminal pastes: between marks, where the program has asked for them.
  void paste(const std::string& text) const {
    write(folder_.file("pasted"), text);
    shell(tmux_ + "load-buffer '" + folder_.file("pasted") + "'; " + tmux_ + "paste-buffer -p");
  }
  void resize(int columns, int rows) const {
    shell(tmux_ + "resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows));
  }

  // Ends the terminal, as a window that is closed or a connection that breaks.
  void hang_up() const { shell(tmux_ + "kill-server"); }

  std::string screen() const { return shell(tmux_ + "capture-pane -p -J -S -").output; }

  // Waits until the text is on the screen so many times.
  void wait_for(const std::string& text, std::size_t times = 1) const {
    std::string seen;
    for (int tries = 0; tries < 600; ++tries) {
      seen = screen();
      std::size_t count = 0;
      for (std::size_t at = seen.find(text); at != std::string::npos;
           at = seen.find(text, at + 1)) {
        ++count;
      }
      if (count >= times) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL("the screen never had '" << text << "' " << times << " times:\n" << seen);
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

  // The conversation, by way of /save.
  json conversation() const {
    const std::string path = file("saved" + std::to_string(++saved_));
    say("/save " + path);
    for (int tries = 0; tries < 600 && !std::filesystem::exists(path); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    INFO(screen());
    REQUIRE(std::filesystem::exists(path));
    return json::parse(content(path));
  }

 private:
  Folder folder_;
  std::string tmux_;
  mutable int saved_ = 0;
};

bool has_tmux() {
  return shell("tmux -V").status == 0;
}

std::string chat_command(const Folder& folder, const std::string& options) {
  return "'" + program + "' chat " + make_model(folder) + " --chat-format chatml --temp 0 " +
         options;
}

}  // namespace

TEST_CASE("each command of a chat in a terminal") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "-n 8"));
  terminal.wait_for("> ");
  terminal.say("/help");
  terminal.wait_for("/regenerate");
  terminal.say("/system be brief");
  terminal.wait_for("system text is changed");
  terminal.say("gr\xC3\xBC\xC3\x9F dich");
  json talk = terminal.conversation();
  REQUIRE(talk.size() == 3);
  CHECK(talk[0]["content"] == "be brief");
  CHECK(talk[1]["content"] == "gr\xC3\xBC\xC3\x9F dich");
  const json first_answer = talk[2];

  terminal.say("/regenerate");
  CHECK(terminal.conversation()[2] == first_answer);
  terminal.say("/set temp 1.5");
  terminal.say("/set seed 3");
  terminal.say("/set");
  terminal.wait_for("1.5");
  terminal.say("/regenerate");
  CHECK(terminal.conversation()[2] != first_answer);
  terminal.say("/set warmth 3");
  terminal.wait_for("no setting \"warmth\"");
  terminal.say("/undo");
  terminal.wait_for("taken back");
  CHECK(terminal.conversation().size() == 1);
  terminal.say("/undo");
  terminal.wait_for("no message to take back");

  write(terminal.file("note"), "from a file");
  terminal.say("/file " + terminal.file("note"));
  terminal.say("what is this");
  CHECK(terminal.conversation()[1]["content"] == "from a file\n\nwhat is this");
  terminal.say("/load " + terminal.file("saved1"));
  terminal.wait_for("loaded 3 messages");
  terminal.say("/system");
  terminal.wait_for("no system text now");
  CHECK(terminal.conversation().size() == 2);
  terminal.say("/stats");
  terminal.wait_for("tokens are held");
  terminal.say("/reset");
  CHECK(terminal.conversation().empty());
  terminal.say("/quit");
  terminal.wait_for("status 0");
}

TEST_CASE("messages of several lines, pasted text, editing and history in a terminal") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "-n 4"));
  terminal.wait_for("> ");
  terminal.say("\"\"\"/one");
  terminal.say("");
  terminal.say("two\"\"\"");
  CHECK(terminal.conversation()[0]["content"] == "/one\n\ntwo");
  terminal.paste("if x:\n\tpass\nend \xE2\x82\xAC");
  terminal.key("Enter");
  CHECK(terminal.conversation()[2]["content"] == "if x:\n\tpass\nend \xE2\x82\xAC");
  terminal.type("world");
  terminal.key("Home");
  terminal.resize(50, 20);
  terminal.type("hello ");
  terminal.resize(90, 30);
  terminal.key("Enter");
  CHECK(terminal.conversation()[4]["content"] == "hello world");
  terminal.key("Up Up Enter");  // over the /save
  CHECK(terminal.conversation()[6]["content"] == "hello world");
  terminal.key("C-d");
  terminal.wait_for("status 0");
}

TEST_CASE("Ctrl-C in a terminal ends the answer, and at the prompt, twice, the chat") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "-q --ctx 60000"));
  terminal.wait_for("> ");
  terminal.say("hello");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  terminal.key("C-c");
  json talk = terminal.conversation();
  CHECK(talk.size() % 2 == 0);
  terminal.key("C-c");
  terminal.wait_for("Ctrl-C again");
  terminal.key("C-c");
  terminal.wait_for("status 130");
}

TEST_CASE("a chat whose terminal goes away keeps its history") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const bool is_answering : {false, true}) {
    const Folder folder;
    const Terminal terminal(chat_command(folder, "-q --ctx 60000"));
    terminal.wait_for("> ");
    if (is_answering) {
      terminal.say("a long story");
      terminal.wait_for("a long story\nta");  // and goes on for ever
    } else {
      terminal.say("/set seed 31");
      terminal.wait_for("> ", 2);
    }
    terminal.hang_up();
    const std::string history = terminal.file("state/sluice/chat_history");
    for (int tries = 0; tries < 600 && content(history).find('\n') == std::string::npos; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    INFO(content(history));
    CHECK(content(history).find(is_answering ? "story" : "seed") != std::string::npos);
  }
}
