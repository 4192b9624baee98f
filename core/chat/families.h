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
  bool trims_content = false;  // removes white space around a content
  bool wants_bos = false;      // the template writes the BOS token itself
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

// The family that a template (tokenizer.chat_template) belongs to, if it is a known one.
std::optional<Family> find_family(std::string_view template_text);

}  // namespace sluice::chat
