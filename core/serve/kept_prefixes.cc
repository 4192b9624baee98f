#include "core/serve/kept_prefixes.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sluice::serve {

using tokenizer::Token;

std::size_t common_tokens(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void PrefixMatch::consider(const engine::Sequence& other, std::span<const Token> held,
                           std::span<const Token> wanted) {
  if (other.is_long() != is_long) return;
  const auto shared = static_cast<std::uint32_t>(common_tokens(held, wanted));
  const std::uint32_t reached = shared > tokens ? other.reachable(shared) : 0;
  if (reached <= tokens) return;
  sequence = &other;
  tokens = reached;
}

void KeptPrefixes::find(std::span<const Token> wanted, PrefixMatch& match) {
  auto best = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    match.consider(*kept->sequence, kept->tokens, wanted);
    if (match.sequence == kept->sequence.get()) best = kept;
  }
  if (best != kept_.end()) kept_.splice(kept_.end(), kept_, best);
}

void KeptPrefixes::add(std::vector<Token> tokens, std::unique_ptr<engine::Sequence> sequence) {
  sequence->reserve(0);
  // Whether `longer` serves every row that begins with all tokens of `shorter`.
  const auto covers = [](const Kept& longer, const Kept& shorter) {
    const auto size = static_cast<std::uint32_t>(shorter.tokens.size());
    return longer.sequence->is_long() == shorter.sequence->is_long() &&
           common_tokens(longer.tokens, shorter.tokens) == size &&
           longer.sequence->reachable(size) == size;
  };
  Kept added{std::move(tokens), std::move(sequence)};
  std::erase_if(kept_, [&](const Kept& kept) { return covers(added, kept); });
  const auto cover =
      std::ranges::find_if(kept_, [&](const Kept& kept) { return covers(kept, added); });
  if (cover != kept_.end()) {
    kept_.splice(kept_.end(), kept_, cover);
    return;
  }
  kept_.push_back(std::move(added));
  if (kept_.size() > kept_max_) kept_.pop_front();
}

std::unique_ptr<engine::Sequence> KeptPrefixes::take_only(const PrefixMatch& match,
                                                          std::uint32_t positions) {
  if (kept_.size() != 1 || kept_.front().sequence.get() != match.sequence) return nullptr;
  std::unique_ptr<engine::Sequence> taken = std::move(kept_.front().sequence);
  kept_.clear();
  try {
    taken->truncate(match.tokens);
  } catch (const UsageError&) {  // pages that it shares would have to be copied
    return nullptr;
  }
  return taken->reserve(positions) ? std::move(taken) : nullptr;
}

std::size_t KeptPrefixes::tokens() const {
  std::size_t all = 0;
  for (const Kept& kept : kept_) all += kept.tokens.size();
  return all;
}

bool KeptPrefixes::drop_oldest() {
  if (kept_.empty()) return false;
  kept_.pop_front();
  return true;
}

}  // namespace sluice::serve
