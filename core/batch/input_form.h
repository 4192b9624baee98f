// Recognises inputs that are no files of rows: plain text, a table, a JSON array, something
// compressed.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/batch/input.h"

namespace sluice::batch {

// Nothing when one of the first rows is a JSON object, or when there are no rows. Otherwise one
// line that says what the input seems to be, and the command that makes rows of it. `path` is the
// input, as the user named it; `takes_messages` says whether the model answers messages, and is
// asked only then. Throws std::system_error.
std::optional<std::string> explain_no_rows(const Input& input, const std::string& path,
                                           const std::function<bool()>& takes_messages);

}  // namespace sluice::batch
