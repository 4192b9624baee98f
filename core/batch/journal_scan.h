// What a file holds that is to be the output of a batch: a pure function of its bytes.
//
// A batch writes whole lines, each a result, and nothing else. A crash can add to that a last line
// without its end, and NUL bytes with anything from later lines after them: some file systems leave
// NULs where a block was never written. So the file is made of lines that are results, then at most
// pieces of results between NULs. Everything else (a byte that no result holds, a line that is
// none, an empty line) was written by somebody else, and makes the whole file foreign.
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
  empty,    // not a byte
  results,  // at least one whole result, perhaps with what a crash left after the last
  torn,     // only what a crash could have left of a first result: bytes cannot say who wrote it
  foreign,
};

struct JournalScan {
  JournalVerdict verdict = JournalVerdict::empty;
  std::vector<ResultFacts> found;  // the results, in the order of the file
  std::uint64_t whole_bytes = 0;   // that they take; what follows is to be cut off
  std::uint64_t bytes = 0;         // of the file. A foreign one was read no further than need be.
  std::uint64_t foreign_line = 0;  // the first line that no batch has written, from 1
};

// Takes a file in pieces of any size. Holds one line at most, of result_bytes_max at most.
class JournalScanner {
 public:
  // Returns whether more is wanted: false once the file is foreign.
  bool add(std::string_view piece);

  JournalScan finish();

 private:
  void end_line();
  void tear();
  void judge(bool belongs);

  JournalScan scan_;
  std::string line_;               // so far
  std::uint64_t line_number_ = 1;  // of line_
  bool is_foreign_ = false;
  bool is_damaged_ = false;      // there was a NUL
  bool follows_damage_ = false;  // line_ began after a NUL
};

JournalScan scan_journal(std::string_view bytes);

// Of an open file, from its beginning. `check` is called now and then with the bytes that were
// looked through, and what it throws ends the scan. Throws std::system_error, without a name.
using ScanCheck = std::function<void(std::uint64_t bytes)>;
JournalScan scan_journal(int descriptor, const ScanCheck& check = {});

// Throws std::system_error that names the file, also when it is not a regular one.
JournalScan scan_journal_file(const std::filesystem::path& path);

}  // namespace sluice::batch
