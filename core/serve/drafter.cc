#include "core/serve/drafter.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/plan/memory_plan.h"

namespace sluice::serve {

using engine::Sequence;
using engine::SequenceWork;
using speculate::Draft;
using tokenizer::Token;

namespace {

// A step of more tokens says little about one of a token.
constexpr std::size_t measured_tokens_max = 8;

constexpr std::span<const std::uint64_t> no_mask;

// A text, as far as a model has read it. Some of it is evaluated; its end, at least the last token,
// is not, since what comes next follows from its logits.
class DraftSource final : public speculate::Source {
 public:
  explicit DraftSource(std::shared_ptr<Drafter> drafter) : drafter_(std::move(drafter)) {}

  speculate::Kind kind() const override { return speculate::Kind::draft; }
  double seconds_each() const override { return drafter_->seconds_each(); }

  // What was proposed stays so until the text goes on: a step may be tried again.
  void propose(const speculate::Wanted& wanted, std::vector<Draft>& drafts) override {
    if (wanted.most == 0 || is_over_) return;
    if (proposed_.empty()) find(wanted);
    const std::span<const Draft> first =
        std::span(proposed_).first(std::min(wanted.most, proposed_.size()));
    drafts.insert(drafts.end(), first.begin(), first.end());
  }

  void accepted(std::span<const Token> tokens) override {
    if (tokens.empty() || is_over_) return;
    const std::size_t right = cut_back(tokens.first(tokens.size() - 1));
    proposed_.clear();
    pending_.insert(pending_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(right),
                    tokens.end());
    if (pending_.size() > pending_max()) give_up();
  }

  void forget() override {
    give_up();
    is_over_ = false;
  }

 private:
  // A text that is too long for the model gets no more drafts.
  void give_up() {
    is_over_ = true;
    sequence_.reset();
    pending_.clear();
    proposed_.clear();
    evaluated_ = 0;
  }

  std::size_t pending_max() const {
    constexpr std::size_t most = std::size_t{1} << 16;
    return std::min<std::size_t>(drafter_->positions(), most);
  }

  std::size_t room() const { return sequence_->capacity() - sequence_->position(); }

  // Leaves of the drafts that are evaluated those with which `tokens` begin, and says how many.
  std::size_t cut_back(std::span<const Token> tokens) {
    if (evaluated_ == 0) return 0;
    const std::span<const Draft> drafts = std::span(proposed_).first(evaluated_);
    const auto right = static_cast<std::size_t>(
        std::ranges::mismatch(drafts, tokens, {}, &Draft::token).in1 - drafts.begin());
    sequence_->truncate(static_cast<std::uint32_t>(sequence_->position() - evaluated_ + right));
    evaluated_ = 0;
    return right;
  }

  // Evaluates the text as far as a step can. A long one takes several proposals, so that nobody has
  // to wait for all of it.
  bool catch_up() {
    const std::size_t columns = drafter_->engine().step_columns();
    if (pending_.size() <= columns) return true;
    drafter_->read(*sequence_, std::span(pending_).first(columns));
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(columns));
    return false;
  }

  void find(speculate::Wanted wanted) {
    if (pending_.empty() || (!sequence_ && !(sequence_ = drafter_->new_sequence()))) return;
    if (room() < pending_.size()) return give_up();
    if (!catch_up()) return;
    wanted.most = std::min(wanted.most, room() - pending_.size() + 1);
    double chance = propose_next(*sequence_, pending_, wanted);
    pending_.clear();
    std::unique_ptr<Sequence> fork;
    const bool cuts_back = drafter_->engine().facts().cuts_back;
    const std::size_t further = wanted.most - std::min(wanted.most, proposed_.size());
    if (!cuts_back && further != 0 && !(fork = drafter_->fork(*sequence_, wanted.most - 1))) return;
    Sequence& sequence = fork ? *fork : *sequence_;
    std::vector<Token> told;  // the drafts that the sequence does not have yet
    std::size_t known = 0;
    while (chance > 0 && chance >= wanted.least && proposed_.size() < wanted.most) {
      if (drafter_->engine().tokenizer().is_end_of_generation(proposed_.back().token)) return;
      told.clear();
      for (; known < proposed_.size(); ++known) told.push_back(proposed_[known].token);
      chance *= propose_next(sequence, told, wanted);
      if (cuts_back) evaluated_ = known;
    }
  }

  // Proposes what comes behind these tokens, and then what has to come behind that. Returns how
  // probable the first of them is; 0 if nothing comes behind them.
  double propose_next(Sequence& sequence, std::span<const Token> tokens,
                      const speculate::Wanted& wanted) {
    speculate::Choices* const choices = wanted.choices;
    for (const std::size_t columns = drafter_->engine().step_columns(); tokens.size() > columns;) {
      drafter_->read(sequence, tokens.first(columns));
      tokens = tokens.subspan(columns);
    }
    const auto [token, probability] =
        drafter_->next(sequence, tokens, choices ? choices->allowed() : no_mask);
    if (probability == 0) return 0;
    proposed_.push_back({token, speculate::grade_of(probability)});
    if (choices == nullptr) return probability;
    while (choices->take(proposed_.back().token) && !choices->is_over()) {
      const std::optional<Token> only = choices->only();
      if (!only || proposed_.size() == wanted.most) return probability;
      proposed_.push_back({*only, speculate::certain_grade});
    }
    return 0;
  }

  std::shared_ptr<Drafter> drafter_;
  std::unique_ptr<Sequence> sequence_;  // null until the first proposal
  std::vector<Token> pending_;          // of the text, behind what the sequence has
  std::vector<Draft> proposed_;         // behind the text; then nothing is pending
  std::size_t evaluated_ = 0;           // of these, at the end of the sequence
  bool is_over_ = false;
};

}  // namespace

Drafter::Drafter(std::unique_ptr<engine::Engine> engine, std::uint32_t positions)
    : engine_(std::move(engine)), positions_(positions) {
  constexpr std::uint32_t tries = 4;
  const std::unique_ptr<Sequence> sequence = engine_->new_sequence(tries);
  for (std::uint32_t i = 0; sequence && i < tries; ++i) {
    const Token token = 0;
    next(*sequence, {&token, 1});
  }
}

std::unique_ptr<Sequence> Drafter::new_sequence() {
  return engine_->new_sequence(positions_);
}

std::unique_ptr<Sequence> Drafter::fork(const Sequence& source, std::size_t more) {
  const std::uint32_t position = source.position();
  return engine_->fork(source, position, position + static_cast<std::uint32_t>(more));
}

void Drafter::read(Sequence& sequence, std::span<const Token> tokens) {
  const SequenceWork work{&sequence, tokens, false};
  engine_->step({&work, 1});
}

speculate::Likeliest Drafter::next(Sequence& sequence, std::span<const Token> tokens,
                                   std::span<const std::uint64_t> allowed) {
  const SequenceWork work{&sequence, tokens, true};
  const auto begin = std::chrono::steady_clock::now();
  const std::span<const float> logits = engine_->step({&work, 1}).front();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (tokens.size() <= measured_tokens_max) time_.measured(taken.count());
  return speculate::likeliest_of(logits.first(engine_->tokenizer().vocabulary_size()), allowed);
}

std::unique_ptr<speculate::Source> make_draft_source(std::shared_ptr<Drafter> drafter) {
  return std::make_unique<DraftSource>(std::move(drafter));
}

}  // namespace sluice::serve
