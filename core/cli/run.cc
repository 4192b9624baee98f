#include "core/cli/run.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/file_identity.h"
#include "core/cli/chat_session.h"
#include "core/cli/files.h"
#include "core/cli/generation.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sampling_defaults.h"
#include "core/cli/sandbox.h"
#include "core/cli/speculation.h"
#include "core/cli/token_reader.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/guide.h"
#include "core/constrain/library.h"
#include "core/error.h"
#include "core/gguf/gguf.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using tokenizer::Token;

// Whether the user says that the prompt is to be continued.
bool is_text(const RunOptions& options) {
  return options.raw || options.parse_special || !options.prompt_tokens.empty();
}

// Whether the prompt goes through the model's chat template, if there is one.
bool may_be_message(const RunOptions& options) {
  return (options.prompt || options.chat) && !is_text(options);
}

// Where the prompt comes from. A text that is only continued is read while it is computed.
struct Prompt {
  std::optional<TextInput> file;  // or:
  std::string text;
  bool is_perhaps_message = false;  // the model answers messages, and nobody asked for a text
};

[[noreturn]] void refuse_no_prompt() {
  throw UsageError("there is no prompt: give -p TEXT or -f FILE, or pipe a text in");
}

// Nothing was said of a prompt, so it can only come through a pipe.
bool expects_pipe(const RunOptions& options) {
  return !options.prompt && options.prompt_file.empty() && options.prompt_tokens.empty();
}

Prompt open_prompt(const RunOptions& options) {
  if (!options.prompt_tokens.empty()) return {};
  if (options.prompt && *options.prompt != "-") {
    return {{}, behind_piped_text(*options.prompt, options.common.quiet)};
  }
  if (expects_pipe(options) && ::isatty(STDIN_FILENO) == 1) refuse_no_prompt();
  const fs::path file = options.prompt_file.empty() ? "-" : options.prompt_file;
  const bool is_message = may_be_message(options) && has_chat_template(options.common.model);
  if (is_message) return {{}, without_last_newline(read_text(file))};
  return {TextInput(file), {}};
}

// The tokens of the prompt that is continued, in order.
class PromptTokens {
 public:
  PromptTokens(const RunOptions& options, Prompt prompt, const engine::Engine& engine) {
    const tokenizer::Tokenizer& tokenizer = engine.tokenizer();
    const tokenizer::EncodeOptions encode = {.add_bos = true,
                                             .parse_special = options.parse_special};
    if (prompt.file) {
      file_.emplace(std::move(*prompt.file), engine,
                    TokenReader::Options{.encode = encode, .drops_last_newline = true});
    } else if (options.prompt_tokens.empty()) {
      tokens_ = tokenizer.encode(prompt.text, encode);
    } else {
      tokens_ = options.prompt_tokens;
      check_tokens(tokens_, engine.facts().vocabulary);
    }
    // Two, since the first may be the one that stands before each text.
    if (file_) file_->read(2, tokens_);
    const std::optional<Token> bos = tokenizer.bos();
    const bool is_empty = tokens_.empty() || (tokens_.size() == 1 && tokens_.front() == bos);
    if (is_empty && expects_pipe(options)) refuse_no_prompt();
    if (prompt.is_perhaps_message && !options.common.quiet) {
      warn(
          "the model answers messages, but this text is continued as it is: --chat sends it as a "
          "message, --raw says that this is meant");
    }
    if (!tokens_.empty()) return;
    if (!bos) {
      throw UsageError(
          "the prompt is empty and this model has no token to begin a text with "
          "(BOS): give at least one character");
    }
    tokens_.push_back(*bos);
  }

  // The next tokens, up to `count`; fewer only at the end.
  std::vector<Token> next(std::size_t count) {
    const std::size_t taken = std::min(count, tokens_.size());
    const auto end = tokens_.begin() + static_cast<std::ptrdiff_t>(taken);
    std::vector<Token> out(tokens_.begin(), end);
    tokens_.erase(tokens_.begin(), end);
    if (file_) file_->read(count - taken, out);
    return out;
  }

  // How many there are behind those; reads them.
  std::uint64_t skip_rest() { return tokens_.size() + (file_ ? file_->skip_rest() : 0); }

 private:
  std::vector<Token> tokens_;  // that come first
  std::optional<TokenReader> file_;
};

// What is held of a prompt beside its tokens: the copies of a message while a template puts it
// among others.
std::uint64_t bytes_of_prompt(const Prompt& prompt) {
  constexpr std::uint64_t copies = 24;
  return copies * prompt.text.size();
}

using Constrained = std::shared_ptr<const constrain::Constraint>;

// What the text has to match; null when it is free. The file is read first, so that an error in it
// does not wait for the model. Everything of size is made before the engine makes its plan.
Constrained read_constraint(const RunOptions& options) {
  using Kind = constrain::TextForm::Kind;
  const bool is_gbnf = options.json_schema.empty();
  const std::filesystem::path& file = is_gbnf ? options.grammar : options.json_schema;
  if (file.empty()) return nullptr;
  constrain::Grammar grammar;
  try {
    grammar = constrain::compile({is_gbnf ? Kind::gbnf : Kind::json_schema, read_text(file)});
  } catch (const constrain::GrammarError& error) {
    throw UsageError(fmt::format("{}: {}", file.string(), error.what()));
  }
  if (!grammar.warning.empty() && !options.common.quiet) {
    warn(fmt::format("{}: {}", file.string(), grammar.warning));
  }
  std::shared_ptr<const constrain::TokenTrie> trie;
  {
    const gguf::Model header = gguf::Model::open(options.common.model, {.header_only = true});
    trie = std::make_shared<const constrain::TokenTrie>(
        *tokenizer::Tokenizer::from_metadata(header.metadata()));
  }
  return_free_memory();
  return std::make_shared<const constrain::Constraint>(std::move(grammar), std::move(trie));
}

// The task that continues the prompt. Where a window slides over it, it is read while it is
// computed; of that, the prompt cache has the first part.
rows::Task make_task(const RunOptions& options, Prompt prompt, engine::Engine& engine,
                     const SamplingOptions& sampling, const Constrained& constraint,
                     std::uint32_t positions_max) {
  constexpr std::size_t part_max = std::size_t{1} << 16;
  const auto source = std::make_shared<PromptTokens>(options, std::move(prompt), engine);
  rows::Task task;
  task.is_endless = options.common.window > 0;
  task.prompt = source->next(task.is_endless ? part_max : positions_max);
  if (const std::uint64_t rest = task.is_endless ? 0 : source->skip_rest(); rest > 0) {
    throw UsageError(fmt::format("the prompt has {} tokens, but the context holds {}: raise --ctx",
                                 task.prompt.size() + rest, positions_max));
  }
  if (task.is_endless) {
    task.more_prompt = [source](std::size_t count) { return source->next(count); };
  }
  task.sampler = sampling.sampler;
  task.stop = sampling.stop;
  const tokenizer::Tokenizer& tokenizer = engine.tokenizer();
  task.end_tokens = std::make_shared<const std::vector<Token>>(tokenizer::tokens_where(
      tokenizer, [&](Token token) { return tokenizer.is_end_of_generation(token); }));
  if (constraint) {
    task.guide = [constraint, ends = task.end_tokens] {
      return std::make_unique<constrain::Guide>(constraint, ends);
    };
  }
  return task;
}

// Whether the prompt is a message, and the model has a chat template.
bool wants_template(const RunOptions& options, Prompt& prompt) {
  const bool is_message = may_be_message(options) && (prompt.file || !prompt.text.empty());
  const bool is_asked_for = options.chat || options.system || options.thinking.think != "auto" ||
                            options.thinking.tokens_max;
  const bool has_template =
      (is_message || !is_text(options)) && has_chat_template(options.common.model);
  if (is_message && has_template) return true;
  if (!is_asked_for) {
    prompt.is_perhaps_message = has_template && !options.prompt;
    return false;
  }
  throw UsageError(
      is_message ? fmt::format("{} has no chat template, which --chat, --system and --think need",
                               options.common.model.string())
                 : "--chat, --system and --think are for a prompt that goes through the model's "
                   "chat template: give it with -p or --chat, without --raw, --parse-special and "
                   "--prompt-tokens");
}

// Sends the prompt as a message, and writes the answer.
GenerationEnd answer_message(const RunOptions& options, const chat::ChatSource& source,
                             const std::string& prompt, const SamplingOptions& sampling,
                             engine::Engine& engine, const Constrained& constraint,
                             TextWriter& writer) {
  ChatSession session(
      engine, source,
      {sampling, sampling.sampler.seed, options.tokens_max, options.thinking, constraint}, writer);
  if (options.system) session.set_conversation({{chat::Role::system, *options.system}});
  if (!options.common.quiet) {
    remark("the prompt goes through the model's chat template; --raw continues it as a text");
  }
  AnswerOutput output({.hides_thoughts = options.common.quiet});
  return session.answer(prompt, output);
}

// Whether both are open and write to one file, pipe or terminal.
bool is_same_file(int one, int other) {
  struct stat a {};
  struct stat b {};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && base::is_same_file(a, b);
}

struct Written {
  GenerationEnd end;
  GenerationCounts counts;
};

Written write_text(const RunOptions& options, const std::optional<chat::ChatSource>& source,
                   Prompt prompt, engine::Engine& engine, const SamplingOptions& sampling,
                   const Constrained& constraint) {
  RunStatus status("run", options.common, engine);
  Progress progress(options.common.quiet);
  TextWriter writer(engine, options.common.speculate, status, progress);
  GenerationEnd end{};
  if (source) {
    end = answer_message(options, *source, prompt.text, sampling, engine, constraint, writer);
  } else {
    rows::Task task =
        make_task(options, std::move(prompt), engine, sampling, constraint, writer.positions_max());
    end = writer.write(std::move(task), options.tokens_max,
                       [](const rows::TokenEvent& event) { return show_text(event.text); });
  }
  // What follows on the standard error begins a line of its own.
  const bool is_joined = !options.common.quiet && is_same_file(STDOUT_FILENO, STDERR_FILENO);
  if (::isatty(STDOUT_FILENO) == 1 || is_joined) write_output("\n");
  return {end, writer.counts()};
}

// Why the text ends.
std::string_view reason_of(GenerationEnd end) {
  switch (end) {
    case GenerationEnd::text:
      return "the model ended its text";
    case GenerationEnd::stop_text:
      return "a stop text came (--stop)";
    case GenerationEnd::tokens_max:
      return "-n tokens were reached";
    case GenerationEnd::context:
      return "the context is full (--ctx)";
    case GenerationEnd::interrupted:
      return "a signal ended the run";
    case GenerationEnd::unwanted:
      return "the reader of the output went away";
  }
  return "";
}

void print_statistics(const GenerationCounts& counts, std::uint64_t seed, GenerationEnd end) {
  remark(fmt::format("{}, seed {}; ended: {}", generation_line(counts), seed, reason_of(end)));
}

}  // namespace

CLI::App* add_run(CLI::App& program, RunOptions& options) {
  CLI::App* command = add_command(
      program, "run", "Continue a text, or answer a message",
      "With -p or --chat the prompt is a message that the model answers, if it has a chat\n"
      "template. Other prompts of -f or of a pipe, and any with --raw, are texts that the model\n"
      "continues. What is piped in beside -p TEXT stands before TEXT.\n"
      "Thoughts of a model that reasons go to standard error.\n"
      "The text that the model adds goes to standard output, as it comes and alone.\n"
      "Ctrl-C or SIGTERM ends it cleanly, with the exit status 130 or 143; a second one at once.\n"
      "When the reader of the output goes away (| head), the run ends with status 0.\n\n"
      "Examples:\n"
      "  sluice run model.gguf -p \"The capital of France is\" -n 32 --temp 0\n"
      "  sluice run model.gguf -f letter.txt --stop \"Yours sincerely\" > answer.txt\n"
      "  echo \"Once upon a time\" | sluice run model.gguf --raw --seed 7\n"
      "  cat letter.txt | sluice run model.gguf -p \"Summarise this letter.\"");
  add_common_options(*command, options.common);
  add_trace_option(*command, options.common);
  add_speculate_options(*command, options.common);
  add_sampling_options(*command, options.sampling);
  add_prompt_cache_options(*command, options.prompt_cache);
  CLI::Option* prompt =
      command
          ->add_option("-p,--prompt", options.prompt,
                       "The message, or the text to continue, behind what is piped in. - reads "
                       "the standard input alone, and an empty text lets the model begin one. "
                       "Without -p and -f piped input is continued")
          ->type_name("TEXT");
  CLI::Option* file =
      command
          ->add_option(
              "-f,--file", options.prompt_file,
              "Continue the text in this file, without the newline at its end; with --chat it is a "
              "message")
          ->type_name("FILE")
          ->excludes(prompt);
  CLI::Option* tokens = add_token_option(*command, "--prompt-tokens", options.prompt_tokens,
                                         "Give the prompt as token ids")
                            ->excludes(prompt)
                            ->excludes(file);
  command
      ->add_flag(
          "--parse-special", options.parse_special,
          "Take control tokens that are written out in the prompt, such as <|im_start|>, as tokens")
      ->excludes(tokens);
  CLI::Option* raw = command->add_flag(
      "--raw", options.raw, "Continue the prompt as a text, without the model's chat template");
  command
      ->add_flag("--chat", options.chat,
                 "Send a prompt of -f or of a pipe as a message, through the chat template")
      ->excludes(raw);
  command
      ->add_option("--system", options.system,
                   "Instructions that the model gets before the message")
      ->group("Conversation")
      ->type_name("TEXT");
  add_thinking_options(*command, options.thinking);
  CLI::Option* schema =
      command
          ->add_option("--json-schema", options.json_schema,
                       "Make the answer JSON that the JSON Schema in this file accepts")
          ->type_name("FILE");
  command
      ->add_option("--grammar", options.grammar,
                   "Make the answer match the GBNF grammar in this file")
      ->type_name("FILE")
      ->excludes(schema);
  command
      ->add_option("-n,--tokens-max", options.tokens_max,
                   "Most tokens to generate; -1 goes on until the text ends or the context is full")
      ->type_name("N")
      ->transform(count_or("-1", "-1", 0, std::uint64_t{1} << 40))
      ->capture_default_str();
  return command;
}

int run_run(const RunOptions& options) {
  static_cast<void>(sampling::Sampler(options.sampling.sampler));
  check_stop_texts(options.sampling);
  enter_sandbox(options.common,
                {.read = {options.prompt_file, options.json_schema, options.grammar},
                 .keep = {options.prompt_cache.folder}});
  Prompt prompt = open_prompt(options);
  std::optional<chat::ChatSource> source;
  if (wants_template(options, prompt)) source = read_chat_source(options.common.model, "auto");
  const Constrained constraint = read_constraint(options);
  SamplingOptions sampling =
      settled_sampling(options.sampling, options.common.model, options.common.quiet);
  sampling.sampler.seed = sampling.seed.value_or(sampling::random_seed());

  const RunWatch watch;
  const InterruptGuard guard;
  engine::EngineOptions settings = engine_options(options.common);
  settings.prompt_cache = options.prompt_cache;
  count_text(options.common, settings);
  settings.caller_bytes += bytes_of_prompt(prompt);
  if (constraint) {
    settings.caller_bytes += constraint->bytes_max() + constrain::Guide::bytes_max(*constraint);
  }
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, std::move(settings));

  const Written written =
      write_text(options, source, std::move(prompt), *engine, sampling, constraint);

  const RunRecord record(*engine);
  if (!options.common.quiet) {
    print_statistics(written.counts, sampling.sampler.seed, written.end);
    remark(memory_line(record));
    announce_sandbox();
  }
  engine.reset();  // frees its memory for measuring the limits
  write_report(watch, options.common, record, written.counts);
  options.common.trace->end();
  const int signal = interrupt_signal();
  return signal == 0 ? 0 : exit_status_of_signal(signal);
}

}  // namespace sluice::cli
