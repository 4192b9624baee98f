// One line of a batch's input: what is to be generated, and how.
//
// Two forms. That of the OpenAI batch files,
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "..."}}
// with the url of completions or of chat completions, and a plain one,
//   {"id": "a", "prompt": "..."}   or   {"id": "a", "messages": [{"role": ..., "content": ...}]}
// Messages may be calls of tools and their results, and "tools" may stand beside them.
// The settings of a row stand in the body, or beside the prompt; core/batch/row_settings.h has the
// table of them. What a row leaves open, or says is null, comes from the defaults. A member that is
// not known makes the row an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/engine/sampler.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::batch {

enum class Form { plain, completions, chat };

// A text, token ids taken as they are, or a conversation to be formatted. In a conversation each
// content is a text or null, and members keep the order that the row has them in.
using Prompt = std::variant<std::string, std::vector<tokenizer::Token>, chat::DialogueBody>;

struct Request {
  Prompt prompt;
  std::uint32_t tokens_max = 0;
  std::uint32_t tokens_min = 0;    // the text does not end before
  engine::SamplerOptions sampler;  // with the seed of the row
  std::vector<std::string> stop;
  std::vector<tokenizer::Token> stop_tokens;
  bool ignores_end = false;
  std::uint32_t choices = 1;  // results that are wanted
  bool wants_logprobs = false;
  std::uint32_t top_logprobs = 0;  // other tokens that are told beside each
};

// What the result repeats of a row; the most that could be read of a bad one.
struct RowHeader {
  Form form = Form::plain;
  nlohmann::json id;  // a string, an integer (plain form only) or null
  std::string model;  // as the row names it; may be empty
};

struct ParsedRow {
  RowHeader header;
  std::optional<Request> request;  // absent in a bad row
  std::string reason;              // why it is bad, in one line
};

// What OpenAI's API does with a row that says nothing.
inline engine::SamplerOptions openai_defaults() {
  engine::SamplerOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

// What holds for all rows. `sampler.seed` is the seed of the job: a row without a seed of its own
// gets one from it and from its id, or from its number when it has none, so that a row's result
// depends neither on its place nor on its company.
struct RowDefaults {
  engine::SamplerOptions sampler;                             // of rows in the plain form
  engine::SamplerOptions openai_sampler = openai_defaults();  // of rows in OpenAI's; its seed is
                                                              // of no meaning
  std::vector<std::string> stop;
  std::uint32_t tokens_max = 256;
};

// Rows beyond these are errors: what parsing a row takes, and what is held of it while it runs,
// stays bounded. Of values (and names) in its JSON; of its id, its model, its stop texts and its
// biases, each; of the log probabilities that it asks for.
inline constexpr std::size_t row_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t row_values_max = std::size_t{1} << 17;
inline constexpr std::size_t row_members_max = 4096;  // of one object
inline constexpr std::size_t row_depth_max = 128;
inline constexpr std::size_t text_bytes_max = 4096;
inline constexpr std::uint64_t logprobs_max = std::uint64_t{1} << 17;

// The most memory that parse_row() takes, its result included, for a line of so many bytes; and
// what is held of a row that runs, its tokens and its text apart. Measured, rounded up.
std::uint64_t parse_bytes(std::uint64_t line_bytes);
inline constexpr std::uint64_t header_bytes_max = 8 * text_bytes_max;

// Never throws for what is in the line. `row` is its number.
ParsedRow parse_row(std::string_view line, std::uint64_t row, const RowDefaults& defaults);

}  // namespace sluice::batch
