// Which tokens may come next in a text that has to match a grammar.
//
// The mask of a state is the union of what its readings allow. For one reading it is found by a
// walk over the trie that begins with an empty stack: tokens that stay within the rule do not
// depend on the stack, so they are kept and used again for every other stack. Where a token goes on
// behind the end of the rule, only the rest of it is walked with the real stack. In a JSON string,
// where nearly every token is allowed, that rest is what follows a quotation mark. Near the most
// frames that a stack may have, all is walked with the real one. Rounds of a loop that no token can
// use up count as equal.
//
// Threads: a Constraint may be used by any number of threads, a Matcher by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "core/constrain/grammar.h"
#include "core/constrain/machine.h"
#include "core/constrain/token_trie.h"

namespace sluice::constrain {

// A grammar together with a vocabulary, shared by all texts that have to match it.
class Constraint {
 public:
  // What is kept of masks; when it is reached, all of it is dropped and found again.
  static constexpr std::size_t kept_bytes_max = std::size_t{2} << 20;

  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie);

  const Grammar& grammar() const { return grammar_; }
  const TokenTrie& trie() const { return *trie_; }

  // The most bytes that a constraint comes to hold, without the trie.
  std::size_t bytes_max() const;

 private:
  friend class Matcher;
  // What one reading allows within its rule.
  struct Within {
    std::vector<tokenizer::Token> tokens;  // if there are few
    std::vector<std::uint64_t> words;      // a bit for each token, if there are many
    // Inner nodes of the trie at which the rule may be over.
    std::vector<std::uint32_t> exits;
    std::uint32_t frames = 0;  // that had to stand above those of the reading
    std::size_t bytes() const;
  };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  Key key_of(const Reading& reading) const;
  std::shared_ptr<const Within> within(const Reading& reading, WorkBudget& budget) const;
  Within find_within(const Reading& reading, WorkBudget& budget) const;

  Grammar grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  mutable base::Mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const Within>> kept_ SLUICE_GUARDED_BY(mutex_);
  mutable std::size_t kept_bytes_ SLUICE_GUARDED_BY(mutex_) = 0;
};

// The place of one text in its grammar.
class Matcher {
 public:
  enum class Start : std::uint8_t { text, after_thought };

  // `ends`: the tokens that end a text, all in the vocabulary; allowed where the grammar may end.
  Matcher(std::shared_ptr<const Constraint> constraint,
          std::shared_ptr<const std::vector<tokenizer::Token>> ends, Start start = Start::text);

  // The same place, for one who looks ahead from it: `budget` pays for that, not the text.
  Matcher ahead(std::shared_ptr<TokenBudget> budget) const;

  // A bit for each token of the vocabulary that may come next; valid until the next change. Throws
  // GrammarError when the grammar is so ambiguous that `budget` is spent; then nothing has changed.
  std::span<const std::uint64_t> allowed(WorkBudget& budget);
  std::span<const std::uint64_t> allowed() { return allowed(budget()); }

  // The token that may come next, when there is exactly one.
  std::optional<tokenizer::Token> only_choice();

  bool may_end() const { return readings_.may_end; }
  // The text is over: nothing more can come.
  bool is_complete() const;

  // Takes the next token, or the next bytes of the text. Returns false, and changes nothing, when
  // they do not match. Throws as allowed() does.
  bool accept(tokenizer::Token token) { return accept_text(constraint_->trie().piece(token)); }
  bool accept_text(std::string_view text);

 private:
  TokenBudget& budget() { return ahead_ ? *ahead_ : budget_; }
  void allow_within(const Reading& reading, WorkBudget& budget);
  void allow_by_stack(const Reading& reading, WorkBudget& budget);
  void allow(tokenizer::Token token);

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<const std::vector<tokenizer::Token>> ends_;
  Machine machine_;
  ReadingSet readings_;
  TokenBudget budget_;                  // of the text
  std::shared_ptr<TokenBudget> ahead_;  // pays instead; null: nobody does
  std::vector<std::uint64_t> words_;    // the mask
  bool has_mask_ = false;               // of the readings as they are
};

}  // namespace sluice::constrain
