// A text to be generated, and how its generation ended.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/constrain/guide.h"
#include "core/rows/completion.h"
#include "core/rows/pooling.h"
#include "core/rows/request.h"
#include "core/sampling/sampler.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

enum class Priority {
  interactive,  // somebody waits for each token
  background,   // only the end matters; runs in what the others leave
};

// A row that is ready to run. It has at least one prompt token, and all are in the vocabulary;
// prompt.size() + tokens_max is at most the positions of a sequence.
struct Task : ResultSettings {
  std::uint64_t id = 0;  // given by Service::submit(); otherwise of no meaning
  std::uint64_t row = 0;
  RowHeader header;
  Priority priority = Priority::background;
  std::uint32_t choice = 0;  // which of the row's results this is, from 0
  std::vector<tokenizer::Token> prompt;
  std::uint64_t truncated_tokens = 0;
  // The tokens that end the text, ascending.
  std::shared_ptr<const std::vector<tokenizer::Token>> end_tokens;
  std::optional<std::uint32_t> top_logprobs;      // nothing: no log probabilities
  std::vector<tokenizer::Token> prediction = {};  // a text like the one to come, for drafts
  std::uint32_t drafts_group = 0;  // tasks whose texts may help with each other's drafts
  std::function<std::string_view(tokenizer::Token)> piece;  // empty: the tokenizer's
  // Makes a reader that splits off what the text holds besides the answer (thoughts, tool calls).
  // Empty: nothing is split off. A reader may outlive the task.
  std::function<chat::AnswerReader()> make_reader;
  // Makes a function that is called with the text as it comes. The tokens that it returns come
  // next, in place of the model's. Empty: none.
  using Forced = std::function<std::vector<tokenizer::Token>(std::string_view text)>;
  std::function<Forced()> watch;
  // The task makes an embedding of its prompt, and no text; tokens_max is 0.
  std::optional<Pooling> pooling;
  // Makes what keeps the text to a grammar. Empty: the text is free.
  std::function<std::unique_ptr<constrain::Guide>()> guide;
  // The text goes to the token sink alone, and tokens that a window hides are forgotten, so that a
  // text without end takes no memory. Such a row cannot be preempted once it has forgotten some.
  bool is_endless = false;
  // Of an endless row: reads on in its prompt. Returns the tokens that follow, at most `count`;
  // none at the end of the prompt. Empty: `prompt` is all.
  std::function<std::vector<tokenizer::Token>(std::size_t count)> more_prompt;
  std::uint64_t held_bytes = 0;  // memory that rows_bytes() does not count
  std::string warning = {};    // what its client should know of prompt and form; one line of ASCII
  std::string answer_id = {};  // part of the ids of its calls; empty: the number of the row
};

// What a task holds until it ends, apart from what the scheduler counts for a running one.
std::uint64_t waiting_bytes(const Task& task);

// What the text of a result holds while others of the same request are waited for.
std::uint64_t result_bytes(const Task& task);

// The task for result number `choice` of a row that wants several. Each has its own seed, the first
// that of the row.
Task task_of_choice(const Task& first, std::uint32_t choice);

// Makes what Task::watch does with a limit on thoughts: it counts the tokens of a thought, and ends
// it when it has as many.
Task::Forced limit_thought(const std::shared_ptr<const chat::Dialogue>& dialogue,
                           bool opens_thought, std::uint64_t tokens_max);

// Splits the text of a completion with the task's reader, if it has one.
void split_text(const Task& task, Completion& completion);

// Whether the model ended the answer, or its tokens ran out.
chat::AnswerEnd answer_end(const Completion& completion);

// Calls in OpenAI's form; null when there are none. Their ids name the answer, the choice if it is
// not the first, and the call, so that no two of a conversation are alike.
nlohmann::ordered_json to_json(const std::vector<chat::ToolCall>& calls, const Task& task);

// How far the prompt of a task has been read, after a step that has read some of it.
struct PromptProgress {
  std::uint64_t tokens = 0;     // of the prompt
  std::uint64_t shared = 0;     // of these, those that were known from before the task
  std::uint64_t evaluated = 0;  // so far, the shared ones included; never fewer than before
};

// What comes of a task with one step.
struct TokenEvent {
  // The text that has become certain: whole characters of UTF-8 that cannot be the beginning of a
  // stop text. It is often empty. All these texts together are Completion::text before it is split.
  std::string_view text;
  std::optional<tokenizer::Token> token;             // nothing: text that was held back, at the end
  std::span<const sampling::TokenLogprob> logprobs;  // [1 + top] when they were asked for
};

// How a task ended.
struct Outcome {
  enum class End { completed, failed, cancelled };
  Completion completion;  // unless completed: as far as it came, not split
  std::string problem;    // why it failed or was cancelled, in one line; empty: completed
  End end = End::completed;
  bool may_run_again = false;     // it failed because of the machine, not because of its task
  std::exception_ptr cause = {};  // what was thrown, if it failed because of that
};

}  // namespace sluice::rows
