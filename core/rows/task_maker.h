// Turns a row that was parsed into a task that the scheduler can run, or into the reason why it
// cannot.
//
// Threads: immutable after construction; any number of threads may use one.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/rows/request.h"
#include "core/rows/task.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

// What to do with a prompt that leaves too little room for the tokens that its row asks for.
enum class Truncate {
  no,    // it is an error
  head,  // it loses its beginning, except the BOS token
  tail,  // it loses its end; a conversation is an error, as it would lose the question
};

struct TaskOptions {
  RowDefaults defaults;
  Truncate truncate = Truncate::no;
  // A row that does not say how many tokens it wants gets fewer than the default where there is no
  // more room behind its prompt; otherwise it is an error.
  bool shortens_default = false;
  std::uint32_t positions_max = 0;           // of a sequence; 0: no limit, as with a window
  std::string remedy = "--ctx, --truncate";  // named in errors of rows that need more
  // How the model writes conversations, or why it cannot; then rows with messages are errors.
  std::shared_ptr<const chat::Dialogue> dialogue;
  std::string no_dialogue = "the model has no chat format that is known";
  std::optional<std::tm> now = {};  // that templates see; nothing: the time of each row
  std::optional<std::uint64_t> thought_tokens_max;  // a longer thought is cut short
  // What to warn of where a prompt is a text, and not a conversation; may be empty.
  std::string warning_of_texts;
  // Called by make() with the warning of a task, if it has one; may be empty.
  std::function<void(const std::string& warning)> on_warning;
  // The model names that a row may give; empty: any.
  std::vector<std::string> model_names;
};

struct RefusedRow {
  RowHeader header;
  std::string_view code;  // "invalid_request", "prompt_too_long", model_not_found, cannot_run
  std::string reason;     // one line
};

// The code of a row that is not at fault: it has met a defect, or a lack of memory.
inline constexpr std::string_view cannot_run = "cannot_run";

// The code of a row that is for another model (TaskOptions::model_names).
inline constexpr std::string_view model_not_found = "model_not_found";

class TaskMaker {
 public:
  // `tokenizer` must outlive the maker, and the tasks if `options` has a dialogue.
  TaskMaker(const tokenizer::Tokenizer& tokenizer, const TaskOptions& options);

  // `row` is the number that the row was parsed with. Throws nothing because of the row.
  std::variant<Task, RefusedRow> make(ParsedRow parsed, std::uint64_t row) const;

  // The task that makes an embedding of a prompt, which must not be a conversation.
  std::variant<Task, RefusedRow> make_embedding(const Prompt& prompt, const std::string& model,
                                                std::uint64_t row, Pooling pooling) const;

  // The most memory that parsing a row of `row_bytes` bytes and make() need.
  std::uint64_t work_bytes(std::uint64_t row_bytes) const;

  const TaskOptions& options() const { return options_; }

 private:
  // What is known of the answer once the prompt has been written.
  struct AnswerFacts {
    bool opens_thought = false;                           // it begins inside of a thought
    std::shared_ptr<const nlohmann::ordered_json> tools;  // null: none
  };
  AnswerFacts write_conversation(chat::DialogueBody body, bool has_form, Task& task) const;
  constrain::TextForm form_of_calls(const Request& request) const;
  void check_request(const RowHeader& header, const Request& request) const;
  void set_end_tokens();
  std::vector<tokenizer::Token> tokenize(const Request& request) const;
  std::vector<tokenizer::Token> tokenize_prediction(const std::string& text,
                                                    std::uint32_t tokens_max) const;
  std::vector<tokenizer::Token> tokenize_text(const std::string& text, std::uint32_t tokens_max,
                                              bool adds_end) const;
  void shorten(Task& task) const;
  std::string no_room(const Task& task, const Request& request) const;
  void fit(Task& task, const Request& request, bool is_conversation) const;
  void set_guide(const Request& request, const constrain::TextForm& form, const AnswerFacts& answer,
                 Task& task) const;

  void warn_of(const std::string& warning, Task& task) const;  // of nothing where it is empty

  const tokenizer::Tokenizer& tokenizer_;
  TaskOptions options_;
  std::size_t piece_bytes_max_ = 4;  // of one token
  using Tokens = std::shared_ptr<const std::vector<tokenizer::Token>>;
  Tokens text_ends_, answer_ends_;  // the tokens that end a text, and an answer in a conversation
  std::unique_ptr<constrain::Library> library_;        // of the forms that texts have to have
  std::vector<tokenizer::Token> thought_openers_;      // see chat::Dialogue
  std::optional<chat::Dialogue::CallMark> call_mark_;  // the same
  // How the model writes one call, and any number of them; null: it is not known.
  std::shared_ptr<const constrain::CallSyntax> one_call_, calls_;
};

}  // namespace sluice::rows
