#include "core/cli/chat.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fmt/format.h>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/cli/chat_session.h"
#include "core/cli/chat_settings.h"
#include "core/cli/chat_setup.h"
#include "core/cli/completion.h"
#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/message_reader.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sampling_defaults.h"
#include "core/cli/sandbox.h"
#include "core/cli/speculation.h"
#include "core/cli/terminal.h"
#include "core/cli/wrap.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr const char* commands_help =
    "  /undo                take the last message and its answer back\n"
    "  /regenerate          answer the last message again\n"
    "  /system [TEXT]       replace the system text, or take it away\n"
    "  /set [NAME VALUE]    change a setting for the answers to come, or show all\n"
    "  /file NAME           put a file in front of the next message\n"
    "  /reset               forget the conversation but for the system text\n"
    "  /save FILE           write the conversation to a file, as JSON messages; /save! FILE "
    "replaces any file, /save only what this chat has saved or loaded\n"
    "  /load FILE           go on with the conversation of a file\n"
    "  /stats               what the conversation has taken so far\n"
    "  /help, /?            this\n"
    "  /quit, /exit, /bye   end, as the end of the input does\n"
    "  //TEXT               a message that begins with a slash: /TEXT\n"
    "  \"\"\"                  begins and ends a message of several lines\n"
    "Tab completes commands and names of files. Ctrl-C stops an answer, and drops the line that is "
    "being typed; at the empty prompt, twice, it ends the chat.\n";

// "/save  my file " -> "/save", "my file".
std::pair<std::string, std::string> split_command(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::size_t begin = std::min(line.find_first_not_of(" \t", end), line.size());
  const std::size_t last = line.find_last_not_of(" \t");
  return {line.substr(0, end), line.substr(begin, begin < line.size() ? last + 1 - begin : 0)};
}

// What people type who want to leave.
bool is_farewell(const std::string& line) {
  return line == "exit" || line == "quit" || line == "bye";
}

constexpr const char* full_context_remedy =
    "/save FILE keeps the conversation, to /load it into a chat with a larger --ctx or with a "
    "--window; /reset begins anew";

// Reads lines and does what they say.
class Chat {
 public:
  Chat(const ChatOptions& options, const engine::Engine& engine, TextWriter& writer,
       ChatSession& session)
      : options_(options),
        engine_(engine),
        writer_(writer),
        session_(session),
        messages_([this](std::string_view text) { return complete(text); }),
        has_terminal_(::isatty(STDIN_FILENO) == 1) {
    reset();
  }

  // Both return the signal that ended them, or 0.
  int answer_once(const std::string& message) {
    const InterruptGuard guard;
    say(message);
    return interrupt_signal();
  }

  int run() {
    using SecondCtrlC = InterruptGuard::SecondCtrlC;
    InterruptGuard guard(has_terminal_ ? SecondCtrlC::is_recorded : SecondCtrlC::ends_program);
    std::string message;
    bool may_end = false;  // a Ctrl-C at the empty prompt was the last that came
    while (!ended_) {
      bool is_text = false;
      switch (messages_.next(message, is_text)) {
        case LineReader::Result::line:
          may_end = false;
          take(message, is_text);
          break;
        case LineReader::Result::end:
          if (has_terminal_) tell("\n");
          return 0;
        case LineReader::Result::interrupted:
          if (interrupt_signal() != SIGINT || !has_terminal_) return interrupt_signal();
          if (std::exchange(may_end, message.empty()) && may_end) return interrupt_signal();
          tell(may_end ? "\n(Ctrl-C again, or /quit, ends the chat; /save FILE keeps it)\n" : "\n");
          break;
      }
      if (interrupt_signal() != 0 && interrupt_signal() != SIGINT) return interrupt_signal();
      guard.rearm();
    }
    return 0;
  }

 private:
  void take(const std::string& line, bool is_text) {
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    const HiddenKeys typed_meanwhile;
    try {
      const bool is_escaped = !is_text && line.starts_with("//");
      if (!is_text && has_terminal_ && is_farewell(line)) {
        remark(fmt::format("/exit ends the chat (\"\"\"{}\"\"\" is a message)", line));
      } else if (!is_text && !is_escaped && line.starts_with('/')) {
        command(line);
      } else {
        say(is_escaped ? line.substr(1) : line);
      }
    } catch (const ContextFull& error) {
      remark(fmt::format("{}; {}", error.problem, full_context_remedy));
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
      remark(error.what());
    }
  }

  void say(const std::string& message) {
    AnswerOutput output({.hides_thoughts = options_.common.quiet, .wraps = !options_.no_wrap});
    const std::size_t messages = session_.conversation().size();
    const GenerationEnd end = session_.answer(attached_ + message, output);
    attached_.clear();
    ended_ = end == GenerationEnd::unwanted || !output.text("\n");
    if (end == GenerationEnd::context) {
      remark(fmt::format("the answer is cut off, because the context of {} tokens is full; {}",
                         writer_.positions_max(), full_context_remedy));
    } else if (end == GenerationEnd::tokens_max) {
      inform(
          fmt::format("the answer is cut off after {} tokens (-n); /set tokens-max -1 lets the "
                      "next ones end by themselves",
                      session_.settings().tokens_max));
    } else if (end == GenerationEnd::interrupted && has_terminal_) {
      inform(session_.conversation().size() > messages
                 ? "stopped; /regenerate answers anew, /undo takes the message back"
                 : "stopped before the answer began; the message is forgotten");
    }
  }

  Completions complete(std::string_view text) const {
    if (!text.starts_with('/') || text.starts_with("//")) return {};
    const std::size_t space = text.find(' ');
    std::vector<std::string> names;
    if (space == std::string_view::npos) {
      for (const Command& each : commands) names.emplace_back(each.name);
      return complete_word(names, text);
    }
    const auto known = std::ranges::find(commands, text.substr(0, space), &Command::name);
    const bool wants_file = known != commands.end() && known->wants == Wants::file;
    return wants_file ? complete_file(text.substr(space + 1)) : Completions{};
  }

  void command(const std::string& line) {
    const auto [name, argument] = split_command(line);
    const auto known = std::ranges::find(commands, name, &Command::name);
    if (known == commands.end()) {
      throw UsageError(fmt::format("there is no command {}: /help lists them", name));
    }
    if (known->wants == Wants::file && argument.empty()) {
      throw UsageError(fmt::format("{} wants the name of a file: {} FILE", name, name));
    }
    if (known->wants == Wants::nothing && !argument.empty()) {
      throw UsageError(name +
                       " takes nothing more (a message that begins with a slash is written with "
                       "two)");
    }
    (this->*known->run)(argument);
  }

  enum class Wants { nothing, file, maybe_text };
  struct Command {
    std::string_view name;
    Wants wants;
    void (Chat::*run)(const std::string& argument);
  };
  static const std::array<Command, 15> commands;

  void quit(const std::string&) { ended_ = true; }
  void help(const std::string&) { tell(fitted(commands_help, columns_for_text(STDERR_FILENO))); }

  void undo(const std::string&) {
    session_.undo();
    inform(fmt::format("taken back; {} messages are left", session_.conversation().size()));
  }

  // If it cannot be answered again the conversation stays as it was.
  void regenerate(const std::string&) {
    const chat::Conversation before = session_.conversation();
    const std::string message = session_.undo();
    try {
      say(message);
    } catch (const UsageError&) {
      session_.set_conversation(before);
      throw;
    }
  }

  void change_system(const std::string& text) {
    chat::Conversation conversation = session_.conversation();
    if (!conversation.empty() && conversation[0].role == chat::Role::system) {
      conversation.erase(conversation.begin());
    }
    if (!text.empty()) conversation.insert(conversation.begin(), {chat::Role::system, text});
    session_.set_conversation(std::move(conversation));
    inform(text.empty() ? "there is no system text now" : "the system text is changed");
  }

  // An error with the file does not end the conversation, nor does one that is too large.
  static std::string text_of(const std::string& file) {
    try {
      return read_text(file);
    } catch (const std::exception& error) {
      throw UsageError(error.what());
    }
  }

  void attach(const std::string& file) {
    attached_ += text_of(file) + "\n\n";
    inform(fmt::format("{} goes in front of the next message", file));
  }

  void change_setting(const std::string& text) {
    if (text.empty()) return tell(settings_table(session_.settings()));
    const auto [name, value] = split_command(text);
    session_.set_settings(with_setting(session_.settings(), name, value));
  }

  // A file that this chat has saved or loaded may be replaced.
  void save(const std::string& file) {
    if (!own_files_.contains(file) && holds_something(file)) {
      throw UsageError(fmt::format("{} exists: /save! {} replaces it", file, file));
    }
    replace(file);
  }

  void replace(const std::string& file) {
    try {
      write_file(file, chat::to_json(session_.conversation()));
    } catch (const std::system_error& error) {
      throw UsageError(error.what() + sandbox_hint(error.code()));
    }
    own_files_.insert(file);
    inform(fmt::format("saved {} messages", session_.conversation().size()));
  }

  void load(const std::string& file) {
    session_.set_conversation(chat::conversation_from_json(text_of(file), file));
    own_files_.insert(file);
    inform(fmt::format("loaded {} messages", session_.conversation().size()));
  }

  void start_anew(const std::string&) {
    reset();
    inform(session_.conversation().empty()
               ? "the conversation is forgotten"
               : "the conversation is forgotten, but for the system text of --system");
  }

  void reset() {
    attached_.clear();
    own_files_.clear();
    chat::Conversation conversation;
    if (options_.system) conversation.push_back({chat::Role::system, *options_.system});
    session_.set_conversation(std::move(conversation));
  }

  void show_statistics(const std::string&) {
    const GenerationCounts& counts = writer_.counts();
    tell(fmt::format(
        "{} messages; {} tokens are held, of {}; {} tokens of prompts were held "
        "already\n{}\n{}\n",
        session_.conversation().size(), writer_.held_tokens(),
        options_.common.window == 0 ? std::to_string(writer_.positions_max())
                                    : fmt::format("a window of {}", options_.common.window),
        counts.reused_tokens(), generation_line(counts), memory_line(RunRecord(engine_))));
  }

  void inform(const std::string& line) const {
    if (!options_.common.quiet) remark(line);
  }

  const ChatOptions& options_;
  const engine::Engine& engine_;
  TextWriter& writer_;
  ChatSession& session_;
  MessageReader messages_;
  std::string attached_;             // put in front of the next message
  std::set<std::string> own_files_;  // this conversation was saved to them, or loaded
  bool has_terminal_;
  bool ended_ = false;
};

const std::array<Chat::Command, 15> Chat::commands = {{
    {"/undo", Wants::nothing, &Chat::undo},
    {"/regenerate", Wants::nothing, &Chat::regenerate},
    {"/system", Wants::maybe_text, &Chat::change_system},
    {"/set", Wants::maybe_text, &Chat::change_setting},
    {"/file", Wants::file, &Chat::attach},
    {"/reset", Wants::nothing, &Chat::start_anew},
    {"/save", Wants::file, &Chat::save},
    {"/save!", Wants::file, &Chat::replace},
    {"/load", Wants::file, &Chat::load},
    {"/stats", Wants::nothing, &Chat::show_statistics},
    {"/help", Wants::nothing, &Chat::help},
    {"/?", Wants::nothing, &Chat::help},
    {"/quit", Wants::nothing, &Chat::quit},
    {"/exit", Wants::nothing, &Chat::quit},
    {"/bye", Wants::nothing, &Chat::quit},
}};

}  // namespace

CLI::App* add_chat(CLI::App& program, ChatOptions& options) {
  CLI::App* command = add_command(
      program, "chat", "Hold a conversation",
      std::string(
          "Each line of the standard input is a message; the answers go to standard "
          "output, as they\ncome and alone. Lines that begin with a slash are commands:\n") +
          commands_help +
          "\nExamples:\n"
          "  sluice chat model.gguf --system \"Answer in one sentence.\"\n"
          "  echo \"What is a sluice?\" | sluice chat model.gguf --temp 0 -q");
  add_common_options(*command, options.common);
  add_speculate_options(*command, options.common);
  add_sampling_options(*command, options.sampling);
  add_prompt_cache_options(*command, options.prompt_cache);
  command
      ->add_option("--system", options.system,
                   "Instructions that the model gets before the first message")
      ->group("Conversation")
      ->type_name("TEXT");
  command
      ->add_option(
          "-p,--prompt", options.prompt,
          "Answer this message alone, behind what is piped in, and end; - takes the standard "
          "input alone as the message")
      ->type_name("TEXT");
  add_thinking_options(*command, options.thinking);
  add_chat_format_option(*command, options.format);
  command
      ->add_flag("--no-wrap", options.no_wrap,
                 "Leave the lines of answers as the model writes them; otherwise a terminal shows "
                 "them broken between words")
      ->group("Conversation");
  command
      ->add_option("-n,--tokens-max", options.tokens_max,
                   "Most tokens of an answer; -1 goes on until it ends or the context is full")
      ->type_name("N")
      ->transform(count_or("-1", "-1", 1, std::uint64_t{1} << 40))
      ->capture_default_str();
  return command;
}

namespace {

struct Held {
  int signal;  // that ended it, or 0
  GenerationCounts counts;
};

// Holds the conversation, or answers the only message.
Held hold_chat(const ChatOptions& options, const chat::ChatSource& source,
               const SamplingOptions& sampling, std::uint64_t seed,
               const std::optional<std::string>& prompt, engine::Engine& engine) {
  RunStatus status("chat", options.common, engine);
  Progress progress(options.common.quiet);
  TextWriter writer(engine, options.common.speculate, status, progress);
  ChatSession session(engine, source, {sampling, seed, options.tokens_max, options.thinking},
                      writer);
  if (!options.common.quiet) {
    remark(fmt::format("chat format: {}; seed {}{}", session.dialogue().name(), seed,
                       options.prompt ? "" : "; /help lists the commands"));
  }
  const bool is_typed = !prompt && ::isatty(STDIN_FILENO) == 1;
  if (is_typed && !options.common.quiet && locale_is_other()) {
    warn(
        fmt::format("the characters of the locale {} are not UTF-8, which sluice reads and writes: "
                    "set LC_ALL=C.UTF-8, and the terminal to UTF-8",
                    locale_name()));
  }
  Chat chat(options, engine, writer, session);
  const int signal = prompt ? chat.answer_once(*prompt) : chat.run();
  return {signal, writer.counts()};
}

}  // namespace

namespace {

// Whoever types messages may also name files: to read any, and to write below the current folder
// and that for temporary files.
SandboxFiles files_of(const ChatOptions& options) {
  SandboxFiles files{.keep = {options.prompt_cache.folder}};
  if (options.prompt) return files;
  files.read.emplace_back("/");
  files.keep.emplace_back(".");
  files.has_temporary = true;
  return files;
}

}  // namespace

int run_chat(const ChatOptions& options) {
  enter_sandbox(options.common, files_of(options));
  const std::uint64_t seed = options.sampling.seed.value_or(sampling::random_seed());
  check_stop_texts(options.sampling);
  std::optional<std::string> prompt = options.prompt;
  if (prompt) {
    prompt = prompt == "-" ? without_last_newline(read_text("-"))
                           : behind_piped_text(*prompt, options.common.quiet);
  }
  const chat::ChatSource source = read_chat_source(options.common.model, options.format);
  const SamplingOptions sampling =
      settled_sampling(options.sampling, options.common.model, options.common.quiet);
  const RunWatch watch;
  engine::EngineOptions settings = engine_options(options.common);
  settings.prompt_cache = options.prompt_cache;
  settings.checkpoints = checkpoints_of_conversations;
  count_text(options.common, settings);
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, std::move(settings));
  const Held held = hold_chat(options, source, sampling, seed, prompt, *engine);

  const RunRecord record(*engine);
  if (!options.common.quiet) {
    remark(generation_line(held.counts));
    announce_sandbox();
  }
  engine.reset();  // frees its memory for measuring the limits
  write_report(watch, options.common, record, held.counts);
  return held.signal == 0 ? 0 : exit_status_of_signal(held.signal);
}

}  // namespace sluice::cli
