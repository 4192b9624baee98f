#include "core/cli/merge.h"

#include <cstdio>
#include <fmt/format.h>
#include <iostream>
#include <string>
#include <system_error>
#include <unistd.h>

#include "core/batch/merge.h"
#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

// Asks the user at the terminal whether to replace a file.
bool asks_to_replace(const std::string& name) {
  const std::string question = fmt::format("{} exists. Replace it? [y/N] ", name);
  std::fwrite(question.data(), 1, question.size(), stderr);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// Refuses to replace a file without permission.
void check_output(const MergeOptions& options) {
  std::error_code absent;
  if (options.force || !std::filesystem::exists(options.output, absent)) return;
  const std::string name = options.output.string();
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (has_terminal && asks_to_replace(name)) return;
  throw UsageError(
      fmt::format("{} exists: give --force to replace it, or name another output", name));
}

}  // namespace

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
  command->add_flag("--force", options.force, "Replace an output that exists");
  command->add_flag("-q,--quiet", options.quiet, "Say nothing when all is well");
  return command;
}

int run_merge(const MergeOptions& options) {
  check_output(options);
  const InterruptGuard guard;
  const batch::Merged merged =
      batch::merge_parts(options.parts, options.output, throw_if_interrupted);
  if (!options.quiet) {
    remark(fmt::format("{} rows of {} parts, {} of them errors", merged.rows, options.parts.size(),
                       merged.errors));
  }
  return 0;
}

}  // namespace sluice::cli
