// Keeps one generated text to a grammar, and lets a model think first.
//
// A model that reasons writes its thoughts before the answer; these are free, and the grammar
// begins where the thought ends (behind up to two newlines). A model may also begin a thought by
// itself: the tokens that open one are then allowed beside those of the grammar.
//
// In place of the answer, a model that has tools may call them: the tokens that begin a call are
// allowed as long as nothing of the answer has come, and behind them the text is free.
//
// A text may also end by itself before the model ends it, behind a first call for example.
//
// Where the grammar leaves exactly one token, that one is taken without a choice: nothing is drawn.
// So the tokens of a text depend on the grammar and the logits alone.
//
// Threads: a guide belongs to one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constrain/constraint.h"

namespace sluice::constrain {

// Where the answer begins in what a model writes.
struct ThoughtGate {
  // Takes the text of each token of a thought. Once the thought has ended, it returns the text that
  // already belongs to the answer, which is often empty. Without it the model does not think.
  std::function<std::optional<std::string>(std::string_view text)> answer;
  bool begins_inside = false;                  // the model thinks from the first token on
  std::vector<tokenizer::Token> openers = {};  // tokens that begin a thought
  // Tokens that end a thought where the answer can begin with them, which they belong to.
  std::vector<tokenizer::Token> closers = {};
};

class Guide {
 public:
  // Takes the text of each token, and says whether the text is over with it.
  using IsOver = std::function<bool(std::string_view text)>;

  // `ends`: the tokens that end the text, as for Matcher. `call_openers`: those that begin a call.
  // `is_over` may be empty.
  Guide(std::shared_ptr<const Constraint> constraint,
        std::shared_ptr<const std::vector<tokenizer::Token>> ends, ThoughtGate gate = {},
        std::vector<tokenizer::Token> call_openers = {}, IsOver is_over = {});
  // For a text that is free until it is over.
  explicit Guide(IsOver is_over) : is_over_(std::move(is_over)) {}

  // A bit for each token that may come next, valid until take(); empty: any token may. Throws
  // GrammarError when the grammar is too ambiguous, and when none may.
  std::span<const std::uint64_t> allowed();

  // The token that has to come next, when there is exactly one.
  std::optional<tokenizer::Token> only_choice();

  // Its place in the grammar, for one who wants to look ahead; nothing where something else than
  // the grammar may decide what comes next. All who look ahead from one token share a budget.
  std::optional<Matcher> place() const;

  // Takes the next token of the text, and its text, with the marks of thoughts written out. Throws
  // GrammarError for a token that is not allowed.
  void take(tokenizer::Token token, std::string_view text);

  // About the most bytes that a guide holds, without its constraint: masks, and the machines of the
  // text and of one who looks ahead.
  static std::size_t bytes_max(const Constraint& constraint) {
    constexpr std::size_t readings_bytes = std::size_t{64} << 10;
    return 3 * constraint.trie().vocabulary_size() / 8 + readings_bytes + 2 * Machine::bytes_max();
  }

  // Whether the text is at its end: nothing more can come.
  bool is_complete() const {
    return has_ended_ || (!is_free() && !is_thinking_ && !is_call_ && matcher_->is_complete());
  }

 private:
  bool is_free() const { return !matcher_; }
  bool is_at_grammar() const;
  void follow(tokenizer::Token token, std::string_view text);
  bool ends_thought(tokenizer::Token token);
  // What may come now beside the tokens of the grammar; no openers: nothing.
  std::span<const tokenizer::Token> thought_openers() const;
  std::span<const tokenizer::Token> call_openers() const;

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<const std::vector<tokenizer::Token>> ends_;
  ThoughtGate gate_;
  std::vector<tokenizer::Token> call_openers_;
  IsOver is_over_;
  std::optional<Matcher> matcher_;  // none: the text is free
  // Of those who look ahead; drafts are not worth more than a token may take.
  std::shared_ptr<TokenBudget> ahead_ = std::make_shared<TokenBudget>(TokenBudget::token_steps);
  bool has_ended_ = false;
  bool is_thinking_ = false;
  bool is_call_ = false;
  bool is_first_ = true;    // no token has come yet
  bool has_begun_ = false;  // more of the answer has come than newlines
  std::vector<std::uint64_t> with_openers_;
};

}  // namespace sluice::constrain
