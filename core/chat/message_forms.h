// The forms in which the same conversation can be given to a chat template. Templates differ in
// what they take: parts of a content or a text, arguments of calls as an object or as a text, the
// role "developer", more than one system message or any at all. `messages` is always a list; a
// message that is not as expected stays as it is.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/chat/chat_template.h"

namespace sluice::chat {

// What a template takes, found out by rendering small conversations.
struct TemplateTraits {
  // It has an own place for messages of the role "developer". That is so if its text has the word,
  // and such a message appears in the prompt. A template that writes any role by its name does not
  // have the word: its model was not trained with the role.
  bool knows_developer = false;
  // It writes arguments as they come, so they have to be texts: an object would be printed as
  // Python prints it, or could not be added to a text.
  bool wants_argument_texts = false;
};
TemplateTraits traits_of(const ChatTemplate& chat_template);

// The text of a content: itself, or the texts of its parts one behind the other.
std::string text_of_content(const nlohmann::ordered_json& content);

// Whether a content has parts.
bool has_parts(const nlohmann::ordered_json& messages);

// Each content as a text.
nlohmann::ordered_json with_texts(nlohmann::ordered_json messages);
// Each content as parts, which have `mark` as one more member: where it appears in the prompt, the
// template has printed parts whole instead of looking into them.
nlohmann::ordered_json with_marked_parts(nlohmann::ordered_json messages, std::string_view mark);
// The texts of users as a part each.
nlohmann::ordered_json with_user_parts(nlohmann::ordered_json messages);

// The roles and the arguments of calls as a template takes them. Arguments that are a text with an
// object in JSON become that object, and none an empty one; other texts stay texts.
nlohmann::ordered_json adapted(nlohmann::ordered_json messages, const TemplateTraits& traits);

// The roles whose messages say how to behave: "system" and "developer".
bool is_role_of_system(std::string_view role);
// Joins the system messages at the beginning. Nothing if there are fewer than two.
std::optional<nlohmann::ordered_json> with_joined_systems(const nlohmann::ordered_json& messages);
// Puts the system text into the first user message: templates of models that were trained without
// system texts often refuse or ignore one.
std::optional<nlohmann::ordered_json> with_merged_system(const nlohmann::ordered_json& messages);

// A number in place of each text that is not empty: no template edits or trims it.
nlohmann::ordered_json with_numbers(nlohmann::ordered_json messages);

// The first message whose text does not appear in a prompt, not even in part: the longest stretch
// of it without marks that templates escape is looked for. Nothing: there is none.
std::optional<std::size_t> find_missing(const nlohmann::ordered_json& messages,
                                        std::string_view prompt);

}  // namespace sluice::chat
