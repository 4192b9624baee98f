// The program `sluice`: finds the command, runs it, and turns every way in which it can end into an
// exit status and at most one line on standard error.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <malloc.h>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/cli/batch.h"
#include "core/cli/bench.h"
#include "core/cli/chat.h"
#include "core/cli/command_line.h"
#include "core/cli/convert.h"
#include "core/cli/doctor.h"
#include "core/cli/embed.h"
#include "core/cli/help.h"
#include "core/cli/imatrix.h"
#include "core/cli/inspect.h"
#include "core/cli/interrupt.h"
#include "core/cli/list.h"
#include "core/cli/logits.h"
#include "core/cli/machine.h"
#include "core/cli/merge.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/perplexity.h"
#include "core/cli/plan.h"
#include "core/cli/pull.h"
#include "core/cli/recommend.h"
#include "core/cli/run.h"
#include "core/cli/sandbox.h"
#include "core/cli/serve.h"
#include "core/cli/synth.h"
#include "core/cli/template.h"
#include "core/cli/tokenize.h"
#include "core/cli/top.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

constexpr const char* exit_statuses =
    "Exit status: 0 done (so is `serve` when it is told to end), 2 wrong usage, 3 bad model file,\n"
    "4 memory budget too small, 5 reading or writing failed, 75 `batch` or `embed` was stopped "
    "and\n"
    "the same command goes on, 129, 130 and 143 ended by SIGHUP, Ctrl-C and SIGTERM, 1 anything\n"
    "else. `sluice COMMAND --help` has the options of a command.\n"
    "\n"
    "Example:\n"
    "  sluice run model.gguf -p \"Once upon a time\" -n 64";

// What `sluice` alone says.
constexpr const char* tour =
    "sluice runs language models in GGUF files, also those that are larger than the memory.\n"
    "\n"
    "  sluice doctor                            what this machine can run\n"
    "  sluice recommend                         which model to take for it, and how to get it\n"
    "  sluice run demo --raw -p \"One morning\"   a story by the small model that comes along\n"
    "  sluice chat demo                         a conversation with it\n"
    "  sluice plan MODEL.gguf --budget 4GiB     would a model fit, and how fast would it be?\n"
    "  sluice chat MODEL.gguf                   a conversation with a model of your own\n"
    "  sluice batch MODEL.gguf in.jsonl -o out.jsonl    a file of prompts\n"
    "  sluice serve MODEL.gguf                  the API of OpenAI, and a page to chat with\n"
    "\n"
    "`sluice help` lists all commands, `sluice help COMMAND` its options.\n";

// All commands and their options, which CLI11 fills.
class Program {
 public:
  Program() : app_("sluice: language models larger than the memory you have", "sluice") {
    app_.set_version_flag("-V,--version", "sluice " SLUICE_VERSION, "Print the version and exit");
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.require_subcommand(0, 1);  // at most one; run() checks that there is one
    app_.footer(exit_statuses);
    offer(add_run(app_, run_), [this] { return run_run(run_); });
    offer(add_chat(app_, chat_), [this] { return run_chat(chat_); });
    offer(add_batch(app_, batch_), [this] { return run_batch(batch_); });
    offer(add_serve(app_, serve_), [this] { return run_serve(serve_); });
    offer(add_embed(app_, embed_), [this] { return run_embed(embed_); });
    offer(add_rerank(app_, rerank_), [this] { return run_rerank(rerank_); });
    offer(add_merge(app_, merge_), [this] { return run_merge(merge_); });
    offer(add_top(app_, top_), [this] { return run_top(top_); });
    offer(add_recommend(app_, recommend_), [this] { return run_recommend(recommend_); });
    offer(add_pull(app_, pull_), [this] { return run_pull(pull_); });
    offer(add_list(app_, list_), [this] { return run_list(list_); });
    offer(add_remove(app_, remove_), [this] { return run_remove(remove_); });
    offer(add_plan(app_, plan_), [this] { return run_plan(plan_); });
    offer(add_inspect(app_, inspect_), [this] { return run_inspect(inspect_); });
    offer(add_tokenize(app_, tokenize_), [this] { return run_tokenize(tokenize_); });
    offer(add_template(app_, template_), [this] { return run_template(template_); });
    offer(add_logits(app_, logits_), [this] { return run_logits(logits_); });
    offer(add_perplexity(app_, perplexity_), [this] { return run_perplexity(perplexity_); });
    offer(add_quantize(app_, quantize_), [this] { return run_quantize(quantize_); });
    offer(add_imatrix(app_, imatrix_), [this] { return run_imatrix(imatrix_); });
    offer(add_import(app_, import_), [this] { return run_import(import_); });
    offer(add_synth(app_, synth_), [this] { return run_synth(synth_); });
    offer(add_bench(app_, bench_), [this] { return run_bench(bench_); });
    offer(add_machine(app_, machine_), [this] { return run_machine(machine_); });
    offer(add_doctor(app_, doctor_), [this] { return run_doctor(doctor_); });
  }

  int run(int argc, char** argv) {
    std::vector<std::string> words =
        read_words(app_, std::vector<std::string>(argv + 1, argv + argc));
    if (words.empty()) {
      write_output(tour);
      return 0;
    }
    std::ranges::reverse(words);  // CLI11 takes them from the back
    try {
      app_.parse(std::move(words));
    } catch (const CLI::Success& asked) {  // help or the version was asked for
      std::ostringstream text;
      app_.exit(asked, text, text);
      write_output(text.str());
      return 0;
    } catch (const CLI::ParseError& error) {
      throw UsageError(problem_of(error, read_command()));
    }
    for (const Command& command : commands_) {
      if (command.app->parsed()) return run_command(command);
    }
    throw UsageError("a command is missing (see `sluice --help`)");
  }

 private:
  struct Command {
    CLI::App* app;
    std::function<int()> run;
  };

  // Puts the help last among the shared options, or last of all.
  void offer(CLI::App* app, std::function<int()> run) {
    app->set_help_flag();
    const std::vector<std::string> groups = app->get_groups();
    const bool has_common = std::ranges::find(groups, common_group) != groups.end();
    app->set_help_flag("-h,--help", "Print this help and exit")
        ->group(has_common ? common_group : "Options");
    commands_.push_back({app, std::move(run)});
  }

  // The command that was read, or the program.
  const CLI::App& read_command() const {
    for (const Command& command : commands_) {
      if (command.app->parsed()) return *command.app;
    }
    return app_;
  }

  static int run_command(const Command& command) {
    const MissingModel missing = missing_model(*command.app);
    try {
      return command.run();
    } catch (const std::system_error& error) {
      const bool is_of_model = std::string_view(error.what()).starts_with(missing.name + ":");
      if (missing.hint.empty() || !is_of_model) throw;
      throw Error(ExitCode::io, error.what() + missing.hint);
    }
  }

  CLI::App app_;
  std::vector<Command> commands_;
  RunOptions run_;
  ChatOptions chat_;
  BatchOptions batch_;
  ServeOptions serve_;
  EmbedOptions embed_;
  RerankOptions rerank_;
  MergeOptions merge_;
  TopOptions top_;
  ListOptions list_;
  RemoveOptions remove_;
  PlanOptions plan_;
  PullOptions pull_;
  RecommendOptions recommend_;
  InspectOptions inspect_;
  TokenizeOptions tokenize_;
  TemplateOptions template_;
  LogitsOptions logits_;
  PerplexityOptions perplexity_;
  QuantizeOptions quantize_;
  ImatrixOptions imatrix_;
  ImportOptions import_;
  SynthOptions synth_;
  BenchOptions bench_;
  DoctorOptions doctor_;
  MachineOptions machine_;
};

// Prints one line, whatever the message contains: a file name may contain a newline.
int report_error(ExitCode code, std::string message) {
  for (char& character : message) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7F) character = ' ';
  }
  remark(message);
  return static_cast<int>(code);
}

int report_failure(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return report_error(exit_code_of(error),
                      error.what() + (system == nullptr ? "" : sandbox_hint(system->code())));
}

int run_program(int argc, char** argv) {
  try {
    const int status = Program().run(argc, argv);
    write_output("");  // flushes what a command left unwritten
    return status;
  } catch (const Interrupted& interrupted) {
    return exit_status_of_signal(interrupted.signal);
  } catch (const std::bad_alloc&) {
    return report_error(ExitCode::failure,
                        "out of memory: choose a smaller model or --ctx, or end other programs");
  } catch (const std::exception& error) {
    return report_failure(error);
  }
}

// A descriptor of these that is closed would be that of the next file, and what is said would be
// written into it. What is read there ends, and results that are written there fail.
void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1) continue;
    ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // takes the least free
  }
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) {
  // For the widths of characters. What people type, and what models write, is UTF-8 everywhere.
  std::setlocale(LC_CTYPE, "C.UTF-8");  // NOLINT(concurrency-mt-unsafe): no other thread runs yet
  // Writes report both as errors: a reader that is gone, and a file that is as large as it may be.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // Where addresses are limited (ulimit -v), none are left to an arena of each thread, which would
  // reserve 64 MiB.
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    ::mallopt(M_ARENA_MAX, 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  }
  sluice::cli::open_standard_descriptors();
  return sluice::cli::run_program(argc, argv);
}
