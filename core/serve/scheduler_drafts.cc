// The drafts of the scheduler's rows: which of them a step evaluates, and which were right.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/serve/scheduler.h"
#include "core/serve/scheduler_row.h"

namespace sluice::serve {

using speculate::Draft;
using tokenizer::Token;

namespace {

// The grade of a place in the estimates by place, the first of which begin as the surest.
std::uint8_t place_grade(std::size_t place) {
  return static_cast<std::uint8_t>(speculate::grades - 1 - std::min(place, speculate::grades - 1));
}

// The probabilities that drafts of a source that costs time are right, by their places.
std::vector<double> rates_by_place(const speculate::Acceptance& by_place, std::size_t most) {
  std::vector<double> rates(most);
  for (std::size_t i = 0; i < most; ++i) rates[i] = by_place.rate(place_grade(i));
  return rates;
}

std::vector<double> rates_of(const speculate::Acceptance& acceptance,
                             std::span<const Draft> drafts) {
  std::vector<double> rates;
  for (const Draft& draft : drafts) rates.push_back(acceptance.rate(draft.grade));
  return rates;
}

// How many drafts to ask of a source that does not pay: none while it rests, and then a few, which
// tell whether the text has changed.
std::size_t drafts_to_try(RowSource& source) {
  constexpr std::size_t few = 2;
  if (source.rest != 0) {
    --source.rest;
    return 0;
  }
  source.rest = source.next_rest;
  source.next_rest = std::min(2 * source.next_rest, RowSource::rest_max);
  return few;
}

}  // namespace

// Fills the step that was gathered with drafts, as far as that is worth its time.
void Scheduler::add_drafts() {
  if (!options_.drafts.make_sources) return;
  std::size_t columns = 0, logits = 0;
  bool generates_only = true;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    columns += works_[i].tokens.size();
    logits += works_[i].wants_logits ? 1 : 0;
    generates_only &= workers_[i]->generates();
  }
  const std::size_t most =
      std::min(engine_.step_columns() - columns, engine_.step_logits() - logits);
  shares_.clear();
  std::size_t proposed = 0;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    Row& row = *workers_[i];
    row.proposal.clear();
    row.asked = nullptr;
    row.drafts = 0;
    if (works_[i].wants_logits && row.generates()) {
      propose(row, most - std::min(most, proposed), columns + proposed, logits);
    }
    // What costs nothing is proposed to all rows, and shared out below.
    const bool is_paid = row.asked != nullptr && row.asked->source->seconds_each() > 0;
    if (is_paid) proposed += row.proposal.size();
    shares_.push_back({row.proposal, row.asked == nullptr ? nullptr : &row.asked->acceptance});
  }
  speculate::share_columns(shares_, most, columns, logits,
                           options_.drafts.is_eager ? nullptr : &step_times_);
  for (std::size_t i = 0; i < works_.size(); ++i) {
    Row& row = *workers_[i];
    if (shares_[i].columns == 0) continue;
    row.asked->use([&](speculate::Source&) {
      row.step_tokens.assign(works_[i].tokens.begin(), works_[i].tokens.end());
      for (const Draft& draft : shares_[i].drafts.first(shares_[i].columns)) {
        row.step_tokens.push_back(draft.token);
      }
      row.drafts = works_[i].drafts = shares_[i].columns;
      works_[i].tokens = row.step_tokens;
      columns += row.drafts;
    });
  }
  timed_columns_ = generates_only ? columns : 0;
}

// How many drafts could become tokens of the text.
std::size_t Scheduler::most_drafts(Row& row) const {
  const std::size_t size = row.tokens.size(), limit = engine_.facts().short_tokens_max;
  if (engine_.facts().has_states && row.pending().size() > 1) return 0;
  // A row that grows only with the last token of a page would have no room for drafts before that.
  const bool is_short = row.sequence->capacity() - size < options_.drafts.row_max;
  if (is_short && row.room(true) > row.sequence->capacity()) row.sequence->reserve(row.room(true));
  const std::size_t most =
      std::min<std::size_t>({options_.drafts.row_max, row.sequence->capacity() - size,
                             row.task.tokens_max - row.completion.completion_tokens - 1});
  return size <= limit ? std::min(most, limit - size) : most;
}

// Asks the sources of a row for drafts. One that costs time is asked for those alone that are worth
// it, and only where they are worth more than what costs nothing. At most `paid_max` of these have
// a column; `columns` and `tokens` are those of the step without the row's drafts.
void Scheduler::propose(Row& row, std::size_t paid_max, std::size_t columns,
                        std::size_t tokens) const {
  const std::size_t most = most_drafts(row);
  const bool is_eager = options_.drafts.is_eager;
  double tokens_per_s = 0;  // with the proposal so far
  const auto ask = [&](RowSource& asked, std::size_t count, double least) {
    row.proposal.clear();
    row.asked = nullptr;
    if (count == 0) return;
    const bool has_told = asked.use([&](speculate::Source& source) {
      std::optional<GrammarChoices> choices = row.choices();
      source.propose({count, least, choices ? &*choices : nullptr}, row.proposal);
    });
    const auto is_token = [&](const Draft& draft) {
      return draft.token >= 0 &&
             static_cast<std::uint32_t>(draft.token) < engine_.facts().vocabulary;
    };
    const auto end = std::ranges::find_if_not(row.proposal, is_token);
    const auto tokens_proposed = static_cast<std::size_t>(end - row.proposal.begin());
    row.proposal.resize(has_told ? std::min(tokens_proposed, count) : 0);
    if (std::optional<GrammarChoices> choices = row.choices(); choices && has_told) {
      speculate::keep_to(*choices, count, row.proposal);
    }
    if (!row.proposal.empty()) row.asked = &asked;
  };
  for (RowSource& source : row.sources) {
    if (!source.source || (is_eager && row.asked != nullptr)) continue;
    const double seconds_each = source.source->seconds_each();
    std::size_t count = seconds_each > 0 ? std::min(most, paid_max) : most;
    double least = 0;
    if (!is_eager && seconds_each > 0) {
      const speculate::Worth worth = speculate::worth_of(
          rates_by_place(source.by_place, count), seconds_each, columns, tokens, step_times_);
      if (worth.drafts != 0 && worth.tokens_per_s <= tokens_per_s) continue;
      if (worth.drafts == 0 && !row.proposal.empty()) continue;
      if (worth.drafts != 0) source.next_rest = RowSource::rest_min;
      count = worth.drafts != 0 ? worth.drafts : std::min(count, drafts_to_try(source));
      // A draft brings a token at most, if those before it are right, and takes its time in any
      // case: that of so many tokens.
      least = seconds_each * worth.tokens_per_s;
    }
    ask(source, count, least);
    if (row.asked == nullptr || is_eager) continue;
    tokens_per_s = speculate::worth_of(rates_of(source.acceptance, row.proposal), 0, columns,
                                       tokens, step_times_)
                       .tokens_per_s;
  }
}

// Takes tokens by the logits [1 + drafts][vocabulary] until one differs from its draft, the text is
// over, or there are no more logits. Returns how many of the tokens that were taken before the last
// one were drafts: these are right.
std::size_t Scheduler::judge_drafts(Row& row, std::span<const float> logits) {
  const std::size_t vocabulary = logits.size() / (1 + row.drafts);
  std::size_t right = 0;
  for (;;) {
    const Token token = take_next(row, logits.subspan(right * vocabulary, vocabulary));
    if (row.over || right == row.proposal.size()) break;
    const Draft& draft = row.proposal[right];
    row.asked->acceptance.learn(draft.grade, draft.token == token);
    row.asked->by_place.learn(place_grade(right), draft.token == token);
    if (draft.token != token || right == row.drafts) break;
    ++right;
  }
  ++counts_.row_steps;
  counts_.tokens_drafted += row.drafts;
  counts_.tokens_accepted += right;
  if (row.drafts != 0) {
    speculate::DraftCounts& of_kind =
        counts_.drafts_by_kind[static_cast<std::size_t>(row.asked->kind)];
    of_kind.drafted += row.drafts;
    of_kind.accepted += right;
  }
  // The text that was expected is looked up by the suffix source alone.
  const bool is_predicted = row.asked != nullptr && row.asked->kind == speculate::Kind::suffix;
  if (is_predicted && !row.task.prediction.empty()) {
    row.completion.drafted_tokens += row.drafts;
    row.completion.accepted_tokens += right;
  }
  return right;
}

}  // namespace sluice::serve
