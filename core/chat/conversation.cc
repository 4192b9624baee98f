#include "core/chat/conversation.h"

#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text/limited_json.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits file_limits{
    .what = "file", .values_max = std::size_t{1} << 20, .members_max = 1'000, .depth_max = 64};
constexpr const char* thought_key = "reasoning_content";

constexpr std::array<std::pair<Role, const char*>, 3> roles = {
    {{Role::system, "system"}, {Role::user, "user"}, {Role::assistant, "assistant"}}};

const char* role_name(Role role) {
  return roles[static_cast<std::size_t>(role)].second;
}

[[noreturn]] void fail(const std::string& source, const std::string& what) {
  throw UsageError(fmt::format("{} is no conversation: {}", source, what));
}

std::string string_of(const Json& message, const char* key, const std::string& source,
                      std::size_t index) {
  if (message.is_object()) {
    const auto value = message.find(key);
    if (value != message.end() && value->is_string()) return value->get<std::string>();
  }
  fail(source, fmt::format("message {} has no text \"{}\"", index + 1, key));
}

Role role_of(const std::string& name, const std::string& source, std::size_t index) {
  for (const auto& [role, known] : roles) {
    if (name == known) return role;
  }
  fail(source, fmt::format("message {} has the role \"{}\"; expected system, user or assistant",
                           index + 1, name));
}

// The role that message `index` must have, with or without a system message in front.
Role expected_role(bool has_system, std::size_t index) {
  if (has_system && index == 0) return Role::system;
  return (index - (has_system ? 1 : 0)) % 2 == 0 ? Role::user : Role::assistant;
}

}  // namespace

Json to_messages(const Conversation& conversation) {
  Json messages = Json::array();
  for (const Message& message : conversation) {
    messages.push_back({{"role", role_name(message.role)}, {"content", message.content}});
    if (!message.thought.empty()) messages.back()[thought_key] = message.thought;
  }
  return messages;
}

std::string to_json(const Conversation& conversation) {
  return to_messages(conversation).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Conversation conversation_from_json(std::string_view text, const std::string& source) {
  Json json;
  try {
    json = parse_limited_json(text, file_limits).value;
  } catch (const JsonError& error) {
    fail(source, error.what());
  }
  if (json.is_object() && json.contains("messages")) json = Json(std::move(json["messages"]));
  if (!json.is_array()) fail(source, "expected a list of messages");
  Conversation conversation;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Role role = role_of(string_of(json[i], "role", source, i), source, i);
    const bool has_system = i == 0 ? role == Role::system : conversation[0].role == Role::system;
    const Role expected = expected_role(has_system, i);
    if (role != expected) {
      fail(source, fmt::format("message {} is from \"{}\"; expected \"{}\"", i + 1, role_name(role),
                               role_name(expected)));
    }
    conversation.push_back({role, string_of(json[i], "content", source, i)});
    if (json[i].contains(thought_key)) {
      conversation.back().thought = string_of(json[i], thought_key, source, i);
    }
  }
  return conversation;
}

}  // namespace sluice::chat
