// Values as text, the way Python prints them: str(), repr() and json.dumps().
#pragma once

#include <string>

#include "core/chat/jinja/text.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

// str(value). Numbers and names are markup, strings keep their origins.
Text to_text(const Value& value);
Text repr(const Value& value);

// A float as Python prints it: the fewest digits that give the same number, "1.0", "1e+16".
std::string print_float(double value);

// The separators and the indentation of json.dumps.
struct JsonStyle {
  Text item_separator = Text(", ", Origin::markup);
  Text key_separator = Text(": ", Origin::markup);
  std::optional<Text> indent;  // of one level; none: everything on one line
  bool escape_non_ascii = false;
  bool sort_keys = false;
};

// Throws Failure for what is not JSON.
Text to_json(const Value& value, const JsonStyle& style);

}  // namespace sluice::chat::jinja
