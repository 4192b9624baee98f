#include "core/speculate/suffix_source.h"

#include <algorithm>
#include <utility>

namespace sluice::speculate {

using tokenizer::Token;

namespace {

// Two tokens are the least; each further one counts up to nine, and behind that every eighth.
std::uint8_t grade_of_agreement(std::size_t agreement) {
  const std::size_t grade =
      agreement <= 9 ? std::max<std::size_t>(agreement, 2) - 2 : 7 + (agreement - 9) / 8;
  return static_cast<std::uint8_t>(std::min(grade, grades - 1));
}

}  // namespace

SuffixSource::SuffixSource(std::vector<Token> expected, std::shared_ptr<SharedTexts> shared,
                           std::uint32_t group)
    : expected_(std::move(expected)), shared_(std::move(shared)), group_(group) {
  expected_.resize(std::min(expected_.size(), tokens_max / 2));
  SuffixSource::forget();
}

void SuffixSource::forget() {
  index_.clear();
  follows_ = 0;
  accepted(expected_);
}

void SuffixSource::accepted(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    if (follows_ != 0) follows_ = index_.tokens()[follows_] == token ? follows_ + 1 : 0;
    if (index_.add(token) != 0) follows_ = 0;
  }
}

void SuffixSource::ended(std::size_t written) {
  if (!shared_) return;
  const std::span<const Token> text = index_.tokens();
  shared_->add(group_, text, std::min(written, text.size()));
}

void SuffixSource::propose(const Wanted& wanted, std::vector<Draft>& drafts) {
  const Match match = find();
  follows_ = match.agreement == 0 ? 0 : match.next;
  if (shared_) {
    const SharedTexts::Found found = shared_->find(group_, index_.tokens());
    if (found.agreement > match.agreement) {
      for (std::size_t i = 0; i < std::min(wanted.most, found.next.size()); ++i) {
        drafts.push_back({found.next[i], grade_of_agreement(found.agreement + i)});
      }
      return;
    }
  }
  if (match.agreement == 0) return;
  // Behind the end of the text come the drafts themselves: what repeats itself does so on and on.
  const std::size_t begin = drafts.size();
  for (std::size_t i = 0; i < wanted.most; ++i) {
    const std::size_t from = match.next + i;
    const Token token =
        from < index_.size() ? index_.tokens()[from] : drafts[begin + from - index_.size()].token;
    drafts.push_back({token, grade_of_agreement(match.agreement + i)});
  }
}

Match SuffixSource::find() const {
  const std::span<const Token> text = index_.tokens();
  if (text.empty()) return {};
  Match best = index_.find(text);
  if (follows_ != 0) {
    const std::size_t agreement = index_.agreement_at(follows_, text);
    if (agreement > best.agreement) best = {follows_, agreement};
  }
  if (best.agreement >= 2) return best;
  // One token that agrees says little, except where the text may begin as it was expected to.
  const bool begins = text.size() > 1 && !expected_.empty() && text.back() == expected_.front();
  return begins ? Match{1, 1} : Match{};
}

}  // namespace sluice::speculate
