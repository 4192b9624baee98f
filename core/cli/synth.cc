#include "core/cli/synth.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/error.h"
#include "core/quant/quant_mix.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

// Those of real models; the tests have a tiny one of each architecture beside them.
std::string shape_names() {
  std::vector<std::string_view> names;
  for (const synth::Shape& shape : synth::shapes()) {
    if (!shape.name.starts_with("tiny-")) names.push_back(shape.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void keep_first_layers(synth::Shape& shape, std::uint32_t layers) {
  // The last ones share what layers of each kind before them have.
  const auto period = static_cast<std::uint32_t>(shape.kinds.size());
  const std::uint32_t sharing = shape.shared_layers == 0 ? 0 : shape.shared_layers + period - 1;
  const std::uint32_t least =
      1 + std::max({sharing, shape.experts.leading_dense, shape.sparse_layers,
                    shape.ngrams.tokens > 0 ? 1U : 0U});
  if (layers < least || layers > shape.layers) {
    throw UsageError(fmt::format("--layers {}: {} can have {} to {} layers", layers, shape.name,
                                 least, shape.layers));
  }
  if (layers < shape.layers) {
    shape.name += fmt::format(", {} of its {} layers", layers, shape.layers);
  }
  shape.layers = layers;
}

synth::SyntheticModel make_model(const SynthOptions& options) {
  const synth::Shape& named = synth::shape_by_name(options.shape);
  using Stored = synth::SyntheticModel::Stored;
  synth::Shape shape = options.odd ? synth::odd_shape(named, options.seed) : named;
  if (options.predictor) {
    if (!shape.can_predict()) {
      throw UsageError(fmt::format(
          "--predictor: files of {} have no block that predicts further tokens; take a shape of "
          "qwen35, qwen35moe, qwen3next, glm4moe or bailingmoe3",
          shape.architecture));
    }
    shape.predictors = 1;
  }
  if (options.layers) keep_first_layers(shape, *options.layers);
  if (options.routing == "skewed") shape.experts.routing = synth::Routing::skewed;
  if (options.routing == "real") shape.experts.routing = synth::Routing::real;
  return {std::move(shape), options.quant, options.twin ? Stored::as_twin : Stored::as_quantised};
}

void write_weights(const SynthOptions& options, const synth::SyntheticModel& synthetic) {
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
}

}  // namespace

CLI::App* add_synth(CLI::App& program, SynthOptions& options) {
  CLI::App* command = add_command(
      program, "synth", "Write a model of random weights at the shape of a real one",
      "For measurements and tests: it takes the time and the memory of the real model, and its\n"
      "texts make no sense. The same seed gives the same file.\n\n"
      "Examples:\n"
      "  sluice synth tiny tiny.gguf\n"
      "  sluice synth llama-8b llama-8b.gguf --quant Q5_K_M --seed 7");
  command
      ->add_option("SHAPE", options.shape,
                   "One of: " + shape_names() +
                       "; or a tiny one of an architecture, such as tiny-llama and tiny-qwen3moe")
      ->required();
  command->add_option("OUT.gguf", options.output, "The file to write")->required();
  command
      ->add_option("--quant", options.quant,
                   "Format of the weights; pure-X uses X for all of them. One of: " +
                       fmt::format("{}", fmt::join(quant::QuantMix::names(), ", ")))
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Number that the weights are made from")
      ->type_name("N")
      ->check(count_between(0, std::numeric_limits<decltype(options.seed)>::max()))
      ->capture_default_str();
  command
      ->add_option("--layers", options.layers,
                   "How many of the shape's layers there are (default: all): a part of a model\n"
                   "whose file would be larger than the disk, to be measured in its place")
      ->type_name("N")
      ->check(count_between(1, std::numeric_limits<std::uint32_t>::max()));
  command
      ->add_option("--routing", options.routing,
                   "How the routers of a mixture of experts choose: 'uniform' takes all experts\n"
                   "about equally often; 'skewed' prefers some; 'real' prefers them as much as\n"
                   "was measured in real models (docs/experts.md)")
      ->check(one_of({"uniform", "skewed", "real"}))
      ->type_name("uniform|skewed|real")
      ->capture_default_str();
  command->add_flag("--predictor", options.predictor,
                    "Add the block that predicts further tokens (mtp), which some files of an\n"
                    "architecture have");
  command->add_flag("--odd", options.odd,
                    "For the shapes tiny-ARCHITECTURE: let the seed choose the sizes too");
  command->add_flag("--twin", options.twin,
                    "Store the values that the formats of --quant stand for as F32: the exact\n"
                    "reference for the file that is written without this option");
  command->add_flag_callback(
      "--list",
      [] {
        for (const synth::Shape& shape : synth::shapes()) write_output(shape.name + "\n");
        throw CLI::Success();
      },
      "List the shapes and exit");
  command->add_flag("--header-only", options.header_only,
                    "Write the header alone, with a hole in the place of the weights; enough for "
                    "`sluice plan` and `sluice inspect`");
  add_force_option(*command, options.force);
  return command;
}

int run_synth(const SynthOptions& options) {
  const synth::SyntheticModel synthetic = make_model(options);
  ask_before_replacing(options.output, options.force);
  if (options.header_only) {
    synthetic.write_header(options.output);
  } else {
    write_weights(options, synthetic);
  }
  report_written(options.output,
                 fmt::format("{}: {}, {} tensors\n",
                             text::escaped(options.output.string(), options.output.string().size()),
                             format_bytes(synthetic.file_bytes()), synthetic.tensors().size()));
  return 0;
}

}  // namespace sluice::cli
