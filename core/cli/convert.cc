#include "core/cli/convert.h"

#include <filesystem>
#include <fmt/format.h>
#include <system_error>
#include <utility>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/sandbox.h"
#include "core/convert/import.h"
#include "core/quant/quantise_model.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

constexpr unsigned threads_max = 1024;

// The options that both commands have.
void add_common(CLI::App& command, auto& options) {
  command.add_option("-t,--threads", options.threads, "Number of threads that compute")
      ->type_name("auto|N")
      ->transform(count_or("auto", "0", 1, threads_max))
      ->default_str("auto");
  add_sandbox_option(command, options.sandbox);
  add_force_option(command, options.force);
  command.add_flag("-q,--quiet", options.quiet, "Show no progress and no warnings");
}

// Shows the progress of writing. Ctrl-C ends it and leaves no file behind.
class ProgressOfFile {
 public:
  explicit ProgressOfFile(bool quiet) : progress_(quiet) {}

  quant::ConvertOptions options(unsigned threads) {
    return {threads, [this](std::uint64_t done, std::uint64_t total) { show(done, total); }};
  }
  void clear() { progress_.clear(); }

 private:
  void show(std::uint64_t done, std::uint64_t total) {
    throw_if_interrupted();
    const double per_s = static_cast<double>(done) / stopwatch_.seconds();
    progress_.show(fmt::format("{} of {}, {}/s", format_bytes(done), format_bytes(total),
                               format_bytes(static_cast<std::uint64_t>(per_s))));
  }

  InterruptGuard guard_;
  Progress progress_;
  Stopwatch stopwatch_;
};

// Refuses to overwrite a file of the checkpoint: any in its folder but a model that was made there.
void refuse_files_of_checkpoint(const std::filesystem::path& written,
                                const std::filesystem::path& folder) {
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    if (entry.is_regular_file(absent) && entry.path().extension() != ".gguf") {
      refuse_same_file(written, entry.path(), "a file of the checkpoint");
    }
  }
}

std::string printable(const std::filesystem::path& path) {
  return text::escaped(path.string(), path.string().size());
}

}  // namespace

CLI::App* add_quantize(CLI::App& program, QuantizeOptions& options) {
  CLI::App* command = add_command(
      program, "quantize", "Write a model in fewer bits for each weight",
      "Formats vary by tensor as in llama.cpp's mixtures. The output appears when it is whole.\n\n"
      "Examples:\n"
      "  sluice quantize model-f16.gguf model-q4.gguf --quant Q4_K_M\n"
      "  sluice quantize model-f16.gguf model-iq4.gguf --quant IQ4_XS --imatrix imatrix.gguf\n"
      "  sluice quantize model-f16.gguf model-4g.gguf --target-size 4GiB --imatrix imatrix.gguf");
  command->add_option("IN.gguf", options.input, "The model to convert, best in F32, F16 or BF16")
      ->transform(named_model(*command))
      ->required();
  command->add_option("OUT.gguf", options.output, "The file to write")->required();
  command
      ->add_option(
          "--quant", options.quant,
          "Format of the weights: Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_K_S, Q4_0, Q4_1, Q5_0, Q5_1, "
          "IQ4_XS, IQ4_NL, MXFP4, MXFP4_MOE, NVFP4, F16, BF16 or F32; of fewer bits Q3_K_M, IQ3_M, "
          "IQ3_S and Q2_K, and with --imatrix IQ3_XXS to IQ1_S; TQ1_0, TQ2_0, Q2_0 and Q1_0 for "
          "weights that are ternary or binary already; pure-X uses X for all matrices. Not needed "
          "with --target-size, where it only is what the file says of itself")
      ->type_name("TYPE");
  command
      ->add_option("--imatrix", options.imatrix,
                   "A file that says how much each column matters, made by `sluice imatrix` or "
                   "llama-imatrix")
      ->type_name("FILE");
  command
      ->add_option("--tensor-types", options.tensor_types,
                   "A file of lines such as `*.ffn_down.weight = Q6_K`, which go before the "
                   "mixture; of several that match, the last")
      ->type_name("FILE");
  command
      ->add_option("--target-size", options.target_bytes,
                   "Choose the format of each matrix so that the file has at most this size and "
                   "is as exact as that allows, by --imatrix")
      ->type_name("SIZE")
      ->transform(size());
  add_common(*command, options);
  return command;
}

// What a target size has led to.
std::string chosen_line(const quant::QuantiseReport& report) {
  std::string types;
  for (const quant::ChosenType& type : report.chosen) {
    types += fmt::format("{}{} {} ({})", types.empty() ? "" : ", ", type.tensors, type.name,
                         format_bytes(type.bytes));
  }
  return fmt::format("chosen: {}; products differ by {:.2g} of their squares on average\n", types,
                     report.expected_error);
}

int run_quantize(const QuantizeOptions& options) {
  enter_converting_sandbox(options.sandbox, {.models = {options.input},
                                             .read = {options.imatrix, options.tensor_types},
                                             .write = {options.output}});
  refuse_files_of_model(options.output, options.input);
  if (!options.imatrix.empty()) {
    refuse_same_file(options.output, options.imatrix, "the importance matrix");
  }
  quant::TypeRecipe recipe;
  if (!options.tensor_types.empty()) {
    refuse_same_file(options.output, options.tensor_types, "the file of --tensor-types");
    recipe =
        quant::TypeRecipe::parse(read_text(options.tensor_types), options.tensor_types.string());
  }
  ask_before_replacing(options.output, options.force);
  ProgressOfFile progress(options.quiet);
  const quant::QuantiseReport report =
      quant::quantise_model(options.input, options.output,
                            {options.quant, options.imatrix, progress.options(options.threads),
                             std::move(recipe), options.target_bytes});
  progress.clear();
  if (!options.quiet) {
    for (const std::string& warning : report.warnings) warn(warning);
  }
  std::string lines = fmt::format("{}: {} to {}, {} of {} tensors in other formats\n",
                                  printable(options.output), format_bytes(report.bytes_before),
                                  format_bytes(report.bytes_after), report.changed, report.tensors);
  if (!report.chosen.empty()) lines += chosen_line(report);
  report_written(options.output, lines);
  return 0;
}

CLI::App* add_import(CLI::App& program, ImportOptions& options) {
  CLI::App* command = add_command(
      program, "import", "Make a GGUF file of a Hugging Face checkpoint",
      "The folder has config.json, *.safetensors and tokenizer.json. The output appears when it\n"
      "is whole.\n\n"
      "Examples:\n"
      "  sluice import Qwen3-4B qwen3-4b.gguf\n"
      "  sluice import Qwen3-4B qwen3-4b-q4.gguf --quant Q4_K_M");
  command->add_option("FOLDER", options.folder, "The folder of the checkpoint")->required();
  command->add_option("OUT.gguf", options.output, "The file to write")->required();
  command
      ->add_option("--quant", options.quant,
                   "Format of the weights: F32, F16, BF16 or a name that `sluice quantize` knows")
      ->type_name("TYPE")
      ->default_str("as stored");
  add_common(*command, options);
  return command;
}

int run_import(const ImportOptions& options) {
  enter_converting_sandbox(options.sandbox,
                           {.models = {options.folder}, .write = {options.output}});
  refuse_files_of_checkpoint(options.output, options.folder);
  ask_before_replacing(options.output, options.force);
  ProgressOfFile progress(options.quiet);
  const convert::ImportReport report = convert::import_checkpoint(
      options.folder, options.output, {options.quant, progress.options(options.threads)});
  progress.clear();
  if (!options.quiet) {
    for (const std::string& warning : report.warnings) warn(warning);
  }
  report_written(
      options.output,
      fmt::format("{}: {}, {}, {}, {} tensors\n", printable(options.output), report.architecture,
                  report.quant, format_bytes(report.bytes), report.tensors));
  return 0;
}

}  // namespace sluice::cli
