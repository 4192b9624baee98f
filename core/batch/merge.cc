#include "core/batch/merge.h"

#include <cerrno>
#include <cstddef>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <system_error>

#include "base/file_identity.h"
#include "core/batch/job_state.h"
#include "core/batch/journal_scan.h"
#include "core/batch/result.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/model/file_bytes.h"

namespace sluice::batch {
namespace {

// Where the result of a row is.
struct Place {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;  // with the newline
  std::uint32_t part = 0;
};

JobState state_of(const std::filesystem::path& part) {
  if (std::optional<JobState> state = read_state(part)) return *state;
  throw UsageError(fmt::format("{} is missing: a part needs the state that sluice batch wrote",
                               state_path(part).string()));
}

// The number of rows, which all parts must agree on.
std::uint64_t common_rows(const std::vector<std::filesystem::path>& parts) {
  const JobState first = state_of(parts.front());
  for (const std::filesystem::path& part : parts) {
    const JobState state = state_of(part);
    std::vector<std::string> found = differences(first, state, true);
    if (first.shard.count != state.shard.count) {
      found.push_back(
          fmt::format("--shard was of {} and is of {}", first.shard.count, state.shard.count));
    }
    if (found.empty()) continue;
    throw UsageError(fmt::format("{} and {} are not parts of one job: {}", parts.front().string(),
                                 part.string(), fmt::join(found, "; ")));
  }
  // An input has no more lines than that.
  if (first.rows > std::numeric_limits<std::uint32_t>::max()) {
    throw UsageError(fmt::format("{} is damaged: it names {} rows",
                                 state_path(parts.front()).string(), first.rows));
  }
  return first.rows;
}

// Refuses to replace a file, or a state beside it, that no batch or merge has written.
void check_output(const std::filesystem::path& output) {
  (void)read_state(output);
  std::error_code absent;
  if (!std::filesystem::exists(output, absent)) return;
  const JournalScan scan = scan_journal_file(output);
  const bool is_result =
      scan.verdict == JournalVerdict::results || scan.verdict == JournalVerdict::empty;
  if (is_result) return;
  throw UsageError(
      fmt::format("{} is not the output of sluice batch or merge, so it is left as it is; name "
                  "another output, or move it away",
                  output.string()));
}

base::FileIdentity identity_of(const std::filesystem::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot read {}", path.string()));
  }
  return base::FileIdentity::of(facts);
}

class Merger {
 public:
  Merger(const std::vector<std::filesystem::path>& parts, std::uint64_t rows)
      : parts_(parts), places_(rows), done_(rows, Shard()) {
    for (std::uint32_t part = 1; part <= parts.size(); ++part) index(part);
    if (!done_.is_complete()) throw_missing();
  }

  // Writes part by part, so that only one is open at a time and it is read from front to back. The
  // place of each line in the output is known beforehand.
  void write(const std::filesystem::path& output, const std::function<void()>& stop_check) {
    std::vector<std::uint64_t> targets(places_.size());
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      targets[i] = bytes;
      bytes += places_[i].bytes;
    }
    files::DurableFile out(output, {.named_by = files::NamedBy::user});
    out.reserve(bytes);
    std::optional<model::FileBytes> file;
    std::uint32_t open_part = 0;
    std::string line;
    for (const std::uint64_t row : order_) {
      if (stop_check) stop_check();
      const Place& place = places_[row - 1];
      if (place.part != open_part) {
        file.emplace(parts_[place.part - 1]);
        require_unchanged(open_part);
        require_unchanged(place.part);
      }
      open_part = place.part;
      line.resize(place.bytes);
      file->read(place.offset, std::as_writable_bytes(std::span(line)));
      out.write_at(targets[row - 1], std::as_bytes(std::span(line)));
    }
    require_unchanged(open_part);
    out.synchronise();
    // What it replaces may be of another job, which must not go on with these results.
    files::remove_file(state_path(output));
    files::sync_folder_of(output);
    out.commit();
  }

  const DoneRows& done() const { return done_; }

 private:
  // A torn last line is no result; its row counts as missing.
  void index(std::uint32_t part) {
    const std::filesystem::path& path = parts_[part - 1];
    identities_.push_back(identity_of(path));
    const JournalScan scan = scan_journal_file(path);
    const auto refuse = [&](std::uint64_t line) {
      throw UsageError(fmt::format("{}, line {}: not a result of this job", path.string(), line));
    };
    if (scan.verdict == JournalVerdict::foreign) refuse(scan.foreign_line);
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < scan.found.size(); ++i) {
      const ResultFacts& facts = scan.found[i];
      if (facts.row > places_.size()) refuse(i + 1);
      Place& place = places_[facts.row - 1];
      if (done_.has(facts.row)) throw_twice(facts.row, parts_[place.part - 1], path);
      place = {offset, facts.line_bytes, part};
      order_.push_back(facts.row);
      const ErrorExample& example = scan.examples[facts.code];
      done_.add(facts, example.row == facts.row ? example.message : std::string_view());
      offset += facts.line_bytes;
    }
  }

  // Places are of the file that was indexed. Part 0 is none.
  void require_unchanged(std::uint32_t part) const {
    if (part == 0 || identity_of(parts_[part - 1]) == identities_[part - 1]) return;
    throw Error(ExitCode::io,
                fmt::format("{} was written to or replaced while it was merged: merge again when "
                            "its job has ended",
                            parts_[part - 1].string()));
  }

  [[noreturn]] static void throw_twice(std::uint64_t row, const std::filesystem::path& one,
                                       const std::filesystem::path& other) {
    std::error_code ignored;
    if (std::filesystem::equivalent(one, other, ignored)) {
      throw UsageError(fmt::format("{} is given twice: name each part once", other.string()));
    }
    throw Error(ExitCode::failure, fmt::format("row {} is there twice: in {} and in {}", row,
                                               one.string(), other.string()));
  }

  [[noreturn]] void throw_missing() const {
    std::uint64_t row = 1;
    while (done_.has(row)) ++row;
    const std::uint64_t shards = state_of(parts_.front()).shard.count;
    throw Error(ExitCode::failure,
                fmt::format("{} of {} rows are missing, the first is row {}, of --shard {}/{}: "
                            "name all parts, and go on with those that have not ended",
                            done_.rows() - done_.count(), done_.rows(), row, (row - 1) % shards + 1,
                            shards));
  }

  const std::vector<std::filesystem::path>& parts_;
  std::vector<base::FileIdentity> identities_;  // by part, before it was indexed
  std::vector<Place> places_;                   // by row
  std::vector<std::uint64_t> order_;  // the rows in the order of the parts' lines, part after part
  DoneRows done_;
};

}  // namespace

DoneRows merge_parts(const std::vector<std::filesystem::path>& parts,
                     const std::filesystem::path& output, const std::function<void()>& stop_check) {
  if (parts.empty()) throw UsageError("there is no part to merge");
  for (const std::filesystem::path& part : parts) (void)identity_of(part);  // is it there?
  check_output(output);
  const std::uint64_t rows = common_rows(parts);
  Merger merger(parts, rows);
  merger.write(output, stop_check);
  return merger.done();
}

}  // namespace sluice::batch
