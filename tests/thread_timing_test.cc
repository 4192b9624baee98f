#include "core/engine/thread_timing.h"

#include <algorithm>
#include <vector>

#include "tests/catch.h"

namespace sluice::engine {
namespace {

using topology::CpuList;
using topology::ThreadChoice;

ThreadChoice one_or_two() {
  return {.cpus = {3}, .alternative_cpus = {3, 5}, .siblings_only = true, .reason = "1 or 2"};
}

TEST_CASE("the faster team is taken, and the reason says by how much") {
  const double speed_of_two = GENERATE(0.5, 1.0, 1.5);
  const auto tried = try_alternative(
      one_or_two(), [&](const CpuList& cpus) { return cpus.size() == 2 ? speed_of_two : 1.0; });
  CHECK(tried.cpus == (speed_of_two > 1 ? CpuList{3, 5} : CpuList{3}));
  CHECK(tried.alternative_cpus.empty());
  CHECK(tried.siblings_only);
  if (speed_of_two == 1.5) CHECK(tried.reason == "1 or 2; 2 were 1.50 times as fast as 1");
}

TEST_CASE("one bad moment of a machine decides nothing") {
  const std::size_t disturbed = GENERATE(0u, 1u, 2u, 3u);
  std::vector<CpuList> timed;
  const auto tried = try_alternative(one_or_two(), [&](const CpuList& cpus) {
    timed.push_back(cpus);
    return (timed.size() - 1 == disturbed ? 0.1 : 1.0) * static_cast<double>(cpus.size());
  });
  CHECK(timed == std::vector<CpuList>{{3}, {3, 5}, {3}, {3, 5}});
  CHECK(tried.cpus == CpuList{3, 5});
}

TEST_CASE("without an alternative nothing is timed") {
  ThreadChoice choice = one_or_two();
  choice.alternative_cpus.clear();
  const auto tried = try_alternative(choice, [](const CpuList&) -> double {
    FAIL("timed");
    return 0;
  });
  CHECK(tried.cpus == choice.cpus);
  CHECK(tried.reason == choice.reason);
}

TEST_CASE("siblings are timed with the real product, once") {
  topology::Machine machine;
  machine.cpus = {{0, 0, 0, {0, 1}}, {1, 0, 0, {0, 1}}};
  machine.allowed_cpus = {0, 1};
  machine.memory_available_bytes = std::uint64_t{1} << 30;
  constexpr std::uint64_t budget_bytes = 16 << 20;
  const ThreadChoice choice = choose_timed_threads(machine, 0, budget_bytes);
  CHECK((choice.cpus == CpuList{0} || choice.cpus == CpuList{0, 1}));
  CHECK(choice.alternative_cpus.empty());
  CHECK(choice.reason.find(" times as fast as 1") != std::string::npos);
  CHECK(choose_timed_threads(machine, 0, budget_bytes).reason == choice.reason);
  CHECK(choose_timed_threads(machine, 2).cpus == CpuList{0, 1});
  CHECK_THROWS_AS(choose_timed_threads(machine, 3), std::invalid_argument);
}

}  // namespace
}  // namespace sluice::engine
