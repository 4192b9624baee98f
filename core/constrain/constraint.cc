#include "core/constrain/constraint.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/constrain/grammar_error.h"

namespace sluice::constrain {
namespace {

using tokenizer::Token;

// Walks over parts of the trie; used again, so that a short walk allocates nothing.
class Walk {
 public:
  Walk(const TokenTrie& trie, Machine& machine, WorkBudget& budget)
      : trie_(trie),
        machine_(machine),
        budget_(budget),
        levels_(trie.longest()),
        frames_(trie.longest()) {}

  // Follows the tokens of the nodes begin..end, all below one parent, to which `from` belongs.
  // Calls on_node(index, readings) for each node that can be reached.
  template <typename OnNode>
  void run(std::uint32_t begin, std::uint32_t end, const ReadingSet& from, const OnNode& on_node) {
    const std::vector<TokenTrie::Node>& nodes = trie_.nodes();
    if (begin == end) return;
    const unsigned base = nodes[begin].depth;
    const std::size_t frames_before = machine_.frames();
    for (std::uint32_t i = begin; i < end;) {
      const TokenTrie::Node& node = nodes[i];
      const unsigned level = node.depth - base;
      machine_.truncate(level == 0 ? frames_before : frames_[level - 1]);
      const ReadingSet& before = level == 0 ? from : levels_[level - 1];
      if (!machine_.step(before, node.byte, levels_[level], budget_)) {
        i = node.end;
        continue;
      }
      frames_[level] = machine_.frames();
      on_node(i, levels_[level]);
      ++i;
    }
    machine_.truncate(frames_before);
  }

 private:
  const TokenTrie& trie_;
  Machine& machine_;
  WorkBudget& budget_;
  std::vector<ReadingSet> levels_;
  std::vector<std::size_t> frames_;  // [levels]: those that the readings of a level need
};

std::size_t words_for(const TokenTrie& trie) {
  return (trie.vocabulary_size() + 63) / 64;
}

void set_bit(std::vector<std::uint64_t>& words, Token token) {
  const auto id = static_cast<std::size_t>(token);
  words[id / 64] |= std::uint64_t{1} << (id % 64);
}

bool has_bit(const std::vector<std::uint64_t>& words, Token token) {
  const auto id = static_cast<std::size_t>(token);
  return (words[id / 64] >> (id % 64) & 1U) != 0;
}

}  // namespace

std::size_t Constraint::Within::bytes() const {
  constexpr std::size_t place = 128;  // in the map
  return place + tokens.capacity() * sizeof(Token) + words.capacity() * sizeof(std::uint64_t) +
         exits.capacity() * sizeof(std::uint32_t);
}

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie)
    : grammar_(std::move(grammar)), trie_(std::move(trie)) {}

std::size_t Constraint::bytes_max() const {
  const std::size_t one =
      words_for(*trie_) * sizeof(std::uint64_t) + trie_->nodes().size() * sizeof(std::uint32_t);
  return grammar_.bytes() + kept_bytes_max + one;
}

// Two readings of a loop differ only if one token can tell them apart. A token reads at most
// `reach` rounds, so higher numbers of rounds that are missing, or left, count as equal.
Constraint::Key Constraint::key_of(const Reading& reading) const {
  const std::uint32_t loop = grammar_.states[reading.state].loop;
  if (loop == Grammar::none) return {reading.state, 0, 0};
  const Grammar::Loop& limits = grammar_.loops[loop];
  const auto reach = static_cast<std::uint32_t>(trie_->longest() + 1);
  const std::uint32_t missing = limits.min > reading.rounds ? limits.min - reading.rounds : 0;
  const std::uint32_t left =
      limits.max == Grammar::unlimited ? reach : limits.max - std::min(limits.max, reading.rounds);
  return {reading.state, std::min(missing, reach), std::min(left, reach)};
}

std::shared_ptr<const Constraint::Within> Constraint::within(const Reading& reading,
                                                             WorkBudget& budget) const {
  const Key key = key_of(reading);
  const base::MutexLock lock(mutex_);
  const auto known = kept_.find(key);
  if (known != kept_.end()) return known->second;
  auto found = std::make_shared<const Within>(find_within(reading, budget));
  if (kept_bytes_ + found->bytes() > kept_bytes_max) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += found->bytes();
  kept_.emplace(key, found);
  return found;
}

Constraint::Within Constraint::find_within(const Reading& reading, WorkBudget& budget) const {
  Machine machine(grammar_);
  ReadingSet from;
  from.readings.push_back({reading.state, reading.rounds, 0});
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  Within found;
  Walk(*trie_, machine, budget)
      .run(0, static_cast<std::uint32_t>(nodes.size()), from,
           [&](std::uint32_t i, const ReadingSet& set) {
             if (nodes[i].token >= 0) found.tokens.push_back(nodes[i].token);
             if (set.may_end && nodes[i].end > i + 1) found.exits.push_back(i);
           });
  found.frames = machine.deepest();
  if (found.tokens.size() * sizeof(Token) > words_for(*trie_) * sizeof(std::uint64_t)) {
    found.words.assign(words_for(*trie_), 0);
    for (const Token token : found.tokens) set_bit(found.words, token);
    found.tokens = {};
  }
  found.tokens.shrink_to_fit();
  found.exits.shrink_to_fit();
  return found;
}

Matcher::Matcher(std::shared_ptr<const Constraint> constraint,
                 std::shared_ptr<const std::vector<Token>> ends, Start start)
    : constraint_(std::move(constraint)), ends_(std::move(ends)), machine_(constraint_->grammar()) {
  const Grammar& grammar = constraint_->grammar();
  machine_.start(start == Start::text ? grammar.start : grammar.start_after_thought, readings_,
                 budget_);
}

Matcher Matcher::ahead(std::shared_ptr<TokenBudget> budget) const {
  Matcher copy = *this;
  copy.ahead_ = std::move(budget);
  return copy;
}

std::span<const std::uint64_t> Matcher::allowed(WorkBudget& budget) {
  if (has_mask_) return words_;
  words_.assign(words_for(constraint_->trie()), 0);
  for (const Reading& reading : readings_.readings) {
    if (constraint_->grammar().states[reading.state].has_bytes) {
      allow_within(reading, budget);
    }
  }
  for (const auto& [token, twin] : constraint_->trie().twins()) {
    if (has_bit(words_, token)) allow(twin);
  }
  if (readings_.may_end) {
    for (const Token token : *ends_) allow(token);
  }
  has_mask_ = true;
  return words_;
}

void Matcher::allow(Token token) {
  set_bit(words_, token);
}

void Matcher::allow_within(const Reading& reading, WorkBudget& budget) {
  const std::shared_ptr<const Constraint::Within> within = constraint_->within(reading, budget);
  if (machine_.depth_of(reading) + within->frames > Machine::depth_max) {
    return allow_by_stack(reading, budget);
  }
  for (const Token token : within->tokens) allow(token);
  for (std::size_t i = 0; i < within->words.size(); ++i) words_[i] |= within->words[i];
  if (reading.stack == 0 || within->exits.empty()) return;
  const TokenTrie& trie = constraint_->trie();
  const std::size_t frames = machine_.frames();
  ReadingSet behind;
  machine_.leave_rule(reading, behind, budget);
  Walk walk(trie, machine_, budget);
  for (const std::uint32_t exit : within->exits) {
    walk.run(exit + 1, trie.nodes()[exit].end, behind, [&](std::uint32_t i, const ReadingSet&) {
      if (trie.nodes()[i].token >= 0) allow(trie.nodes()[i].token);
    });
  }
  machine_.truncate(frames);
}

void Matcher::allow_by_stack(const Reading& reading, WorkBudget& budget) {
  const std::vector<TokenTrie::Node>& nodes = constraint_->trie().nodes();
  ReadingSet from;
  from.readings.push_back(reading);
  Walk(constraint_->trie(), machine_, budget)
      .run(0, static_cast<std::uint32_t>(nodes.size()), from,
           [&](std::uint32_t i, const ReadingSet&) {
             if (nodes[i].token >= 0) allow(nodes[i].token);
           });
}

std::optional<Token> Matcher::only_choice() {
  std::optional<Token> only;
  const std::span<const std::uint64_t> words = allowed();
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == 0) continue;
    if (only || std::popcount(words[i]) > 1) return std::nullopt;
    only = static_cast<Token>(64 * i + static_cast<std::size_t>(std::countr_zero(words[i])));
  }
  return only;
}

bool Matcher::is_complete() const {
  return readings_.may_end && std::ranges::none_of(readings_.readings, [&](const Reading& reading) {
           return constraint_->grammar().states[reading.state].has_bytes;
         });
}

bool Matcher::accept_text(std::string_view text) {
  if (text.empty()) return false;
  const std::size_t frames = machine_.frames();
  ReadingSet now = readings_, next;
  for (const char byte : text) {
    if (!machine_.step(now, static_cast<std::uint8_t>(static_cast<unsigned char>(byte)), next,
                       budget())) {
      machine_.truncate(frames);
      return false;
    }
    std::swap(now, next);
  }
  if (!ahead_) budget_.next_token();
  readings_ = std::move(now);
  has_mask_ = false;
  machine_.keep_only(readings_);
  return true;
}

}  // namespace sluice::constrain
