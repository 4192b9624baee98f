// How near decoding comes to what memory allows, on a machine that other guests disturb.
//
//   build/release/bench/bench_decode yi-9b.gguf --rounds 100
//
// Steps of one token and plain reading of memory take turns, both with all threads and each for
// about as long, and a step is compared with the reading right before and right after it: `sluice
// bench`, which compares with the best reading at the end, says how fast the machine can be, this
// how fast the engine is on the machine as it was. Quartiles of the rounds; all weights should have
// room in memory.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/thread_timing.h"

namespace sluice::bench {
namespace {

struct Options {
  std::string model;
  std::uint32_t rounds = 100, prompt = 16, threads = 0;
};

constexpr std::size_t MiB = std::size_t{1} << 20;

// Bytes per second that several readings of a buffer give together.
double read_memory(engine::DramReader& reader, int times) {
  double seconds_per_byte = 0;
  for (int i = 0; i < times; ++i) seconds_per_byte += 1 / reader.read();
  return times / seconds_per_byte;
}

void print_quartiles(const char* name, std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](std::size_t quarters) { return values[(values.size() - 1) * quarters / 4]; };
  fmt::print("| {:27} | {:6.2f} | {:6.2f} | {:6.2f} | {:6.2f} | {:6.2f} |\n", name, at(0), at(1),
             at(2), at(3), at(4));
}

void measure(const Options& options) {
  engine::EngineOptions settings;
  settings.threads = options.threads;
  settings.context = options.prompt + options.rounds + 1;
  constexpr std::size_t buffer_bytes = 512 * MiB;
  settings.caller_bytes = buffer_bytes;
  // Asked before the engine confines this thread to its CPU.
  const topology::CpuList cpus =
      engine::choose_timed_threads(topology::read_machine(), options.threads).cpus;
  const auto engine = engine::Engine::open(options.model, settings);
  const auto bytes = static_cast<double>(engine->facts().work.hot_bytes);
  engine::DramReader reader(cpus, buffer_bytes);
  const int passes = std::max(1, static_cast<int>(bytes / buffer_bytes / 2));

  engine::Session& session = engine->session();
  const std::vector<tokenizer::Token> prompt(options.prompt, 1);
  session.evaluate(prompt);
  std::vector<double> read, decode, ratio;
  double before = read_memory(reader, passes);
  for (std::uint32_t i = 0; i < options.rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    session.evaluate(std::span(prompt).first(1));
    const std::chrono::duration<double> step = std::chrono::steady_clock::now() - begin;
    const double after = read_memory(reader, passes);
    read.push_back(2 / (1 / before + 1 / after) / 1e9);
    decode.push_back(bytes / step.count() / 1e9);
    ratio.push_back(decode.back() / read.back());
    before = after;
  }
  fmt::print("| {:27} |  least |  lower | median |  upper |   most |\n", "");
  fmt::print("| --- | ---: | ---: | ---: | ---: | ---: |\n");
  print_quartiles("memory, GB/s", read);
  print_quartiles("weights in a step, GB/s", decode);
  print_quartiles("step over the memory next it", ratio);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Compares decoding with plain reading of memory, in turns.");
  app.add_option("model", options.model, "a GGUF file")->required();
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("-p,--prompt-tokens", options.prompt, "tokens before the first step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads, "0: as `sluice machine` says");
  CLI11_PARSE(app, argc, argv);
  try {
    sluice::bench::measure(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_decode: {}\n", error.what());
    return 1;
  }
}
