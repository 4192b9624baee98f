#include "core/convert/chat_templates.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/convert/json_file.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* default_template = "default";

// The key "chat_template": a text, or a list of named ones.
void add_templates(const Config& config, std::map<std::string, std::string>& templates) {
  constexpr const char* key = "chat_template";
  const json* value = config.find(key);
  if (value == nullptr) return;
  if (value->is_string()) {
    templates.emplace(default_template, value->get<std::string>());
    return;
  }
  if (!value->is_array()) throw config.error(key, "is neither a text nor a list");
  for (const json& one : *value) {
    const json name = one.is_object() ? one.value("name", json()) : json();
    const json text = one.is_object() ? one.value("template", json()) : json();
    if (!name.is_string() || !text.is_string()) {
      throw config.error(key, "has an element without a name or a template");
    }
    templates.emplace(name.get<std::string>(), text.get<std::string>());
  }
}

// The chat templates by their names: of those of one name the first that is found, in the order
// of transformers: files of their own, the tokenizer's settings, and those of a processor.
std::map<std::string, std::string> read_templates(const fs::path& folder, const Config& settings) {
  std::map<std::string, std::string> templates;
  const auto add_file = [&](const fs::path& path, const std::string& name) {
    templates.emplace(name, read_file(path, config_bytes_max));
  };
  if (fs::exists(folder / "chat_template.jinja")) {
    add_file(folder / "chat_template.jinja", default_template);
  }
  if (const fs::path more = folder / "additional_chat_templates"; fs::is_directory(more)) {
    for (const fs::directory_entry& file : fs::directory_iterator(more)) {
      if (file.path().extension() == ".jinja") add_file(file.path(), file.path().stem().string());
    }
  }
  add_templates(settings, templates);
  add_templates(read_config(folder / "chat_template.json"), templates);
  return templates;
}

}  // namespace

void write_chat_templates(const fs::path& folder, const Config& settings, gguf::Writer& writer) {
  constexpr std::string_view key = "tokenizer.chat_template";
  std::map<std::string, std::string> named;
  for (const auto& [theirs, text] : read_templates(folder, settings)) {
    std::string name = theirs;
    const auto is_odd = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
    std::ranges::replace_if(name, is_odd, '_');
    if (theirs == default_template) {
      writer.add(key, std::string_view(text));
    } else if (!name.empty()) {
      named.emplace(name, text);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, text] : named) {
    writer.add(fmt::format("{}.{}", key, name), std::string_view(text));
    names.push_back(name);
  }
  if (!names.empty()) {
    writer.add_array("tokenizer.chat_templates", std::span<const std::string>(names));
  }
}

}  // namespace sluice::convert
