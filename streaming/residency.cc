#include "streaming/residency.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace sluice::streaming {
namespace {

// A binary tree over the tape. Every node halves a part of the tape by bytes and counts the bytes
// taken from it. A pick goes down from the root and always enters the half of which the smaller
// share has been taken. So the two halves of a node never differ by more than one segment.
class EvenPicker {
 public:
  explicit EvenPicker(std::span<const std::uint64_t> sizes) : sizes_(sizes) {
    ends_.resize(sizes.size());
    std::inclusive_scan(sizes.begin(), sizes.end(), ends_.begin());
    nodes_.reserve(2 * sizes.size());
    if (!sizes.empty()) build(0, sizes.size());
  }

  // Takes one segment that was not taken before.
  std::size_t pick() {
    std::size_t node = 0;
    const std::size_t leaf = next_leaf();
    while (true) {
      Node& at = nodes_[node];
      at.taken_bytes += sizes_[leaf];
      --at.left;
      if (at.right_child == 0) return leaf;
      node = leaf < at.middle ? node + 1 : at.right_child;
    }
  }

 private:
  struct Node {
    std::uint64_t bytes = 0;
    std::uint64_t taken_bytes = 0;
    std::size_t left = 0;         // segments not yet taken
    std::size_t first = 0;        // first segment of the node's part
    std::size_t middle = 0;       // first segment of the right half
    std::size_t right_child = 0;  // 0: a leaf; the left child is the next node
  };

  std::uint64_t begin_byte(std::size_t segment) const {
    return segment == 0 ? 0 : ends_[segment - 1];
  }

  std::size_t build(std::size_t first, std::size_t end) {
    const std::size_t index = nodes_.size();
    nodes_.push_back({});
    Node node;
    node.bytes = ends_[end - 1] - begin_byte(first);
    node.left = end - first;
    node.first = first;
    if (end - first > 1) {
      const std::uint64_t half = begin_byte(first) + node.bytes / 2;
      const auto begin = ends_.begin();
      const auto at = std::lower_bound(begin + static_cast<std::ptrdiff_t>(first),
                                       begin + static_cast<std::ptrdiff_t>(end), half);
      const auto middle = static_cast<std::size_t>(std::distance(begin, at)) + 1;
      node.middle = std::clamp(middle, first + 1, end - 1);
      build(first, node.middle);
      node.right_child = build(node.middle, end);
    }
    nodes_[index] = node;
    return index;
  }

  static double share(const Node& node) {
    return node.bytes == 0
               ? 1.0
               : static_cast<double>(node.taken_bytes) / static_cast<double>(node.bytes);
  }

  std::size_t next_leaf() const {
    std::size_t node = 0;
    while (nodes_[node].right_child != 0) {
      const std::size_t left = node + 1;
      const std::size_t right = nodes_[node].right_child;
      const bool go_left = nodes_[right].left == 0 ||
                           (nodes_[left].left != 0 && share(nodes_[left]) <= share(nodes_[right]));
      node = go_left ? left : right;
    }
    return nodes_[node].first;
  }

  std::span<const std::uint64_t> sizes_;
  std::vector<std::uint64_t> ends_;
  std::vector<Node> nodes_;
};

}  // namespace

std::vector<std::size_t> pin_order(std::span<const std::uint64_t> segment_bytes,
                                   std::span<const ExpertGroup> groups, std::size_t first_pinned) {
  std::vector<std::size_t> dense;  // turns
  std::vector<std::uint64_t> dense_bytes;
  auto group = groups.begin();
  for (std::size_t turn = 0; turn < segment_bytes.size(); ++turn) {
    while (group != groups.end() && turn == group->first_turn) turn = (group++)->end_turn();
    if (turn == segment_bytes.size()) break;
    dense.push_back(turn);
    dense_bytes.push_back(segment_bytes[turn]);
  }
  // The picker spreads its first picks best. Evenness matters most when little is streamed, so the
  // picks are the order of streaming; the order of pinning is the reverse.
  const auto spread = std::ranges::lower_bound(dense, first_pinned) - dense.begin();
  EvenPicker picker{std::span(dense_bytes).first(static_cast<std::size_t>(spread))};
  std::vector<std::size_t> order;
  order.reserve(segment_bytes.size());
  order.assign(dense.begin() + spread, dense.end());
  order.resize(dense.size());
  std::generate(order.rbegin(), order.rbegin() + spread, [&] { return dense[picker.pick()]; });
  for (std::size_t expert = 0; order.size() != segment_bytes.size(); ++expert) {
    for (const ExpertGroup& of : groups) {
      if (expert >= of.experts) continue;
      for (std::size_t i = 0; i < of.turns_each; ++i) {
        order.push_back(of.first_turn_of(expert) + i);
      }
    }
  }
  return order;
}

Residency choose_residency(std::span<const std::uint64_t> segment_bytes,
                           std::uint64_t pinned_bytes_max, std::span<const ExpertGroup> groups,
                           std::size_t first_pinned) {
  Residency residency;
  residency.pin_order = pin_order(segment_bytes, groups, first_pinned);
  const std::vector<std::size_t>& order = residency.pin_order;
  // The next unit is a segment, or all segments of an expert.
  for (std::size_t at = 0, end = 0; at != order.size(); at = end) {
    const auto group = find_group(groups, order[at]);
    const bool is_expert = group != groups.end();
    end = at + (is_expert ? group->turns_each : 1);
    std::uint64_t bytes = 0;
    for (std::size_t i = at; i != end; ++i) bytes += segment_bytes[order[i]];
    if (bytes > pinned_bytes_max - residency.pinned_bytes) break;
    residency.pinned_bytes += bytes;
    residency.pinned_count = end;
    if (is_expert) {
      residency.pinned_expert_bytes += bytes;
    } else {
      residency.dense_count = end;
    }
  }
  return residency;
}

std::vector<bool> Residency::pinned_turns() const {
  std::vector<bool> pinned(pin_order.size(), false);
  for (std::size_t i = 0; i < pinned_count; ++i) pinned[pin_order[i]] = true;
  return pinned;
}

}  // namespace sluice::streaming
