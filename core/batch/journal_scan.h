// Scans a file that is to be the output of a batch: a pure function of its bytes.
//
// A batch writes whole lines, each a result, and nothing else. A crash can add a last line without
// its end, and NUL bytes followed by parts of later lines: some file systems leave NULs where a
// block was never written. So the file consists of lines that are results, and after them at most
// pieces of results between NULs. Anything else (a byte that no result contains, a line that is no
// result, an empty line) was written by somebody else, and makes the whole file foreign.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/result.h"

namespace sluice::batch {

enum class JournalVerdict {
  empty,    // no bytes
  results,  // at least one whole result, perhaps followed by what a crash left
  torn,     // only what a crash may have left of a first result; the bytes cannot tell who wrote it
  foreign,
};

struct JournalScan {
  JournalVerdict verdict = JournalVerdict::empty;
  std::vector<ResultFacts> found;  // the results, in the order of the file
  ErrorExamples examples;          // of the errors among them
  std::uint64_t whole_bytes = 0;   // bytes of the results; what follows is to be cut off
  std::uint64_t bytes = 0;         // of the file; a foreign one is not read to its end
  std::uint64_t foreign_line = 0;  // the first line that no batch has written, counted from 1
};

// Takes a file in pieces of any size. Holds one line at most, up to result_bytes_max.
class JournalScanner {
 public:
  // Returns whether it wants more: false once the file is foreign.
  bool add(std::string_view piece);

  JournalScan finish();

 private:
  void end_line();
  void tear();
  void judge(bool belongs);

  JournalScan scan_;
  std::string line_;               // the current line so far
  std::uint64_t line_number_ = 1;  // of line_
  bool is_foreign_ = false;
  bool is_damaged_ = false;      // a NUL was found
  bool follows_damage_ = false;  // line_ began after a NUL
};

JournalScan scan_journal(std::string_view bytes);

// Scans an open file from its beginning. Calls `check` now and then with the bytes scanned so far;
// what it throws ends the scan. Throws std::system_error, without the name of the file.
using ScanCheck = std::function<void(std::uint64_t bytes)>;
JournalScan scan_journal(int descriptor, const ScanCheck& check = {});

// Throws std::system_error with the name of the file, also when it is not a regular file.
JournalScan scan_journal_file(const std::filesystem::path& path);

}  // namespace sluice::batch
