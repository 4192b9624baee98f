// The pieces of a text of the C API: what they hold is what is there, whether or not one fitted.
#include "core/capi/piece_queue.h"

#include <deque>
#include <random>

#include "tests/catch.h"
#include "tests/random_seed.h"

using sluice::Allowance;
using sluice::capi::PieceQueue;

TEST_CASE("a piece that does not fit changes nothing, and the others can be taken") {
  constexpr std::uint64_t task_bytes = 1000;
  Allowance allowance(task_bytes + PieceQueue::share_bytes + 10'000, 10'000);
  PieceQueue queue(*allowance.take(task_bytes + PieceQueue::share_bytes));
  std::size_t count = 0;
  while (queue.push({"short", 1})) ++count;
  const std::uint64_t used = allowance.used();
  CHECK(used > task_bytes + PieceQueue::share_bytes);
  CHECK_FALSE(queue.push({std::string(1000, 'x'), 2}));
  CHECK(allowance.used() == used);
  // Another one takes what is left.
  auto rest = allowance.take(0);
  REQUIRE(rest->resize(allowance.bytes() - used));
  for (; count > 0; --count) CHECK(queue.pop().text == "short");
  CHECK(queue.is_empty());
  CHECK(allowance.used() == allowance.bytes() - 10'000 + rest->bytes());
}

TEST_CASE("pieces come out in order, and give back what they held") {
  const std::uint64_t seed = sluice::test::random_seed();
  INFO("SLUICE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  Allowance allowance(PieceQueue::share_bytes + 5000, 5000);
  {
    PieceQueue queue(*allowance.take(PieceQueue::share_bytes));
    std::deque<std::string> expected;
    for (int i = 0; i < 20'000; ++i) {
      const std::string text(random() % 300, static_cast<char>('a' + i % 26));
      if (random() % 3 != 0) {
        if (queue.push({text, std::nullopt})) expected.push_back(text);
      } else if (!expected.empty()) {
        REQUIRE(queue.pop().text == expected.front());
        expected.pop_front();
      }
      REQUIRE(queue.is_empty() == expected.empty());
    }
  }
  CHECK(allowance.used() == 0);
}
