#include "core/cli/batch_output.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/row_setup.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using batch::Journal;
using batch::JournalVerdict;

// Refuses an output that is also an input, under whatever name. (What else the report may not be
// enter_sandbox has checked.)
void refuse_same_files(const BatchOptions& options, const gguf::Model& model) {
  const auto refuse_model = [&](const fs::path& written) {
    for (const gguf::ModelFile& file : model.files()) {
      refuse_same_file(written, file.path, "the model");
    }
  };
  if (options.input != "-") refuse_same_file(options.output, options.input, "the input");
  refuse_model(options.output);
  if (options.common.report.empty()) return;
  refuse_model(options.common.report);
  refuse_other_than_report(options.common);
}

// Refuses a file that the job may neither resume nor replace.
void check_found(const BatchOptions& options, const Journal& journal,
                 const std::optional<batch::JobState>& before, const batch::JobState& now) {
  const std::string path = options.output.string();
  const std::string state = batch::state_path(options.output).string();
  const JournalVerdict verdict = journal.scan().verdict;
  if (verdict == JournalVerdict::torn && !before) {
    throw UsageError(
        fmt::format("{} holds no result, and there is no {} that says that sluice batch wrote it, "
                    "so the file is left as it is; name another output, or move it away",
                    path, state));
  }
  if (verdict != JournalVerdict::results || options.restart) return;
  if (!before) {
    throw UsageError(
        fmt::format("{} has results, but {} is missing: give --restart to write them "
                    "anew, or name another output",
                    path, state));
  }
  const std::vector<std::string> changed = batch::differences(*before, now);
  if (changed.empty() || options.common.force) return;
  throw UsageError(
      fmt::format("{} was begun with other settings: {}; give --restart to begin anew, or "
                  "--force to keep what is there and go on",
                  path, fmt::join(changed, "; ")));
}

// Opens the output and scans the results in it.
std::unique_ptr<Journal> look_through_output(const BatchOptions& options) {
  Progress progress(options.common.quiet);
  const auto check = [&](std::uint64_t bytes) {
    throw_if_interrupted();
    if (!progress.shown()) return;
    progress.show(fmt::format("reading {}: {}", options.output.string(), format_bytes(bytes)));
  };
  return std::make_unique<Journal>(options.output, files::kernel(), check);
}

// Removes the results that are errors from the output.
std::unique_ptr<Journal> drop_errors(const BatchOptions& options,
                                     std::unique_ptr<Journal> journal) {
  const std::vector<batch::ResultFacts>& found = journal->scan().found;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].is_error) kept.push_back(i);
  }
  if (kept.size() == found.size()) return journal;
  if (!options.common.quiet) {
    const std::size_t count = found.size() - kept.size();
    remark(fmt::format("computing {} again that ended in an error",
                       count == 1 ? "1 row" : fmt::format("{} rows", count)));
  }
  journal->replace(kept);
  journal.reset();
  journal = look_through_output(options);
  journal->go_on();
  return journal;
}

// Everything that the results of the job depend on.
batch::JobState job_state(const BatchOptions& options, const batch::Input& input,
                          const batch::Shard& shard, const gguf::Model& model) {
  batch::JobState state{input.bytes(), input.digest(), input.rows(), shard, {}};
  state.settings = recorded_settings(options, model);
  state.settings["--truncate"] = options.truncate;
  return state;
}

}  // namespace

OpenedOutput open_output(const BatchOptions& options, const batch::Input& input,
                         const batch::Shard& shard) {
  const gguf::Model model = gguf::Model::open(options.common.model);
  refuse_same_files(options, model);
  batch::JobState state = job_state(options, input, shard, model);
  std::unique_ptr<Journal> journal = look_through_output(options);
  const std::optional<batch::JobState> before = batch::read_state(options.output);
  // Only what goes on is dated by its beginning.
  if (!options.restart && !journal->scan().found.empty()) batch::keep_date(state, before);
  check_found(options, *journal, before, state);
  if (options.restart) {
    journal->begin_anew();
  } else if (const std::uint64_t cut_bytes = journal->go_on();
             cut_bytes != 0 && !options.common.quiet) {
    remark(fmt::format("cut {} bytes of an unfinished line off {}", cut_bytes,
                       options.output.string()));
  }
  if (options.retry_errors) journal = drop_errors(options, std::move(journal));
  const bool is_begun = before && !journal->scan().found.empty();
  if (!is_begun || !batch::differences(*before, state).empty()) {
    batch::write_state(options.output, state);
  }
  return {std::move(journal), batch::date_of(state)};
}

void order_results(Journal& journal) {
  const std::vector<batch::ResultFacts>& found = journal.rescan().found;
  if (std::ranges::is_sorted(found, {}, &batch::ResultFacts::row)) return;
  std::vector<std::size_t> order(found.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return found[i].row; });
  journal.replace(order);
}

void tell_outcomes(const batch::DoneRows& done) {
  for (std::size_t code = 0; code < batch::error_codes.size(); ++code) {
    const std::uint64_t count = done.errors_by_code()[code];
    if (count == 0) continue;
    const batch::ErrorExample& example = done.examples()[code];
    remark(fmt::format("{} {} {}, such as row {}, {}", count, count == 1 ? "error" : "errors",
                       batch::error_codes[code], example.row,
                       text::printable(example.message, 200)));
  }
  if (done.cut() == 0) return;
  remark(fmt::format("{} of the rows {} an answer that max_tokens (or -n) cut off", done.cut(),
                     done.cut() == 1 ? "has" : "have"));
}

}  // namespace sluice::cli
