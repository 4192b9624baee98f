#include "core/cli/chat.h"

#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/chat/chat_format.h"
#include "core/cli/chat_session.h"
#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/line_reader.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr const char* commands_help =
    "/reset      forget the conversation but for the system text\n"
    "/save FILE  write the conversation to a file, as JSON messages\n"
    "/load FILE  go on with the conversation of a file\n"
    "/stats      what the conversation has taken so far\n"
    "/help       this\n"
    "/quit       end, as the end of the input does\n"
    "//TEXT      a message that begins with a slash: /TEXT\n"
    "Ctrl-C stops an answer; at the prompt, twice, it ends the chat.\n";

void tell(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// "/save  my file " -> "/save", "my file".
std::pair<std::string, std::string> split_command(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::size_t begin = std::min(line.find_first_not_of(" \t", end), line.size());
  const std::size_t last = line.find_last_not_of(" \t");
  return {line.substr(0, end), line.substr(begin, begin < line.size() ? last + 1 - begin : 0)};
}

chat::ChatFormat choose_format(const ChatOptions& options, const engine::Engine& engine) {
  if (options.format != "auto") {
    return {chat::family_named(options.format), engine.tokenizer()};
  }
  return chat::ChatFormat::recognise(engine.facts().chat_template, engine.tokenizer());
}

// The loop of reading lines and doing what they say.
class Chat {
 public:
  Chat(const ChatOptions& options, engine::Engine& engine, ChatSession& session)
      : options_(options),
        engine_(engine),
        session_(session),
        progress_(options.common.quiet),
        has_terminal_(::isatty(STDIN_FILENO) == 1) {
    reset();
  }

  // Returns the signal that ended it, or 0.
  int run() {
    InterruptGuard guard;
    std::string line;
    while (!ended_) {
      if (has_terminal_) tell("> ");
      switch (lines_.next(line)) {
        case LineReader::Result::line:
          stopped_once_ = false;
          take(line);
          break;
        case LineReader::Result::end:
          if (has_terminal_) tell("\n");
          return 0;
        case LineReader::Result::interrupted:
          if (interrupt_signal() != SIGINT || !has_terminal_ || stopped_once_) {
            return interrupt_signal();
          }
          stopped_once_ = true;
          tell("\n(Ctrl-C again, or /quit, ends the chat)\n");
          break;
      }
      if (interrupt_signal() != 0 && interrupt_signal() != SIGINT) return interrupt_signal();
      guard.rearm();
    }
    return 0;
  }

 private:
  void take(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    try {
      if (line.starts_with("//")) {
        say(line.substr(1));
      } else if (line.starts_with('/')) {
        command(line);
      } else {
        say(line);
      }
    } catch (const Error& error) {
      progress_.clear();
      if (error.code() != ExitCode::usage) throw;
      remark(error.what());
    }
  }

  void say(const std::string& message) {
    bool has_reader = true;
    const GenerationEnd end = session_.answer(
        message,
        [&](std::string_view text) { return has_reader = has_reader && write_output(text); },
        progress_);
    progress_.clear();
    ended_ = !has_reader || !write_output("\n");
    stopped_once_ = end == GenerationEnd::interrupted;
    if (end == GenerationEnd::context) {
      remark(
          fmt::format("the answer is cut off, because the context of {} tokens is full: begin "
                      "anew with /reset, or start with a larger --ctx or with a --window",
                      engine_.session().capacity()));
    }
  }

  void command(const std::string& line) {
    const auto [name, argument] = split_command(line);
    const bool takes_file = name == "/save" || name == "/load";
    if (takes_file == argument.empty()) {
      throw UsageError(takes_file ? name + " wants the name of a file: " + name + " FILE"
                                  : name +
                                        " takes nothing more (a message that begins with a "
                                        "slash is written with two)");
    }
    if (takes_file) return exchange(name, argument);
    if (name == "/quit") {
      ended_ = true;
    } else if (name == "/reset") {
      reset();
    } else if (name == "/stats") {
      show_statistics();
    } else if (name == "/help") {
      tell(commands_help);
    } else {
      throw UsageError(fmt::format("there is no command {}: /help lists them", name));
    }
  }

  // A file that cannot be read or written does not end the conversation.
  void exchange(const std::string& name, const std::string& file) {
    try {
      if (name == "/save") {
        write_file(file, chat::to_json(session_.conversation()));
      } else {
        session_.set_conversation(chat::conversation_from_json(read_text(file), file));
      }
    } catch (const std::system_error& error) {
      throw UsageError(error.what());
    }
    inform(fmt::format("{} {} messages", name == "/save" ? "saved" : "loaded",
                       session_.conversation().size()));
  }

  void reset() {
    chat::Conversation conversation;
    if (options_.system) conversation.push_back({chat::Role::system, *options_.system});
    session_.set_conversation(std::move(conversation));
  }

  void show_statistics() {
    const engine::Session& session = engine_.session();
    tell(
        fmt::format("{} messages; {} tokens are held, of {}; {} tokens of prompts were held "
                    "already\n{}\n{}\n",
                    session_.conversation().size(), session.position(), session.capacity(),
                    session_.reused_tokens(), generation_line(session_.counts()),
                    memory_line(RunRecord(engine_))));
  }

  void inform(const std::string& line) const {
    if (!options_.common.quiet) remark(line);
  }

  const ChatOptions& options_;
  engine::Engine& engine_;
  ChatSession& session_;
  Progress progress_;
  LineReader lines_;
  bool has_terminal_;
  bool stopped_once_ = false;  // by Ctrl-C, and nothing was entered since
  bool ended_ = false;
};

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
  add_sampling_options(*command, options.sampling);
  add_prompt_cache_options(*command, options.prompt_cache);
  command->add_option("--system", options.system, "What the model is told about its part")
      ->type_name("TEXT");
  std::vector<std::string> formats = chat::family_names();
  formats.insert(formats.begin(), "auto");
  command
      ->add_option("--chat-format", options.format,
                   fmt::format("How the conversation is written for the model; auto: as its\n"
                               "template says. {}",
                               fmt::join(formats, ", ")))
      ->check(one_of(formats))
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("-n,--tokens-max", options.tokens_max,
                   "Most tokens of an answer; -1: until it ends or the context is full")
      ->type_name("N")
      ->transform(count_or("-1", "-1", 1, std::uint64_t{1} << 40))
      ->capture_default_str();
  return command;
}

int run_chat(const ChatOptions& options) {
  const std::uint64_t seed = options.sampling.seed.value_or(engine::random_seed());
  check_stop_texts(options.sampling);
  const RunWatch watch;
  engine::EngineOptions settings = engine_options(options.common);
  settings.prompt_cache = options.prompt_cache;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, std::move(settings));
  const chat::ChatFormat format = choose_format(options, *engine);
  if (!options.common.quiet) {
    remark(fmt::format("chat format: {}; seed {}; /help lists the commands", format.name(), seed));
  }
  RunStatus status("chat", options.common, *engine);
  ChatSession session(*engine, format, options.sampling, seed, options.tokens_max, status);
  const int signal = Chat(options, *engine, session).run();

  const RunRecord record(*engine);
  if (!options.common.quiet) remark(generation_line(session.counts()));
  engine.reset();  // its memory is wanted to measure the limits with
  watch.write_report(options.common, record, session.counts().throughput());
  return signal == 0 ? 0 : exit_status_of_signal(signal);
}

}  // namespace sluice::cli
