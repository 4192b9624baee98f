// streaming/residency.h as properties of random tapes.
#include "streaming/residency.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.h"

using sluice::streaming::choose_residency;
using sluice::streaming::Residency;

namespace {

using Sizes = std::vector<std::uint64_t>;

std::uint64_t sum(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

// Tapes of many shapes: equal segments, wild ones, a model's (large and small ones in turn).
Sizes random_tape(std::mt19937_64& random) {
  const std::size_t count = 1 + random() % 400;
  Sizes sizes(count);
  const auto shape = random() % 3;
  for (std::size_t i = 0; i < count; ++i) {
    if (shape == 0) sizes[i] = 1 << 20;
    if (shape == 1) sizes[i] = 1 + random() % (4 << 20);
    if (shape == 2) sizes[i] = i % 7 < 5 ? (2 << 20) + i % 5 : 300'000 + 64 * (i % 3);
  }
  return sizes;
}

// How far any stretch of the tape is from its fair share of streamed bytes, in units of the largest
// segment. The balance returns to zero at the end, so stretches across the end are covered too.
double unevenness(const Sizes& sizes, const std::vector<bool>& pinned) {
  double streamed_bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    streamed_bytes += pinned[i] ? 0 : static_cast<double>(sizes[i]);
  }
  const double share = streamed_bytes / static_cast<double>(sum(sizes));
  double balance = 0;
  double highest = 0;
  double lowest = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto bytes = static_cast<double>(sizes[i]);
    balance += (pinned[i] ? 0 : bytes) - share * bytes;
    highest = std::max(highest, balance);
    lowest = std::min(lowest, balance);
  }
  return (highest - lowest) / static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
}

double unevenness_max(std::size_t segments) {
  return 2.0 + 0.5 * std::log2(static_cast<double>(segments));
}

}  // namespace

TEST_CASE("a residency keeps to its budget and uses it up") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const Sizes sizes = random_tape(random);
    const std::uint64_t total_bytes = sum(sizes);
    const std::uint64_t budget_bytes = random() % (total_bytes + total_bytes / 8 + 1);
    const Residency residency = choose_residency(sizes, budget_bytes);
    INFO("round " << round << ", " << sizes.size() << " segments, budget " << budget_bytes);

    std::vector<std::size_t> order = residency.pin_order;
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> turns(sizes.size());
    std::iota(turns.begin(), turns.end(), std::size_t{0});
    REQUIRE(order == turns);

    std::uint64_t pinned_bytes = 0;
    std::size_t pinned_count = 0;
    const std::vector<bool> pinned = residency.pinned_turns();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      pinned_bytes += pinned[i] ? sizes[i] : 0;
      pinned_count += pinned[i] ? 1 : 0;
    }
    REQUIRE(pinned_bytes == residency.pinned_bytes);
    REQUIRE(pinned_count == residency.pinned_count);
    REQUIRE(pinned_bytes <= budget_bytes);
    if (pinned_count < sizes.size()) {
      REQUIRE(budget_bytes - pinned_bytes < sizes[residency.pin_order[pinned_count]]);
    } else {
      REQUIRE(budget_bytes >= total_bytes);
    }
  }
}

TEST_CASE("more budget pins more, and never anything else") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    const Sizes sizes = random_tape(random);
    const std::uint64_t total_bytes = sum(sizes);
    std::vector<bool> pinned_before(sizes.size(), false);
    for (std::uint64_t budget_bytes = 0; budget_bytes <= total_bytes;
         budget_bytes += 1 + total_bytes / 37) {
      const std::vector<bool> pinned = choose_residency(sizes, budget_bytes).pinned_turns();
      for (std::size_t i = 0; i < sizes.size(); ++i) REQUIRE(pinned[i] >= pinned_before[i]);
      pinned_before = pinned;
    }
  }
}

TEST_CASE("segments that are wanted between steps are pinned first, and the rest evenly") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 100; ++round) {
    const Sizes sizes = random_tape(random);
    const std::size_t first = random() % (sizes.size() + 1);
    const std::vector<std::size_t> order = sluice::streaming::pin_order(sizes, {}, first);
    const std::size_t early = sizes.size() - first;
    for (std::size_t i = 0; i < early; ++i) REQUIRE(order[i] == first + i);
    const Sizes others(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(first));
    const std::vector<std::size_t> rest = sluice::streaming::pin_order(others);
    REQUIRE(std::equal(rest.begin(), rest.end(), order.begin() + static_cast<std::ptrdiff_t>(early),
                       order.end()));
  }
}

TEST_CASE("streamed segments lie evenly over the tape, whatever the budget") {
  std::mt19937_64 random(3);
  double worst = 0;
  for (int round = 0; round < 300; ++round) {
    const Sizes sizes = random_tape(random);
    const Residency residency = choose_residency(sizes, random() % (sum(sizes) + 1));
    const double found = unevenness(sizes, residency.pinned_turns());
    INFO("round " << round << ", " << sizes.size() << " segments");
    REQUIRE(found <= unevenness_max(sizes.size()));
    worst = std::max(worst, found);
  }
  const Sizes model(2500, 2 << 20);
  for (std::uint64_t budget_bytes = 0; budget_bytes <= sum(model); budget_bytes += 97 << 20) {
    const Residency residency = choose_residency(model, budget_bytes);
    const double found = unevenness(model, residency.pinned_turns());
    REQUIRE(found <= unevenness_max(model.size()));
    worst = std::max(worst, found);
  }
  INFO("worst " << worst);
  CHECK(worst > 0.5);  // the measure measures something
}

TEST_CASE("the measure of evenness notices a tape whose end is streamed in one run") {
  const Sizes sizes(100, 1 << 20);
  std::vector<bool> pinned(100, true);
  std::fill(pinned.begin() + 60, pinned.end(), false);
  CHECK(unevenness(sizes, pinned) > unevenness_max(sizes.size()));
}

TEST_CASE("the ends of the range: nothing fits, everything fits, there is nothing") {
  const Sizes sizes = {10, 20, 30};
  CHECK(choose_residency(sizes, 0).pinned_count == 0);
  CHECK(choose_residency(sizes, 60).pinned_count == 3);
  CHECK(choose_residency(sizes, UINT64_MAX).pinned_bytes == 60);
  CHECK(choose_residency({}, 100).pin_order.empty());
  CHECK(choose_residency({}, 100).pinned_bytes == 0);
}
