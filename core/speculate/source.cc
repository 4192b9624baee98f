#include "core/speculate/source.h"

#include <utility>

namespace sluice::speculate {

void keep_to(Choices& choices, std::size_t most, std::vector<Draft>& drafts) {
  std::vector<Draft> kept;
  // What has to come may be something else than what was drafted; then the drafts end there.
  bool follows = true;
  while (kept.size() < most && !choices.is_over()) {
    follows = follows && kept.size() < drafts.size();
    const std::optional<tokenizer::Token> only = choices.only();
    if (!only && !follows) break;
    const Draft next = only ? Draft{*only, certain_grade} : drafts[kept.size()];
    follows = follows && drafts[kept.size()].token == next.token;
    if (!choices.take(next.token)) break;
    kept.push_back(next);
  }
  drafts = std::move(kept);
}

}  // namespace sluice::speculate
