#include "core/batch/merge.h"

#include <cerrno>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/batch/result.h"
#include "core/error.h"
#include "core/gguf/output_file.h"

namespace sluice::batch {
namespace {

// Where the result of a row lies. Part 0: nowhere yet.
struct Place {
  std::uint64_t offset = 0;
  std::uint32_t part = 0;
};

std::ifstream open(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::system_error(errno, std::generic_category(), "cannot open " + path.string());
  }
  return file;
}

JobState state_of(const std::filesystem::path& part) {
  if (std::optional<JobState> state = read_state(part)) return *state;
  throw UsageError(fmt::format("{} is missing: a part needs the state that sluice batch wrote",
                               state_path(part).string()));
}

// Of all parts, as they must agree.
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
  return first.rows;
}

class Merger {
 public:
  Merger(const std::vector<std::filesystem::path>& parts, std::uint64_t rows)
      : parts_(parts), places_(rows) {
    for (std::uint32_t part = 1; part <= parts.size(); ++part) index(part);
    for (std::uint64_t row = 1; row <= rows; ++row) missing_ += places_[row - 1].part == 0 ? 1 : 0;
    if (missing_ != 0) throw_missing();
  }

  void write(const std::filesystem::path& output) {
    std::vector<std::ifstream> files;
    for (const std::filesystem::path& part : parts_) files.push_back(open(part));
    gguf::OutputFile out(output);
    std::string line;
    for (const Place& place : places_) {
      std::ifstream& file = files[place.part - 1];
      file.seekg(static_cast<std::streamoff>(place.offset));
      if (!std::getline(file, line)) {
        throw std::system_error(std::make_error_code(std::errc::io_error),
                                "cannot read " + parts_[place.part - 1].string());
      }
      line += '\n';
      out.write(std::as_bytes(std::span(line)));
    }
    out.commit();
    sync_file(output);
    sync_folder_of(output);
  }

  std::uint64_t errors() const { return errors_; }

 private:
  // A last line that was torn is no result; its row is missing.
  void index(std::uint32_t part) {
    const std::filesystem::path& path = parts_[part - 1];
    std::ifstream file = open(path);
    std::string line;
    std::uint64_t offset = 0;
    for (std::uint64_t number = 1; std::getline(file, line); ++number) {
      if (file.eof()) break;
      const auto facts = read_result(line);
      if (!facts || facts->row > places_.size()) {
        throw UsageError(
            fmt::format("{}, line {}: not a result of this job", path.string(), number));
      }
      Place& place = places_[facts->row - 1];
      if (place.part != 0) {
        throw Error(ExitCode::failure,
                    fmt::format("row {} is there twice: in {} and in {}", facts->row,
                                parts_[place.part - 1].string(), path.string()));
      }
      place = {offset, part};
      errors_ += facts->is_error ? 1 : 0;
      offset += line.size() + 1;
    }
    if (file.bad()) {
      throw std::system_error(std::make_error_code(std::errc::io_error),
                              "cannot read " + path.string());
    }
  }

  [[noreturn]] void throw_missing() const {
    std::uint64_t row = 1;
    while (places_[row - 1].part != 0) ++row;
    const std::uint64_t shards = state_of(parts_.front()).shard.count;
    throw Error(ExitCode::failure,
                fmt::format("{} of {} rows are missing, the first is row {}, of --shard {}/{}: "
                            "name all parts, and go on with those that have not ended",
                            missing_, places_.size(), row, (row - 1) % shards + 1, shards));
  }

  const std::vector<std::filesystem::path>& parts_;
  std::vector<Place> places_;
  std::uint64_t missing_ = 0;
  std::uint64_t errors_ = 0;
};

}  // namespace

Merged merge_parts(const std::vector<std::filesystem::path>& parts,
                   const std::filesystem::path& output) {
  if (parts.empty()) throw UsageError("there is no part to merge");
  const std::uint64_t rows = common_rows(parts);
  Merger merger(parts, rows);
  merger.write(output);
  return {rows, merger.errors()};
}

}  // namespace sluice::batch
