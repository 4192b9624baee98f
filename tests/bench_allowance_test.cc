#include "core/cli/bench_allowance.h"

#include "tests/catch.h"

namespace sluice::cli {
namespace {

struct Work {
  std::uint32_t repeats = 0, tokens = 0, least_tokens = 0;
  double seconds = 0, bytes = 0;
};

// A bench of `tokens` tokens whose steps take so long and read so much.
Work bench(std::uint32_t repeat, std::size_t results, std::uint32_t tokens, double step_seconds,
           std::uint64_t step_bytes, bool is_quiet = true) {
  BenchAllowance allowance(repeat, results, step_bytes);
  Work work;
  work.least_tokens = tokens;
  for (std::size_t i = 0; i < results; ++i) {
    allowance.begin_result(work.seconds);
    std::uint32_t done = 0;
    for (; allowance.wants_repeat(work.seconds, done, is_quiet ? done : 0); ++done) {
      allowance.begin_repeat(work.seconds);
      std::uint32_t decoded = 0;
      for (; decoded < tokens && allowance.wants_step(work.seconds, decoded); ++decoded) {
        work.seconds += step_seconds;
        work.bytes += static_cast<double>(step_bytes);
        allowance.end_step();
      }
      work.tokens += decoded;
      work.least_tokens = std::min(work.least_tokens, decoded);
      allowance.end_repeat(work.seconds);
    }
    work.repeats += done;
  }
  return work;
}

}  // namespace

TEST_CASE("a quick bench measures three times, and more often beside others") {
  CHECK(bench(0, 1, 32, 0.01, 0).repeats == 3);
  CHECK(bench(0, 4, 32, 0.01, 0).repeats == 12);
  CHECK(bench(0, 1, 32, 0.01, 0, false).repeats == 6);
}

TEST_CASE("a slow bench ends in time, and after a few tokens at least") {
  for (const double step_seconds : {0.2, 0.5, 1.0, 2.0, 20.0}) {
    for (const std::size_t results : {1U, 4U}) {
      const Work work = bench(0, results, 32, step_seconds, 0);
      INFO(step_seconds << " s a step, " << results << " results");
      CHECK(work.repeats >= results);
      CHECK(work.least_tokens >= BenchAllowance::steps_min);
      const double least = static_cast<double>(results) * BenchAllowance::steps_min * step_seconds;
      CHECK(work.seconds <= std::max(BenchAllowance::seconds_max, least) +
                                static_cast<double>(results) * step_seconds);
    }
  }
}

TEST_CASE("a bench under a small limit does not read without end") {
  // A model of 5.3 GB in 1,024 MiB, on a disk that is fast.
  const Work work = bench(0, 1, 16, 0.5, 4'400'000'000);
  CHECK(work.bytes <= BenchAllowance::bytes_max);
  CHECK(work.least_tokens == 7);
  CHECK(work.repeats == 1);
  // Larger than the allowance: as few tokens as say something.
  CHECK(bench(0, 1, 16, 0.5, 40'000'000'000).tokens == BenchAllowance::steps_min);
}

TEST_CASE("whoever says how often gets all of it") {
  const Work work = bench(5, 2, 32, 10, 40'000'000'000);
  CHECK(work.repeats == 10);
  CHECK(work.tokens == 320);
}

}  // namespace sluice::cli
