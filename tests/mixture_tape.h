// A made-up mixture of experts as a tape over a fake disk, and who reads it as a decoder does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "streaming/streamed_tape.h"
#include "tests/fake_reader.h"

namespace sluice::test {

using namespace streaming;

inline std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) {
  return random() % bound;
}

// Some experts, ascending; lower ones more often.
inline std::vector<ExpertUse> random_uses(std::size_t experts, std::size_t used,
                                          std::uint32_t tokens, std::mt19937_64& random) {
  std::set<std::uint32_t> chosen;
  while (chosen.size() < used) {
    const std::uint64_t bound = 1 + below(random, experts);
    chosen.insert(static_cast<std::uint32_t>(below(random, bound)));
  }
  std::vector<ExpertUse> uses;
  uses.reserve(chosen.size());
  for (const std::uint32_t expert : chosen) {
    uses.push_back({expert, 1 + static_cast<std::uint32_t>(below(random, tokens))});
  }
  return uses;
}

// A tape of layers: a few segments that every step reads, and then a group of experts.
struct Mixture {
  explicit Mixture(std::mt19937_64& random) {
    const std::uint64_t layers = 1 + below(random, 4);
    std::uint64_t at = 0;
    const auto add = [&](std::uint64_t bytes) {
      segments.push_back({0, at, bytes});
      at += bytes + below(random, 100);
    };
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      for (std::uint64_t i = below(random, 4); i-- != 0;) add(1 + below(random, 9000));
      ExpertGroup group{segments.size(), 2 + below(random, 12), 1 + below(random, 3), 1};
      group.used = 1 + below(random, group.experts);
      std::vector<std::uint64_t> sizes;
      for (std::size_t i = 0; i < group.turns_each; ++i) sizes.push_back(1 + below(random, 9000));
      for (std::size_t e = 0; e < group.experts; ++e) {
        // Their types may differ, and so their sizes.
        for (const std::uint64_t size : sizes) add(size + (below(random, 4) == 0 ? 100 : 0));
      }
      groups.push_back(group);
    }
    if (below(random, 2) == 0) add(1 + below(random, 9000));
    weights = random_bytes(at + 5000, random());
    disk.files.push_back(weights);
  }

  std::uint64_t bytes() const {
    return std::accumulate(segments.begin(), segments.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Segment& s) { return sum + s.bytes; });
  }

  FileBytes weights;  // what the disk has, unless a test changes that
  FakeDisk disk;
  std::vector<Segment> segments;
  std::vector<ExpertGroup> groups;
};

// Reads segments as a decoder does. Every byte is compared; throws std::logic_error.
class Consumer {
 public:
  Consumer(Mixture& mixture, StreamedTape& tape) : mixture_(mixture), tape_(tape) {}

  void step(std::uint32_t tokens, std::mt19937_64& random) {
    std::size_t turn = 0;
    for (std::size_t g = 0; g < mixture_.groups.size(); ++g) {
      const ExpertGroup& group = mixture_.groups[g];
      for (; turn < group.first_turn; ++turn) read(turn);
      const std::size_t used = tokens == 1 ? group.used : 1 + below(random, group.experts);
      const std::vector<ExpertUse> uses = random_uses(group.experts, used, tokens, random);
      read_experts(g, uses, tokens);
      turn = group.end_turn();
    }
    for (; turn < mixture_.segments.size(); ++turn) read(turn);
  }

  std::function<void()> on_turn;       // called before each segment, while none is held; may throw
  std::uint64_t hits = 0, misses = 0;  // uses of experts
  std::uint64_t missed_bytes = 0;      // of experts that were not in memory
  std::uint64_t tokens_of_all_groups = 0;  // a token counts once for each group
  std::set<std::size_t> needed;            // turns of experts
  std::set<std::size_t> seen;              // turns whose bytes were right

 private:
  void read_experts(std::size_t g, const std::vector<ExpertUse>& uses, std::uint32_t tokens) {
    const ExpertGroup& group = mixture_.groups[g];
    tape_.expect_experts(g, uses, tokens);
    tokens_of_all_groups += tokens;
    std::vector<std::uint32_t> late;
    for (const ExpertUse& use : uses) {
      bool is_hit = true;
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < group.turns_each; ++i) {
        const std::size_t turn = group.first_turn_of(use.expert) + i;
        is_hit = is_hit && tape_.is_in_memory(turn);
        bytes += mixture_.segments[turn].bytes;
        needed.insert(turn);
      }
      ++(is_hit ? hits : misses);
      missed_bytes += is_hit ? 0 : bytes;
      if (is_hit) {
        read_expert(group, use.expert);
      } else {
        late.push_back(use.expert);
      }
    }
    for (const std::uint32_t expert : late) read_expert(group, expert);
  }

  void read_expert(const ExpertGroup& group, std::uint32_t expert) {
    for (std::size_t i = 0; i < group.turns_each; ++i) read(group.first_turn_of(expert) + i);
  }

  void read(std::size_t turn) {
    if (on_turn) on_turn();
    const Segment& segment = mixture_.segments[turn];
    const HeldSegment held = tape_.acquire(turn);
    const bool is_right = held.bytes.size() == segment.bytes &&
                          std::memcmp(held.bytes.data(), mixture_.weights.data() + segment.offset,
                                      segment.bytes) == 0;
    tape_.release(turn);
    if (!is_right) throw std::logic_error("a segment has other bytes than the file");
    seen.insert(turn);
  }

  Mixture& mixture_;
  StreamedTape& tape_;
};

}  // namespace sluice::test
