#include "core/cli/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>
#include <vector>

#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/gguf/quoted.h"
#include "core/model/quant_mix.h"
#include "core/model/synthetic.h"
#include "core/model/synthetic_shapes.h"

namespace sluice::cli {
namespace {

std::string shape_names() {
  std::vector<std::string_view> names;
  for (const model::SyntheticShape& shape : model::synthetic_shapes()) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

CLI::App* add_synth(CLI::App& program, SynthOptions& options) {
  CLI::App* command = add_command(
      program, "synth", "Write a model of random weights at the shape of a real one",
      "For measurements and tests: it runs like the real model and says nothing. The same seed\n"
      "gives the same file.\n\n"
      "Examples:\n"
      "  sluice synth tiny tiny.gguf\n"
      "  sluice synth llama-8b llama-8b.gguf --quant Q5_K_M --seed 7");
  command->add_option("SHAPE", options.shape, "One of: " + shape_names())->required();
  command->add_option("OUT.gguf", options.output, "The file to write")->required();
  command
      ->add_option("--quant", options.quant,
                   "The formats of the weights; pure-X is X for all of them. One of: " +
                       fmt::format("{}", fmt::join(model::QuantMix::names(), ", ")))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Chooses the weights")->capture_default_str();
  return command;
}

int run_synth(const SynthOptions& options) {
  const model::SyntheticModel synthetic(options.shape, options.quant);
  const InterruptGuard guard;
  Progress progress(false);
  const Stopwatch stopwatch;
  synthetic.write(options.output, options.seed, [&](std::uint64_t done, std::uint64_t total) {
    throw_if_interrupted();
    const double per_s = static_cast<double>(done) / stopwatch.seconds();
    progress.show(fmt::format("{} of {}, {}/s", format_bytes(done), format_bytes(total),
                              format_bytes(static_cast<std::uint64_t>(per_s))));
  });
  progress.clear();
  write_output(fmt::format("{}: {}, {} tensors\n",
                           gguf::escaped(options.output.string(), options.output.string().size()),
                           format_bytes(synthetic.file_bytes()), synthetic.tensors().size()));
  return 0;
}

}  // namespace sluice::cli
