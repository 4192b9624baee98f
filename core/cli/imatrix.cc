#include "core/cli/imatrix.h"

#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/cli/token_reader.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/quant/imatrix.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

constexpr std::uint32_t chunk_default = 512;  // as in llama-imatrix

std::string shown(const std::filesystem::path& path) {
  return text::escaped(path.string(), path.string().size());
}

void refuse_output(const ImatrixOptions& options) {
  refuse_files_of_model(options.output, options.common.model);
  if (options.text != "-") refuse_same_file(options.output, options.text, "the text");
  ask_before_replacing(options.output, options.common.force);
  // If the file cannot be created, this shows before the work and not after it.
  const files::DurableFile probe(options.output, {.named_by = files::NamedBy::user});
}

// Computes the chunks of the text: the first in `chunk`, and each further one there is in full, up
// to `count_max`. Each begins like a separate text: with BOS, if the model wants one. Returns their
// number.
std::uint32_t run_chunks(engine::Engine& engine, TokenReader& text, std::vector<Token>& chunk,
                         std::uint32_t count_max, Progress& progress) {
  const std::optional<Token> bos =
      engine.tokenizer().adds_bos() ? engine.tokenizer().bos() : std::nullopt;
  const std::size_t tokens = chunk.size();
  std::uint32_t count = 0;
  while (chunk.size() == tokens && count < count_max) {
    throw_if_interrupted();
    progress.show_now(
        fmt::format("imatrix: chunk {}, {} of the text are read", count + 1, text.progress()));
    if (bos) chunk.front() = *bos;
    engine.session().clear();
    engine.session().evaluate(chunk);
    ++count;
    chunk.clear();
    if (count < count_max) text.read(tokens, chunk);
  }
  progress.clear();
  return count;
}

}  // namespace

CLI::App* add_imatrix(CLI::App& program, ImatrixOptions& options) {
  CLI::App* command = add_command(
      program, "imatrix", "Measure which columns of the weights matter, for `quantize`",
      "The model runs over the text in chunks of --ctx tokens, and for each matrix the squares of\n"
      "its inputs are summed column by column. The file has llama.cpp's format; it appears when\n"
      "it is whole. What is left of the text at the end, less than a chunk, is not used.\n\n"
      "Examples:\n"
      "  sluice imatrix model-f16.gguf -f text.txt -o imatrix.gguf\n"
      "  sluice quantize model-f16.gguf model-q4.gguf --quant Q4_K_M --imatrix imatrix.gguf");
  add_common_options(*command, options.common, std::to_string(chunk_default));
  command
      ->add_option("-f,--file", options.text, "The file with the text; - reads the standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", options.output, "The file to write")
      ->type_name("FILE")
      ->required();
  command->add_option("--chunks", options.chunks_max, "Use only the first N chunks; 0 uses all")
      ->type_name("N")
      ->check(count_between(0, std::numeric_limits<std::uint32_t>::max()))
      ->capture_default_str();
  return command;
}

int run_imatrix(const ImatrixOptions& options) {
  enter_sandbox(options.common, {.read = {options.text}, .write = {options.output}});
  refuse_output(options);
  TextInput text_input(options.text);
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions settings = engine_options(options.common);
  if (settings.window > 0) throw UsageError("imatrix takes chunks of --ctx tokens, not --window");
  if (settings.context == 0) settings.context = chunk_default;
  engine::RunPlanner planner(options.common.model);
  settings.caller_bytes = TokenReader::bytes_max + quant::ImatrixSums::bytes_max(planner.header());
  quant::ImatrixSums sums;
  settings.watch = [&](const model::MatrixInput& input) { sums.add(input); };
  std::unique_ptr<engine::Engine> engine =
      open_engine(options.common, settings, std::move(planner));
  TokenReader text(std::move(text_input), *engine, {});
  std::vector<Token> tokens;
  text.read(engine->session().capacity(), tokens);
  if (tokens.size() < 2) {
    throw UsageError(fmt::format("{} has too little text, {} token{}: at least 2 are needed",
                                 input_name(options.text), tokens.size(),
                                 tokens.size() == 1 ? "" : "s"));
  }

  const std::size_t chunk = tokens.size();
  if (chunk < engine->session().capacity() && !options.common.quiet) {
    warn(
        fmt::format("{} has {} tokens, less than one chunk of {}: that is little to tell columns "
                    "apart by; take a longer text",
                    input_name(options.text), chunk, engine->session().capacity()));
  }
  constexpr std::uint32_t all = std::numeric_limits<std::uint32_t>::max();
  Progress progress(options.common.quiet);
  const Stopwatch watch;
  const std::uint32_t count = run_chunks(
      *engine, text, tokens, options.chunks_max > 0 ? options.chunks_max : all, progress);
  const double seconds = watch.seconds();
  const quant::Imatrix imatrix =
      sums.finish(input_name(options.text), count, static_cast<std::uint32_t>(chunk));
  imatrix.write(options.output);
  report_written(options.output, fmt::format("{}: {} weights, {} {} of {} tokens\n",
                                             shown(options.output), imatrix.entries().size(), count,
                                             count == 1 ? "chunk" : "chunks", chunk));
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits
  run.write_report(
      options.common, record,
      {.prefill_tokens_per_s = rate(count * chunk, seconds), .decode_tokens_per_s = std::nullopt});
  return 0;
}

}  // namespace sluice::cli
