#include "core/cli/merge.h"

#include <fmt/format.h>

#include "core/batch/job_state.h"
#include "core/batch/merge.h"
#include "core/cli/batch_output.h"
#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"

namespace sluice::cli {
CLI::App* add_merge(CLI::App& program, MergeOptions& options) {
  CLI::App* command = add_command(
      program, "merge", "Put the parts of a batch together",
      "Checks that the parts belong to one job and that every row of its input is there once, and\n"
      "writes all results in the order of the input. Each part needs its .state beside it. An\n"
      "output that exists is replaced with --force only, or after a question on a terminal, and\n"
      "only if a batch or a merge has written it.\n\n"
      "Example:\n"
      "  sluice merge part-1.jsonl part-2.jsonl part-3.jsonl -o out.jsonl");
  command->add_option("PART.jsonl", options.parts, "The outputs of `sluice batch --shard`")
      ->type_name("")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("-o,--output", options.output,
                   "The file for all results; it appears when it is complete")
      ->type_name("OUT.jsonl")
      ->required();
  add_force_option(*command, options.force);
  command->add_flag("-q,--quiet", options.quiet, "Say nothing when all is well");
  return command;
}

int run_merge(const MergeOptions& options) {
  for (const std::filesystem::path& part : options.parts) {
    refuse_same_file(options.output, part, "a part");
    refuse_same_file(options.output, batch::state_path(part), "the state of a part");
  }
  ask_before_replacing(options.output, options.force);
  const InterruptGuard guard;
  const batch::DoneRows done =
      batch::merge_parts(options.parts, options.output, throw_if_interrupted);
  if (options.quiet) return 0;
  remark(fmt::format("{} {} of {} parts, {} of them errors", done.rows(),
                     done.rows() == 1 ? "row" : "rows", options.parts.size(), done.errors()));
  tell_outcomes(done);
  return 0;
}

}  // namespace sluice::cli
