#include "core/chat/message_forms.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/chat/bounded_json.h"
#include "core/chat/marker_scanner.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string text_in(const Json& object, const char* name) {
  const Json* value = json_member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

bool is_system(const Json& message) {
  const Json* content = json_member(message, "content");
  return is_role_of_system(text_in(message, "role")) && content != nullptr && content->is_string();
}

template <class Change>
Json each_content(Json messages, Change change) {
  for (Json& message : messages) {
    if (message.is_object() && message.contains("content")) change(message, message["content"]);
  }
  return messages;
}

Json part_of(const std::string& text) {
  return Json::array({{{"type", "text"}, {"text", text}}});
}

// The prompt for a conversation, or nothing when the template refuses it.
std::optional<std::string> prompt_of(const ChatTemplate& chat_template, const Json& messages) {
  try {
    return chat_template.render({{"messages", messages}}, std::tm{}).bytes();
  } catch (const jinja::RenderError&) {
    return std::nullopt;
  }
}

bool knows_developer(const ChatTemplate& chat_template) {
  constexpr const char* text = "Answer in verse only.";
  if (!chat_template.mentions("developer")) return false;
  const auto prompt = prompt_of(chat_template, {{{"role", "developer"}, {"content", text}},
                                                {{"role", "user"}, {"content", "Hello."}}});
  return prompt && prompt->find(text) != std::string::npos;
}

// A conversation with a call; the template prints Python where it prints an object as it is.
bool wants_argument_texts(const ChatTemplate& chat_template) {
  if (!chat_template.mentions("tool_calls")) return false;
  const auto prompt_with = [&](const Json& arguments) {
    const Json function = {{"name", "look_up"}, {"arguments", arguments}};
    const Json call = {{"id", "call00001"}, {"type", "function"}, {"function", function}};
    return prompt_of(chat_template,
                     {{{"role", "user"}, {"content", "Hello."}},
                      {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
                      {{"role", "tool"}, {"tool_call_id", "call00001"}, {"content", "It is."}},
                      {{"role", "user"}, {"content", "Thanks."}}});
  };
  const Json arguments = {{"place", "Ulm"}};
  const auto with_object = prompt_with(arguments);
  if (with_object) return with_object->find("{'place': 'Ulm'}") != std::string::npos;
  return prompt_with(arguments.dump()).has_value();
}

void adapt_call(Json& call, bool wants_text, std::size_t& values_left) {
  if (!call.is_object()) return;
  Json& function = call.contains("function") ? call["function"] : call;
  if (!function.is_object() || !function.contains("arguments")) return;
  Json& arguments = function["arguments"];
  if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    std::optional<Json> value = Json::object();
    if (!trimmed(text).empty()) value = parse_bounded(text, &values_left);
    if (value && value->is_object()) arguments = *std::move(value);
  }
  if (wants_text && arguments.is_object()) {
    arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

// The longest stretch of a text that templates write as it is.
std::string_view needle_of(std::string_view text) {
  constexpr std::size_t bytes_max = 256;
  const auto is_escaped = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 ||
           std::string_view("\"'\\<>&").find(c) != std::string_view::npos;
  };
  std::string_view best;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end =
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_escaped);
    const auto stop = static_cast<std::size_t>(end - text.begin());
    const std::string_view stretch = trimmed(text.substr(begin, stop - begin));
    if (stretch.size() > best.size()) best = stretch;
    begin = stop + 1;
  }
  return best.substr(0, bytes_max);
}

// An earlier answer without its thoughts, which templates leave out.
std::string_view without_thoughts(std::string_view text) {
  for (const std::string_view close : {"</think>", "[/THINK]", "<channel|>"}) {
    const std::size_t end = text.rfind(close);
    if (end != std::string_view::npos) text.remove_prefix(end + close.size());
  }
  return text;
}

// Looks for texts in a prompt. They are usually in order, so each search begins behind the last
// find; only so many begin anew that the time stays linear.
class OrderedSearch {
 public:
  explicit OrderedSearch(std::string_view text) : text_(text) {}

  bool finds(std::string_view needle) {
    std::size_t found = text_.find(needle, at_);
    if (found == std::string_view::npos) {
      if (anew_left_ == 0) return true;
      --anew_left_;
      found = text_.find(needle);
    }
    if (found == std::string_view::npos) return false;
    at_ = found + needle.size();
    return true;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  int anew_left_ = 16;
};

}  // namespace

bool is_role_of_system(std::string_view role) {
  return role == "system" || role == "developer";
}

TemplateTraits traits_of(const ChatTemplate& chat_template) {
  return {knows_developer(chat_template), wants_argument_texts(chat_template)};
}

std::string text_of_content(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const Json& part : content) text += text_in(part, "text");
  return text;
}

bool has_parts(const Json& messages) {
  return std::ranges::any_of(messages, [](const Json& message) {
    const Json* content = json_member(message, "content");
    return content != nullptr && content->is_array();
  });
}

Json with_texts(Json messages) {
  return each_content(std::move(messages), [](const Json&, Json& content) {
    if (content.is_array()) content = text_of_content(content);
  });
}

Json with_marked_parts(Json messages, std::string_view mark) {
  return each_content(std::move(messages), [&](const Json&, Json& content) {
    if (!content.is_array()) return;
    for (Json& part : content) {
      if (part.is_object()) part[std::string(mark)] = mark;
    }
  });
}

Json with_user_parts(Json messages) {
  return each_content(std::move(messages), [](const Json& message, Json& content) {
    const bool is_users = text_in(message, "role") == "user";
    if (is_users && content.is_string()) content = part_of(content.get<std::string>());
  });
}

Json adapted(Json messages, const TemplateTraits& traits) {
  std::size_t values_left = json_values_max;
  for (Json& message : messages) {
    if (!message.is_object()) continue;
    if (!traits.knows_developer && text_in(message, "role") == "developer") {
      message["role"] = "system";
    }
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      adapt_call(call, traits.wants_argument_texts, values_left);
    }
  }
  return messages;
}

std::optional<Json> with_joined_systems(const Json& messages) {
  const auto end = std::find_if_not(messages.begin(), messages.end(), is_system);
  if (end - messages.begin() < 2) return std::nullopt;
  Json first = messages[0];
  std::string text = text_in(first, "content");
  for (auto other = messages.begin() + 1; other != end; ++other) {
    text.append("\n\n").append(text_in(*other, "content"));
  }
  first["content"] = std::move(text);
  Json joined = Json::array({std::move(first)});
  joined.insert(joined.end(), end, messages.end());
  return joined;
}

std::optional<Json> with_merged_system(const Json& messages) {
  if (messages.size() < 2 || !is_system(messages[0]) || text_in(messages[1], "role") != "user") {
    return std::nullopt;
  }
  Json merged = messages;
  merged.erase(0);
  Json& content = merged[0]["content"];
  const std::string system = text_in(messages[0], "content") + "\n\n";
  if (content.is_array()) {
    content.insert(content.begin(), part_of(system)[0]);
  } else if (content.is_string()) {
    content = system + content.get<std::string>();
  } else {
    return std::nullopt;
  }
  return merged;
}

Json with_numbers(Json messages) {
  std::size_t count = 0;
  const auto number = [&](Json& text) {
    if (text.is_string() && !trimmed(text.get_ref<const std::string&>()).empty()) {
      text = fmt::format("{:012}", ++count);
    }
  };
  return each_content(std::move(messages), [&](const Json&, Json& content) {
    number(content);
    if (!content.is_array()) return;
    for (Json& part : content) {
      if (part.is_object() && part.contains("text")) number(part["text"]);
    }
  });
}

std::optional<std::size_t> find_missing(const Json& messages, std::string_view prompt) {
  OrderedSearch search(prompt);
  const auto is_found = [&](std::string_view text, bool is_answer) {
    const std::string_view needle = needle_of(is_answer ? without_thoughts(text) : text);
    return needle.empty() || search.finds(needle);
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json* content = json_member(messages[i], "content");
    if (content == nullptr) continue;
    const bool is_answer = text_in(messages[i], "role") == "assistant";
    const bool is_there =
        content->is_array()
            ? std::ranges::all_of(
                  *content,
                  [&](const Json& part) { return is_found(text_in(part, "text"), is_answer); })
            : is_found(text_of_content(*content), is_answer);
    if (!is_there) return i;
  }
  return std::nullopt;
}

}  // namespace sluice::chat
