// Generates a text far past its window, and shows that nothing grows, slows down or breaks.
//
//   build/release/bench/soak_window stories260K.gguf --window 256 -n 200000 --step 10000
//
// Tokens are generated one after the other, also past the end of a text that the model writes. A
// line for each step says how fast its tokens were, and what the process holds of its own. Ends
// with 1 at once when a logit is not a number; and at the end when memory grew after the first
// step.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <stdexcept>

#include "core/engine/engine.h"
#include "core/sampling/sampler.h"
#include "topology/process_memory.h"

namespace sluice::bench {
namespace {

struct Options {
  std::string model;
  std::uint32_t window = 256, sinks = 4, tokens = 200'000, step = 10'000;
};

std::uint64_t own_bytes() {
  return topology::read_process_memory().rss_anon_bytes.value_or(0);
}

// Whether memory stayed what it was.
bool soak(const Options& options) {
  engine::EngineOptions settings;
  settings.window = options.window;
  settings.sinks = options.sinks;
  const auto engine = engine::Engine::open(options.model, settings);
  engine::Session& session = engine->session();
  sampling::Sampler sampler({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1});
  tokenizer::Token token = engine->tokenizer().bos().value_or(0);
  std::uint64_t first_bytes = 0, last_bytes = 0;
  fmt::print("|  tokens | tokens/s | memory, KiB |\n| ------: | -------: | ----------: |\n");
  for (std::uint32_t done = 0; done < options.tokens;) {
    const auto begin = std::chrono::steady_clock::now();
    const std::uint32_t end = std::min(done + options.step, options.tokens);
    const std::uint32_t count = end - done;
    for (; done < end; ++done) {
      const std::span<const float> logits = session.evaluate(std::span(&token, 1));
      if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); })) {
        throw std::runtime_error(fmt::format("a logit of token {} is not a number", done));
      }
      token = sampler.sample(logits);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    last_bytes = own_bytes();
    if (first_bytes == 0) first_bytes = last_bytes;
    fmt::print("| {:7} | {:8.0f} | {:11} |\n", done, count / elapsed.count(), last_bytes / 1024);
    std::fflush(stdout);
  }
  constexpr std::uint64_t tolerance = 256 << 10;  // of the allocator
  return last_bytes <= first_bytes + tolerance;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Generates a text far past its window.");
  app.add_option("model", options.model, "a GGUF file")->required();
  app.add_option("--window", options.window)->check(CLI::PositiveNumber);
  app.add_option("--sinks", options.sinks);
  app.add_option("-n,--tokens", options.tokens)->check(CLI::PositiveNumber);
  app.add_option("--step", options.step, "tokens of a line")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    if (sluice::bench::soak(options)) return 0;
    fmt::print(stderr, "soak_window: memory grew\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "soak_window: {}\n", error.what());
  }
  return 1;
}
