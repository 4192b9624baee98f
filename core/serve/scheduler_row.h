// A row of the scheduler: for scheduler.cc alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/rows/pooling.h"
#include "core/sampling/text_stream.h"
#include "core/serve/grammar_choices.h"
#include "core/serve/row_tokens.h"
#include "core/serve/scheduler.h"
#include "core/speculate/acceptance.h"
#include "core/speculate/source.h"

namespace sluice::serve {

// A source of a row, and what it was good for.
struct RowSource {
  std::unique_ptr<speculate::Source> source;  // null once it has thrown
  speculate::Kind kind = source->kind();
  speculate::Acceptance acceptance = {};  // by grade
  // By the number of drafts that stand before one: how many to ask for is known before the grades.
  speculate::Acceptance by_place = {};
  // One that costs time and does not pay rests for some steps, and then is tried again: each time
  // after a longer rest.
  std::uint32_t rest = 0, next_rest = rest_min;
  static constexpr std::uint32_t rest_min = 16, rest_max = 256;

  // Does something with the source. It has no say in the text, so what it throws is not the row's
  // problem. Returns whether it has not thrown.
  template <class Work>
  bool use(const Work& work) noexcept {
    if (!source) return false;
    try {
      work(*source);
      return true;
    } catch (...) {
      source.reset();
      return false;
    }
  }
};

// A row between its admission and its end. It has no sequence before it starts, and while it is
// preempted. Making it takes over the task and does nothing that may throw; begin() does the rest.
struct Scheduler::Row {
  using Token = tokenizer::Token;

  explicit Row(rows::Task&& given)
      : task(std::move(given)), pool(task.pooling.value_or(rows::Pooling::last)) {}

  void begin(std::shared_ptr<sampling::SamplerScratch> scratch) {
    completion.prompt_tokens = task.prompt.size();
    completion.truncated_tokens = task.truncated_tokens;
    sampler.emplace(task.sampler, std::move(scratch));
    text.emplace(task.stop);
    tokens.add(task.prompt);
    for (const Token token : task.prompt) sampler->accept_prompt(token);
    if (task.watch) forced_by = task.watch();
    if (task.guide) guide = task.guide();
    if (task.tokens_min == 0) return;
    banned_at_first = task.stop_tokens;
    banned_at_first.insert(banned_at_first.end(), task.end_tokens->begin(), task.end_tokens->end());
  }

  // The tokens that must not be chosen next.
  std::span<const Token> banned() const {
    if (completion.completion_tokens < task.tokens_min) return banned_at_first;
    if (task.ignores_end) return *task.end_tokens;
    return {};
  }
  bool ends_with(Token token) const {
    return std::ranges::binary_search(*task.end_tokens, token) ||
           std::ranges::find(task.stop_tokens, token) != task.stop_tokens.end();
  }

  bool is_interactive() const { return task.priority == rows::Priority::interactive; }
  // What it may need, as far as its prompt is read; the last token is not evaluated.
  std::uint32_t positions() const {
    const std::uint64_t generated = std::max(task.tokens_max, 1U) - 1;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(completion.prompt_tokens + generated, kvcache::unlimited));
  }
  // The positions to ask for: for all tokens, and some more if `grows`. Reserving is cheap, and a
  // row that takes little leaves room for others.
  std::uint32_t room(bool grows) const {
    const auto needed = static_cast<std::uint32_t>(tokens.size());
    return std::min(positions(), needed + (grows ? kvcache::page_positions : 0));
  }
  // The tokens that other rows can share: all but the last, which is always evaluated for its
  // logits.
  std::span<const Token> shareable() const {
    const std::span<const Token> whole = tokens.whole();
    return whole.first(whole.size() - (whole.empty() ? 0 : 1));
  }
  // The tokens to evaluate next.
  std::span<const Token> pending() const { return tokens.from(sequence->position()); }
  // Reads on in the prompt, until there is more of it than a step can take, or nothing behind it.
  void read_prompt(std::size_t columns) {
    while (task.more_prompt && pending().size() <= columns) {
      const std::vector<Token> read = task.more_prompt(columns);
      if (read.empty()) task.more_prompt = nullptr;
      tokens.add(read);
      completion.prompt_tokens += read.size();
      for (const Token token : read) sampler->accept_prompt(token);
      tell_sources(read);
    }
  }
  // What is pooled may need the hidden states of tokens that others have evaluated; and where
  // tokens see the whole text, no two texts have any in common.
  bool can_share() const {
    return !reads_whole && (!task.pooling || task.pooling == rows::Pooling::last);
  }
  bool has_begun() const { return completion.completion_tokens != 0; }
  // In the middle of a step, where nothing may be thrown.
  void add(std::span<const float> hidden) {
    try {
      pool.add(hidden);
    } catch (...) {
      problem = std::current_exception();
    }
  }
  bool generates() const {
    if (!sequence || !has_begun()) return false;
    const std::size_t left = pending().size();
    return left != 0 && left <= 1 + known;
  }

  template <class Work>
  void use_sources(const Work& work) noexcept {
    for (RowSource& source : sources) source.use(work);
  }
  void tell_sources(std::span<const Token> added) noexcept {
    use_sources([&](speculate::Source& source) { source.accepted(added); });
  }

  // The next token, where it does not depend on logits.
  std::optional<Token> known_token() const {
    if (!forced.empty()) return forced.front();
    return guide ? guide->only_choice() : std::nullopt;
  }

  // What may come next, for drafts; nothing where that is not known.
  std::optional<GrammarChoices> choices() const {
    std::optional<constrain::Matcher> place = guide ? guide->place() : std::nullopt;
    if (!place) return std::nullopt;
    return GrammarChoices(std::move(*place));
  }

  rows::Task task;
  bool reads_whole = false;                  // all tokens have to be in one step
  std::optional<sampling::Sampler> sampler;  // from begin() on, as the text
  std::optional<sampling::TextStream> text;
  rows::Completion completion;
  std::unique_ptr<engine::Sequence> sequence;
  RowTokens tokens;
  std::size_t evaluated_most = 0;  // tokens that were evaluated, perhaps before a preemption
  rows::Pool pool;                 // of an embedding
  std::vector<Token> banned_at_first;
  rows::Task::Forced forced_by;             // may be empty
  std::unique_ptr<constrain::Guide> guide;  // may be null
  std::vector<Token> forced;                // tokens that come next, in place of the model's choice
  std::size_t known = 0;                    // of the tokens, those that were known without logits
  std::vector<RowSource> sources;           // of drafts
  RowSource* asked = nullptr;               // of these, the one of the proposal
  std::vector<speculate::Draft> proposal;   // for the present step, which may have no room for all
  std::vector<Token> step_tokens;           // of the present step, if it has drafts
  std::size_t drafts = 0;                   // of these, the last ones
  std::optional<rows::Finish> over;         // the text is, and how
  std::string cancelled_because;            // empty: it goes on
  std::exception_ptr problem;               // of the step that is computed
  bool was_started = false;
  bool is_held = false;  // was preempted, and waits until a row ends
  bool has_ended = false;
};

}  // namespace sluice::serve
