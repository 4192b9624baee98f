// A chat template: a program in the language Jinja that turns a conversation into a prompt.
//
//   const jinja::Template program(metadata.require_string("tokenizer.chat_template"));
//   const jinja::Text text = program.render({{"messages", messages}, ...}, options);
//
// The language is Jinja 3.1 as the transformers library sets it up: trim_blocks and lstrip_blocks,
// loop controls, `generation` blocks, tojson without escapes for HTML, raise_exception and
// strftime_now. Values behave as in Python. Templates are programs by strangers: they cannot reach
// files, the network or the clock, and the memory and time that they use are limited.
//
// Immutable after construction; any number of threads may render one at the same time.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/jinja/lexer.h"
#include "core/chat/jinja/syntax.h"
#include "core/chat/jinja/text.h"

namespace sluice::chat::jinja {

using Json = nlohmann::ordered_json;

// Says why a template gave no text: "line 3, filter 'join': ...".
class RenderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Variable {
  std::string name;
  Json value;
  Origin origin = Origin::data;  // of its texts
};

struct RenderOptions {
  // The time that strftime_now prints.
  std::tm now = {};
  // Whether a text counts as markup although it comes from data. Called with the key of a member
  // and its text. Null: no text does.
  std::function<bool(std::string_view key, std::string_view text)> is_trusted = nullptr;
  std::size_t memory_bytes_max = std::size_t{24} << 20U;  // of all values that exist together
  std::size_t steps_max = 20'000'000;                     // a step takes about 50 ns
};

class Template {
 public:
  // Throws SyntaxError, which names the line.
  explicit Template(std::string_view source);

  // Throws RenderError, which names the line and the construct.
  Text render(const std::vector<Variable>& variables, const RenderOptions& options) const;

 private:
  Statements statements_;
};

}  // namespace sluice::chat::jinja
