// The ledger of what clients hold: never more than there is, and all of it comes back.
#include "core/allowance.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/random_seed.h"

using sluice::Allowance;

TEST_CASE("an allowance gives what it has, and gets it back") {
  Allowance allowance(100, 20);
  CHECK(allowance.bytes_for_one() == 80);
  CHECK_FALSE(allowance.take(81).has_value());
  auto held = allowance.take(80);
  REQUIRE(held.has_value());
  CHECK(allowance.used() == 80);
  CHECK_FALSE(allowance.take(1).has_value());  // the reserve is for what has begun
  CHECK(allowance.take(0).has_value());
  CHECK(held->resize(100));
  CHECK_FALSE(held->resize(101));
  CHECK(held->bytes() == 100);
  CHECK(held->resize(10));
  CHECK(allowance.used() == 10);
  CHECK(held->resize_as_new(80));
  CHECK_FALSE(held->resize_as_new(81));  // as for new work
  CHECK(held->resize(81));
  CHECK_FALSE(held->resize_as_new(82));
  CHECK(held->resize_as_new(10));
  Allowance::Held moved = std::move(*held);
  held.reset();
  CHECK(allowance.used() == 10);
  moved = {};
  CHECK(allowance.used() == 0);
  CHECK(moved.resize(0));
  CHECK_FALSE(moved.resize(1));  // it belongs to no allowance
  CHECK_FALSE(moved.resize_as_new(1));
  allowance.extend(30, 50);
  CHECK(allowance.bytes() == 180);
  CHECK(allowance.used() == 30);
  CHECK(allowance.bytes_for_one() == 130);
}

TEST_CASE("an allowance is never exceeded, whoever takes from it") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("seed " << seed);
  Allowance allowance(1000, 100);
  std::atomic<std::uint64_t> sum{0}, largest{0};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      std::mt19937_64 random(seed + number);
      std::vector<Allowance::Held> held;
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t bytes = random() % 300;
        if (random() % 2 == 0 && !held.empty()) {
          Allowance::Held& one = held[random() % held.size()];
          const std::uint64_t before = one.bytes();
          if (bytes < before) sum -= before - bytes;
          if (one.resize(bytes) && bytes > before) sum += bytes - before;
        } else if (auto taken = allowance.take(bytes)) {
          sum += bytes;
          held.push_back(std::move(*taken));
        }
        std::uint64_t now = sum, most = largest;
        while (most < now && !largest.compare_exchange_weak(most, now)) {
        }
        if (held.size() > 5) {
          sum -= held.front().bytes();
          held.erase(held.begin());
        }
      }
      for (const Allowance::Held& one : held) sum -= one.bytes();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(allowance.used() == 0);
  CHECK(sum == 0);
  CHECK(largest <= 1000);
  CHECK(largest > 500);
}
