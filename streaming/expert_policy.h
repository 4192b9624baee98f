// Which experts of a mixture have a place in memory.
//
// A tape cannot know which experts come next, but some come more often than others. So each group
// (layer) has a few places, and gives them to the experts that were used most: least frequently
// used, with ageing. The score of an expert is the share of recent tokens that took it, an average
// that forgets: after `half_life` steps an old step counts half. (Counted in tokens, a batch would
// forget all but its last steps.) An expert that is used and has no place gets that of the one with
// the lowest score, if its own score is higher; otherwise it is used once, and not kept.
//
// Places belong to a group. One order over all groups would evict every expert before its layer
// comes round again, once the places are fewer than a token needs (docs/experts.md).
//
// Holds no memory of experts and reads nothing: see StreamedTape. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "streaming/tape.h"

namespace sluice::streaming {

// Chosen by bench/bench_experts.
inline constexpr double expert_half_life = 16;  // steps

class ExpertPolicy {
 public:
  // A group with `experts` experts and `places` places. At first expert i has place i.
  ExpertPolicy(std::size_t experts, std::size_t places, double half_life = expert_half_life);

  // `gains` takes the place of `loses`.
  struct Exchange {
    std::uint32_t gains, loses;
  };

  // Counts the uses of a step of `tokens` tokens, by ascending expert, and hands places out. Only
  // the first `usable` places count; an expert in another one is treated as if it had none. An
  // expert that this step uses loses no place. The result is valid until the next call.
  std::span<const Exchange> use(std::span<const ExpertUse> uses, std::size_t tokens,
                                std::size_t usable);

  double score(std::uint32_t expert) const { return scores_[expert]; }

 private:
  void count(std::span<const ExpertUse> uses, std::size_t tokens);
  std::size_t place_of(std::uint32_t expert) const;

  double half_life_;
  std::vector<double> scores_;            // by expert
  std::vector<std::uint32_t> expert_at_;  // by place
  std::vector<bool> is_used_;             // by expert: in this step
  std::vector<Exchange> exchanges_;
};

}  // namespace sluice::streaming
