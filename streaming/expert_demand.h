// What a step will need of the experts of a mixture, as far as it is known.
//
// When the router of a layer has run, the experts of that layer are known, and until then nothing
// is. But when a step with many tokens needed most experts of the layer before, it will need most
// of this one too: then all are read ahead, as the tape reads everything else.
//
// Used by one thread.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "streaming/tape.h"

namespace sluice::streaming {

class ExpertDemand {
 public:
  // `groups` are in tape order.
  explicit ExpertDemand(std::vector<ExpertGroup> groups) : groups_(std::move(groups)) {}

  std::span<const ExpertGroup> groups() const { return groups_; }

  // The experts of a group are known from now on, and those of the other groups are not.
  void expect(std::size_t group, std::span<const ExpertUse> uses);

  // Reading ahead has come to this turn. What is known about groups before this turn is forgotten,
  // since the next step needs other experts.
  void pass(std::size_t turn);

  // The first turn >= `turn` that is needed, or of which this is not known; the number of turns
  // when there is none. All turns that are no experts are needed.
  std::size_t next(std::size_t turn) const;
  bool is_known(std::size_t turn) const;  // whether it is known that next() is needed

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  std::vector<ExpertGroup> groups_;
  std::size_t known_ = none;     // the group of which the experts are known
  std::vector<bool> is_needed_;  // by expert of that group
  bool most_are_needed_ = false;
};

}  // namespace sluice::streaming
