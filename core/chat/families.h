// The families of chat formats, as data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// How one family, or a variant of it, writes a conversation. A turn is `before`, the content,
// `after`. An answer is the generation prompt, `answer_lead`, the content, `answer_after`; of these
// the model writes all but the first itself.
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
  std::vector<std::string> markers;  // its control tokens; each of them ends an answer
  SystemPlace system_place = SystemPlace::turn;
  bool trims_content = false;       // white space around a content is not part of it
  std::string default_system = {};  // the system text where the conversation has none
  bool always_has_system = false;   // a turn of an empty one where there is no text
  bool wants_bos = false;           // the template writes the BOS token itself
};

// A family under its name on the command line, such as "chatml".
struct NamedFamily {
  std::string name;
  Family family;
};

const std::vector<NamedFamily>& families();
std::vector<std::string> family_names();

// Throws UsageError when there is no family of this name.
Family family_named(std::string_view name);

// The family that a template belongs to, if it is a known one.
std::optional<Family> find_family(std::string_view template_text);

// The family that a template (tokenizer.chat_template) belongs to, with what the template says
// about it: a default system text, dates, whether an answer begins with a thought. Throws
// UsageError, which names the remedy, when there is no template or its family is not known.
Family recognise_family(std::string_view template_text);

}  // namespace sluice::chat
