#include "core/engine/cached_text.h"

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "core/error.h"

namespace sluice::engine {

using tokenizer::Token;

namespace {

void truncate_pages(kvcache::Sequence& pages, std::uint32_t length) {
  try {
    pages.truncate(length);
  } catch (const std::length_error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace

void CachedText::truncate(std::uint32_t length) {
  give_up_drafts();
  truncate_pages(pages_, length);
  if (length < length_) state_.clear();
  length_ = std::min(length_, length);
  first_.resize(std::min<std::size_t>(first_.size(), length_));
}

std::optional<CachedText> CachedText::fork(std::uint32_t prefix, std::uint32_t positions) const {
  const std::uint32_t held = std::min(prefix, pages_.length());
  std::optional<kvcache::Sequence> pages = stepper_->cache().fork(pages_, held, positions);
  if (!pages) return std::nullopt;
  CachedText made(*stepper_, std::move(*pages));
  made.length_ = prefix;
  if (prefix == length_) made.state_ = state_;
  made.first_.assign(first_.begin(),
                     first_.begin() + std::min<std::ptrdiff_t>(std::ssize(first_), prefix));
  return made;
}

void CachedText::expect(std::uint32_t tokens) {
  if (length_ == 0) pages_.set_long(tokens > stepper_->short_tokens_max());
}

void CachedText::prepare(std::uint32_t end, bool wants_logits) {
  give_up_drafts();
  const bool is_long = end > stepper_->short_tokens_max();
  // Long keys of a text that is still short may be those of one that will be long.
  if (is_long != pages_.is_long() && (is_long || wants_logits)) {
    truncate_pages(pages_, 0);
    pages_.set_long(is_long);
    state_.clear();
  }
  while (pages_.length() < length_) {
    const std::size_t count =
        std::min<std::size_t>(length_ - pages_.length(), stepper_->columns_max());
    const StepPart part{&pages_, std::span(first_).subspan(pages_.length(), count), 0};
    stepper_->run({&part, 1});
  }
}

void CachedText::appended(std::span<const Token> tokens, std::size_t drafts) {
  if (drafts == 0) {
    keep_state(tokens.size());
    return add(tokens);
  }
  open_.assign(tokens.begin(), tokens.end());
  drafts_ = drafts;
}

void CachedText::accept(std::size_t count) {
  base::check(!open_.empty() && count <= drafts_, "more drafts are accepted than there are");
  const std::size_t taken = open_.size() - drafts_ + count;
  stepper_->accept(pages_, taken);
  keep_state(taken);
  add(std::span(open_).first(taken));
  open_.clear();
}

void CachedText::give_up_drafts() {
  if (open_.empty()) return;
  stepper_->cache().abandon(pages_);
  open_.clear();
}

// Of the last step, which has appended so many tokens.
void CachedText::keep_state(std::size_t tokens) {
  const std::span<const float> state = stepper_->state_after(pages_, tokens);
  state_.assign(state.begin(), state.end());
}

void CachedText::add(std::span<const Token> tokens) {
  length_ += static_cast<std::uint32_t>(tokens.size());
  const std::uint32_t most = stepper_->short_tokens_max();
  if (most == kvcache::unlimited || first_.size() >= most) return;
  const std::span<const Token> kept = tokens.first(std::min(tokens.size(), most - first_.size()));
  first_.insert(first_.end(), kept.begin(), kept.end());
}

}  // namespace sluice::engine
