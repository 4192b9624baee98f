// What run, chat and batch need to speak with a model as its author meant it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/chat/dialogue.h"

namespace sluice::cli {

struct ThinkingOptions {
  std::string think = "auto";
  std::optional<std::uint64_t> tokens_max;  // of a thought; nothing: no limit
};

// --think and --think-budget; and --think alone.
void add_thinking_options(CLI::App& command, ThinkingOptions& options);
void add_think_option(CLI::App& command, std::string& think);
void add_chat_format_option(CLI::App& command, std::string& format);

// --think as the dialogue wants it, and the present time.
chat::DialogueOptions dialogue_options(const std::string& think);

// How conversations with a model are written, from the header of its file. What the header takes is
// given back. Throws as chat::ChatSource::choose does.
chat::ChatSource read_chat_source(const std::filesystem::path& model, const std::string& format);

// Whether the file of a model has a chat template.
bool has_chat_template(const std::filesystem::path& model);

// Writes to standard error as it is, for the person at a terminal.
void tell(std::string_view text);

// What the allocator keeps of freed memory would count as held when the engine plans its own.
void return_free_memory();

// Shows an answer as it comes: the text goes to standard output, thoughts to standard error, in dim
// type in a terminal.
class AnswerOutput {
 public:
  explicit AnswerOutput(bool hides_thoughts);
  ~AnswerOutput() { end_thought(); }
  AnswerOutput(const AnswerOutput&) = delete;
  AnswerOutput& operator=(const AnswerOutput&) = delete;

  void thought(std::string_view text);
  bool text(std::string_view text);  // false when nobody reads any more

 private:
  void end_thought();

  bool hides_thoughts_;
  bool is_dim_;
  bool is_in_thought_ = false;
};

}  // namespace sluice::cli
