// The families of chat formats, as data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// How a family, or a variant of it, writes a conversation. A turn is `before`, the content,
// `after`. An answer is the generation prompt, `answer_lead`, the content, `answer_after`; the
// model itself writes all of these but the first.
struct Family {
  struct Turn {
    std::string before;
    std::string after;
  };
  enum class SystemPlace {
    turn,             // a turn of its own
    first_user_turn,  // in front of the content of the first user message
  };

  std::string name;      // for people: "ChatML"
  std::string preamble;  // before the first turn
  Turn system;
  Turn user;
  std::string generation_prompt;
  std::string answer_lead;
  std::string answer_after;
  std::vector<std::string> markers;  // control tokens of the family; each ends an answer
  SystemPlace system_place = SystemPlace::turn;
  bool trims_content = false;       // removes white space around a content
  std::string default_system = {};  // used if the conversation has no system text
  bool always_has_system = false;   // writes an empty system turn if there is no text
  bool wants_bos = false;           // the template writes the BOS token itself
};

// A family under its name on the command line, such as "chatml".
struct NamedFamily {
  std::string name;
  Family family;
};

const std::vector<NamedFamily>& families();
std::vector<std::string> family_names();

bool is_family_name(std::string_view name);

// Throws UsageError when there is no family of this name.
Family family_named(std::string_view name);

// The family that a template belongs to, if it is a known one. A file may have a name in place of a
// template: llama.cpp's importer writes "rwkv-world".
std::optional<Family> find_family(std::string_view template_text);

// The family of a template (tokenizer.chat_template), adjusted to what the template says: a default
// system text, dates, whether an answer begins with a thought. Throws UsageError, with the remedy,
// when there is no template or its family is unknown.
Family recognise_family(std::string_view template_text);

}  // namespace sluice::chat
