// The members that a row may have, and what each of them means: one table, used to read rows and to
// write the table in docs/batch.md. A member that is not in it makes its row an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/request.h"
#include "core/rows/row_json.h"

namespace sluice::rows {

// Limits, so that a running row holds bounded memory. A row beyond one of them is an error.
inline constexpr std::size_t stop_texts_max = 64;
inline constexpr std::size_t stop_tokens_max = 64;
inline constexpr std::size_t logit_biases_max = 512;
inline constexpr std::uint32_t choices_max = 16;
inline constexpr std::uint32_t top_logprobs_max = 20;

struct RowSetting {
  enum class Kind {
    read,     // it says what the row is, or how to run it
    limited,  // only values that ask for nothing unusual are accepted
    ignored,  // it does not affect the result
  };
  enum class Scope { all, text, conversation };  // the rows that may have it
  using Read = void (*)(const RowJson& value, std::string_view name, Request& request);

  std::string_view name;
  Kind kind;
  Scope scope;
  std::string_view meaning;      // Markdown; for a limited one, what it would ask for
  std::string_view absent = {};  // what applies when it is missing
  Read read = nullptr;           // null: read together with the form of the row
  RowJson accepted = {};         // of a limited one: the list of accepted values
};

// What a tool, which is an object, says of its function: a member of it, or the tool itself.
const RowJson& function_of(const RowJson& tool);

const std::vector<RowSetting>& row_settings();

// Reads all settings of a row into `request`, which holds the defaults. A member that is null
// counts as missing. Throws BadRow for one that is unknown, wrong, out of range or not supported.
void read_row_settings(const RowJson& settings, Form form, bool is_conversation, Request& request);

// Throws BadRow when a text of a row is longer than text_bytes_max.
void check_text_length(std::size_t bytes, std::string_view name);

// The table as it stands in docs/batch.md.
std::string row_settings_markdown();

}  // namespace sluice::rows
