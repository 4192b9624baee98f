#include "core/cli/chat_setup.h"

#include <algorithm>
#include <cstdio>
#include <fmt/ranges.h>
#include <limits>
#include <unistd.h>

#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/terminal.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/gguf.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sluice::cli {
void tell(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void add_think_option(CLI::App& command, std::string& think) {
  command
      .add_option("--think", think,
                  "Whether a model that can reason thinks before it answers; auto leaves it to the "
                  "model's template")
      ->group("Conversation")
      ->check(one_of({"on", "off", "auto"}))
      ->type_name("on|off|auto")
      ->capture_default_str();
}

void add_thinking_options(CLI::App& command, ThinkingOptions& options) {
  add_think_option(command, options.think);
  command
      .add_option("--think-budget", options.tokens_max,
                  "Most tokens that a thought may have; a longer one is ended for the model")
      ->group("Conversation")
      ->type_name("N")
      ->check(count_between(0, std::uint64_t{1} << 40));
}

void add_chat_format_option(CLI::App& command, std::string& format) {
  std::vector<std::string> formats = chat::family_names();
  formats.insert(formats.begin(), "auto");
  command
      .add_option(
          "--chat-format", format,
          fmt::format("How the conversation is written for the model; auto uses the model's "
                      "own template. One of: {}",
                      fmt::join(formats, ", ")))
      ->check(one_of(formats))
      ->group("Conversation")
      ->type_name("NAME")
      ->capture_default_str();
}

chat::DialogueOptions dialogue_options(const std::string& think) {
  return {chat::parse_thinking(think).value_or(chat::Thinking::automatic), chat::template_time()};
}

chat::ChatSource read_chat_source(const std::filesystem::path& model, const std::string& format) {
  chat::ChatSource source;
  try {
    const gguf::Model header = gguf::Model::open(model, {.header_only = true});
    engine::require_text(header);
    source = chat::ChatSource::choose(format, header.metadata());
  } catch (...) {
    return_free_memory();
    throw;
  }
  return_free_memory();
  return source;
}

bool has_chat_template(const gguf::Metadata& metadata) {
  return std::ranges::any_of(metadata.entries(), [](const gguf::Metadata::Entry& entry) {
    return entry.key.starts_with("tokenizer.chat_template");
  });
}

bool has_chat_template(const std::filesystem::path& model) {
  return has_chat_template(gguf::Model::open(model, {.header_only = true}).metadata());
}

void return_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

AnswerOutput::AnswerOutput(const Options& options)
    : options_(options), is_dim_(::isatty(STDERR_FILENO) == 1) {}

void AnswerOutput::thought(std::string_view text) {
  if (options_.hides_thoughts || text.empty()) return;
  if (!is_in_thought_ && is_dim_) tell("\x1b[2m");
  is_in_thought_ = true;
  tell(thoughts_.feed(for_terminal(STDERR_FILENO, text),
                      options_.wraps ? window_size(STDERR_FILENO).columns : 0));
}

bool AnswerOutput::text(std::string_view text) {
  if (!text.empty()) end_thought();
  return write_output(answer_.feed(for_terminal(STDOUT_FILENO, text),
                                   options_.wraps ? window_size(STDOUT_FILENO).columns : 0));
}

void AnswerOutput::end_thought() {
  if (!is_in_thought_) return;
  is_in_thought_ = false;
  tell(is_dim_ ? "\x1b[0m\n" : "\n");
}

}  // namespace sluice::cli
