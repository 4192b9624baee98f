// What the router of a mixture chooses, against the definition: sort all scores.
#include "core/model/blocks/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/random_seed.h"

namespace sluice::model {
namespace {

using Floats = std::vector<float>;

const kernels::VectorOps& ops() {
  return kernels::kernel_table(kernels::Isa::scalar).vector_ops;
}

std::vector<Choice> choose(const RouterSpec& spec, Floats logits, const Floats& bias) {
  std::vector<Choice> scratch(spec.experts), out(spec.used);
  choose_experts(ops(), spec, logits.data(), bias.empty() ? nullptr : bias.data(), scratch.data(),
                 out.data());
  return out;
}

// The experts by descending score, of equal ones the first ahead.
std::vector<std::size_t> sorted(const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return scores[i]; });
  return order;
}

// Whether rounding might change the order.
bool has_near_tie(const std::vector<double>& scores) {
  const auto order = sorted(scores);
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (scores[order[i - 1]] - scores[order[i]] < 1e-6) return true;
  }
  return false;
}

// In double, by sorting. Nothing where rounding might choose otherwise.
std::optional<std::vector<Choice>> expected(const RouterSpec& spec, const Floats& logits,
                                            const Floats& bias) {
  std::vector<double> scores;
  double all = 0;
  for (const float logit : logits) all += std::exp(static_cast<double>(logit));
  for (const float logit : logits) {
    const double e = std::exp(static_cast<double>(logit));
    scores.push_back(spec.scores == RouterScores::softmax ? e / all : e / (1 + e));
  }
  std::vector<double> picks = scores;
  for (std::size_t i = 0; i < bias.size(); ++i) picks[i] += bias[i];
  const std::size_t size = spec.experts / spec.groups;
  std::vector<double> group_scores;
  for (std::size_t g = 0; g < spec.groups; ++g) {
    std::vector<double> own(picks.begin() + static_cast<std::ptrdiff_t>(g * size),
                            picks.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(own, std::greater<>());
    group_scores.push_back(own[0] + (size > 1 ? own[1] : 0));
  }
  if (has_near_tie(picks) || has_near_tie(group_scores)) return std::nullopt;
  const auto groups = sorted(group_scores);
  for (std::size_t g = spec.groups_used; g < spec.groups; ++g) {
    for (std::size_t i = 0; i < size; ++i) {
      picks[groups[g] * size + i] = -std::numeric_limits<double>::infinity();
    }
  }
  const auto order = sorted(picks);
  double sum = 0;
  for (std::size_t i = 0; i < spec.used; ++i) sum += scores[order[i]];
  std::vector<Choice> out;
  for (std::size_t i = 0; i < spec.used; ++i) {
    const double weight = scores[order[i]] / (spec.divides_by_sum ? sum : 1) * spec.scale;
    out.push_back({static_cast<std::uint32_t>(order[i]), static_cast<float>(weight)});
  }
  return out;
}

}  // namespace

TEST_CASE("a router chooses as by sorting, whatever its Spec") {
  std::mt19937_64 random(test::random_seed());
  std::normal_distribution<float> normal;
  const auto below = [&](std::size_t end) { return random() % end; };
  int compared = 0;
  for (int round = 0; round < 2000; ++round) {
    RouterSpec spec;
    spec.groups = 1 + below(5);
    const std::size_t size = 1 + below(9);
    spec.experts = spec.groups * size;
    spec.groups_used = 1 + below(spec.groups);
    spec.used = 1 + below(spec.groups_used * size);
    spec.scores = below(2) == 0 ? RouterScores::softmax : RouterScores::sigmoid;
    spec.divides_by_sum = below(2) == 0;
    spec.scale = below(2) == 0 ? 1.0f : 2.5f;
    Floats logits(spec.experts), bias(below(2) == 0 ? spec.experts : 0);
    for (float& logit : logits) logit = 2 * normal(random);
    for (float& each : bias) each = 0.3f * normal(random);
    const auto ours = choose(spec, logits, bias);
    const auto theirs = expected(spec, logits, bias);
    if (!theirs) continue;
    ++compared;
    for (std::size_t i = 0; i < spec.used; ++i) {
      CHECK(ours[i].expert == (*theirs)[i].expert);
      CHECK(std::abs(ours[i].weight - (*theirs)[i].weight) < 1e-5f * spec.scale);
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("of equal scores the first wins") {
  const RouterSpec spec{.experts = 7, .used = 3};
  const auto choices = choose(spec, {1, 2, 1, 2, 1, 2, 2}, {});
  CHECK(choices[0].expert == 1);
  CHECK(choices[1].expert == 3);
  CHECK(choices[2].expert == 5);
}

TEST_CASE("scores that are no numbers still give so many different experts") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid}) {
    const RouterSpec spec{.experts = 6, .used = 4, .scores = scores, .groups = 3, .groups_used = 2};
    for (const Floats& logits : {Floats(6, nan), Floats{nan, 1, nan, 2, nan, 3}}) {
      const auto choices = choose(spec, logits, {});
      std::vector<std::uint32_t> experts;
      for (const Choice& choice : choices) experts.push_back(choice.expert);
      std::ranges::sort(experts);
      CHECK(std::ranges::adjacent_find(experts) == experts.end());
      CHECK(experts.back() < 6);
    }
  }
}

TEST_CASE("scores that are no numbers come behind all others, wherever they stand") {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 500; ++round) {
    const bool has_groups = random() % 2 == 0;
    RouterSpec spec{.experts = 12, .scores = RouterScores::sigmoid};
    if (has_groups) spec.groups = 4, spec.groups_used = 2;
    Floats logits(spec.experts);
    std::size_t numbers = 0;
    // With groups, whole groups are numbers or not, so that those of numbers must win.
    for (std::size_t i = 0; i < spec.experts; ++i) {
      const bool starts = !has_groups || i % 3 == 0;
      const bool is_nan = starts ? random() % 2 == 0 : std::isnan(logits[i - 1]);
      logits[i] = is_nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i) - 6;
      numbers += is_nan ? 0 : 1;
    }
    spec.used = has_groups ? std::min<std::size_t>(numbers, 6) : numbers;
    for (const Choice& choice : choose(spec, logits, {})) {
      CHECK_FALSE(std::isnan(logits[choice.expert]));
    }
  }
}

TEST_CASE("sigmoids that are all 0 give weights of 0") {
  const RouterSpec spec{.experts = 4, .used = 2, .scores = RouterScores::sigmoid};
  for (const Choice& choice : choose(spec, Floats(4, -200.0f), {})) CHECK(choice.weight == 0);
}

}  // namespace sluice::model
