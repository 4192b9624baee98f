// One line of a batch's input: what to generate, and how.
//
// There are two forms. The form of the OpenAI batch files is
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "..."}}
// with the url of completions or of chat completions. The plain form is
//   {"id": "a", "prompt": "..."}   or   {"id": "a", "messages": [{"role": ..., "content": ...}]}
// Messages may be tool calls and their results, and "tools" may stand beside them. The settings of
// a row stand in the body, or beside the prompt; core/rows/row_settings.h has the table of them.
// For a setting that is missing or null the default is used. An unknown member makes the row an
// error.
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
#include "core/constrain/library.h"
#include "core/rows/row_json.h"
#include "core/sampling/sampler.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

enum class Form { plain, completions, chat };

// A text, token ids used as they are, or a conversation to be formatted. In a conversation each
// content is a text or a list of parts of the type "text", and members keep the order that they
// have in the row.
using Prompt = std::variant<std::string, std::vector<tokenizer::Token>, chat::DialogueBody>;

// The prompt that is a text or an array of token ids. Throws BadRow, which names the member.
Prompt text_or_tokens(const nlohmann::ordered_json& value, std::string_view name);

// What a row says about each of its results.
struct ResultSettings {
  std::uint32_t choices = 1;  // how many results the row wants
  std::uint32_t tokens_max = 0;
  std::uint32_t tokens_min = 0;      // no token that ends the text is chosen before this many
  sampling::SamplerOptions sampler;  // with the seed of the row
  std::vector<std::string> stop;
  std::vector<tokenizer::Token> stop_tokens;
  bool ignores_end = false;  // no token that ends the text is chosen at all
  bool one_call = false;     // the answer ends behind its first call of a tool
};

struct Request : ResultSettings {
  Prompt prompt;
  bool wants_vector = false;  // of the prompt, which ends as the model wants a whole text to end
  bool is_default_tokens_max = false;  // the row does not say how many
  bool wants_all_tokens = false;       // as many as there is room for; tokens_max is out of reach
  bool wants_logprobs = false;
  std::uint32_t top_logprobs = 0;  // other tokens reported beside each token
  constrain::TextForm form;        // that the text, or the answer, has to have
  bool must_call = false;          // the answer consists of calls
  std::string called_tool;         // that they call; empty: any of the tools
  std::string prediction;          // what the text may be like; changes no result
};

// What the result repeats of its row; of a bad row, whatever could be read.
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

// Settings of all rows. `sampler.seed` is the seed of the job. A row without its own seed gets one
// made of that and of its id (or of its number if it has no id), so its result depends neither on
// its place nor on the other rows.
struct RowDefaults {
  sampling::SamplerOptions sampler;
  std::vector<std::string> stop;
  std::uint32_t tokens_max = 256;
  // A row that wants more tokens than there is room for behind its prompt gets as many as there is,
  // and may ask for -1; otherwise it is an error.
  bool shortens = false;
};

// Limits besides those of row_json.h; a row beyond one of them is an error. They bound the memory
// for parsing a row and for running it. They are for the JSON as a whole, for the id, the model,
// each stop text and each bias, and for the log probabilities that a row asks for.
inline constexpr std::size_t row_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t text_bytes_max = 4096;
inline constexpr std::uint64_t logprobs_max = std::uint64_t{1} << 17;

// The longest body of a request to a server, and row of a batch that it runs.
inline constexpr std::uint64_t request_bytes_max = std::uint64_t{1} << 20;

// The most memory that parse_row() takes for a line of `line_bytes` bytes, including its result;
// and what a running row holds, apart from its tokens and its text. Measured, rounded up.
std::uint64_t parse_bytes(std::uint64_t line_bytes);
inline constexpr std::uint64_t header_bytes_max = 8 * text_bytes_max;

// Does not throw because of what is in the line. `row` is the number of the row.
ParsedRow parse_row(std::string_view line, std::uint64_t row, const RowDefaults& defaults);

// The same for the body of a request in OpenAI's form, which stands alone. `form` is completions or
// chat. The header has no id; a row without its own seed gets one made of its number.
ParsedRow parse_body(std::string_view body, Form form, std::uint64_t row,
                     const RowDefaults& defaults);
// The same for a body that was parsed (with parse_row_object(), which keeps to the limits above).
ParsedRow read_body(nlohmann::ordered_json body, Form form, std::uint64_t row,
                    const RowDefaults& defaults);

}  // namespace sluice::rows
