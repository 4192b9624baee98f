// sluice chat in a real terminal (tmux): each of its commands, editing, pasted text, a new size of
// the window, and Ctrl-C.
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/program.h"

namespace {

using namespace sluice::test;
using nlohmann::json;

std::size_t count(const std::string& where, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = where.find(what); at != std::string::npos; at = where.find(what, at + 1)) {
    ++times;
  }
  return times;
}

// The words of a text, with a space between them.
std::string words_of(const std::string& text) {
  std::istringstream in(text);
  std::string words;
  for (std::string word; in >> word;) words += (words.empty() ? "" : " ") + word;
  return words;
}

// A program in a terminal of its own, whose screen can be read.
class Terminal {
 public:
  explicit Terminal(const std::string& command, int columns = 100,
                    const std::string& locale = "C.UTF-8")
      : tmux_("tmux -f /dev/null -S '" + folder_.file("socket") + "' ") {
    write(folder_.file("script"), "export XDG_STATE_HOME='" + folder_.file("state") +
                                      "' LC_ALL=" + locale + "\ntrap : INT\n" + command +
                                      "\necho \"status $?\"\nsleep 1000\n");
    REQUIRE(shell("env -u TMUX " + tmux_ + "-u new-session -d -x " + std::to_string(columns) +
                  " -y 40 sh '" + folder_.file("script") + "'")
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
  // The same as the rows of the terminal, which has broken the lines that are too long.
  std::string rows() const { return shell(tmux_ + "capture-pane -p -S -").output; }
  // What stands in the window, without what has left it.
  std::string window() const { return shell(tmux_ + "capture-pane -p -J").output; }

  // Waits until the text is on the screen so many times.
  void wait_for(const std::string& text, std::size_t times = 1) const {
    std::string seen;
    for (int tries = 0; tries < 600; ++tries) {
      seen = screen();
      if (count(seen, text) >= times) return;
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
  terminal.wait_for("there is no message yet");

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
  terminal.wait_for("the conversation is forgotten");
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
  terminal.wait_for("if x:\xE2\x86\xB5");  // an arrow shows where lines end
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

TEST_CASE("Ctrl-C that stops an answer, or drops a line, is not the first of two") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "--ctx 60000"));
  terminal.wait_for("> ");
  terminal.say("hello");
  terminal.wait_for("hello\nta");  // and goes on for ever
  terminal.key("C-c");
  terminal.wait_for("stopped; /regenerate");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until it is at the prompt
  for (const std::size_t dropped : {1U, 2U}) {
    terminal.type("abc");
    terminal.wait_for("> abc", dropped);
    terminal.key("C-c");
    terminal.wait_for("\n> ", 2 + dropped);
  }
  CHECK(count(terminal.screen(), "Ctrl-C again") == 0);
  terminal.key("C-c");
  terminal.wait_for("Ctrl-C again, or /quit, ends the chat; /save FILE keeps it");
  terminal.say("/stats");
  terminal.wait_for("tokens are held");
  terminal.key("C-c");
  terminal.wait_for("Ctrl-C again", 2);
  CHECK(terminal.conversation().size() == 2);
  terminal.key("C-c");
  terminal.wait_for("Ctrl-C again", 3);
  terminal.key("C-c");
  terminal.wait_for("status 130");
}

TEST_CASE("keys that are typed during an answer wait for the prompt, and do not disturb the text") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "--ctx 60000"));
  terminal.wait_for("> ");
  terminal.say("hello");
  terminal.wait_for("hello\nta");
  terminal.say("/set tokens-max 4");
  terminal.type("second questoin");
  terminal.key("BSpace BSpace BSpace");
  terminal.paste("ion\nof mine");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(terminal.screen().find("second") == std::string::npos);
  terminal.key("C-c");
  terminal.wait_for("> /set tokens-max 4");
  terminal.wait_for("> second question\xE2\x86\xB5of mine");
  terminal.key("Enter");
  const json talk = terminal.conversation();
  REQUIRE(talk.size() == 4);
  CHECK(talk[2]["content"].get<std::string>() == "second question\nof mine");
  terminal.wait_for("cut off after 4 tokens (-n); /set tokens-max -1");
}

TEST_CASE("answers break between words in a terminal, unless that is turned off") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const bool wraps : {true, false}) {
    const std::string options = wraps ? "" : " --no-wrap";
    const Terminal terminal("'" + program + "' chat demo --temp 0 -n 120" + options, 37);
    terminal.wait_for("> ");
    terminal.say("Tell me a story about a fox.");
    const json talk = terminal.conversation();
    REQUIRE(talk.size() == 2);
    const std::string words = words_of(talk[1]["content"].get<std::string>());
    REQUIRE(words.size() > 100);
    INFO(words << "\n\n" << terminal.rows());
    CHECK((words_of(terminal.rows()).find(words) != std::string::npos) == wraps);
  }
}

TEST_CASE("a text of a model does not command the terminal") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const char* command : {"run demo --raw -p x -n 40", "run demo -p x -n 40"}) {
    INFO(command);
    const Folder folder;
    write(folder.file("gbnf"), R"(root ::= "a\x1b[2Jb\r\x07\u009bc\td")");
    const Terminal terminal("'" + program + "' " + command + " -q --grammar " +
                            folder.file("gbnf"));
    terminal.wait_for("status 0");
    INFO(terminal.screen());
    CHECK(terminal.screen().find("a\\x1b[2Jb\\r\\x07\\xc2\\x9bc        d\n") != std::string::npos);
  }
}

TEST_CASE("Tab completes commands and names of files") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "-n 4"));
  write(terminal.file("a letter"), "dear");
  write(terminal.file("a list"), "one");
  terminal.wait_for("> ");
  terminal.type("/sys");
  terminal.key("Tab");
  terminal.type("be brief");
  terminal.key("Enter");
  terminal.wait_for("> /system be brief");
  terminal.wait_for("system text is changed");
  terminal.type("/s");
  terminal.key("Tab");
  terminal.wait_for("/system  /set     /save    /save!   /stats");
  terminal.type("tat");
  terminal.key("Tab Enter");
  terminal.wait_for("tokens are held");
  const std::string begin = "/file " + terminal.file("a");
  terminal.type(begin);
  terminal.key("Tab");
  terminal.wait_for("> " + begin + " l");
  terminal.key("Tab");
  terminal.wait_for("a letter  a list");
  terminal.type("e");
  terminal.key("Tab Enter");
  terminal.wait_for("a letter goes in front");
  terminal.say("what is this");
  CHECK(terminal.conversation()[1]["content"].get<std::string>() == "dear\n\nwhat is this");
}

TEST_CASE("who wants to leave finds out how, and no file is lost by /save") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const std::string leave : {"/exit", "/bye", "/quit"}) {
    const Folder folder;
    const Terminal terminal(chat_command(folder, "-n 4"));
    terminal.wait_for("> ");
    terminal.say("/?");
    terminal.wait_for("/regenerate");
    terminal.say("exit");
    terminal.wait_for("/exit ends the chat");
    const std::string precious = terminal.file("precious");
    write(precious, "mine");
    terminal.say("/save " + precious);
    terminal.wait_for("exists: /save! ");
    CHECK(content(precious) == "mine");
    terminal.say("/save! " + precious);
    terminal.wait_for("saved 0 messages");
    terminal.say("/save " + precious);
    terminal.wait_for("saved 0 messages", 2);
    terminal.say(leave);
    terminal.wait_for("status 0");
  }
}

TEST_CASE("a line of several rows is drawn once when the window changes") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const auto& [before, after] : {std::pair(100, 60), {100, 37}, {60, 100}, {80, 99}}) {
    const Folder folder;
    const Terminal terminal(chat_command(folder, "-n 4"), before);
    terminal.wait_for("commands");
    std::string line;
    for (int i = 0; i < 60; ++i) line += "word" + std::to_string(100 + i) + " ";
    terminal.type(line + "end");
    terminal.wait_for("end");
    for (int back = 0; back < 4; ++back) terminal.key("C-b");
    terminal.resize(after, 40);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    const std::string seen = terminal.window();
    INFO(before << " to " << after << "\n" << seen);
    CHECK(count(seen, "> word100 ") == 1);
    CHECK(count(seen, "word130 ") == 1);
    CHECK(count(seen, "word159 end") == 1);
    terminal.type("X");
    terminal.wait_for("word159X end");
    terminal.key("Enter");
    CHECK(terminal.conversation()[0]["content"].get<std::string>() ==
          line.substr(0, line.size() - 1) + "X end");
  }
}

TEST_CASE("help fits the terminal") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const int columns : {100, 80, 60, 40}) {
    for (const std::string command : {"", "run", "chat", "batch", "top"}) {
      const Terminal terminal("'" + program + "' " + command + " --help", columns);
      terminal.wait_for("status 0");
      std::istringstream lines(terminal.screen());  // with lines together that it had to break
      for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK(line.size() <= static_cast<std::size_t>(columns));
      }
      CHECK(terminal.screen().find("Example") != std::string::npos);
    }
  }
}

TEST_CASE("top watches, within the terminal") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal chat(chat_command(folder, "-n 4"));
  chat.wait_for("> ");
  for (const int columns : {130, 60, 50}) {
    const Terminal terminal("'" + program + "' top --interval 0.2", columns);
    terminal.wait_for("tiny.gguf");
    CHECK((terminal.rows().find("budget") != std::string::npos) == (columns == 130));
    std::istringstream lines(terminal.screen());
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= static_cast<std::size_t>(columns));
    }
    chat.say("hello");
    terminal.key("C-c");
    terminal.wait_for("status 130");
  }
}

TEST_CASE("a locale without UTF-8 is told, and what has no character there is not used") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  const Folder folder;
  const Terminal terminal(chat_command(folder, "-n 4"), 100, "de_DE.ISO-8859-1");
  terminal.wait_for("the locale de_DE.ISO-8859-1 are not UTF-8");
  terminal.wait_for("> ");
  terminal.paste("one\ntwo");
  terminal.wait_for("one^Mtwo");
  terminal.key("Enter");
  CHECK(terminal.conversation()[0]["content"].get<std::string>() == "one\ntwo");
}

TEST_CASE("a chat whose terminal goes away keeps its history") {
  if (!has_tmux()) SLUICE_SKIP("there is no tmux");
  for (const bool is_answering : {false, true}) {
    const Folder folder;
    // Without a sandbox it is the editor that makes the folder.
    const std::string sandbox = is_answering ? "auto" : "off";
    const Terminal terminal(chat_command(folder, "-q --ctx 60000 --sandbox " + sandbox));
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
    const fs::perms folder_mode = fs::status(fs::path(history).parent_path()).permissions();
    CHECK(folder_mode == fs::perms::owner_all);
  }
}
