#include "bench/support.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "core/synth/random_blocks.h"

namespace sluice::bench {
namespace {

constexpr int failure = 1, usage = 2;

// Google Benchmark removes the arguments that it knows from an argv and complains about the rest.
int run_benchmarks(std::string name, std::vector<std::string> arguments) {
  std::vector<char*> argv = {name.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  if (benchmark::ReportUnrecognizedArguments(argc, argv.data())) return usage;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  CLI::App app(program.description);
  app.allow_extras();
  app.footer(
      "Options of Google Benchmark, among others:\n"
      "  --benchmark_list_tests        names only\n"
      "  --benchmark_filter=REGEX      benchmarks whose name matches\n"
      "  --benchmark_min_time=SECONDS  of each\n"
      "  --benchmark_repetitions=N     with mean, median and deviation\n"
      "  --benchmark_out=FILE          results as JSON\n"
      "SLUICE_ISA=scalar|avx2|avxvnni|avx512|avx512vbmi|amx in the environment chooses the "
      "instruction set of "
      "kernels.");
  if (program.add_options) program.add_options(app);
  CLI11_PARSE(app, argc, argv);
  try {
    program.register_benchmarks();
    return run_benchmarks(argv[0], app.remaining());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return failure;
  }
}

double best_seconds(int tries, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < tries; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

void fill_normal(std::span<float> out) {
  constexpr std::uint64_t seed = 1, stream = 0;
  synth::Random random(seed, stream);
  for (float& x : out) x = random.normal();
}

}  // namespace sluice::bench
