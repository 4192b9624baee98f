#include "core/serve/drafter.h"

#include <algorithm>
#include <chrono>
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

// A text, as far as a model has read it. Some of it is evaluated; its end, at least the last token,
// is not, since what comes next follows from its logits.
class DraftSource final : public speculate::Source {
 public:
  explicit DraftSource(std::shared_ptr<Drafter> drafter) : drafter_(std::move(drafter)) {}

  speculate::Kind kind() const override { return speculate::Kind::draft; }
  double seconds_each() const override { return drafter_->seconds_each(); }

  // What was proposed stays so until the text goes on: a step may be tried again.
  void propose(std::size_t most, double least, std::vector<Draft>& drafts) override {
    if (most == 0 || is_over_) return;
    if (proposed_.empty()) find(most, least);
    const std::span<const Draft> first =
        std::span(proposed_).first(std::min(most, proposed_.size()));
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

  void find(std::size_t most, double least) {
    if (pending_.empty() || (!sequence_ && !(sequence_ = drafter_->new_sequence()))) return;
    if (room() < pending_.size()) return give_up();
    if (!catch_up()) return;
    double chance = propose_next(*sequence_, pending_);
    pending_.clear();
    most = std::min(most, room() + 1);
    std::unique_ptr<Sequence> fork;
    const bool cuts_back = drafter_->engine().facts().cuts_back;
    if (!cuts_back && most > 1 && !(fork = drafter_->fork(*sequence_, most - 1))) return;
    Sequence& sequence = fork ? *fork : *sequence_;
    while (proposed_.size() < most && chance >= least) {
      const Token last = proposed_.back().token;
      if (drafter_->engine().tokenizer().is_end_of_generation(last)) return;
      chance *= propose_next(sequence, {&last, 1});
      if (cuts_back) ++evaluated_;
    }
  }

  // Proposes what comes behind these tokens, and says how probable that is.
  double propose_next(Sequence& sequence, std::span<const Token> tokens) {
    const auto [token, probability] = drafter_->next(sequence, tokens);
    proposed_.push_back({token, speculate::grade_of(probability)});
    return probability;
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

speculate::Likeliest Drafter::next(Sequence& sequence, std::span<const Token> tokens) {
  const SequenceWork work{&sequence, tokens, true};
  const auto begin = std::chrono::steady_clock::now();
  const std::span<const float> logits = engine_->step({&work, 1}).front();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (tokens.size() <= measured_tokens_max) time_.measured(taken.count());
  return speculate::likeliest_of(logits.first(engine_->tokenizer().vocabulary_size()));
}

std::unique_ptr<speculate::Source> make_draft_source(std::shared_ptr<Drafter> drafter) {
  return std::make_unique<DraftSource>(std::move(drafter));
}

}  // namespace sluice::serve
