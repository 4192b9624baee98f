// The result of a task.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/sampling/logprobs.h"

namespace sluice::rows {

enum class Finish {
  stop,    // the model ended its text, or wrote a stop text
  length,  // the text has as many tokens as were asked for
};

struct Completion {
  std::string text;
  Finish finish = Finish::stop;
  bool has_stop_text = false;  // a stop text ended it
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t truncated_tokens = 0;           // cut off the prompt because it was too long
  std::string thought = {};                     // what the model wrote before the answer
  nlohmann::ordered_json tool_calls = nullptr;  // a list in OpenAI's form, or null
  // [completion_tokens][1 + top]: the chosen token, and then the most probable ones.
  std::vector<sampling::TokenLogprob> logprobs = {};
  std::string logprobs_text = {};  // the same as JSON, in the form of the row; empty: not wanted
  // How many tokens of the prompt were taken from another sequence and not evaluated. This depends
  // on what else has run, as the next two do; all other members do not.
  std::uint64_t shared_tokens = 0;
  // Of a task with a prediction: how many tokens were guessed before they were chosen, and how many
  // of the guesses were right.
  std::uint64_t drafted_tokens = 0, accepted_tokens = 0;
  std::vector<float> embedding = {};  // of the prompt, if that was wanted; of length 1
};

// The most bytes that a log probability takes as JSON, and while it is written.
inline constexpr std::uint64_t logprob_text_bytes = 256;

}  // namespace sluice::rows
