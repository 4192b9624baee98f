// One line of a batch's input: what is to be generated, and how.
//
// Two forms. That of the OpenAI batch files,
//   {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "..."}}
// with the url of completions or of chat completions, and a plain one,
//   {"id": "a", "prompt": "..."}   or   {"id": "a", "messages": [{"role": ..., "content": ...}]}
// The settings of a row (max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, seed, stop)
// stand in the body, or beside the prompt. What a row leaves open, or says is null, comes from the
// defaults. A setting that would change the result and is not supported makes the row an error;
// members that say nothing about the result are passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/engine/sampler.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::batch {

enum class Form { plain, completions, chat };

struct Message {
  std::string role;
  std::string content;
};

// A text, token ids taken as they are, or a conversation to be formatted.
using Prompt = std::variant<std::string, std::vector<tokenizer::Token>, std::vector<Message>>;

struct Request {
  Prompt prompt;
  std::uint32_t tokens_max = 0;
  engine::SamplerOptions sampler;  // with the seed of the row
  std::vector<std::string> stop;
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

// What holds for all rows. `sampler.seed` is the seed of the job: a row without a seed of its own
// gets one from it and from its id, or from its number when it has none, so that a row's result
// depends neither on its place nor on its company.
struct RowDefaults {
  engine::SamplerOptions sampler;
  std::vector<std::string> stop;
  std::uint32_t tokens_max = 256;
};

// Rows beyond these are errors: what parsing a row takes, and what is held of it while it runs,
// stays bounded. Of values (and names) in its JSON; of its id, its model and its stop texts, each.
inline constexpr std::size_t row_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t row_values_max = std::size_t{1} << 17;
inline constexpr std::size_t text_bytes_max = 4096;
inline constexpr std::size_t stop_texts_max = 64;

// The most memory that parse_row() takes, its result included, for a line of so many bytes; and
// what is held of a row that runs, its tokens and its text apart. Measured, rounded up.
std::uint64_t parse_bytes(std::uint64_t line_bytes);
inline constexpr std::uint64_t header_bytes_max = 6 * text_bytes_max;

// Never throws for what is in the line. `row` is its number.
ParsedRow parse_row(std::string_view line, std::uint64_t row, const RowDefaults& defaults);

}  // namespace sluice::batch
