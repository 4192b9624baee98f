// A text of which a sequence of the cache holds keys and values, rotated as its length asks for.
//
// A model may rotate the keys of texts of up to Stepper::short_tokens_max() tokens by other angles
// than those of longer ones (LongRoPE, Ding et al. 2024, arXiv:2402.13753): phi3 with two sets of
// factors. What a token gives then depends on the tokens before it, and on nothing else: not on the
// room of the context, the cut into steps, or what else is in a step. So when a text grows beyond
// the limit, or is cut back below it, its keys are made anew from its tokens, which are kept as far
// as that can happen. Most models have no limit; nothing is kept then, and nothing made anew.
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/engine/stepper.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/kv_cache.h"

namespace sluice::engine {

class CachedText {
 public:
  // An empty text. `stepper` must outlive it.
  CachedText(Stepper& stepper, kvcache::Sequence pages)
      : stepper_(&stepper), pages_(std::move(pages)) {}

  std::uint32_t length() const { return length_; }
  std::uint32_t capacity() const { return pages_.capacity(); }
  bool is_long() const { return pages_.is_long(); }
  bool reserve(std::uint32_t positions) {
    give_up_drafts();  // their pages lie behind the end, for which there may be no room then
    return pages_.reserve(positions);
  }
  std::uint32_t reachable(std::uint32_t length) const { return pages_.reachable(length); }

  void checkpoint() {
    give_up_drafts();
    pages_.checkpoint();
  }

  // Throws UsageError when that is not reachable, or when there is no room for copies.
  void truncate(std::uint32_t length);

  // The pages of the first `prefix` tokens, which must be reachable, and those tokens. Nothing when
  // there is not enough room.
  std::optional<CachedText> fork(std::uint32_t prefix, std::uint32_t positions) const;

  // Says how many tokens the text will have before logits are wanted: so that keys need not be made
  // twice. Only for an empty text; otherwise it does nothing.
  void expect(std::uint32_t tokens);

  // Gets ready for a step that appends tokens, after which logits are wanted or not; `end` is the
  // length of the text then, or later when they will be wanted. May run steps of its own. Throws
  // what Stepper::run throws, and UsageError when shared pages leave no room; the text is as before
  // then, and this may be called again.
  void prepare(std::uint32_t end, bool wants_logits);

  // After that: the pages, for the step; and when the step has succeeded, what it has appended.
  kvcache::Sequence& pages() { return pages_; }
  const kvcache::Sequence& pages() const { return pages_; }
  // If the last `drafts` of them are drafts, the text has none of these tokens until accept() takes
  // those before the drafts, and the first `count` drafts. What else changes the text drops them.
  void appended(std::span<const tokenizer::Token> tokens, std::size_t drafts);
  void accept(std::size_t count);
  void give_up_drafts();
  // The text has these tokens, the pages of which come from elsewhere.
  void restored(std::span<const tokenizer::Token> tokens) { add(tokens); }

  // With a predictor: the hidden state after the last token; empty where it is not known, since
  // the text was cut back to this length, forked at it or restored.
  std::span<const float> state() const { return state_; }

 private:
  void add(std::span<const tokenizer::Token> tokens);
  void keep_state(std::size_t tokens);

  Stepper* stepper_;
  kvcache::Sequence pages_;  // have fewer tokens than the text while keys are made anew
  std::uint32_t length_ = 0;
  std::vector<tokenizer::Token> first_;  // the first short_tokens_max() tokens, if there is a limit
  // Of a step with drafts that has not ended: its tokens, whose keys and values lie behind the end
  // of the pages, and how many of them are drafts.
  std::vector<tokenizer::Token> open_;
  std::size_t drafts_ = 0;
  std::vector<float> state_;  // [embedding], or empty
};

}  // namespace sluice::engine
