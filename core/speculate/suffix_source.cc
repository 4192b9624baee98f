#include "core/speculate/suffix_source.h"

#include <algorithm>
#include <utility>

namespace sluice::speculate {

using tokenizer::Token;

namespace {

constexpr std::size_t slots_min = 256;
constexpr std::size_t places_max = 64;     // that are looked at for a proposal
constexpr std::size_t agreement_max = 64;  // longer ones are not told apart

// Two tokens are the least; each further one counts up to nine, and behind that every eighth.
std::uint8_t grade_of(std::size_t agreement) {
  const std::size_t grade =
      agreement <= 9 ? std::max<std::size_t>(agreement, 2) - 2 : 7 + (agreement - 9) / 8;
  return static_cast<std::uint8_t>(std::min(grade, grades - 1));
}

}  // namespace

SuffixSource::SuffixSource(std::vector<Token> expected) : expected_(std::move(expected)) {
  expected_.resize(std::min(expected_.size(), tokens_max / 2));
  SuffixSource::forget();
}

void SuffixSource::forget() {
  tokens_.clear();
  link_all();
  accepted(expected_);
}

void SuffixSource::accepted(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    if (follows_ != 0) follows_ = tokens_[follows_] == token ? follows_ + 1 : 0;
    if (tokens_.size() == tokens_max) {
      tokens_.erase(tokens_.begin(), tokens_.begin() + tokens_max / 2);
      link_all();
    }
    tokens_.push_back(token);
    if (tokens_.size() > newest_.size()) {
      link_all();
    } else {
      link(tokens_.size() - 1);
    }
  }
}

void SuffixSource::propose(std::size_t most, double /*least*/, std::vector<Draft>& drafts) {
  const Match match = find();
  follows_ = match.agreement == 0 ? 0 : match.next;
  if (match.agreement == 0) return;
  // Behind the end of the text come the drafts themselves: what repeats itself does so on and on.
  const std::size_t begin = drafts.size();
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t from = match.next + i;
    const Token token =
        from < tokens_.size() ? tokens_[from] : drafts[begin + from - tokens_.size()].token;
    drafts.push_back({token, grade_of(match.agreement + i)});
  }
}

SuffixSource::Match SuffixSource::find() const {
  Match best;
  const auto consider = [&](std::size_t next) {
    const std::size_t agreement = agreement_at(next);
    if (agreement > best.agreement) best = {next, agreement};
  };
  if (tokens_.size() < 2) return best;
  std::size_t place = earlier_.back();
  for (std::size_t tries = 0; place != 0 && tries < places_max; ++tries) {
    consider(place + 1);
    place = earlier_[place];
  }
  if (follows_ != 0) consider(follows_);
  if (best.agreement >= 2) return best;
  // One token that agrees says little, except where the text may begin as it was expected to.
  const bool begins = !expected_.empty() && tokens_.back() == expected_.front();
  return begins ? Match{1, 1} : Match{};
}

// How many tokens before `next` agree with the end of the text.
std::size_t SuffixSource::agreement_at(std::size_t next) const {
  const std::size_t most = std::min(next, agreement_max);
  std::size_t count = 0;
  while (count < most && tokens_[next - 1 - count] == tokens_[tokens_.size() - 1 - count]) ++count;
  return count;
}

std::size_t SuffixSource::slot_of(std::size_t position) const {
  const auto bits = [&](std::size_t at) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(tokens_[at]));
  };
  const std::uint64_t pair = bits(position - 1) << 32 | bits(position);
  return (pair * 0x9e3779b97f4a7c15) >> 32 & (newest_.size() - 1);
}

void SuffixSource::link(std::size_t position) {
  earlier_.push_back(0);
  if (position == 0) return;
  std::uint32_t& newest = newest_[slot_of(position)];
  earlier_.back() = std::exchange(newest, static_cast<std::uint32_t>(position));
}

// Makes the index anew, with a slot for each token and room for as many more.
void SuffixSource::link_all() {
  std::size_t slots = slots_min;
  while (slots < 2 * tokens_.size()) slots *= 2;
  newest_.assign(slots, 0);
  earlier_.clear();
  for (std::size_t i = 0; i < tokens_.size(); ++i) link(i);
  follows_ = 0;
}

}  // namespace sluice::speculate
