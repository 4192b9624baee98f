// One line of a batch's output, in the form of its row.
//
// A result is a function of the row and the settings alone: it holds no clock, no random id and
// nothing of its company, so that two runs can be compared byte by byte. Every line carries the
// number of its row (from 1, blank lines not counted): "row" in the plain form, the digits of
// "batch_req_12" in "id" of OpenAI's. Resuming and merging go by that number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/batch/request.h"

namespace sluice::batch {

enum class Finish {
  stop,    // the model ended its text, or a stop text was found
  length,  // as many tokens as were asked for
};

struct Completion {
  std::string text;
  Finish finish = Finish::stop;
  std::uint64_t prompt_tokens = 0;  // that were evaluated
  std::uint64_t completion_tokens = 0;
  std::uint64_t truncated_tokens = 0;  // of the prompt, taken away because it was too long
};

struct RowProblem {
  std::string_view code;  // a word for programs: "invalid_request", "prompt_too_long", ...
  std::uint64_t line;     // of the input, from 1, blank lines counted
  std::string_view reason;
};

// Lines end with a newline and hold no other. `model` stands where the row names none.
std::string result_line(std::uint64_t row, const RowHeader& header, std::string_view model,
                        const Completion& completion);
std::string error_line(std::uint64_t row, const RowHeader& header, const RowProblem& problem);

struct ResultFacts {
  std::uint64_t row = 0;
  bool is_error = false;
};

// Of a line that one of the above has made (without its newline); nothing for any other.
std::optional<ResultFacts> read_result(std::string_view line);

}  // namespace sluice::batch
