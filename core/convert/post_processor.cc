#include "core/convert/post_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::convert {
namespace {

using nlohmann::json;

json post_processor(const Config& tokenizer) {
  const json* node = tokenizer.find("post_processor");
  return node != nullptr ? *node : json();
}

std::string last_token(const json& node) {
  if (!node.is_object()) return {};
  if (const auto list = node.find("processors"); list != node.end() && list->is_array()) {
    for (const json& one : *list) {
      if (std::string token = last_token(one); !token.empty()) return token;
    }
    return {};
  }
  const auto single = node.find("single");
  if (single == node.end() || !single->is_array() || single->empty()) return {};
  static const json::json_pointer id("/SpecialToken/id");
  const json& last = single->back();
  return last.contains(id) && last.at(id).is_string() ? last.at(id).get<std::string>()
                                                      : std::string();
}

bool begins_with(const json& node, const std::string& token) {
  if (!node.is_object()) return false;
  if (const auto list = node.find("processors"); list != node.end() && list->is_array()) {
    return std::any_of(list->begin(), list->end(),
                       [&](const json& one) { return begins_with(one, token); });
  }
  if (node.value("type", json()) != "TemplateProcessing") return false;
  static const json::json_pointer first("/single/0/SpecialToken/id");
  return node.contains(first) && node.at(first) == token;
}

}  // namespace

bool begins_with_token(const Config& tokenizer, const std::string& token) {
  return begins_with(post_processor(tokenizer), token);
}

std::string token_behind_text(const Config& tokenizer) {
  return last_token(post_processor(tokenizer));
}

bool has_two_between_pair(const Config& tokenizer, const std::string& token) {
  const json node = post_processor(tokenizer);
  const json pair = node.is_object() ? node.value("pair", json()) : json();
  if (!pair.is_array()) return false;
  static const json::json_pointer id("/SpecialToken/id");
  int between = 0, texts = 0;
  for (const json& part : pair) {
    texts += part.is_object() && part.contains("Sequence") ? 1 : 0;
    const bool is_end = part.contains(id) && part.at(id) == token;
    between += texts == 1 && is_end ? 1 : 0;
  }
  return between == 2;
}

}  // namespace sluice::convert
