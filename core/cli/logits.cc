#include "core/cli/logits.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <limits>
#include <span>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/files/durable_file.h"

namespace sluice::cli {

static_assert(std::endian::native == std::endian::little, "the file holds little-endian floats");

CLI::App* add_logits(CLI::App& program, LogitsOptions& options) {
  CLI::App* command = add_command(
      program, "logits", "Write the logits after each token of a sequence to a file",
      "The file holds little-endian float32 [tokens, vocabulary]; row i are the logits after\n"
      "token i. It appears only when it is complete.\n\n"
      "Example:\n"
      "  sluice logits model.gguf --tokens 1,403,407,261 -o logits.f32");
  add_common_options(*command, options.common, "as many as --tokens");
  add_token_option(*command, "--tokens", options.tokens, "The token ids in their order")
      ->required();
  command
      ->add_option("--chunk", options.chunk,
                   "Evaluate this many tokens at a time, which changes no bit of the result "
                   "(default: as many as fit)")
      ->type_name("N")
      ->check(count_between(1, std::numeric_limits<decltype(options.chunk)>::max()));
  command->add_option("-o,--output", options.output, "The file to write")
      ->type_name("OUT.f32")
      ->required();
  return command;
}

int run_logits(const LogitsOptions& options) {
  enter_sandbox(options.common, {.write = {options.output}});
  refuse_files_of_model(options.output, options.common.model);
  ask_before_replacing(options.output, options.common.force);
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions engine_settings = engine_options(options.common);
  if (engine_settings.context == 0 && engine_settings.window == 0) {
    engine_settings.context = static_cast<std::uint32_t>(options.tokens.size());
  }
  engine_settings.logits_columns = engine::logits_columns_for_all;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, engine_settings);
  check_tokens(options.tokens, engine->facts().vocabulary);

  files::DurableFile file(options.output, {.named_by = files::NamedBy::user});
  Progress progress(options.common.quiet);
  const Stopwatch watch;
  const std::span<const tokenizer::Token> tokens(options.tokens);
  const std::size_t chunk = options.chunk > 0 ? options.chunk : tokens.size();
  for (std::size_t done = 0; done < tokens.size(); done += chunk) {
    const auto part = tokens.subspan(done, std::min(chunk, tokens.size() - done));
    engine->session().evaluate_all(part, [&](std::size_t index, std::span<const float> logits) {
      throw_if_interrupted();
      file.write(std::as_bytes(logits));
      progress.show(fmt::format("logits: {} of {} tokens", done + index + 1, tokens.size()));
    });
  }
  const double seconds = watch.seconds();
  file.commit();
  progress.clear();
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits
  run.write_report(options.common, record,
                   {.prefill_tokens_per_s = rate(options.tokens.size(), seconds),
                    .decode_tokens_per_s = std::nullopt});
  return 0;
}

}  // namespace sluice::cli
