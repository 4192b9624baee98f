// One line of a batch's output, in the form of its row.
//
// A result is a function of the row and the settings alone: it holds no clock, no random id and
// nothing of its company, so that two runs can be compared byte by byte. Every line carries the
// number of its row (from 1, blank lines not counted): "row" in the plain form, the digits of
// "batch_req_12" in "id" of OpenAI's. Resuming and merging go by that number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/batch/request.h"
#include "core/engine/logprobs.h"
#include "core/tokenizer/tokenizer.h"

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
  std::uint64_t truncated_tokens = 0;           // of the prompt, taken away because it was too long
  std::string thought = {};                     // that came before the text
  nlohmann::ordered_json tool_calls = nullptr;  // a list as OpenAI has it, or null
  // [completion_tokens][1 + top]: the token that was chosen, and the most probable ones.
  std::vector<engine::TokenLogprob> logprobs = {};
  std::string logprobs_text = {};  // the same as JSON, for the form of the row; empty: not wanted
};

// The log probabilities of a completion as JSON. `top`: how many others stand beside each token.
std::string logprobs_text(Form form, const Completion& completion, std::uint32_t top,
                          const tokenizer::Tokenizer& tokenizer);

// The most that result_line() and logprobs_text() hold for so many log probabilities.
inline constexpr std::uint64_t logprob_text_bytes = 256;

struct RowProblem {
  std::string_view code;  // a word for programs: "invalid_request", "prompt_too_long", ...
  std::uint64_t line;     // of the input, from 1, blank lines counted
  std::string_view reason;
};

// Lines end with a newline and hold no other. `model` stands where the row names none. A row has
// one completion or several.
std::string result_line(std::uint64_t row, const RowHeader& header, std::string_view model,
                        std::span<const Completion> choices);
inline std::string result_line(std::uint64_t row, const RowHeader& header, std::string_view model,
                               const Completion& completion) {
  return result_line(row, header, model, std::span(&completion, 1));
}
std::string error_line(std::uint64_t row, const RowHeader& header, const RowProblem& problem);

// No line is longer, with its newline, so that a file can be looked through in bounded memory. A
// text that would make it longer is an error of its row.
inline constexpr std::size_t result_bytes_max = std::size_t{64} << 20;

struct ResultFacts {
  std::uint64_t row = 0;
  std::uint32_t line_bytes = 0;  // with its newline
  bool is_error = false;
};

// Of a line that one of the above has made (without its newline): JSON with just the members that
// these give it, in their order. Nothing for any other line.
std::optional<ResultFacts> read_result(std::string_view line);

}  // namespace sluice::batch
