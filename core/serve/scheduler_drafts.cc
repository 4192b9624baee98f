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

// Fills the step that was gathered with drafts, as far as that is worth its time.
void Scheduler::add_drafts() {
  if (!options_.drafts.make_source) return;
  std::size_t columns = 0, logits = 0;
  bool generates_only = true;
  shares_.clear();
  for (std::size_t i = 0; i < works_.size(); ++i) {
    Row& row = *workers_[i];
    columns += works_[i].tokens.size();
    logits += works_[i].wants_logits ? 1 : 0;
    row.proposal.clear();
    row.drafts = 0;
    generates_only &= row.generates();
    if (works_[i].wants_logits && row.generates()) propose(row);
    shares_.push_back({row.proposal, &row.acceptance});
  }
  const std::size_t most =
      std::min(engine_.step_columns() - columns, engine_.step_logits() - logits);
  speculate::share_columns(shares_, most, columns, logits,
                           options_.drafts.is_eager ? nullptr : &step_times_);
  for (std::size_t i = 0; i < works_.size(); ++i) {
    Row& row = *workers_[i];
    if (shares_[i].columns == 0) continue;
    row.use_source([&](speculate::Source&) {
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

// Asks the source of a row for drafts, as many as could become tokens of the text.
void Scheduler::propose(Row& row) const {
  const std::size_t size = row.tokens.size(), limit = engine_.facts().short_tokens_max;
  // A row that grows only with the last token of a page would have no room for drafts before that.
  const bool is_short = row.sequence->capacity() - size < options_.drafts.row_max;
  if (is_short && row.room(true) > row.sequence->capacity()) row.sequence->reserve(row.room(true));
  std::size_t most =
      std::min<std::size_t>({options_.drafts.row_max, row.sequence->capacity() - size,
                             row.task.tokens_max - row.completion.completion_tokens - 1});
  if (size <= limit) most = std::min(most, limit - size);
  if (engine_.facts().has_states && row.pending().size() > 1) return;
  if (most == 0) return;
  row.use_source([&](speculate::Source& source) { source.propose(most, row.proposal); });
  const auto is_token = [&](const Draft& draft) {
    return draft.token >= 0 && static_cast<std::uint32_t>(draft.token) < engine_.facts().vocabulary;
  };
  const auto end = std::ranges::find_if_not(row.proposal, is_token);
  const auto count = static_cast<std::size_t>(end - row.proposal.begin());
  row.proposal.resize(std::min(count, most));
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
    row.acceptance.learn(draft.grade, draft.token == token);
    if (draft.token != token || right == row.drafts) break;
    ++right;
  }
  ++counts_.row_steps;
  counts_.tokens_drafted += row.drafts;
  counts_.tokens_accepted += right;
  if (!row.task.prediction.empty()) {
    row.completion.drafted_tokens += row.drafts;
    row.completion.accepted_tokens += right;
  }
  return right;
}

}  // namespace sluice::serve
