#include "core/cli/inspect.h"

#include "core/cli/inspection.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/sandbox.h"
#include "core/gguf/gguf.h"

namespace sluice::cli {

CLI::App* add_inspect(CLI::App& program, InspectOptions& options) {
  CLI::App* command =
      add_command(program, "inspect", "Show what is in a model file",
                  "Reads the header only, so a file of any size is shown at once, and the first\n"
                  "megabytes of a download are enough.\n\n"
                  "Examples:\n"
                  "  sluice inspect model.gguf\n"
                  "  sluice inspect model.gguf --json | jq '.metadata[\"llama.block_count\"]'");
  add_model_argument(*command, options.model, ModelPart::header);
  command->add_flag("--tensors", options.tensors, "List all tensors as well");
  command->add_flag("--json", options.json, "Print one JSON object, with everything in it");
  return command;
}

int run_inspect(const InspectOptions& options) {
  enter_reading_sandbox({options.model});
  const gguf::Model model = gguf::Model::open(options.model, {.header_only = true});
  write_output(options.json ? inspection_json(model)
                            : fit_terminal(inspection_text(model, options.tensors)));
  return 0;
}

}  // namespace sluice::cli
