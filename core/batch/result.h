// One line of a batch's output, in the form of its row.
//
// A result is a function of the row and the settings alone: it has no time, no random id, and
// nothing from other rows, so two runs can be compared byte by byte. Every line has the number of
// its row (from 1, not counting blank lines): as "row" in the plain form, and as the digits of
// "batch_req_12" in the "id" of OpenAI's form. Resuming and merging use that number.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/completion.h"
#include "core/rows/request.h"

namespace sluice::batch {

struct RowProblem {
  std::string_view code;  // a word for programs: "invalid_request", "prompt_too_long", ...
  std::uint64_t line;     // of the input, from 1, counting blank lines
  std::string_view reason;
};

// Each function makes one line with a newline at its end. `model` is used where the row names none.
// A row has one completion or several.
std::string result_line(std::uint64_t row, const rows::RowHeader& header, std::string_view model,
                        std::span<const rows::Completion> choices);
inline std::string result_line(std::uint64_t row, const rows::RowHeader& header,
                               std::string_view model, const rows::Completion& completion) {
  return result_line(row, header, model, std::span(&completion, 1));
}
std::string error_line(std::uint64_t row, const rows::RowHeader& header, const RowProblem& problem);

// The longest line, with its newline, so that a file can be scanned in bounded memory. A text that
// would make a line longer is an error of its row.
inline constexpr std::size_t result_bytes_max = std::size_t{64} << 20;

// The codes of errors, and one for any that another version of the program has written.
inline constexpr std::array<std::string_view, 6> error_codes{"invalid_request", "prompt_too_long",
                                                             "duplicate_id",    "cannot_run",
                                                             "model_not_found", "another code"};
std::uint8_t index_of_code(std::string_view code);  // in error_codes

struct ResultFacts {
  std::uint64_t row = 0;
  std::uint32_t line_bytes = 0;  // with its newline
  bool is_error = false;
  bool is_cut = false;    // max_tokens ended an answer of the row
  std::uint8_t code = 0;  // of an error, as an index into error_codes
};

// Reads a line that one of the above has made (without its newline): JSON with exactly the members
// that these write, in their order. Nothing for any other line.
std::optional<ResultFacts> read_result(std::string_view line);

// The message of a line that error_line() has made: "line 4: the row is not JSON: ...".
std::string error_message(std::string_view line);

// The first row with an error of a code, as an example of what is wrong.
struct ErrorExample {
  std::uint64_t row = 0;  // 0: there is none
  std::string message;
};
using ErrorExamples = std::array<ErrorExample, error_codes.size()>;  // by index of the code

}  // namespace sluice::batch
