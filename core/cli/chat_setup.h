// Shared by run, chat and batch: talking to a model in the format that its author intended.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/chat/dialogue.h"
#include "core/cli/wrap.h"
#include "core/gguf/gguf.h"

namespace sluice::cli {

struct ThinkingOptions {
  std::string think = "auto";
  std::optional<std::uint64_t> tokens_max;  // of a thought; nothing: no limit
};

// The first adds --think and --think-budget; the second --think alone.
void add_thinking_options(CLI::App& command, ThinkingOptions& options);
void add_think_option(CLI::App& command, std::string& think);
void add_chat_format_option(CLI::App& command, std::string& format);

// The dialogue's options for a value of --think, with the present time.
chat::DialogueOptions dialogue_options(const std::string& think);

// Finds out how conversations with a model are written, from the header of its file. Frees the
// memory of the header. Throws what chat::ChatSource::choose throws.
chat::ChatSource read_chat_source(const std::filesystem::path& model, const std::string& format);

// Whether the file of a model has a chat template.
bool has_chat_template(const gguf::Metadata& metadata);
bool has_chat_template(const std::filesystem::path& model);

// Writes the text to standard error without changes, for a person at a terminal.
void tell(std::string_view text);

// Returns freed memory to the system; otherwise the engine would count it as held in its plan.
void return_free_memory();

// Shows an answer while it is generated: the text goes to standard output, thoughts go to standard
// error (dimmed in a terminal).
class AnswerOutput {
 public:
  struct Options {
    bool hides_thoughts = false;
    bool wraps = false;  // breaks lines between words, on a terminal
  };
  explicit AnswerOutput(const Options& options);
  ~AnswerOutput() { end_thought(); }
  AnswerOutput(const AnswerOutput&) = delete;
  AnswerOutput& operator=(const AnswerOutput&) = delete;

  void thought(std::string_view text);
  bool text(std::string_view text);  // false when the reader is gone

 private:
  void end_thought();

  Options options_;
  bool is_dim_;
  WordWrap answer_, thoughts_;
  bool is_in_thought_ = false;
};

}  // namespace sluice::cli
